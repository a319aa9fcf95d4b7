//! Lifts a spec 2 config to spec 3.
//!
//! Spec 3 is stricter than spec 2: every path once, no file systems by name, partitions in MiB. Pools rendered from
//! several MachineConfigs can have a file or a unit several times in spec 2, where the last one wins;
//! [`remove_duplicates`] removes the others. Parts that spec 3 cannot express are refused.
//!
//! Source: the page "Migrating Between Configuration Versions", section "From Version 2.3.0 to 3.0.0".

use std::borrow::Cow;
use std::collections::HashSet;
use std::mem;

use super::error::{Error, FieldPath};
use super::fields::{Spec, converted};
use super::spec2;
use super::spec3::{Body, File, Version};

/// The only file system that spec 3 can still name: the root.
const ROOT: &str = "root";

/// The only user that OpenShift manages.
const CORE: &str = "core";

/// Converts a valid config of `spec`, one of 2.0, 2.1 and 2.2, to spec 3.
pub(super) fn to_spec3(mut config: spec2::Body, spec: Spec) -> Result<Body, Error> {
    refuse_unsayable(&config)?;
    remove_duplicates(&mut config)?;
    for unit in &mut config.systemd.units {
        unit.enabled = unit.enabled.or(unit.enable.then_some(true));
    }
    // Only the root is left, which spec 3 does not list.
    config.storage.filesystems.clear();
    let files = mem::take(&mut config.storage.files);
    let appended = mem::take(&mut config.ignition.config.append);
    let replaces = config.ignition.config.replace.is_some();

    let mut body: Body = converted(config)?;
    body.ignition.version = Version::default();
    body.ignition.config.merge = converted(appended)?;
    if replaces {
        body.ignition.config.replace.source.get_or_insert_default();
    }
    body.storage.files = files.into_iter().map(file).collect::<Result<_, _>>()?;
    set_defaults(&mut body, spec);
    clean_paths(&mut body);
    Ok(body)
}

fn file(mut file: spec2::File) -> serde_json::Result<File> {
    let appends = mem::take(&mut file.append);
    let mut file: File = converted(file)?;
    // Without a source, a file is empty in spec 2, and keeps its contents in spec 3.
    file.contents.source.get_or_insert_default();
    if appends {
        file.append.push(mem::take(&mut file.contents));
        file.overwrite = Some(false);
    } else {
        // In spec 2 a file overwrites by default, in spec 3 it does not.
        file.overwrite.get_or_insert(true);
    }
    Ok(file)
}

/// Sets the values that missing fields mean in `spec`, where spec 3 has other ones.
fn set_defaults(body: &mut Body, spec: Spec) {
    let storage = &mut body.storage;
    if spec < (2, 2) {
        let files = storage.files.iter_mut().map(|file| &mut file.mode);
        let directories = storage.directories.iter_mut().map(|directory| &mut directory.mode);
        files.chain(directories).for_each(|mode| _ = mode.get_or_insert(0));
    }
    if spec < (2, 1) {
        let owners = storage.files.iter_mut().flat_map(|file| [&mut file.group, &mut file.user]);
        owners.for_each(|owner| _ = owner.id.get_or_insert(0));
        // An empty hash is the same as none.
        let hashes = body.passwd.users.iter_mut().map(|user| &mut user.password_hash);
        hashes.for_each(|hash| _ = hash.take_if(|hash| hash.is_empty()));
    }
}

/// Spec 2 paths may be written `/a//b/../c`; spec 3 only has `/a/c`.
fn clean_paths(body: &mut Body) {
    let storage = &mut body.storage;
    let files = storage.files.iter_mut().map(|file| &mut file.path);
    let directories = storage.directories.iter_mut().map(|directory| &mut directory.path);
    let links = storage.links.iter_mut().map(|link| &mut link.path);
    for path in files.chain(directories).chain(links) {
        *path = super::rules::clean_path(path);
    }
}

fn refuse_unsayable(config: &spec2::Body) -> Result<(), Error> {
    let root = FieldPath::ROOT;
    if !config.networkd.units.is_empty() {
        return Err(not_liftable(&root.field("networkd"), "spec 3 has no networkd units"));
    }
    let mut filesystems = config.storage.filesystems.iter().enumerate();
    if let Some((i, filesystem)) = filesystems.find(|(_, filesystem)| filesystem.name != ROOT) {
        let reason = format!("the mount point of the file system {:?} is unknown", filesystem.name);
        return Err(not_liftable(&root.field("storage.filesystems").item(i), reason));
    }
    if let Some(i) = config.storage.disks.iter().position(|disk| !disk.partitions.is_empty()) {
        let reason = "spec 3 measures partitions in MiB, not in sectors";
        let at = root.field("storage.disks");
        return Err(not_liftable(&at.item(i).field("partitions"), reason));
    }
    Ok(())
}

fn not_liftable(at: &FieldPath<'_>, reason: impl Into<Cow<'static, str>>) -> Error {
    Error::NotLiftable { path: at.to_string(), reason: reason.into() }
}

/// Keeps the last of the files, units and users with the same name, with drop-ins and keys of the others.
///
/// Last definitions come first afterwards, as with the reference server. A unit keeps the drop-ins of its other
/// definitions that have another name. The only user is `core`, who keeps every key.
fn remove_duplicates(config: &mut spec2::Body) -> Result<(), Error> {
    let mut paths = HashSet::new();
    config.storage.files.reverse();
    config.storage.files.retain(|file| paths.insert(file.path.clone()));

    let mut units: Vec<spec2::Unit> = Vec::new();
    for unit in config.systemd.units.drain(..).rev() {
        match units.iter_mut().find(|kept| kept.name == unit.name) {
            None => units.push(unit),
            Some(kept) => {
                for dropin in unit.dropins {
                    if kept.dropins.iter().all(|other| other.name != dropin.name) {
                        kept.dropins.push(dropin);
                    }
                }
            }
        }
    }
    config.systemd.units = units;

    let users = &mut config.passwd.users;
    if let Some(i) = users.iter().position(|user| user.name != CORE) {
        let at = FieldPath::ROOT.field("passwd.users");
        return Err(not_liftable(&at.item(i), format!("only the user {CORE} is managed")));
    }
    if let Some(mut user) = users.pop() {
        let others = users.drain(..).rev().flat_map(|other| other.ssh_authorized_keys);
        user.ssh_authorized_keys.extend(others);
        let mut keys = HashSet::new();
        user.ssh_authorized_keys.retain(|key| keys.insert(key.clone()));
        users.push(user);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::{Config, SpecVersion};

    fn lifted(version: &str, section: &str, value: &Value) -> Result<Value, String> {
        let config = json!({"ignition": {"version": version}, section: value});
        let config = Config::parse(&config.to_string()).map_err(|error| error.to_string())?;
        Ok(json!(config.lower(SpecVersion::V3_1).map_err(|error| error.to_string())?)[section]
            .clone())
    }

    #[test]
    fn of_files_with_one_path_the_last_stays_and_the_order_turns_round() {
        let file = |path: &str, source: &str| json!({"filesystem": "root", "path": path, "contents": {"source": source}});
        let files = json!([file("/a", "data:,1"), file("//b/", "data:,2"), file("/a", "data:,3")]);
        let kept = |path: &str, source: &str| json!({"path": path, "overwrite": true, "contents": {"source": source}});
        assert_eq!(
            lifted("2.2.0", "storage", &json!({"files": files})).unwrap()["files"],
            json!([kept("/a", "data:,3"), kept("/b", "data:,2")])
        );
    }

    #[test]
    fn units_with_one_name_add_up_their_dropins() {
        let units = json!([
            {"name": "a.service", "enable": true, "dropins": [{"name": "1.conf"}, {"name": "2.conf", "contents": "[A]"}]},
            {"name": "a.service", "enabled": false, "dropins": [{"name": "1.conf", "contents": "[B]"}]},
        ]);
        assert_eq!(
            lifted("2.2.0", "systemd", &json!({"units": units})).unwrap()["units"],
            json!([{
                "name": "a.service",
                "dropins": [{"name": "1.conf", "contents": "[B]"}, {"name": "2.conf", "contents": "[A]"}],
                "enabled": false,
            }])
        );
    }

    #[test]
    fn the_user_core_keeps_every_key_once() {
        let users = json!([
            {"name": "core", "sshAuthorizedKeys": ["a", "b"], "shell": "/bin/sh"},
            {"name": "core", "sshAuthorizedKeys": ["b", "c"]},
        ]);
        assert_eq!(
            lifted("2.2.0", "passwd", &json!({"users": users})).unwrap()["users"],
            json!([{"name": "core", "sshAuthorizedKeys": ["b", "c", "a"]}])
        );
    }

    #[test]
    fn appending_means_not_to_overwrite() {
        let file = json!({"filesystem": "root", "path": "/a", "append": true, "contents": {"source": "data:,1"}});
        assert_eq!(
            lifted("2.2.0", "storage", &json!({"files": [file]})).unwrap()["files"],
            json!([{"path": "/a", "overwrite": false, "append": [{"source": "data:,1"}]}])
        );
    }

    #[test]
    fn defaults_of_the_first_spec_2_versions_are_written_out() {
        let file = json!({"filesystem": "root", "path": "/a", "contents": {}});
        let file = |version| {
            lifted(version, "storage", &json!({"files": [file]})).unwrap()["files"][0].clone()
        };
        let contents = json!({"source": ""});
        let root = json!({"id": 0});
        assert_eq!(
            file("2.0.0"),
            json!({"path": "/a", "group": root, "overwrite": true, "user": root, "contents": contents, "mode": 0})
        );
        assert_eq!(
            file("2.1.0"),
            json!({"path": "/a", "overwrite": true, "contents": contents, "mode": 0})
        );
        assert_eq!(file("2.2.0"), json!({"path": "/a", "overwrite": true, "contents": contents}));
    }

    #[test]
    fn what_spec_3_has_no_words_for_is_refused() {
        for (section, value, message) in [
            (
                "networkd",
                json!({"units": [{"name": "a.network"}]}),
                "networkd: spec 3 has no networkd units",
            ),
            (
                "storage",
                json!({"filesystems": [{"name": "data", "path": "/data"}]}),
                "storage.filesystems[0]: the mount point of the file system \"data\" is unknown",
            ),
            (
                "storage",
                json!({"disks": [{"device": "/dev/a", "partitions": [{"number": 1}]}]}),
                "storage.disks[0].partitions: spec 3 measures partitions in MiB, not in sectors",
            ),
            (
                "passwd",
                json!({"users": [{"name": "me"}]}),
                "passwd.users[0]: only the user core is managed",
            ),
        ] {
            let message = format!("{message}, so this spec 2 config cannot be lifted to spec 3");
            assert_eq!(lifted("2.2.0", section, &value), Err(message));
        }
    }
}
