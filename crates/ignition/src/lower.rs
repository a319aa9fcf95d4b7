//! Converts a spec 3 config to spec 2.2, and adjusts special permission bits to the requested spec.
//!
//! Source: the page "Migrating Between Configuration Versions", read backwards, and the reference server's answers.

use super::error::{Error, FieldPath};
use super::spec2;
use super::spec3::{Body, Filesystem, Group, Owner, Resource, Unit, User};
use super::version::SpecVersion;

/// Bits of setuid, setgid and sticky.
const SPECIAL_BITS: i64 = 0o7000;

/// Refuses special permission bits that `to` does not have, and clears those that never had an effect in the spec
/// `declared`, which the config was written in.
///
/// They work since 3.6. Specs 3.4 and 3.5 accept them without effect, older ones refuse them. So a config of an older
/// spec loses them on the way to 3.6, which would give them an effect, and a config of 3.6 cannot be expressed in an
/// older one.
pub(super) fn settle_special_modes(
    body: &mut Body,
    declared: SpecVersion,
    to: SpecVersion,
) -> Result<(), Error> {
    let works = declared >= SpecVersion::V3_6;
    let needs = if works { SpecVersion::V3_6 } else { SpecVersion::V3_4 };
    let storage = FieldPath::ROOT.field("storage");
    let body_storage = &mut body.storage;
    let files = body_storage.files.iter_mut().map(|file| &mut file.mode).enumerate();
    let directories =
        body_storage.directories.iter_mut().map(|directory| &mut directory.mode).enumerate();
    let nodes =
        files.map(|node| ("files", node)).chain(directories.map(|node| ("directories", node)));
    for (kind, (i, mode)) in nodes {
        let Some(mode) = mode.as_mut().filter(|mode| **mode & SPECIAL_BITS != 0) else { continue };
        if to < needs {
            let at = storage.field(kind);
            let path = at.item(i).field("mode").to_string();
            return Err(Error::Unsupported { path, needs: Some(needs), to });
        }
        if to >= SpecVersion::V3_6 && !works {
            *mode &= !SPECIAL_BITS;
        }
    }
    Ok(())
}

/// Returns `true` if a file or directory has special permission bits.
pub(super) fn has_special_modes(body: &Body) -> bool {
    let files = body.storage.files.iter().map(|file| file.mode);
    let directories = body.storage.directories.iter().map(|directory| directory.mode);
    files.chain(directories).flatten().any(|mode| mode & SPECIAL_BITS != 0)
}

/// Clears the advertisements of Tang servers, as the reference server does on the way from and to any spec but 3.5 and
/// later ones. Spec 3.4 has them; a machine without one requests it from the server.
pub(super) fn leave_out_advertisements(body: &mut Body, spec: SpecVersion) {
    if spec < SpecVersion::V3_5 {
        for tang in body.storage.luks.iter_mut().flat_map(|luks| &mut luks.clevis.tang) {
            tang.advertisement = None;
        }
    }
}

/// Converts a config that fits into spec 3.0 to spec 2.2.
pub(super) fn to_spec2(body: Body) -> Result<spec2::Body, Error> {
    refuse_sizes(&body)?;
    let ignition = body.ignition;
    let storage = body.storage;
    let names = Names::of(&storage.filesystems);
    let replace = ignition.config.replace;
    let version = SpecVersion::V2_2.as_str().to_owned();
    let mut config = spec2::Body {
        ignition: spec2::Ignition { version, ..spec2::Ignition::default() },
        ..spec2::Body::default()
    };
    config.ignition.config.append = ignition.config.merge.into_iter().map(reference).collect();
    config.ignition.config.replace = replace.source.is_some().then(|| reference(replace));
    let cas = ignition.security.tls.certificate_authorities;
    config.ignition.security.tls.certificate_authorities = cas.into_iter().map(reference).collect();
    config.ignition.timeouts.http_response_headers = ignition.timeouts.http_response_headers;
    config.ignition.timeouts.http_total = ignition.timeouts.http_total;
    config.passwd.users = body.passwd.users.into_iter().map(user).collect();
    config.passwd.groups = body.passwd.groups.into_iter().map(group).collect();
    config.systemd.units = body.systemd.units.into_iter().map(unit).collect();

    config.storage.files = storage.files.into_iter().flat_map(|file| names.files(file)).collect();
    config.storage.directories = storage
        .directories
        .into_iter()
        .map(|d| {
            let (filesystem, path) = names.split(d.path);
            let (group, user) = (owner(d.group), owner(d.user));
            spec2::Directory { filesystem, group, overwrite: d.overwrite, path, user, mode: d.mode }
        })
        .collect();
    config.storage.links = storage
        .links
        .into_iter()
        .map(|l| {
            let (filesystem, path) = names.split(l.path);
            let (group, user) = (owner(l.group), owner(l.user));
            let (hard, target) = (l.hard.unwrap_or(false), l.target.unwrap_or_default());
            spec2::Link { filesystem, group, overwrite: l.overwrite, path, user, hard, target }
        })
        .collect();
    config.storage.disks = storage.disks.into_iter().map(disk).collect();
    config.storage.raid = storage
        .raid
        .into_iter()
        .map(|r| spec2::Raid {
            devices: r.devices,
            level: r.level.unwrap_or_default(),
            name: r.name,
            options: r.options,
            spares: r.spares.unwrap_or(0),
        })
        .collect();
    config.storage.filesystems = filesystems(storage.filesystems);
    Ok(config)
}

/// Refuses sizes and starts: spec 2.2 measures in sectors, whose size depends on the disk.
fn refuse_sizes(body: &Body) -> Result<(), Error> {
    let storage = FieldPath::ROOT.field("storage");
    let disks = storage.field("disks");
    for (i, disk) in body.storage.disks.iter().enumerate() {
        for (k, partition) in disk.partitions.iter().enumerate() {
            let field = match (partition.size_mib, partition.start_mib) {
                (Some(_), _) => "sizeMiB",
                (_, Some(_)) => "startMiB",
                (None, None) => continue,
            };
            let at = disks.item(i);
            let at = at.field("partitions");
            let path = at.item(k).field(field).to_string();
            return Err(Error::Unsupported {
                path,
                needs: Some(SpecVersion::V3_0),
                to: SpecVersion::V2_2,
            });
        }
    }
    Ok(())
}

/// The names of the file systems, which are the paths where spec 3 mounts them.
struct Names(Vec<String>);

impl Names {
    fn of(filesystems: &[Filesystem]) -> Self {
        Self(filesystems.iter().filter_map(|filesystem| filesystem.path.clone()).collect())
    }

    /// The file system that a path lies in, the longest whose path it starts with, and the rest of the path.
    fn split(&self, path: String) -> (String, String) {
        let longest =
            self.0.iter().filter(|name| path.starts_with(*name)).max_by_key(|name| name.len());
        match longest.filter(|name| !name.is_empty()) {
            Some(name) => (name.clone(), path[name.len()..].to_owned()),
            None => ("root".to_owned(), path),
        }
    }

    /// A file, and each part appended to it as a separate file. A file with neither has no effect in spec 2.
    fn files(&self, file: super::spec3::File) -> Vec<spec2::File> {
        let (filesystem, path) = self.split(file.path);
        let base = spec2::File {
            filesystem,
            group: owner(file.group),
            path,
            user: owner(file.user),
            mode: file.mode,
            ..spec2::File::default()
        };
        let appended = file.append.into_iter().map(|part| spec2::File {
            append: true,
            contents: contents(part),
            overwrite: Some(false),
            ..base.clone()
        });
        let mut files: Vec<_> = appended.collect();
        if file.contents.source.is_some() {
            // In spec 2 a file overwrites by default.
            let overwrite = Some(file.overwrite.unwrap_or(false));
            files.insert(0, spec2::File { contents: contents(file.contents), overwrite, ..base });
        }
        files
    }
}

fn contents(resource: Resource) -> spec2::Contents {
    spec2::Contents {
        compression: resource.compression.unwrap_or_default(),
        source: resource.source.unwrap_or_default(),
        verification: spec2::Verification { hash: resource.verification.hash },
    }
}

fn reference(resource: Resource) -> spec2::Reference {
    spec2::Reference {
        source: resource.source.unwrap_or_default(),
        verification: spec2::Verification { hash: resource.verification.hash },
    }
}

fn owner(owner: Owner) -> Option<spec2::Owner> {
    (owner != Owner::default())
        .then(|| spec2::Owner { id: owner.id, name: owner.name.unwrap_or_default() })
}

fn user(user: User) -> spec2::User {
    spec2::User {
        create: None,
        gecos: user.gecos.unwrap_or_default(),
        groups: user.groups,
        home_dir: user.home_dir.unwrap_or_default(),
        name: user.name,
        no_create_home: user.no_create_home.unwrap_or(false),
        no_log_init: user.no_log_init.unwrap_or(false),
        no_user_group: user.no_user_group.unwrap_or(false),
        password_hash: user.password_hash,
        primary_group: user.primary_group.unwrap_or_default(),
        ssh_authorized_keys: user.ssh_authorized_keys,
        shell: user.shell.unwrap_or_default(),
        system: user.system.unwrap_or(false),
        uid: user.uid,
    }
}

fn group(group: Group) -> spec2::Group {
    spec2::Group {
        gid: group.gid,
        name: group.name,
        password_hash: group.password_hash.unwrap_or_default(),
        system: group.system.unwrap_or(false),
    }
}

fn unit(unit: Unit) -> spec2::Unit {
    spec2::Unit {
        contents: unit.contents.unwrap_or_default(),
        dropins: unit
            .dropins
            .into_iter()
            .map(|dropin| spec2::Dropin {
                contents: dropin.contents.unwrap_or_default(),
                name: dropin.name,
            })
            .collect(),
        enable: false,
        enabled: unit.enabled,
        mask: unit.mask.unwrap_or(false),
        name: unit.name,
    }
}

/// Spec 2.2 cannot express that a partition should exist and be wiped. This is omitted, as the reference server does.
fn disk(disk: super::spec3::Disk) -> spec2::Disk {
    spec2::Disk {
        device: disk.device,
        partitions: disk
            .partitions
            .into_iter()
            .map(|partition| spec2::Partition {
                guid: partition.guid.unwrap_or_default(),
                label: partition.label.unwrap_or_default(),
                number: partition.number,
                type_guid: partition.type_guid.unwrap_or_default(),
                ..spec2::Partition::default()
            })
            .collect(),
        wipe_table: disk.wipe_table.unwrap_or(false),
    }
}

/// Names a file system after its path, one without a path by its number among those.
fn filesystems(filesystems: Vec<Filesystem>) -> Vec<spec2::Filesystem> {
    let mut numbers = 1..;
    filesystems
        .into_iter()
        .map(|filesystem| spec2::Filesystem {
            name: filesystem
                .path
                .or_else(|| numbers.next().map(|n: u32| n.to_string()))
                .unwrap_or_default(),
            mount: Some(spec2::Mount {
                create: None,
                device: filesystem.device,
                format: filesystem.format.unwrap_or_default(),
                label: filesystem.label,
                options: filesystem.options,
                uuid: filesystem.uuid,
                wipe_filesystem: filesystem.wipe_filesystem.unwrap_or(false),
            }),
            path: None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::Config;
    use super::super::version::SpecVersion;

    fn lowered(section: &str, value: &Value) -> Value {
        let config = json!({"ignition": {"version": "3.2.0"}, section: value});
        let lowered = Config::parse(&config.to_string()).unwrap().lower(SpecVersion::V2_2).unwrap();
        json!(lowered)[section].clone()
    }

    #[test]
    fn contents_and_appended_parts_become_files_of_their_own() {
        let part = |source: &str| json!({"source": source});
        let files = json!([
            {"path": "/a", "mode": 420, "contents": part("data:,1"), "append": [part("data:,2")]},
            {"path": "/b", "overwrite": true, "contents": part("data:,3")},
            {"path": "/nothing", "mode": 420},
        ]);
        assert_eq!(
            lowered("storage", &json!({"files": files}))["files"],
            json!([
                {"filesystem": "root", "overwrite": false, "path": "/a", "contents": part("data:,1"), "mode": 420},
                {"filesystem": "root", "overwrite": false, "path": "/a", "append": true, "contents": part("data:,2"), "mode": 420},
                {"filesystem": "root", "overwrite": true, "path": "/b", "contents": part("data:,3")},
            ])
        );
    }

    #[test]
    fn file_systems_are_named_after_their_paths_and_nodes_lie_in_the_longest() {
        let storage = json!({
            "filesystems": [
                {"device": "/dev/a", "format": "xfs", "path": "/var"},
                {"device": "/dev/b", "format": "xfs", "path": "/var/lib"},
                {"device": "/dev/c", "format": "swap"},
            ],
            "directories": [{"path": "/var/lib/x"}, {"path": "/var/y"}, {"path": "/z"}],
        });
        let storage = lowered("storage", &storage);
        let names: Vec<_> =
            storage["filesystems"].as_array().unwrap().iter().map(|f| &f["name"]).collect();
        assert_eq!(names, ["/var", "/var/lib", "1"]);
        assert_eq!(
            storage["directories"],
            json!([
                {"filesystem": "/var/lib", "path": "/x"},
                {"filesystem": "/var", "path": "/y"},
                {"filesystem": "root", "path": "/z"},
            ])
        );
    }

    #[test]
    fn flags_that_are_off_are_left_out() {
        let user =
            json!({"name": "core", "system": false, "noCreateHome": true, "shouldExist": true});
        assert_eq!(
            lowered("passwd", &json!({"users": [user]})),
            json!({"users": [{"name": "core", "noCreateHome": true}]})
        );
    }
}
