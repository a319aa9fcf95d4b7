//! The rules of the Ignition specs: what a config must keep to be valid.
//!
//! [`check`] states the rules of the newest spec and, with them, the narrower ones of each older spec; every rule is
//! written once, with the specs that it holds in. A config that was declared in an older spec must keep the newest
//! rules too, as it is held in the newest spec: the rules that specs 3.0 to 3.2 did not have (a link needs a target,
//! a merged config a source) only ever caught configs that could not have worked.
//!
//! Ignition's warnings (unused keys, units without an `[Install]` section, partitions that will be overwritten) are
//! not stated: they do not keep a machine from booting.
//!
//! Sources: the pages "Configuration Specification v3.0.0" to "v3.6.0", and the reports of Ignition's validator.

mod disks;
mod luks;
mod nodes;
pub(super) mod resource;
pub(super) mod spec2;
mod units;

use std::collections::HashSet;
use std::hash::Hash;

use super::error::{At, Error};
use super::fields::Spec;
use super::spec3::{Body, Passwd};

type Checked = Result<(), Error>;

/// Whether a config is valid in `spec`.
pub(super) fn check(body: &Body, spec: Spec) -> Checked {
    let at = At::ROOT;
    resource::check_ignition(&body.ignition, spec, &at.field("ignition"))?;
    check_kernel_arguments(body, &at.field("kernelArguments"))?;
    check_passwd(&body.passwd, &at.field("passwd"))?;
    let storage = at.field("storage");
    disks::check(&body.storage, spec, &storage)?;
    luks::check(&body.storage.luks, spec, &storage.field("luks"))?;
    nodes::check(&body.storage, &body.systemd, spec, &storage)?;
    units::check(&body.systemd.units, &at.field("systemd").field("units"))
}

fn check_kernel_arguments(body: &Body, at: &At<'_>) -> Checked {
    let arguments = &body.kernel_arguments;
    let mut seen = HashSet::new();
    unique(&mut seen, &arguments.should_exist, &at.field("shouldExist"), String::as_str)?;
    unique(&mut seen, &arguments.should_not_exist, &at.field("shouldNotExist"), String::as_str)
}

fn check_passwd(passwd: &Passwd, at: &At<'_>) -> Checked {
    all_unique(&passwd.groups, &at.field("groups"), |group| &group.name)?;
    let at = at.field("users");
    all_unique(&passwd.users, &at, |user| &user.name)?;
    for (i, user) in passwd.users.iter().enumerate() {
        let at = at.item(i);
        all_unique(&user.groups, &at.field("groups"), String::as_str)?;
        all_unique(&user.ssh_authorized_keys, &at.field("sshAuthorizedKeys"), String::as_str)?;
    }
    Ok(())
}

/// A list in which no two items have the same key.
fn all_unique<'a, T, K: Hash + Eq>(
    items: &'a [T],
    at: &At<'_>,
    key: impl Fn(&'a T) -> K,
) -> Checked {
    unique(&mut HashSet::with_capacity(items.len()), items, at, key)
}

/// The same across lists that share `seen`.
fn unique<'a, T, K: Hash + Eq>(
    seen: &mut HashSet<K>,
    items: &'a [T],
    at: &At<'_>,
    key: impl Fn(&'a T) -> K,
) -> Checked {
    match items.iter().position(|item| !seen.insert(key(item))) {
        Some(i) => Err(at.item(i).invalid("is there twice")),
        None => Ok(()),
    }
}

/// A path from the root, without `.`, `..`, doubled or trailing slashes.
fn check_path(path: &str, at: &At<'_>) -> Checked {
    let Some(relative) = path.strip_prefix('/') else {
        let reason = if path.is_empty() { "is empty" } else { "is not absolute" };
        return Err(at.invalid(reason));
    };
    let clean =
        relative.is_empty() || relative.split('/').all(|part| !matches!(part, "" | "." | ".."));
    if clean { Ok(()) } else { Err(at.invalid(format!("{path} has an empty, '.' or '..' part"))) }
}

/// The path that [`check_path`] takes for what an absolute `path` means.
pub(super) fn clean_path(path: &str) -> String {
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            name => parts.push(name),
        }
    }
    format!("/{}", parts.join("/"))
}

/// Permission bits with setuid, setgid and sticky.
fn check_mode(mode: Option<i64>, at: &At<'_>) -> Checked {
    match mode {
        Some(mode) if !(0..=0o7777).contains(&mode) => {
            Err(at.field("mode").invalid(format!("{mode} is not within 0 and 4095 (07777)")))
        }
        _ => Ok(()),
    }
}

/// Whether a text is there and says something.
fn says(text: Option<&String>) -> bool {
    text.is_some_and(|text| !text.is_empty())
}
