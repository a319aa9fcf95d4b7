//! The model: a config in the newest spec, 3.6.
//!
//! The field names and their order are those of the spec's page "Configuration Specification v3.6.0". Specs 3.0 to 3.5
//! have the same shape with fewer fields, so every spec 3 config is held in these types; a field has the spec that
//! introduced it.
//!
//! The types of the crate `ignition-config` are not used: Ignition reads a missing text as an empty one (a user without
//! a name is valid) where that crate refuses it, and the nested `Option`s of generated types would be unwrapped in
//! every rule and every conversion. In these types a missing object is a default one, and default values are not
//! written.

#![expect(missing_docs, reason = "the fields are the page's")]

use serde::{Deserialize, Serialize};

use super::fields::Merge::{Append, ByKey};
use super::fields::{Field, Idle, Shape, Shaped, is_default, objects};
use super::version::SpecVersion;

/// The shape of a config.
pub(super) const CONFIG: &Shape = Body::SHAPE;

/// A config or a CA; before 3.1 neither could be compressed.
const REFERENCE: &Shape = &Shape::Object(&[
    Field { since: (3, 1), ..Field::new("compression", String::SHAPE) },
    Field {
        since: (3, 1),
        merge: ByKey(&["name"]),
        removes_without: Some("value"),
        ..Field::new("httpHeaders", Vec::<HttpHeader>::SHAPE)
    },
    Field::new("source", String::SHAPE),
    Field::new("verification", Verification::SHAPE),
]);
const REFERENCES: &Shape = &Shape::List(REFERENCE);

/// The version as text, derived from the spec that the config is written in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Version(String);

impl From<SpecVersion> for Version {
    fn from(spec: SpecVersion) -> Self {
        Self(spec.as_str().to_owned())
    }
}

impl Shaped for Version {
    const SHAPE: &'static Shape = String::SHAPE;
}

impl Default for Version {
    fn default() -> Self {
        SpecVersion::NEWEST.into()
    }
}

objects! {
    (pub)

    /// Top level of a config.
    Body(ignition: Ignition) {
        kernel_arguments: KernelArguments = "kernelArguments" [since: (3, 3)],
        passwd: Passwd,
        storage: Storage,
        systemd: Systemd,
    }

    Ignition(version: Version) {
        config: IgnitionConfig,
        proxy: Proxy [since: (3, 1)],
        security: Security,
        timeouts: Timeouts,
    }

    IgnitionConfig() {
        merge: Vec<Resource> as REFERENCES [merge: ByKey(&["source"])],
        replace: Resource as REFERENCE,
    }

    /// A resource that is fetched: a config, a CA, a file's contents, a key.
    Resource() {
        compression: Option<String>,
        http_headers: Vec<HttpHeader> = "httpHeaders" [merge: ByKey(&["name"]), removes_without: Some("value"), since: (3, 1)],
        source: Option<String>,
        verification: Verification,
    }

    HttpHeader(name: String) {
        value: Option<String>,
    }

    Verification() {
        hash: Option<String>,
    }

    Proxy() {
        http_proxy: Option<String> = "httpProxy",
        https_proxy: Option<String> = "httpsProxy",
        no_proxy: Vec<String> = "noProxy",
    }

    Security() {
        tls: Tls,
    }

    Tls() {
        certificate_authorities: Vec<Resource> as REFERENCES = "certificateAuthorities" [merge: ByKey(&["source"])],
    }

    /// Timeouts in seconds; 0 is no limit.
    Timeouts() {
        http_response_headers: Option<i64> = "httpResponseHeaders",
        http_total: Option<i64> = "httpTotal",
    }

    KernelArguments() {
        should_exist: Vec<String> = "shouldExist" [shares_keys: true],
        should_not_exist: Vec<String> = "shouldNotExist" [shares_keys: true],
    }

    Passwd() {
        groups: Vec<Group> [merge: ByKey(&["name"])],
        users: Vec<User> [merge: ByKey(&["name"])],
    }

    Group(name: String) {
        gid: Option<i64>,
        password_hash: Option<String> = "passwordHash",
        should_exist: Option<bool> = "shouldExist" [since: (3, 2), idle: Idle::True],
        system: Option<bool>,
    }

    User(name: String) {
        gecos: Option<String>,
        groups: Vec<String>,
        home_dir: Option<String> = "homeDir",
        no_create_home: Option<bool> = "noCreateHome",
        no_log_init: Option<bool> = "noLogInit",
        no_user_group: Option<bool> = "noUserGroup",
        password_hash: Option<String> = "passwordHash",
        primary_group: Option<String> = "primaryGroup",
        ssh_authorized_keys: Vec<String> = "sshAuthorizedKeys",
        shell: Option<String>,
        should_exist: Option<bool> = "shouldExist" [since: (3, 2), idle: Idle::True],
        system: Option<bool>,
        uid: Option<i64>,
    }

    Storage() {
        directories: Vec<Directory> [merge: ByKey(&["path"]), shares_keys: true],
        disks: Vec<Disk> [merge: ByKey(&["device"])],
        files: Vec<File> [merge: ByKey(&["path"]), shares_keys: true],
        filesystems: Vec<Filesystem> [merge: ByKey(&["device"])],
        links: Vec<Link> [merge: ByKey(&["path"]), shares_keys: true],
        luks: Vec<Luks> [merge: ByKey(&["name"]), since: (3, 2)],
        raid: Vec<Raid> [merge: ByKey(&["name"])],
    }

    /// Owner of a node, by number or by name.
    Owner() {
        id: Option<i64>,
        name: Option<String>,
    }

    Directory(path: String) {
        group: Owner,
        overwrite: Option<bool>,
        user: Owner,
        mode: Option<i64>,
    }

    File(path: String) {
        group: Owner,
        overwrite: Option<bool>,
        user: Owner,
        append: Vec<Resource> [merge: Append],
        contents: Resource,
        mode: Option<i64>,
    }

    Link(path: String) {
        group: Owner,
        overwrite: Option<bool>,
        user: Owner,
        hard: Option<bool>,
        target: Option<String>,
    }

    Disk(device: String) {
        partitions: Vec<Partition> [merge: ByKey(&["number", "label"])],
        wipe_table: Option<bool> = "wipeTable",
    }

    /// A partition. Number 0 is the next free one; start or size 0 is the largest free block. Spec 2.2 measures both in
    /// sectors, whose size depends on the disk.
    Partition() {
        guid: Option<String>,
        label: Option<String>,
        number: i64,
        resize: Option<bool> [since: (3, 2), idle: Idle::False],
        should_exist: Option<bool> = "shouldExist",
        size_mib: Option<i64> = "sizeMiB" [since: (3, 0)],
        start_mib: Option<i64> = "startMiB" [since: (3, 0)],
        type_guid: Option<String> = "typeGuid",
        wipe_partition_entry: Option<bool> = "wipePartitionEntry",
    }

    Filesystem(device: String) {
        format: Option<String>,
        label: Option<String>,
        mount_options: Vec<String> = "mountOptions" [merge: Append, since: (3, 1)],
        options: Vec<String> [merge: Append],
        path: Option<String>,
        uuid: Option<String>,
        wipe_filesystem: Option<bool> = "wipeFilesystem",
    }

    Raid(name: String) {
        devices: Vec<String>,
        level: Option<String>,
        options: Vec<String> [merge: Append],
        spares: Option<i64>,
    }

    Luks(name: String) {
        cex: Cex [since: (3, 5), idle: Idle::Always],
        clevis: Clevis,
        device: Option<String>,
        discard: Option<bool> [since: (3, 4), idle: Idle::False],
        key_file: Resource = "keyFile",
        label: Option<String>,
        open_options: Vec<String> = "openOptions" [since: (3, 4)],
        options: Vec<String> [merge: Append],
        uuid: Option<String>,
        wipe_volume: Option<bool> = "wipeVolume",
    }

    /// A key in an IBM crypto express card.
    Cex() {
        enabled: Option<bool>,
    }

    Clevis() {
        custom: ClevisCustom,
        tang: Vec<Tang> [merge: ByKey(&["url"])],
        threshold: Option<i64>,
        tpm2: Option<bool>,
    }

    ClevisCustom() {
        config: Option<String>,
        needs_network: Option<bool> = "needsNetwork",
        pin: Option<String>,
    }

    Tang() {
        advertisement: Option<String> [since: (3, 4)],
        thumbprint: Option<String>,
        url: String,
    }

    Systemd() {
        units: Vec<Unit> [merge: ByKey(&["name"])],
    }

    Unit(name: String) {
        contents: Option<String>,
        dropins: Vec<Dropin> [merge: ByKey(&["name"])],
        enabled: Option<bool>,
        mask: Option<bool>,
    }

    Dropin(name: String) {
        contents: Option<String>,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::*;

    /// A value with every field of a shape.
    fn full(shape: &Shape) -> Value {
        match shape {
            Shape::Text => json!("x"),
            Shape::Integer => json!(1),
            Shape::Flag => json!(true),
            Shape::List(item) => json!([full(item)]),
            Shape::Object(fields) => {
                let members = fields.iter().map(|field| (field.name.to_owned(), full(field.shape)));
                Value::Object(members.collect::<Map<_, _>>())
            }
        }
    }

    #[test]
    fn the_types_and_their_fields_have_the_same_names() {
        let config = full(CONFIG);
        let body: Body = serde_json::from_value(config.clone()).unwrap();
        assert_eq!(serde_json::to_value(body).unwrap(), config);
    }
}
