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
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

mod assignments;
mod files;
mod found;
mod hashes;
mod kind;
mod kubernetes;
mod lines;
mod marks;
mod names;
mod private_keys;
mod redact;
mod search;
mod skipped;
mod tokens;

use std::collections::BTreeSet;
use std::fmt;

use ignition::Config;
use ignition::contents::{Contents, UnpackBudget, Unreadable};
use ignition::spec3::{File, Resource, Unit};

pub use kind::SecretKind;
pub use redact::redacted;
pub use skipped::Skipped;

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
pub fn secrets(config: &Config, budget: &mut UnpackBudget) -> Vec<Secret> {
    let mut found = SecretCollector::default();
    let body = config.body();
    for file in &body.storage.files {
        found.file(file, budget);
    }
    for unit in &body.systemd.units {
        found.unit(unit);
    }
    let users = body.passwd.users.iter();
    let users = users.map(|it| (SecretPlace::User(it.name.clone()), &it.password_hash));
    let groups = body.passwd.groups.iter();
    let groups = groups.map(|it| (SecretPlace::Group(it.name.clone()), &it.password_hash));
    for (place, hash) in users.chain(groups) {
        // Placeholders such as `*` and `!`, which no password matches, are no secret.
        if hash.as_ref().is_some_and(|hash| hash.contains('$') || hash.len() >= 13) {
            found.add(&place, SecretKind::PasswordHash);
        }
    }
    for luks in &body.storage.luks {
        let place = SecretPlace::Luks(luks.name.clone());
        if !matches!(Contents::read(&luks.key_file, budget), Contents::Nothing) {
            found.add(&place, SecretKind::DiskKey);
        }
        found.resource(&place, &luks.key_file);
        found.text(&place, luks.clevis.custom.config.as_deref());
    }
    found.0.extend(in_arguments(&body.kernel_arguments.should_exist));
    let references = &body.ignition.config;
    for resource in references.merge.iter().chain([&references.replace]) {
        found.resource(&SecretPlace::Field("ignition.config"), resource);
    }
    for resource in &body.ignition.security.tls.certificate_authorities {
        found.resource(&SecretPlace::Field("ignition.security"), resource);
    }
    let proxy = &body.ignition.proxy;
    for url in [&proxy.http_proxy, &proxy.https_proxy] {
        found.text(&SecretPlace::Field("ignition.proxy"), url.as_deref());
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
    fn add(&mut self, place: &SecretPlace, kind: SecretKind) {
        self.0.insert(Secret { place: place.clone(), kind });
    }

    fn text(&mut self, place: &SecretPlace, text: Option<&str>) {
        if let Some(text) = text {
            self.search(place, None, text.as_bytes());
        }
    }

    fn search(&mut self, place: &SecretPlace, path: Option<&str>, bytes: &[u8]) {
        for kind in search::find(path, bytes) {
            self.add(place, kind);
        }
    }

    fn file(&mut self, file: &File, budget: &mut UnpackBudget) {
        let place = SecretPlace::File(file.path.clone());
        for resource in std::iter::once(&file.contents).chain(&file.append) {
            self.resource(&place, resource);
            match Contents::read(resource, budget) {
                Contents::Bytes(bytes) => self.search(&place, Some(&file.path), &bytes),
                Contents::Unreadable(Unreadable::TooLarge) => {
                    self.add(&place, SecretKind::Unsearched(Skipped::Packed));
                }
                _ => {}
            }
        }
    }

    /// Searches headers and URL of a resource, not its contents.
    fn resource(&mut self, place: &SecretPlace, resource: &Resource) {
        for header in &resource.http_headers {
            let is_set = header.value.as_deref().is_some_and(|value| !value.is_empty());
            if is_set && names::is_secret_header(&header.name) {
                self.add(place, SecretKind::Header);
            }
        }
        self.text(place, resource.source.as_deref().filter(|it| !it.starts_with("data:")));
    }

    fn unit(&mut self, unit: &Unit) {
        self.text(&SecretPlace::Unit(unit.name.clone()), unit.contents.as_deref());
        for dropin in &unit.dropins {
            let (unit, name) = (unit.name.clone(), dropin.name.clone());
            self.text(&SecretPlace::Dropin { unit, name }, dropin.contents.as_deref());
        }
    }
}

#[cfg(test)]
mod tests;
