//! A config in spec 2.2, as Ignition 0.x reads it.
//!
//! The fields are those of the page "Configuration Specification v2.2.0". Specs 2.0 and 2.1 have the same shape with
//! fewer fields. In spec 2 an empty text, `false` and 0 mean the same as absence, except where this model has an
//! `Option`.

use serde::{Deserialize, Serialize};

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Declares the structs of the spec. Default values are not written.
macro_rules! objects {
    ($($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $field:ident: $type:ty,)* })*) => {$(
        $(#[$meta])*
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(default, rename_all = "camelCase")]
        pub(super) struct $name {
            $($(#[$doc])* #[serde(skip_serializing_if = "is_default")] pub(super) $field: $type,)*
        }
    )*};
}

objects! {
    /// Top level of a config.
    Body {
        ignition: Ignition,
        networkd: Networkd,
        passwd: Passwd,
        storage: Storage,
        systemd: Systemd,
    }

    Ignition {
        config: IgnitionConfig,
        security: Security,
        timeouts: Timeouts,
        version: String,
    }

    IgnitionConfig {
        append: Vec<Reference>,
        replace: Option<Reference>,
    }

    /// A config or a CA.
    Reference {
        source: String,
        verification: Verification,
    }

    Verification {
        hash: Option<String>,
    }

    Security {
        tls: Tls,
    }

    Tls {
        certificate_authorities: Vec<Reference>,
    }

    /// Timeouts in seconds; 0 is no limit.
    Timeouts {
        http_response_headers: Option<i64>,
        http_total: Option<i64>,
    }

    /// Spec 3 has no networkd units, so only their presence matters.
    Networkd {
        units: Vec<Unit>,
    }

    Passwd {
        groups: Vec<Group>,
        users: Vec<User>,
    }

    Group {
        gid: Option<i64>,
        name: String,
        password_hash: String,
        system: bool,
    }

    User {
        /// Older form of the fields that follow; not lifted.
        create: Option<UserCreate>,
        gecos: String,
        groups: Vec<String>,
        home_dir: String,
        name: String,
        no_create_home: bool,
        no_log_init: bool,
        no_user_group: bool,
        password_hash: Option<String>,
        primary_group: String,
        ssh_authorized_keys: Vec<String>,
        shell: String,
        system: bool,
        uid: Option<i64>,
    }

    UserCreate {}

    Storage {
        directories: Vec<Directory>,
        disks: Vec<Disk>,
        files: Vec<File>,
        filesystems: Vec<Filesystem>,
        links: Vec<Link>,
        raid: Vec<Raid>,
    }

    /// Owner of a node, by number or by name.
    Owner {
        id: Option<i64>,
        name: String,
    }

    Directory {
        filesystem: String,
        group: Option<Owner>,
        overwrite: Option<bool>,
        path: String,
        user: Option<Owner>,
        mode: Option<i64>,
    }

    File {
        filesystem: String,
        group: Option<Owner>,
        overwrite: Option<bool>,
        path: String,
        user: Option<Owner>,
        append: bool,
        contents: Contents,
        mode: Option<i64>,
    }

    Contents {
        compression: String,
        source: String,
        verification: Verification,
    }

    Link {
        filesystem: String,
        group: Option<Owner>,
        overwrite: Option<bool>,
        path: String,
        user: Option<Owner>,
        hard: bool,
        target: String,
    }

    Disk {
        device: String,
        partitions: Vec<Partition>,
        wipe_table: bool,
    }

    /// A partition without start and size, which are in sectors of 512 bytes here and in MiB in spec 3.
    Partition {
        guid: String,
        label: String,
        number: i64,
        type_guid: String,
    }

    Filesystem {
        mount: Option<Mount>,
        name: String,
        path: Option<String>,
    }

    Mount {
        create: Option<MountCreate>,
        device: String,
        format: String,
        label: Option<String>,
        options: Vec<String>,
        uuid: Option<String>,
        wipe_filesystem: bool,
    }

    MountCreate {}

    Raid {
        devices: Vec<String>,
        level: String,
        name: String,
        options: Vec<String>,
        spares: i64,
    }

    Systemd {
        units: Vec<Unit>,
    }

    Unit {
        contents: String,
        dropins: Vec<Dropin>,
        /// Older form of `enabled: true`.
        enable: bool,
        enabled: Option<bool>,
        mask: bool,
        name: String,
    }

    Dropin {
        contents: String,
        name: String,
    }
}
