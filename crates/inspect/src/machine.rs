//! A machine as a value. Its fields are the output of `--json`.

use secrets::Secret;
use serde::Serialize;
use serde_json::{Map, Value, json};

/// A machine configured by a config. Lists are sorted by path or name; empty values are omitted from the JSON.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Machine {
    /// Single values by name, such as Ignition's spec and the operating system's image.
    pub facts: Map<String, Value>,
    /// Files in `storage.files`, by path.
    pub files: Vec<FileEntry>,
    /// Links and directories, with descriptions.
    pub nodes: Vec<NamedEntry>,
    /// Systemd units.
    pub units: Vec<UnitEntry>,
    /// Users in `passwd.users`.
    pub users: Vec<UserEntry>,
    /// Groups, with descriptions.
    pub groups: Vec<NamedEntry>,
    /// Disks, partitions, RAID, encrypted volumes and file systems.
    pub disks: Vec<DiskEntry>,
    /// Image registries whose CAs the machine trusts.
    pub registries: Vec<String>,
    /// Certificates in files.
    pub certificates: Vec<CertificateEntry>,
    /// Places and kinds of secrets, without values.
    #[serde(serialize_with = "as_labels")]
    pub secrets: Vec<Secret>,
    /// Parts that were not searched, one line each.
    #[serde(rename = "passedOver", skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<String>,
}

/// A named item with a description.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NamedEntry {
    /// Name or path.
    pub name: String,
    /// Description in words.
    pub what: String,
}

/// A file of the config.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FileEntry {
    /// Absolute path.
    pub path: String,
    /// Permissions in octal digits, `None` if Ignition chooses them.
    pub mode: Option<String>,
    /// User and group, `root` by default.
    pub owner: String,
    /// Size in bytes; `None` if the contents are not in the config.
    pub size: Option<u64>,
    /// Description of the contents.
    pub what: String,
    /// Compression in the config: `gzip`, or `None`.
    pub compression: Option<String>,
    /// True if the contents are appended to an existing file.
    pub is_appended: bool,
    /// SHA-256 of the contents, unless they are secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// Contents; `None` if they are not in the config, or too large.
    #[serde(skip)]
    pub(super) contents: Option<Vec<u8>>,
    #[serde(skip)]
    pub(super) is_secret: bool,
}

/// A systemd unit, or a drop-in of one that the machine has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UnitEntry {
    /// Name of the unit.
    pub name: String,
    /// `enabled`, `disabled`, `masked`, or `as it is`.
    pub state: String,
    /// True if the config contains its text.
    pub has_contents: bool,
    /// Names of its drop-ins.
    pub dropins: Vec<String>,
    /// Unit and drop-ins as files: path, text, and true for secret text.
    #[serde(skip)]
    pub(super) texts: Vec<(String, String, bool)>,
}

/// A user of the machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UserEntry {
    /// User name.
    pub name: String,
    /// Supplementary groups.
    pub groups: Vec<String>,
    /// Number of authorized SSH keys.
    pub ssh_keys: usize,
    /// True if a password is set.
    pub has_password: bool,
    /// Description of other properties.
    pub what: String,
    #[serde(skip)]
    pub(super) password_hash: Option<String>,
    /// SSH public keys.
    #[serde(skip)]
    pub(super) keys: Vec<String>,
}

/// A disk, or a device or file system on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DiskEntry {
    /// `disk`, `partition`, `RAID`, `encrypted` or `file system`.
    pub kind: &'static str,
    /// Name or device.
    pub name: String,
    /// Description of its configuration.
    pub what: String,
}

/// A certificate in a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CertificateEntry {
    /// Path of the file.
    pub path: String,
    /// Subject's common name.
    pub subject: String,
    /// Issuer's common name.
    pub issuer: String,
    /// First moment of its validity, in RFC 3339.
    pub not_before: String,
    /// Last moment of its validity, in RFC 3339.
    pub not_after: String,
    /// Last moment in seconds since 1970, for comparison.
    #[serde(skip)]
    pub(super) ends: i64,
}

fn as_labels<S: serde::Serializer>(secrets: &[Secret], serializer: S) -> Result<S::Ok, S::Error> {
    let labels = |it: &Secret| json!({"place": it.place.to_string(), "kind": it.kind.label()});
    serializer.collect_seq(secrets.iter().map(labels))
}

impl Machine {
    /// The contents of the file at `path`, secret or not; units and drop-ins count as files.
    ///
    /// # Errors
    /// The reason in words, if the contents are not known.
    pub fn file(&self, path: &str) -> Result<&[u8], String> {
        if let Some(file) = self.files.iter().find(|file| file.path == path) {
            return file.contents.as_deref().ok_or_else(|| file.what.clone());
        }
        let name = path.strip_prefix(UNITS).unwrap_or_default();
        let mut texts = self.units.iter().flat_map(|unit| &unit.texts);
        let text = texts.find(|(unit, _, _)| unit == name);
        text.map(|(_, text, _)| text.as_bytes()).ok_or_else(|| {
            "the config has no such file; run inspect without --file to list its files".to_owned()
        })
    }
}

/// Directory to which Ignition writes units.
const UNITS: &str = "/etc/systemd/system/";
