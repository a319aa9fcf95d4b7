//! A config in spec 2.2, as Ignition 0.x reads it.
//!
//! The fields are those of the page "Configuration Specification v2.2.0". Specs 2.0 and 2.1 have the same shape with
//! fewer fields. In spec 2 an empty text, `false` and 0 mean the same as absence, except where this model has an
//! `Option`.

use super::fields::{Field, Shape, Shaped, is_default, objects};

/// The shape of a config.
pub(super) const CONFIG: &Shape = Body::SHAPE;

objects! {
    (pub(super))

    /// Top level of a config.
    Body() {
        ignition: Ignition,
        networkd: Networkd,
        passwd: Passwd,
        storage: Storage,
        systemd: Systemd,
    }

    Ignition() {
        config: IgnitionConfig,
        security: Security [since: (2, 2)],
        timeouts: Timeouts [since: (2, 1)],
        version: String,
    }

    IgnitionConfig() {
        append: Vec<Reference>,
        replace: Option<Reference>,
    }

    /// A config or a CA.
    Reference() {
        source: String,
        verification: Verification,
    }

    Verification() {
        hash: Option<String>,
    }

    Security() {
        tls: Tls,
    }

    Tls() {
        certificate_authorities: Vec<Reference> = "certificateAuthorities",
    }

    /// Timeouts in seconds; 0 is no limit.
    Timeouts() {
        http_response_headers: Option<i64> = "httpResponseHeaders",
        http_total: Option<i64> = "httpTotal",
    }

    /// Spec 3 has no networkd units, so only their presence matters.
    Networkd() {
        units: Vec<NetworkdUnit>,
    }

    NetworkdUnit() {
        contents: String,
        dropins: Vec<Dropin> [since: (2, 2)],
        name: String,
    }

    Passwd() {
        groups: Vec<Group>,
        users: Vec<User>,
    }

    Group() {
        gid: Option<i64>,
        name: String,
        password_hash: String = "passwordHash",
        system: bool,
    }

    User() {
        /// Older form of the fields that follow; not lifted.
        create: Option<UserCreate>,
        gecos: String [since: (2, 1)],
        groups: Vec<String> [since: (2, 1)],
        home_dir: String = "homeDir" [since: (2, 1)],
        name: String,
        no_create_home: bool = "noCreateHome" [since: (2, 1)],
        no_log_init: bool = "noLogInit" [since: (2, 1)],
        no_user_group: bool = "noUserGroup" [since: (2, 1)],
        password_hash: Option<String> = "passwordHash",
        primary_group: String = "primaryGroup" [since: (2, 1)],
        ssh_authorized_keys: Vec<String> = "sshAuthorizedKeys",
        shell: String [since: (2, 1)],
        system: bool [since: (2, 1)],
        uid: Option<i64> [since: (2, 1)],
    }

    UserCreate() {
        gecos: String,
        groups: Vec<String>,
        home_dir: String = "homeDir",
        no_create_home: bool = "noCreateHome",
        no_log_init: bool = "noLogInit",
        no_user_group: bool = "noUserGroup",
        primary_group: String = "primaryGroup",
        shell: String,
        system: bool,
        uid: Option<i64>,
    }

    Storage() {
        directories: Vec<Directory> [since: (2, 1)],
        disks: Vec<Disk>,
        files: Vec<File>,
        filesystems: Vec<Filesystem>,
        links: Vec<Link> [since: (2, 1)],
        raid: Vec<Raid>,
    }

    /// Owner of a node, by number or by name.
    Owner() {
        id: Option<i64>,
        name: String [since: (2, 1)],
    }

    Directory() {
        filesystem: String,
        group: Option<Owner>,
        overwrite: Option<bool> [since: (2, 2)],
        path: String,
        user: Option<Owner>,
        mode: Option<i64>,
    }

    File() {
        filesystem: String,
        group: Option<Owner>,
        overwrite: Option<bool> [since: (2, 2)],
        path: String,
        user: Option<Owner>,
        append: bool [since: (2, 2)],
        contents: Contents,
        mode: Option<i64>,
    }

    Contents() {
        compression: String,
        source: String,
        verification: Verification,
    }

    Link() {
        filesystem: String,
        group: Option<Owner>,
        overwrite: Option<bool> [since: (2, 2)],
        path: String,
        user: Option<Owner>,
        hard: bool,
        target: String,
    }

    Disk() {
        device: String,
        partitions: Vec<Partition>,
        wipe_table: bool = "wipeTable",
    }

    /// A partition. Start and size are in sectors of 512 bytes, and in MiB in spec 3.
    Partition() {
        guid: String [since: (2, 1)],
        label: String,
        number: i64,
        size: i64,
        start: i64,
        type_guid: String = "typeGuid",
    }

    Filesystem() {
        mount: Option<Mount>,
        name: String,
        path: Option<String>,
    }

    Mount() {
        create: Option<MountCreate>,
        device: String,
        format: String,
        label: Option<String> [since: (2, 1)],
        options: Vec<String> [since: (2, 1)],
        uuid: Option<String> [since: (2, 1)],
        wipe_filesystem: bool = "wipeFilesystem" [since: (2, 1)],
    }

    MountCreate() {
        force: bool,
        options: Vec<String>,
    }

    Raid() {
        devices: Vec<String>,
        level: String,
        name: String,
        options: Vec<String> [since: (2, 2)],
        spares: i64,
    }

    Systemd() {
        units: Vec<Unit>,
    }

    Unit() {
        contents: String,
        dropins: Vec<Dropin>,
        /// Older form of `enabled: true`.
        enable: bool,
        enabled: Option<bool> [since: (2, 1)],
        mask: bool,
        name: String,
    }

    Dropin() {
        contents: String,
        name: String,
    }
}
