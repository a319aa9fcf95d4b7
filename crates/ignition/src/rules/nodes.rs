//! Files, directories and links.
//!
//! Source: the specs' sections `storage.files`, `storage.directories` and `storage.links`.

use std::collections::HashSet;

use super::super::error::FieldPath;
use super::super::fields::Spec;
use super::super::spec3::{File, Link, Owner, Storage, Systemd};
use super::common::{Checked, check_mode, check_path, clean_path, each, says, unique};
use super::resource;

/// Checks every node, and conflicts between them.
pub(super) fn check(
    storage: &Storage,
    systemd: &Systemd,
    spec: Spec,
    at: &FieldPath<'_>,
) -> Checked {
    let Storage { files, directories, links, .. } = storage;
    let (files_at, directories_at, links_at) =
        (at.field("files"), at.field("directories"), at.field("links"));
    each(files, &files_at, |file, at| check_file(file, spec, at))?;
    each(directories, &directories_at, |directory, at| check_mode(directory.mode, at))?;
    each(links, &links_at, |link, at| check_link(link, storage, at))?;

    let mut seen = HashSet::new();
    unique(&mut seen, files, &files_at, |file| &file.path)?;
    unique(&mut seen, directories, &directories_at, |directory| &directory.path)?;
    unique(&mut seen, links, &links_at, |link| &link.path)?;

    let taken = TakenPaths::of(storage, systemd);
    each(files, &files_at, |node, at| taken.check(&node.path, [&node.user, &node.group], at))?;
    each(directories, &directories_at, |node, at| {
        taken.check(&node.path, [&node.user, &node.group], at)
    })?;
    each(links, &links_at, |node, at| taken.check(&node.path, [&node.user, &node.group], at))
}

fn check_file(file: &File, spec: Spec, at: &FieldPath<'_>) -> Checked {
    check_mode(file.mode, at)?;
    resource::check(&file.contents, spec, &at.field("contents"))?;
    each(&file.append, &at.field("append"), |part, at| resource::check(part, spec, at))?;
    if file.overwrite == Some(true) && file.contents.source.is_none() {
        return Err(at.field("overwrite").invalid("there is no source to overwrite with"));
    }
    Ok(())
}

fn check_link(link: &Link, storage: &Storage, at: &FieldPath<'_>) -> Checked {
    let at = at.field("target");
    let Some(target) = link.target.as_ref().filter(|target| !target.is_empty()) else {
        return Err(at.invalid("is missing"));
    };
    if link.hard != Some(true) {
        return Ok(());
    }
    let base = if target.starts_with('/') { "" } else { &link.path };
    let target = clean_path(&format!("{base}/{target}"));
    if storage.directories.iter().any(|directory| directory.path == target) {
        return Err(at.invalid(format!("{target} is a directory, which has no hard links")));
    }
    Ok(())
}

/// Paths that other parts of a config use.
struct TakenPaths<'a> {
    links: HashSet<&'a str>,
    units: HashSet<String>,
}

impl<'a> TakenPaths<'a> {
    fn of(storage: &'a Storage, systemd: &Systemd) -> Self {
        let mut units = HashSet::new();
        for unit in &systemd.units {
            let path = format!("/etc/systemd/system/{}", unit.name);
            for dropin in unit.dropins.iter().filter(|dropin| says(dropin.contents.as_ref())) {
                units.insert(format!("{path}.d/{}", dropin.name));
            }
            if says(unit.contents.as_ref()) {
                units.insert(path);
            }
        }
        Self { links: storage.links.iter().map(|link| link.path.as_str()).collect(), units }
    }

    /// Checks path and owners of a node.
    fn check(&self, path: &str, [user, group]: [&Owner; 2], at: &FieldPath<'_>) -> Checked {
        check_owner(user, &at.field("user"))?;
        check_owner(group, &at.field("group"))?;
        let at = at.field("path");
        check_path(path, &at)?;
        if self.units.contains(path) {
            return Err(at.invalid(format!("{path} is written for a systemd unit or drop-in")));
        }
        let mut parents = path.match_indices('/').map(|(end, _)| &path[..end]);
        match parents.find(|parent| self.links.contains(parent)) {
            Some(link) => Err(at.invalid(format!("{path} is behind the link {link}"))),
            None => Ok(()),
        }
    }
}

fn check_owner(owner: &Owner, at: &FieldPath<'_>) -> Checked {
    if owner.id.is_some() && says(owner.name.as_ref()) {
        return Err(at.invalid("has both an id and a name"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tests::verdict;

    #[test]
    fn nodes_have_clean_absolute_paths_modes_and_one_owner() {
        for (node, reason) in [
            (json!({"path": "/"}), "valid"),
            (json!({"path": "/a/.b/..c", "mode": 0o7777}), "valid"),
            (json!({"path": ""}), "storage.directories[0].path: is empty"),
            (json!({"path": "a"}), "storage.directories[0].path: is not absolute"),
            (
                json!({"path": "/a/"}),
                "storage.directories[0].path: /a/ has an empty, '.' or '..' part",
            ),
            (
                json!({"path": "/a/../b"}),
                "storage.directories[0].path: /a/../b has an empty, '.' or '..' part",
            ),
            (
                json!({"path": "//"}),
                "storage.directories[0].path: // has an empty, '.' or '..' part",
            ),
            (
                json!({"path": "/a", "mode": 4096}),
                "storage.directories[0].mode: 4096 is not within 0 and 4095 (07777)",
            ),
            (
                json!({"path": "/a", "mode": -1}),
                "storage.directories[0].mode: -1 is not within 0 and 4095 (07777)",
            ),
            (json!({"path": "/a", "user": {"id": 0, "name": ""}}), "valid"),
            (
                json!({"path": "/a", "user": {"id": 0, "name": "a"}}),
                "storage.directories[0].user: has both an id and a name",
            ),
            (
                json!({"path": "/a", "group": {"id": 0, "name": "a"}}),
                "storage.directories[0].group: has both an id and a name",
            ),
        ] {
            assert_eq!(verdict(6, "storage", &json!({"directories": [node]})), reason);
        }
    }

    #[test]
    fn only_a_source_overwrites() {
        let file =
            |contents| json!({"files": [{"path": "/a", "overwrite": true, "contents": contents}]});
        assert_eq!(verdict(6, "storage", &file(json!({"source": ""}))), "valid");
        assert_eq!(
            verdict(6, "storage", &file(json!({}))),
            "storage.files[0].overwrite: there is no source to overwrite with"
        );
    }

    #[test]
    fn links_lead_somewhere_and_nothing_lies_behind_them() {
        for (storage, reason) in [
            (
                json!({"links": [{"path": "/l", "target": "t"}], "files": [{"path": "/la"}]}),
                "valid",
            ),
            (json!({"links": [{"path": "/l"}]}), "storage.links[0].target: is missing"),
            (
                json!({"links": [{"path": "/l", "target": "t"}], "files": [{"path": "/l/a"}]}),
                "storage.files[0].path: /l/a is behind the link /l",
            ),
            (
                json!({"links": [{"path": "/l/m", "target": "t"}, {"path": "/l", "target": "t"}]}),
                "storage.links[0].path: /l/m is behind the link /l",
            ),
            (
                json!({"links": [{"path": "/l", "target": "../d"}], "directories": [{"path": "/d"}]}),
                "valid",
            ),
            (
                json!({"links": [{"path": "/l", "target": "../d", "hard": true}], "directories": [{"path": "/d"}]}),
                "storage.links[0].target: /d is a directory, which has no hard links",
            ),
        ] {
            assert_eq!(verdict(6, "storage", &storage), reason);
        }
    }

    #[test]
    fn a_unit_owns_the_file_that_it_is_written_to() {
        let config = |path, contents| {
            json!({
                "ignition": {"version": "3.6.0"},
                "storage": {"files": [{"path": path}]},
                "systemd": {"units": [{"name": "a.service", "contents": contents, "dropins": [{"name": "b.conf", "contents": "[A]"}]}]},
            })
            .to_string()
        };
        let parse = |path, contents| super::super::super::Config::parse(&config(path, contents));
        assert!(parse("/etc/systemd/system/a.service", "").is_ok());
        assert!(parse("/etc/systemd/system/a.service", "[A]").is_err());
        assert!(parse("/etc/systemd/system/a.service.d/b.conf", "").is_err());
    }
}
