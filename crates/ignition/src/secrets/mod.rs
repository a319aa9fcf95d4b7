//! Finds secret parts of a config. Results name their places and kinds, never their values.
//!
//! ```text
//!  Config ─> every file, unit, user, … ─> search ┬─ marks     `ghp_`, `-----BEGIN `, `$6$`, `://`
//!                                                ├─ lines     names with values, directives, commands
//!                                                ├─ files     what the file's name says
//!                                                └─ JSON      member by member ─> Secret { place, kind }
//! ```
//!
//! The rules find texts that an administrator would not paste into a mail, and ignore references to them: a variable
//! that is expanded later, the name of a file, a setting named like a password. They read text, so they miss data that
//! is encrypted or compressed within a file, and random words without a name of a secret. Tokens and keys are those
//! that gitleaks and detect-secrets search for, as far as machines have them.

mod assignments;
mod files;
mod found;
mod hashes;
mod kind;
mod kubernetes;
mod lines;
mod marks;
mod names;
mod passed_over;
mod private_keys;
mod redact;
mod search;
mod tokens;

use std::collections::BTreeSet;
use std::fmt;

use super::config::Config;
use super::contents::{Contents, UnpackBudget, Unreadable};
use super::spec3::{File, Resource, Unit};

pub use kind::SecretKind;
pub use passed_over::PassedOver;
pub use redact::redacted;

use redact::in_argument;

/// Place of a secret. Names come from the config: escape them before printing.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SecretPlace {
    /// The file at this path.
    File(String),
    /// The text of this unit.
    Unit(String),
    /// A drop-in of a unit.
    Dropin {
        /// Name of the unit.
        unit: String,
        /// Name of the drop-in.
        name: String,
    },
    /// Name of a user.
    User(String),
    /// Name of a group.
    Group(String),
    /// Name of an encrypted volume.
    Luks(String),
    /// A field of the config with its name in the spec, such as a source's headers.
    Field(&'static str),
}

impl fmt::Display for SecretPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => f.write_str(path),
            Self::Unit(name) => write!(f, "unit {name}"),
            Self::Dropin { unit, name } => write!(f, "drop-in {unit}.d/{name}"),
            Self::User(name) => write!(f, "user {name}"),
            Self::Group(name) => write!(f, "group {name}"),
            Self::Luks(name) => write!(f, "disk {name}"),
            Self::Field(path) => f.write_str(path),
        }
    }
}

/// A secret in a config.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Secret {
    /// Place in the config.
    pub place: SecretPlace,
    /// Kind of the secret.
    pub kind: SecretKind,
}

/// Finds all secrets of a config, and parts too large to be searched: each place and kind once, in the order of
/// [`SecretPlace`]. Unpacked bytes are taken from `budget`.
#[must_use]
pub fn secrets(config: &Config, budget: &mut UnpackBudget) -> Vec<Secret> {
    let mut found = SecretCollector::default();
    let body = &config.body;
    for file in &body.storage.files {
        found.file(file, budget);
    }
    for unit in &body.systemd.units {
        found.unit(unit);
    }
    for user in &body.passwd.users {
        let hash = user.password_hash.as_deref();
        found.hash(|| SecretPlace::User(user.name.clone()), hash);
    }
    for group in &body.passwd.groups {
        let hash = group.password_hash.as_deref();
        found.hash(|| SecretPlace::Group(group.name.clone()), hash);
    }
    for luks in &body.storage.luks {
        let place = || SecretPlace::Luks(luks.name.clone());
        if !matches!(Contents::read(&luks.key_file, budget), Contents::Nothing) {
            found.add(place(), SecretKind::DiskKey);
        }
        found.resource(place, &luks.key_file);
        let config = luks.clevis.custom.config.as_deref().unwrap_or_default();
        found.text(place, config);
    }
    found.0.extend(in_arguments(&body.kernel_arguments.should_exist));
    let references = &body.ignition.config;
    for resource in references.merge.iter().chain([&references.replace]) {
        found.resource(|| SecretPlace::Field("ignition.config"), resource);
    }
    for resource in &body.ignition.security.tls.certificate_authorities {
        found.resource(|| SecretPlace::Field("ignition.security"), resource);
    }
    let proxy = &body.ignition.proxy;
    for url in [&proxy.http_proxy, &proxy.https_proxy].into_iter().flatten() {
        found.text(|| SecretPlace::Field("ignition.proxy"), url);
    }
    found.0.into_iter().collect()
}

/// Finds secrets in kernel arguments, of an Ignition config or of a MachineConfig.
pub fn in_arguments(arguments: &[String]) -> impl Iterator<Item = Secret> {
    let kinds = arguments.iter().flat_map(|argument| in_argument(argument));
    kinds.map(|kind| Secret { place: SecretPlace::Field("kernelArguments"), kind })
}

#[derive(Default)]
struct SecretCollector(BTreeSet<Secret>);

impl SecretCollector {
    fn add(&mut self, place: SecretPlace, kind: SecretKind) {
        self.0.insert(Secret { place, kind });
    }

    fn text(&mut self, place: impl Fn() -> SecretPlace, text: &str) {
        self.search(place, None, text.as_bytes());
    }

    fn search(&mut self, place: impl Fn() -> SecretPlace, path: Option<&str>, bytes: &[u8]) {
        for kind in search::find(path, bytes) {
            self.add(place(), kind);
        }
    }

    fn file(&mut self, file: &File, budget: &mut UnpackBudget) {
        let place = || SecretPlace::File(file.path.clone());
        for resource in std::iter::once(&file.contents).chain(&file.append) {
            self.resource(place, resource);
            match Contents::read(resource, budget) {
                Contents::Bytes(bytes) => self.search(place, Some(&file.path), &bytes),
                Contents::Unreadable(Unreadable::TooLarge) => {
                    self.add(place(), SecretKind::Unsearched(PassedOver::Packed));
                }
                _ => {}
            }
        }
    }

    /// Searches headers and URL of a resource, not its contents.
    fn resource(&mut self, place: impl Fn() -> SecretPlace, resource: &Resource) {
        for header in &resource.http_headers {
            let is_set = header.value.as_deref().is_some_and(|value| !value.is_empty());
            if is_set && names::is_secret_header(&header.name) {
                self.add(place(), SecretKind::Header);
            }
        }
        let source = resource.source.as_deref().unwrap_or_default();
        if !source.starts_with("data:") {
            self.text(place, source);
        }
    }

    fn unit(&mut self, unit: &Unit) {
        let contents = unit.contents.as_deref().unwrap_or_default();
        self.text(|| SecretPlace::Unit(unit.name.clone()), contents);
        for dropin in &unit.dropins {
            let place =
                || SecretPlace::Dropin { unit: unit.name.clone(), name: dropin.name.clone() };
            self.text(place, dropin.contents.as_deref().unwrap_or_default());
        }
    }

    /// Adds a password hash. Placeholders such as `*` and `!`, which no password matches, are no secret.
    fn hash(&mut self, place: impl Fn() -> SecretPlace, hash: Option<&str>) {
        if hash.is_some_and(|hash| hash.contains('$') || hash.len() >= 13) {
            self.add(place(), SecretKind::PasswordHash);
        }
    }
}

#[cfg(test)]
mod tests;
