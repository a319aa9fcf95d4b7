//! Files, directories and links.
//!
//! Source: the specs' sections `storage.files`, `storage.directories` and `storage.links`.

use std::collections::HashSet;

use super::super::error::At;
use super::super::fields::Spec;
use super::super::spec3::{Link, Owner, Storage, Systemd};
use super::{Checked, check_mode, check_path, clean_path, resource, says, unique};

/// Every node for itself, and all of them together.
pub(super) fn check(storage: &Storage, systemd: &Systemd, spec: Spec, at: &At<'_>) -> Checked {
    let (files_at, directories_at, links_at) =
        (at.field("files"), at.field("directories"), at.field("links"));
    for (i, file) in storage.files.iter().enumerate() {
        let at = files_at.item(i);
        check_mode(file.mode, &at)?;
        resource::check(&file.contents, spec, &at.field("contents"))?;
        for (k, part) in file.append.iter().enumerate() {
            resource::check(part, spec, &at.field("append").item(k))?;
        }
        if file.overwrite == Some(true) && file.contents.source.is_none() {
            return Err(at.field("overwrite").invalid("there is no source to overwrite with"));
        }
    }
    for (i, directory) in storage.directories.iter().enumerate() {
        check_mode(directory.mode, &directories_at.item(i))?;
    }
    for (i, link) in storage.links.iter().enumerate() {
        check_link(link, storage, &links_at.item(i))?;
    }

    let mut seen = HashSet::new();
    unique(&mut seen, &storage.files, &files_at, |file| &file.path)?;
    unique(&mut seen, &storage.directories, &directories_at, |directory| &directory.path)?;
    unique(&mut seen, &storage.links, &links_at, |link| &link.path)?;

    let places = Places::of(storage, systemd);
    let files = storage.files.iter().map(|n| (&n.path, &n.user, &n.group));
    let directories = storage.directories.iter().map(|n| (&n.path, &n.user, &n.group));
    let links = storage.links.iter().map(|n| (&n.path, &n.user, &n.group));
    places.check(files, &files_at)?;
    places.check(directories, &directories_at)?;
    places.check(links, &links_at)
}

fn check_link(link: &Link, storage: &Storage, at: &At<'_>) -> Checked {
    let Some(target) = link.target.as_ref().filter(|target| !target.is_empty()) else {
        return Err(at.field("target").invalid("is missing"));
    };
    if link.hard != Some(true) {
        return Ok(());
    }
    let target = if target.starts_with('/') {
        clean_path(target)
    } else {
        clean_path(&format!("{}/{target}", link.path))
    };
    if storage.directories.iter().any(|directory| directory.path == target) {
        return Err(at
            .field("target")
            .invalid(format!("{target} is a directory, which has no hard links")));
    }
    Ok(())
}

/// The paths that other parts of a config have taken.
struct Places<'a> {
    links: HashSet<&'a str>,
    units: HashSet<String>,
}

impl<'a> Places<'a> {
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

    /// Paths and owners of nodes of one kind.
    fn check<'n>(
        &self,
        nodes: impl Iterator<Item = (&'n String, &'n Owner, &'n Owner)>,
        at: &At<'_>,
    ) -> Checked {
        for (i, (path, user, group)) in nodes.enumerate() {
            let at = at.item(i);
            check_owner(user, &at.field("user"))?;
            check_owner(group, &at.field("group"))?;
            let at = at.field("path");
            check_path(path, &at)?;
            if self.units.contains(path.as_str()) {
                return Err(at.invalid(format!("{path} is written for a systemd unit or drop-in")));
            }
            let mut parents = path.match_indices('/').map(|(end, _)| &path[..end]);
            if let Some(link) = parents.find(|parent| self.links.contains(parent)) {
                return Err(at.invalid(format!("{path} lies behind the link {link}")));
            }
        }
        Ok(())
    }
}

fn check_owner(owner: &Owner, at: &At<'_>) -> Checked {
    if owner.id.is_some() && says(owner.name.as_ref()) {
        return Err(at.invalid("has both an id and a name"));
    }
    Ok(())
}
