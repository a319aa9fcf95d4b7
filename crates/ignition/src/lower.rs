//! Converts a spec 3 config to spec 2.2, and adjusts special permission bits to the requested spec.
//!
//! Source: the page "Migrating Between Configuration Versions", read backwards, and the reference server's answers.

use std::mem;

use super::error::{Error, FieldPath};
use super::fields::converted;
use super::spec2;
use super::spec3::{Body, File, Filesystem};
use super::version::SpecVersion;

/// Mode of a file without one in spec 3.
const DEFAULT_MODE: i64 = 0o644;
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
    let storage = &mut body.storage;
    let files = storage.files.iter_mut().map(|file| &mut file.mode).enumerate();
    let directories =
        storage.directories.iter_mut().map(|directory| &mut directory.mode).enumerate();
    let nodes = files
        .map(|node| ("storage.files", node))
        .chain(directories.map(|node| ("storage.directories", node)));
    for (list, (i, mode)) in nodes {
        let Some(mode) = mode.as_mut().filter(|mode| **mode & SPECIAL_BITS != 0) else { continue };
        if to < needs {
            let path = FieldPath::ROOT.field(list).item(i).field("mode").to_string();
            return Err(Error::Unsupported { path, needs, to });
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

/// Gives files without a mode the one that they have in spec 3: Ignition 0.x makes them inaccessible. A file that is only
/// appended to has a mode already.
pub(super) fn set_default_modes(body: &mut Body) {
    for file in body.storage.files.iter_mut().filter(|file| file.contents.source.is_some()) {
        file.mode = file.mode.or(Some(DEFAULT_MODE));
    }
}

/// Converts a config that a downgrade to spec 2.2 has accepted: a field that it would refuse is lost here.
///
/// Spec 2.2 cannot express that a partition should exist and be wiped. This is omitted, as the reference server does.
pub(super) fn to_spec2(mut body: Body) -> Result<spec2::Body, Error> {
    let names = FilesystemNames::of(&body.storage.filesystems);
    let files = mem::take(&mut body.storage.files);
    let filesystems = mem::take(&mut body.storage.filesystems);
    let references = mem::take(&mut body.ignition.config);
    body.ignition.version = SpecVersion::V2_2.into();

    let mut config: spec2::Body = converted(body)?;
    config.ignition.config.append = converted(references.merge)?;
    if references.replace.source.is_some() {
        config.ignition.config.replace = Some(converted(references.replace)?);
    }
    let storage = &mut config.storage;
    for file in files {
        storage.files.extend(names.files(file)?);
    }
    for node in &mut storage.directories {
        (node.filesystem, node.path) = names.split(&node.path);
    }
    for node in &mut storage.links {
        (node.filesystem, node.path) = names.split(&node.path);
    }
    let mut numbers = 1_u32..;
    for mut filesystem in filesystems {
        // A file system is named after its path, one without a path by its number among those.
        let path = filesystem.path.take().or_else(|| numbers.next().map(|n| n.to_string()));
        let mount = Some(converted(filesystem)?);
        let name = path.unwrap_or_default();
        storage.filesystems.push(spec2::Filesystem { mount, name, path: None });
    }
    Ok(config)
}

/// The names of the file systems, which are the paths where spec 3 mounts them.
struct FilesystemNames(Vec<String>);

impl FilesystemNames {
    fn of(filesystems: &[Filesystem]) -> Self {
        Self(filesystems.iter().filter_map(|filesystem| filesystem.path.clone()).collect())
    }

    /// The file system that a path lies in, the longest whose path it starts with, and the rest of the path.
    fn split(&self, path: &str) -> (String, String) {
        let longest =
            self.0.iter().filter(|name| path.starts_with(*name)).max_by_key(|name| name.len());
        match longest.filter(|name| !name.is_empty()) {
            Some(name) => (name.clone(), path[name.len()..].to_owned()),
            None => ("root".to_owned(), path.to_owned()),
        }
    }

    /// A file, and each part appended to it as a separate file. A file with neither has no effect in spec 2.
    fn files(&self, mut file: File) -> serde_json::Result<Vec<spec2::File>> {
        let contents = mem::take(&mut file.contents);
        let parts = mem::take(&mut file.append);
        // In spec 2 a file overwrites by default.
        let overwrite = file.overwrite.take().unwrap_or(false);
        let mut base: spec2::File = converted(file)?;
        (base.filesystem, base.path) = self.split(&base.path);

        let own = contents.source.is_some().then_some((contents, false));
        let files = own.into_iter().chain(parts.into_iter().map(|part| (part, true)));
        files
            .map(|(contents, append)| {
                let (contents, overwrite) = (converted(contents)?, Some(overwrite && !append));
                Ok(spec2::File { overwrite, append, contents, ..base.clone() })
            })
            .collect()
    }
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
            {"path": "/c", "append": [part("data:,4")]},
        ]);
        assert_eq!(
            lowered("storage", &json!({"files": files}))["files"],
            json!([
                {"filesystem": "root", "overwrite": false, "path": "/a", "contents": part("data:,1"), "mode": 420},
                {"filesystem": "root", "overwrite": false, "path": "/a", "append": true, "contents": part("data:,2"), "mode": 420},
                {"filesystem": "root", "overwrite": true, "path": "/b", "contents": part("data:,3"), "mode": 420},
                {"filesystem": "root", "overwrite": false, "path": "/c", "append": true, "contents": part("data:,4")},
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
