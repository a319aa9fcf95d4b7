//! What a machine becomes, as a value. Its fields are what `--json` prints.

use ignition::secrets::{SecretKind, SecretPlace};
use serde::Serialize;
use serde_json::{Map, Value};

/// A machine as a config makes it. Lists are sorted by path or name; what is empty is left out of
/// the JSON.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Machine {
    /// What is said once: Ignition's spec, the operating system's image and the like, by their names.
    pub facts: Map<String, Value>,
    /// `storage.files`, by their paths.
    pub files: Vec<FileEntry>,
    /// Links and directories, with what they are.
    pub nodes: Vec<Named>,
    /// Units of systemd.
    pub units: Vec<UnitEntry>,
    /// `passwd.users`.
    pub users: Vec<UserEntry>,
    /// Groups, with what they are.
    pub groups: Vec<Named>,
    /// Disks, partitions, RAID, encrypted disks and file systems.
    pub disks: Vec<DiskEntry>,
    /// Image registries whose authorities the machine trusts.
    pub registries: Vec<String>,
    /// Certificates in files.
    pub certificates: Vec<CertificateEntry>,
    /// Where something secret is, never what it is.
    pub secrets: Vec<SecretEntry>,
    /// What was passed over, a line each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub passed_over: Vec<String>,
}

/// Something with a name, and what it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Named {
    /// Its name or path.
    pub name: String,
    /// What it is, in words.
    pub what: String,
}

/// A file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FileEntry {
    /// Where it is.
    pub path: String,
    /// Its permissions in octal digits, `None` where the config leaves them to Ignition.
    pub mode: Option<String>,
    /// User and group, `root` where the config names none.
    pub owner: String,
    /// In bytes; `None` where they are not in the config.
    pub size: Option<u64>,
    /// What is in it, in a few words.
    pub what: String,
    /// How it was sent: `gzip`, or `None` for as it is.
    pub compression: Option<String>,
    /// True if what is here is appended to what the machine has.
    pub is_appended: bool,
    /// SHA-256 of the contents, for those that are not secret.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// What is in it; `None` where that is not in the config, or not looked at.
    #[serde(skip)]
    pub(super) contents: Option<Vec<u8>>,
    #[serde(skip)]
    pub(super) is_secret: bool,
}

/// A unit of systemd, or a drop-in of one that the machine has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UnitEntry {
    /// Its name.
    pub name: String,
    /// `enabled`, `disabled`, `masked`, or `as it is`.
    pub state: String,
    /// True if the config brings its text.
    pub has_contents: bool,
    /// The names of its drop-ins.
    pub dropins: Vec<String>,
    /// Unit and drop-ins as files: name, text, whether that is secret.
    #[serde(skip)]
    pub(super) texts: Vec<(String, String, bool)>,
}

/// A user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct UserEntry {
    /// Their name.
    pub name: String,
    /// Groups besides their own.
    pub groups: Vec<String>,
    /// How many SSH keys may log in.
    pub ssh_keys: usize,
    /// True if there is a password.
    pub has_password: bool,
    /// What else the config says.
    pub what: String,
    #[serde(skip)]
    pub(super) password_hash: Option<String>,
    /// The keys, which are public.
    #[serde(skip)]
    pub(super) keys: Vec<String>,
}

/// Something that is made of disks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DiskEntry {
    /// `disk`, `partition`, `RAID`, `encrypted` or `file system`.
    pub kind: &'static str,
    /// Its name or device.
    pub name: String,
    /// What the config says of it.
    pub what: String,
}

/// A certificate in a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CertificateEntry {
    /// The file.
    pub path: String,
    /// Its subject's common name.
    pub subject: String,
    /// Its issuer's common name.
    pub issuer: String,
    /// Its first moment, in RFC 3339.
    pub not_before: String,
    /// Its last moment, in RFC 3339.
    pub not_after: String,
    /// In seconds since 1970, to be compared.
    #[serde(skip)]
    pub(super) ends: i64,
}

/// Something that is secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SecretEntry {
    /// Where it is.
    #[serde(serialize_with = "as_text")]
    pub place: SecretPlace,
    /// What it is.
    #[serde(serialize_with = "as_label")]
    pub kind: SecretKind,
}

fn as_text<S: serde::Serializer>(place: &SecretPlace, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(place)
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes it so")]
fn as_label<S: serde::Serializer>(kind: &SecretKind, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(kind.label())
}

impl Machine {
    /// What is in the file at `path`, secret or not; units and drop-ins are the files that they
    /// become.
    ///
    /// # Errors
    /// In words, why that cannot be told.
    pub fn file(&self, path: &str) -> Result<&[u8], String> {
        if let Some(file) = self.files.iter().find(|file| file.path == path) {
            return file.contents.as_deref().ok_or_else(|| file.what.clone());
        }
        let name = path.strip_prefix(UNITS).unwrap_or_default();
        let mut texts = self.units.iter().flat_map(|unit| &unit.texts);
        let text = texts.find(|(unit, _, _)| unit == name);
        text.map(|(_, text, _)| text.as_bytes()).ok_or_else(|| "there is no such file".to_owned())
    }
}

/// Where Ignition writes units to.
const UNITS: &str = "/etc/systemd/system/";
