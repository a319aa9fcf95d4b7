//! The rules of specs 2.0 to 2.2 that spec 3 lacks.
//!
//! They are checked on spec 2 configs before these are lifted, and on configs that are lowered to spec 2: names of file
//! systems, empty sources and mounts exist only there.
//!
//! Source: the pages "Configuration Specification v2.0.0" to "v2.2.0".

use super::super::error::FieldPath;
use super::super::fields::Spec;
use super::super::spec2::{Body, Disk, File, Filesystem, Owner, Reference, User};
use super::common::{Checked, check_mode};
use super::{disks, resource, units};

/// Checks that a config is valid in `spec`, one of 2.0, 2.1 and 2.2.
pub(in super::super) fn check(body: &Body, spec: Spec) -> Checked {
    let root = FieldPath::ROOT;
    let ignition = root.field("ignition");
    let config = ignition.field("config");
    let security = ignition.field("security");
    let tls = security.field("tls");
    check_references(&body.ignition.config.append, spec, &config.field("append"))?;
    if let Some(replace) = &body.ignition.config.replace {
        check_reference(replace, spec, &config.field("replace"))?;
    }
    let cas = &body.ignition.security.tls.certificate_authorities;
    check_references(cas, spec, &tls.field("certificateAuthorities"))?;

    let passwd = root.field("passwd");
    for (i, user) in body.passwd.users.iter().enumerate() {
        check_user(user, &passwd.field("users").item(i))?;
    }
    check_storage(body, spec, &root.field("storage"))?;

    let systemd = root.field("systemd");
    let units = systemd.field("units");
    for (i, unit) in body.systemd.units.iter().enumerate() {
        let at = units.item(i);
        units::check_unit(&unit.name, Some(&unit.contents), &at)?;
        for (k, dropin) in unit.dropins.iter().enumerate() {
            units::check_dropin(
                &dropin.name,
                Some(&dropin.contents),
                &at.field("dropins").item(k),
            )?;
        }
    }
    Ok(())
}

fn check_storage(body: &Body, spec: Spec, at: &FieldPath<'_>) -> Checked {
    let storage = &body.storage;
    for (i, disk) in storage.disks.iter().enumerate() {
        check_disk(disk, &at.field("disks").item(i))?;
    }
    for (i, raid) in storage.raid.iter().enumerate() {
        let at = at.field("raid");
        let at = at.item(i);
        disks::check_raid_level(&raid.level, raid.spares, &at)?;
        for (k, device) in raid.devices.iter().enumerate() {
            check_absolute(device, &at.field("devices").item(k))?;
        }
    }
    for (i, filesystem) in storage.filesystems.iter().enumerate() {
        check_filesystem(filesystem, spec, &at.field("filesystems").item(i))?;
    }
    for (i, file) in storage.files.iter().enumerate() {
        check_file(file, spec, &at.field("files").item(i))?;
    }
    for (i, node) in storage.directories.iter().enumerate() {
        let at = at.field("directories");
        let at = at.item(i);
        check_mode(node.mode, &at)?;
        check_node(&node.filesystem, &node.path, [node.user.as_ref(), node.group.as_ref()], &at)?;
    }
    for (i, node) in storage.links.iter().enumerate() {
        let at = at.field("links");
        let owners = [node.user.as_ref(), node.group.as_ref()];
        check_node(&node.filesystem, &node.path, owners, &at.item(i))?;
    }
    Ok(())
}

fn check_references(references: &[Reference], spec: Spec, at: &FieldPath<'_>) -> Checked {
    let mut items = references.iter().enumerate();
    items.try_for_each(|(i, reference)| check_reference(reference, spec, &at.item(i)))
}

fn check_reference(reference: &Reference, spec: Spec, at: &FieldPath<'_>) -> Checked {
    check_source(&reference.source, spec, at)?;
    check_hash(reference.verification.hash.as_deref(), spec, at)
}

/// Checks a source. An empty one means empty contents.
fn check_source(source: &str, spec: Spec, at: &FieldPath<'_>) -> Checked {
    if source.is_empty() { Ok(()) } else { resource::check_url(source, spec, &at.field("source")) }
}

fn check_hash(hash: Option<&str>, spec: Spec, at: &FieldPath<'_>) -> Checked {
    let at = at.field("verification");
    hash.map_or(Ok(()), |hash| resource::check_hash(hash, spec, &at.field("hash")))
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
    for (i, partition) in disk.partitions.iter().enumerate() {
        let at = at.item(i);
        disks::check_partition_label(&partition.label, &at)?;
        disks::check_guid(&partition.guid, &at.field("guid"))?;
        disks::check_guid(&partition.type_guid, &at.field("typeGuid"))?;
    }
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
    resource::check_compression(Some(&file.contents.compression), &at)?;
    check_source(&file.contents.source, spec, &at)?;
    check_hash(file.contents.verification.hash.as_deref(), spec, &at)
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

    use super::super::testing::verdict_2;

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
