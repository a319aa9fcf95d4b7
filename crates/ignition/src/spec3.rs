//! The model: a config in the newest spec, 3.6.
//!
//! The field names and their order are those of the spec's page "Configuration Specification v3.6.0". Specs 3.0 to 3.5
//! have the same shape with fewer fields, so every spec 3 config is held in these types; [`super::fields`] defines the
//! spec that introduced each field.
//!
//! The types of the crate `ignition-config` are not used: Ignition reads a missing text as an empty one (a user without
//! a name is valid) where that crate refuses it, and the nested `Option`s of generated types would be unwrapped in
//! every rule and every conversion. In these types a missing object is a default one, and default values are not
//! written.

#![expect(missing_docs, reason = "the fields are the page's")]

use serde::{Deserialize, Serialize};

use super::version::SpecVersion;

/// Top level of a config.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Body {
    pub ignition: Ignition,
    #[serde(skip_serializing_if = "is_default")]
    pub kernel_arguments: KernelArguments,
    #[serde(skip_serializing_if = "is_default")]
    pub passwd: Passwd,
    #[serde(skip_serializing_if = "is_default")]
    pub storage: Storage,
    #[serde(skip_serializing_if = "is_default")]
    pub systemd: Systemd,
}

/// Returns `true` for a default value, which means the same as absence and is not written.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// The version as text, derived from the spec that the config is written in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Version(String);

impl From<SpecVersion> for Version {
    fn from(spec: SpecVersion) -> Self {
        Self(spec.as_str().to_owned())
    }
}

impl Default for Version {
    fn default() -> Self {
        SpecVersion::NEWEST.into()
    }
}

/// Declares the structs of the spec. The field in parentheses is required and always written, the others only if they
/// differ from the default.
macro_rules! objects {
    ($($(#[$meta:meta])* $name:ident($($required:ident: $required_type:ty)?) {
        $($field:ident: $type:ty $(= $key:literal)?,)*
    })*) => {$(
        $(#[$meta])*
        // The names are the spec's.
        #[allow(clippy::struct_field_names)]
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(default, rename_all = "camelCase")]
        pub struct $name {
            $(pub $required: $required_type,)?
            $(
                #[serde(skip_serializing_if = "is_default" $(, rename = $key)?)]
                pub $field: $type,
            )*
        }
    )*};
}

objects! {
    Ignition(version: Version) {
        config: IgnitionConfig,
        proxy: Proxy,
        security: Security,
        timeouts: Timeouts,
    }

    IgnitionConfig() {
        merge: Vec<Resource>,
        replace: Resource,
    }

    /// A resource that is fetched: a config, a CA, a file's contents, a key.
    Resource() {
        compression: Option<String>,
        http_headers: Vec<HttpHeader>,
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
        http_proxy: Option<String>,
        https_proxy: Option<String>,
        no_proxy: Vec<String>,
    }

    Security() {
        tls: Tls,
    }

    Tls() {
        certificate_authorities: Vec<Resource>,
    }

    /// Timeouts in seconds; 0 is no limit.
    Timeouts() {
        http_response_headers: Option<i64>,
        http_total: Option<i64>,
    }

    KernelArguments() {
        should_exist: Vec<String>,
        should_not_exist: Vec<String>,
    }

    Passwd() {
        groups: Vec<Group>,
        users: Vec<User>,
    }

    Group(name: String) {
        gid: Option<i64>,
        password_hash: Option<String>,
        should_exist: Option<bool>,
        system: Option<bool>,
    }

    User(name: String) {
        gecos: Option<String>,
        groups: Vec<String>,
        home_dir: Option<String>,
        no_create_home: Option<bool>,
        no_log_init: Option<bool>,
        no_user_group: Option<bool>,
        password_hash: Option<String>,
        primary_group: Option<String>,
        ssh_authorized_keys: Vec<String>,
        shell: Option<String>,
        should_exist: Option<bool>,
        system: Option<bool>,
        uid: Option<i64>,
    }

    Storage() {
        directories: Vec<Directory>,
        disks: Vec<Disk>,
        files: Vec<File>,
        filesystems: Vec<Filesystem>,
        links: Vec<Link>,
        luks: Vec<Luks>,
        raid: Vec<Raid>,
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
        append: Vec<Resource>,
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
        partitions: Vec<Partition>,
        wipe_table: Option<bool>,
    }

    /// A partition. Number 0 is the next free one; start or size 0 is the largest free block.
    Partition() {
        guid: Option<String>,
        label: Option<String>,
        number: i64,
        resize: Option<bool>,
        should_exist: Option<bool>,
        size_mib: Option<i64> = "sizeMiB",
        start_mib: Option<i64> = "startMiB",
        type_guid: Option<String>,
        wipe_partition_entry: Option<bool>,
    }

    Filesystem(device: String) {
        format: Option<String>,
        label: Option<String>,
        mount_options: Vec<String>,
        options: Vec<String>,
        path: Option<String>,
        uuid: Option<String>,
        wipe_filesystem: Option<bool>,
    }

    Raid(name: String) {
        devices: Vec<String>,
        level: Option<String>,
        options: Vec<String>,
        spares: Option<i64>,
    }

    Luks(name: String) {
        cex: Cex,
        clevis: Clevis,
        device: Option<String>,
        discard: Option<bool>,
        key_file: Resource,
        label: Option<String>,
        open_options: Vec<String>,
        options: Vec<String>,
        uuid: Option<String>,
        wipe_volume: Option<bool>,
    }

    /// A key in an IBM crypto express card.
    Cex() {
        enabled: Option<bool>,
    }

    Clevis() {
        custom: ClevisCustom,
        tang: Vec<Tang>,
        threshold: Option<i64>,
        tpm2: Option<bool>,
    }

    ClevisCustom() {
        config: Option<String>,
        needs_network: Option<bool>,
        pin: Option<String>,
    }

    Tang() {
        advertisement: Option<String>,
        thumbprint: Option<String>,
        url: String,
    }

    Systemd() {
        units: Vec<Unit>,
    }

    Unit(name: String) {
        contents: Option<String>,
        dropins: Vec<Dropin>,
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

    use super::super::fields::{self, Shape};
    use super::*;

    /// A value with every field of a shape.
    fn full(shape: &Shape) -> Value {
        match shape {
            Shape::Text => json!("x"),
            Shape::Integer => json!(1),
            Shape::Flag => json!(true),
            Shape::List(item) => json!([full(item)]),
            Shape::Object(fields) => {
                let members =
                    fields.iter().map(|field| (field.name.to_owned(), full(&field.shape)));
                Value::Object(members.collect::<Map<_, _>>())
            }
        }
    }

    #[test]
    fn the_model_has_just_the_fields_of_the_table() {
        let config = full(&fields::spec3::CONFIG);
        let body: Body = serde_json::from_value(config.clone()).unwrap();
        assert_eq!(serde_json::to_value(body).unwrap(), config);
    }
}
