//! The rules of specs 2.0 to 2.2 that spec 3 lacks.
//!
//! They are checked on spec 2 configs before these are lifted, and on configs that are lowered to spec 2: names of file
//! systems, empty sources and mounts exist only there.
//!
//! Source: the pages "Configuration Specification v2.0.0" to "v2.2.0".

use super::super::error::FieldPath;
use super::super::fields::Spec;
use super::super::spec2::{
    Body, Disk, File, Filesystem, Owner, Reference, Storage, User, Verification,
};
use super::common::{Checked, check_mode, each};
use super::{disks, resource, units};

/// Checks that a config is valid in `spec`, one of 2.0, 2.1 and 2.2.
pub(in super::super) fn check(body: &Body, spec: Spec) -> Checked {
    let root = FieldPath::ROOT;
    let reference = |reference: &Reference, at: &FieldPath<'_>| {
        check_source(&reference.source, &reference.verification, spec, at)
    };
    let config = &body.ignition.config;
    each(&config.append, &root.field("ignition.config.append"), reference)?;
    if let Some(replace) = &config.replace {
        reference(replace, &root.field("ignition.config.replace"))?;
    }
    let cas = &body.ignition.security.tls.certificate_authorities;
    each(cas, &root.field("ignition.security.tls.certificateAuthorities"), reference)?;

    each(&body.passwd.users, &root.field("passwd.users"), check_user)?;
    check_storage(&body.storage, spec, &root.field("storage"))?;
    each(&body.systemd.units, &root.field("systemd.units"), |unit, at| {
        units::check_unit(&unit.name, Some(&unit.contents), at)?;
        each(&unit.dropins, &at.field("dropins"), |dropin, at| {
            units::check_dropin(&dropin.name, Some(&dropin.contents), at)
        })
    })
}

fn check_storage(storage: &Storage, spec: Spec, at: &FieldPath<'_>) -> Checked {
    each(&storage.disks, &at.field("disks"), check_disk)?;
    each(&storage.raid, &at.field("raid"), |raid, at| {
        disks::check_raid_level(&raid.level, raid.spares, at)?;
        each(&raid.devices, &at.field("devices"), |device, at| check_absolute(device, at))
    })?;
    each(&storage.filesystems, &at.field("filesystems"), |filesystem, at| {
        check_filesystem(filesystem, spec, at)
    })?;
    each(&storage.files, &at.field("files"), |file, at| check_file(file, spec, at))?;
    each(&storage.directories, &at.field("directories"), |node, at| {
        check_mode(node.mode, at)?;
        check_node(&node.filesystem, &node.path, [node.user.as_ref(), node.group.as_ref()], at)
    })?;
    each(&storage.links, &at.field("links"), |node, at| {
        check_node(&node.filesystem, &node.path, [node.user.as_ref(), node.group.as_ref()], at)
    })
}

/// Checks a source and its hash. An empty source means empty contents.
fn check_source(
    source: &str,
    verification: &Verification,
    spec: Spec,
    at: &FieldPath<'_>,
) -> Checked {
    if !source.is_empty() {
        resource::check_url(source, spec, &at.field("source"))?;
    }
    match &verification.hash {
        Some(hash) => resource::check_hash(hash, spec, &at.field("verification.hash")),
        None => Ok(()),
    }
}

/// Checks that the object `create` is used without the newer fields next to it.
fn check_user(user: &User, at: &FieldPath<'_>) -> Checked {
    let alone = User {
        create: user.create.clone(),
        name: user.name.clone(),
        password_hash: user.password_hash.clone(),
        ssh_authorized_keys: user.ssh_authorized_keys.clone(),
        ..User::default()
    };
    if user.create.is_some() && *user != alone {
        return Err(at.field("create").invalid("cannot be used with the fields that replace it"));
    }
    Ok(())
}

fn check_disk(disk: &Disk, at: &FieldPath<'_>) -> Checked {
    check_absolute(&disk.device, &at.field("device"))?;
    let at = at.field("partitions");
    each(&disk.partitions, &at, |partition, at| {
        disks::check_partition_label(&partition.label, at)?;
        disks::check_guid(&partition.guid, &at.field("guid"))?;
        disks::check_guid(&partition.type_guid, &at.field("typeGuid"))
    })?;
    disks::check_numbers(disk.partitions.iter().map(|partition| partition.number), &at)
}

fn check_filesystem(filesystem: &Filesystem, spec: Spec, at: &FieldPath<'_>) -> Checked {
    match (&filesystem.mount, &filesystem.path) {
        (None, None) => Err(at.invalid("has neither a mount nor a path")),
        (Some(_), Some(_)) => Err(at.invalid("has both a mount and a path")),
        (None, Some(path)) => check_absolute(path, &at.field("path")),
        (Some(mount), None) => {
            let at = at.field("mount");
            if mount.create.is_some() && (mount.wipe_filesystem || !mount.options.is_empty()) {
                return Err(at
                    .field("create")
                    .invalid("cannot be used with the fields that replace it"));
            }
            check_absolute(&mount.device, &at.field("device"))?;
            disks::check_format(&mount.format, spec, &at.field("format"))?;
            disks::check_label(&mount.format, mount.label.as_deref(), &at)
        }
    }
}

fn check_file(file: &File, spec: Spec, at: &FieldPath<'_>) -> Checked {
    if file.append && file.overwrite == Some(true) {
        return Err(at.invalid("both appends and overwrites"));
    }
    check_mode(file.mode, at)?;
    check_node(&file.filesystem, &file.path, [file.user.as_ref(), file.group.as_ref()], at)?;
    let at = at.field("contents");
    let contents = &file.contents;
    resource::check_compression(Some(&contents.compression), &at)?;
    check_source(&contents.source, &contents.verification, spec, &at)
}

fn check_node(
    filesystem: &str,
    path: &str,
    owners: [Option<&Owner>; 2],
    at: &FieldPath<'_>,
) -> Checked {
    if filesystem.is_empty() {
        return Err(at.field("filesystem").invalid("is missing"));
    }
    if owners.into_iter().flatten().any(|owner| owner.id.is_some() && !owner.name.is_empty()) {
        return Err(at.invalid("has an owner with both an id and a name"));
    }
    check_absolute(path, &at.field("path"))
}

fn check_absolute(path: &str, at: &FieldPath<'_>) -> Checked {
    if path.starts_with('/') {
        Ok(())
    } else {
        Err(at.invalid(format!("{path:?} is not absolute")))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tests::verdict_2;

    #[test]
    fn spec_2_has_rules_of_its_own() {
        let file = |fields: serde_json::Value| {
            let mut file = json!({"filesystem": "root", "path": "/a"});
            file.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            ("storage", json!({"files": [file]}))
        };
        let root = |fields: serde_json::Value| {
            let mut root = json!({"name": "root"});
            root.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            ("storage", json!({"filesystems": [root]}))
        };
        for ((section, value), reason) in [
            (file(json!({"contents": {"source": ""}})), "valid"),
            (file(json!({"path": "/a/../b//"})), "valid"),
            (file(json!({"path": "a"})), "storage.files[0].path: \"a\" is not absolute"),
            (file(json!({"filesystem": ""})), "storage.files[0].filesystem: is missing"),
            (
                file(json!({"append": true, "overwrite": true})),
                "storage.files[0]: both appends and overwrites",
            ),
            (
                file(json!({"user": {"id": 1, "name": "a"}})),
                "storage.files[0]: has an owner with both an id and a name",
            ),
            (root(json!({"mount": {"device": "/a", "format": "ext4", "create": {}}})), "valid"),
            (root(json!({"path": "/a"})), "valid"),
            (root(json!({})), "storage.filesystems[0]: has neither a mount nor a path"),
            (
                root(json!({"path": "/a", "mount": {}})),
                "storage.filesystems[0]: has both a mount and a path",
            ),
            (
                root(json!({"mount": {"device": "/a", "format": "none"}})),
                "storage.filesystems[0].mount.format: none needs spec 3.3",
            ),
            (
                root(
                    json!({"mount": {"device": "/a", "format": "ext4", "create": {}, "options": ["a"]}}),
                ),
                "storage.filesystems[0].mount.create: cannot be used with the fields that replace it",
            ),
            (("passwd", json!({"users": [{"name": "core", "create": {"gecos": "a"}}]})), "valid"),
            (
                ("passwd", json!({"users": [{"name": "core", "create": {}, "gecos": "a"}]})),
                "passwd.users[0].create: cannot be used with the fields that replace it",
            ),
            (
                ("storage", json!({"disks": [{"device": "a"}]})),
                "storage.disks[0].device: \"a\" is not absolute",
            ),
        ] {
            assert_eq!(verdict_2(section, &value), reason);
        }
    }
}
