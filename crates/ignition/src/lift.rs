//! Lifts a spec 2 config to spec 3.
//!
//! Spec 3 is stricter than spec 2: every path once, no file systems by name, partitions in MiB. Pools rendered from
//! several MachineConfigs can have a file or a unit several times in spec 2, where the last one wins;
//! [`remove_duplicates`] removes the others. Parts that spec 3 cannot express are refused.
//!
//! Source: the page "Migrating Between Configuration Versions", section "From Version 2.3.0 to 3.0.0".

use std::borrow::Cow;
use std::collections::HashSet;

use super::error::{Error, FieldPath};
use super::fields::Spec;
use super::spec2;
use super::spec3::{
    Body, Directory, Disk, Dropin, File, Group, Link, Owner, Raid, Resource, Storage, Unit, User,
    Verification,
};

/// The only file system that spec 3 can still name: the root.
const ROOT: &str = "root";

/// The only user that OpenShift manages.
const CORE: &str = "core";

/// Converts a valid config of `spec`, one of 2.0, 2.1 and 2.2, to spec 3.
pub(super) fn to_spec3(mut config: spec2::Body, spec: Spec) -> Result<Body, Error> {
    refuse_unsayable(&config)?;
    remove_duplicates(&mut config)?;
    let mut body = Body::default();

    let ignition = config.ignition;
    body.ignition.config.merge = ignition.config.append.into_iter().map(reference).collect();
    body.ignition.config.replace = ignition.config.replace.map(reference).unwrap_or_default();
    let cas = ignition.security.tls.certificate_authorities;
    body.ignition.security.tls.certificate_authorities = cas.into_iter().map(reference).collect();
    body.ignition.timeouts.http_response_headers = ignition.timeouts.http_response_headers;
    body.ignition.timeouts.http_total = ignition.timeouts.http_total;

    body.passwd.users = config.passwd.users.into_iter().map(user).collect();
    if spec < (2, 1) {
        // In these specs an empty hash is the same as none.
        let hashes = body.passwd.users.iter_mut().map(|user| &mut user.password_hash);
        hashes.for_each(|hash| *hash = hash.take().and_then(some));
    }
    body.passwd.groups = config.passwd.groups.into_iter().map(group).collect();
    body.systemd.units = config.systemd.units.into_iter().map(unit).collect();

    body.storage = storage(config.storage, spec);
    clean_paths(&mut body);
    Ok(body)
}

/// The storage of a config of `spec` as spec 3 has it.
fn storage(storage: spec2::Storage, spec: Spec) -> Storage {
    // Before 2.2 a missing mode was 0, and the owner of a 2.0 file root.
    let mode = |mode: Option<i64>| if spec < (2, 2) { Some(mode.unwrap_or(0)) } else { mode };
    let owner = |owner: Option<spec2::Owner>| {
        let owner = owner.map(|o| Owner { id: o.id, name: some(o.name) }).unwrap_or_default();
        if spec < (2, 1) { Owner { id: Some(owner.id.unwrap_or(0)), ..owner } } else { owner }
    };
    let file = |f: spec2::File| {
        let contents = Resource {
            compression: some(f.contents.compression),
            source: Some(f.contents.source),
            verification: Verification { hash: f.contents.verification.hash },
            ..Resource::default()
        };
        let (group, user, mode) = (owner(f.group), owner(f.user), mode(f.mode));
        let file = File { path: f.path, group, user, mode, ..File::default() };
        if f.append {
            File { append: vec![contents], overwrite: Some(false), ..file }
        } else {
            // In spec 2 a file overwrites by default, in spec 3 it does not.
            File { contents, overwrite: Some(f.overwrite.unwrap_or(true)), ..file }
        }
    };
    let directory = |d: spec2::Directory| Directory {
        path: d.path,
        group: owner(d.group),
        overwrite: d.overwrite,
        user: owner(d.user),
        mode: mode(d.mode),
    };
    let link = |l: spec2::Link| Link {
        path: l.path,
        group: owner(l.group),
        overwrite: l.overwrite,
        user: owner(l.user),
        hard: on(l.hard),
        target: Some(l.target),
    };
    Storage {
        disks: storage.disks.into_iter().map(disk).collect(),
        raid: storage.raid.into_iter().map(raid).collect(),
        files: storage.files.into_iter().map(file).collect(),
        directories: storage.directories.into_iter().map(directory).collect(),
        links: storage.links.into_iter().map(link).collect(),
        ..Storage::default()
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
    let storage = FieldPath::ROOT.field("storage");
    if !config.networkd.units.is_empty() {
        return Err(not_liftable(
            &FieldPath::ROOT.field("networkd"),
            "spec 3 has no networkd units",
        ));
    }
    for (i, filesystem) in config.storage.filesystems.iter().enumerate() {
        if filesystem.name != ROOT {
            let at = storage.field("filesystems");
            let reason =
                format!("the mount point of the file system {:?} is unknown", filesystem.name);
            return Err(not_liftable(&at.item(i), reason));
        }
    }
    for (i, disk) in config.storage.disks.iter().enumerate() {
        if !disk.partitions.is_empty() {
            let at = storage.field("disks");
            let reason = "spec 3 measures partitions in MiB, not in sectors";
            return Err(not_liftable(&at.item(i).field("partitions"), reason));
        }
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
        let passwd = FieldPath::ROOT.field("passwd");
        let at = passwd.field("users");
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

/// The text; `None` if it is empty, which in spec 2 is the same as absence.
fn some(text: String) -> Option<String> {
    (!text.is_empty()).then_some(text)
}

/// The flag; `None` for `false`, which in spec 2 is the same as absence.
fn on(flag: bool) -> Option<bool> {
    flag.then_some(true)
}

fn reference(reference: spec2::Reference) -> Resource {
    Resource {
        source: Some(reference.source),
        verification: Verification { hash: reference.verification.hash },
        ..Resource::default()
    }
}

/// Converts a user. The object `create`, which spec 2 already advised against, is dropped.
fn user(user: spec2::User) -> User {
    User {
        name: user.name,
        gecos: some(user.gecos),
        groups: user.groups,
        home_dir: some(user.home_dir),
        no_create_home: on(user.no_create_home),
        no_log_init: on(user.no_log_init),
        no_user_group: on(user.no_user_group),
        password_hash: user.password_hash,
        primary_group: some(user.primary_group),
        ssh_authorized_keys: user.ssh_authorized_keys,
        shell: some(user.shell),
        should_exist: None,
        system: on(user.system),
        uid: user.uid,
    }
}

fn group(group: spec2::Group) -> Group {
    Group {
        name: group.name,
        gid: group.gid,
        password_hash: some(group.password_hash),
        should_exist: None,
        system: on(group.system),
    }
}

fn unit(unit: spec2::Unit) -> Unit {
    Unit {
        name: unit.name,
        contents: some(unit.contents),
        dropins: unit
            .dropins
            .into_iter()
            .map(|dropin| Dropin { name: dropin.name, contents: some(dropin.contents) })
            .collect(),
        enabled: unit.enabled.or(on(unit.enable)),
        mask: on(unit.mask),
    }
}

fn disk(disk: spec2::Disk) -> Disk {
    Disk { device: disk.device, partitions: Vec::new(), wipe_table: on(disk.wipe_table) }
}

fn raid(raid: spec2::Raid) -> Raid {
    Raid {
        name: raid.name,
        devices: raid.devices,
        level: Some(raid.level),
        options: raid.options,
        spares: (raid.spares != 0).then_some(raid.spares),
    }
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
