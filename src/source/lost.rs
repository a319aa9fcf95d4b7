//! Objects that a directory no longer has, until they are back or removed.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use model::escape::listed;
use model::inputs::{Missing, Problem};
use model::objects::{Object, ObjectKind};
use model::presence::{Kind, Loss, Lost, Presence, note_majorities};

use super::last_good::StoredLoss;
use super::listing::Listing;
use super::object_set::{Identity, ObjectSet, Objects, identity};
use super::place::{DirectoryId, Place, relative};

/// Maximum number of missing objects that a report names.
const MAX_NAMED: usize = 5;

#[derive(Debug)]
pub(super) struct LostObject {
    pub(super) place: Place,
    /// `None` for a config without a manifest.
    object: Option<Object>,
    pub(super) lost: Lost,
    /// Presence at the last look.
    presence: Presence,
}

#[derive(Debug, Default)]
pub(super) struct LostObjects {
    objects: BTreeMap<Identity, LostObject>,
    /// True if what is to be stored has changed.
    pub(super) is_changed: bool,
    /// True once this process has looked at the files itself.
    has_looked: bool,
}

impl LostObjects {
    /// Adds objects of a file that it no longer has.
    pub(super) fn add(
        &mut self,
        place: &Place,
        objects: impl IntoIterator<Item = Object>,
        loss: Loss,
        now: Duration,
    ) {
        for object in objects {
            self.insert(identity(&object).to_owned(), place, Some(object), (loss, now));
        }
    }

    /// Takes over an object that was lost in an earlier process.
    pub(super) fn restore(
        &mut self,
        place: &Place,
        object: Object,
        (loss, is_with_most): (Loss, bool),
    ) {
        let identity = identity(&object).to_owned();
        self.add(place, [object], loss, Duration::ZERO);
        if let Some(object) = self.objects.get_mut(&identity) {
            object.lost.is_with_most = is_with_most;
        }
    }

    /// Adds a config without a manifest.
    pub(super) fn add_plain(&mut self, place: &Place, loss: Loss, now: Duration) {
        self.insert(Identity::of_plain(&place.path), place, None, (loss, now));
    }

    fn insert(
        &mut self,
        identity: Identity,
        place: &Place,
        object: Option<Object>,
        (loss, now): (Loss, Duration),
    ) {
        let kind = match object {
            Some(Object::FirstBootMachine(_)) => Kind::Machine,
            Some(Object::MachineConfigPool(_)) | None => Kind::Pool,
            Some(_) => Kind::Other,
        };
        if let Entry::Vacant(entry) = self.objects.entry(identity) {
            let new = if self.has_looked { Lost::new } else { Lost::found };
            let (place, presence) = (place.clone(), Presence::Present);
            entry.insert(LostObject { place, object, lost: new(kind, loss, now), presence });
            self.is_changed = true;
        }
    }

    /// Notes that a file was read, valid and without the objects that were lost of it in the same directory.
    pub(super) fn read(&mut self, path: &Path, directory: Option<DirectoryId>, now: Duration) {
        let is_of_it = |it: &&mut LostObject| {
            it.place.path == path && directory.is_some() && it.place.directory == directory
        };
        for object in self.objects.values_mut().filter(is_of_it) {
            object.lost.seen(Loss::ReadWithout, now);
        }
    }

    /// Notes what became of the files since.
    pub(super) fn look(&mut self, listing: &Listing, now: Duration) {
        for LostObject { place, lost, .. } in self.objects.values_mut() {
            if let Some(loss) = listing.loss_of(&place.path, place.directory) {
                lost.seen(loss, now);
            }
        }
    }

    pub(super) fn has_any(&self) -> bool {
        !self.objects.is_empty()
    }

    /// Notes that a command has removed a machine.
    pub(super) fn remove_machine(&mut self, name: &str) {
        let is_it = |identity: &Identity, lost: &LostObject| {
            lost.lost.kind == Kind::Machine && *identity.name == *name
        };
        let of_it = self.objects.iter_mut().filter(|(identity, lost)| is_it(identity, lost));
        of_it.for_each(|(_, lost)| lost.lost.confirm());
    }

    /// Files of lost configs without a manifest.
    pub(super) fn plain(&self) -> impl Iterator<Item = &Path> {
        self.objects.values().filter(|it| it.object.is_none()).map(|it| &*it.place.path)
    }

    /// The lost objects of manifests, for the index of what was served.
    pub(super) fn stored(&self, root: &Path) -> Vec<StoredLoss> {
        let manifests = self.objects.iter().filter(|(_, lost)| lost.object.is_some());
        let stored = |(identity, LostObject { place, lost, .. }): (&Identity, &LostObject)| {
            let Identity { kind, namespace, name } = identity;
            Some(StoredLoss {
                path: relative(root, &place.path),
                text: place.text.clone()?,
                directory: place.directory,
                loss: lost.loss,
                is_with_most: lost.is_with_most,
                kind: (*kind).to_owned(),
                namespace: namespace.to_string(),
                name: name.to_string(),
            })
        };
        manifests.filter_map(stored).collect()
    }

    /// Discards the objects that are back among `gathered` or in the files `plain`, and those that are removed. Returns
    /// true if the presence of one has changed.
    pub(super) fn judge(
        &mut self,
        gathered: &ObjectSet,
        plain: &BTreeSet<&Path>,
        now: Duration,
    ) -> bool {
        let before = self.objects.len();
        self.has_looked = true;
        self.objects.retain(|identity, lost| match lost.object {
            Some(_) => !gathered.contains(identity),
            None => !plain.contains(&*lost.place.path),
        });
        let mut is_changed = false;
        note_majorities(self.objects.values_mut().map(|it| &mut it.lost), |kind| match kind {
            Kind::Machine => gathered.machines.len(),
            Kind::Pool => gathered.pools.len() + plain.len(),
            Kind::Other => 0,
        });
        self.objects.retain(|identity, object| {
            let presence = object.lost.presence(now);
            if presence != object.presence {
                is_changed = true;
                object.presence = presence;
                report(identity, object);
            }
            presence != Presence::Removed
        });
        is_changed |= self.objects.len() != before;
        self.is_changed |= is_changed;
        is_changed
    }

    /// The objects of manifests that are not removed, by the file that had them.
    pub(super) fn by_file(&self) -> BTreeMap<&Path, Objects> {
        let mut files: BTreeMap<&Path, Vec<Object>> = BTreeMap::new();
        for LostObject { object, place, .. } in self.objects.values() {
            if let Some(object) = object {
                files.entry(&place.path).or_default().push(object.clone());
            }
        }
        files.into_iter().map(|(path, objects)| (path, objects.into())).collect()
    }

    /// The missing objects, with a report for each kind and cause.
    pub(super) fn missing(&self) -> Missing {
        let mut groups: BTreeMap<(&str, &str), Vec<&Identity>> = BTreeMap::new();
        let mut missing = Missing::default();
        for (identity, object) in &self.objects {
            if object.presence != Presence::Missing {
                continue;
            }
            if object.lost.kind == Kind::Machine {
                missing.machines.insert(identity.name.to_string());
            }
            // What an administrator has removed before a restart is no fault.
            if object.lost.is_meant() {
                continue;
            }
            groups.entry((identity.kind, cause(&object.lost))).or_default().push(identity);
        }
        let report = |((kind, cause), lost): ((&str, &str), Vec<&Identity>)| {
            let names: Vec<_> = lost.iter().map(|it| &*it.name).collect();
            let place = format!("{kind} {}", listed(&names, MAX_NAMED));
            Problem::whole(place.trim(), format!("is missing: {cause}; {}", effect(kind)))
        };
        missing.reports = groups.into_iter().map(report).collect();
        missing
    }

    /// Time until the next presence changes, if that is soon.
    pub(super) fn due_in(&self, now: Duration) -> Option<Duration> {
        let recent = self.objects.values().filter(|it| it.lost.is_recent(now));
        recent.map(|it| it.lost.due_in(now)).min()
    }
}

fn report(identity: &Identity, LostObject { place, lost, presence, .. }: &LostObject) {
    let (kind, name) = (identity.kind, &*identity.name);
    // Missing ones are reported together.
    if *presence == Presence::Removed {
        let path = place.path.display();
        tracing::info!(kind, name, %path, cause = cause(lost), "an object was removed");
    }
}

fn cause(lost: &Lost) -> &'static str {
    match lost.loss {
        Loss::Emptied => "its file is empty",
        Loss::Dangling => "its file is a link that leads nowhere",
        Loss::WithDirectory => "its directory is missing, or another one is in its place",
        Loss::ReadWithout | Loss::Unlinked if lost.is_with_most => match lost.kind {
            Kind::Machine => "it was removed with most machines at once",
            Kind::Pool | Kind::Other => "it was removed with most pools at once",
        },
        Loss::ReadWithout => "its file is without it",
        Loss::Unlinked => "its file was removed",
    }
}

/// Effect of a missing object of a kind.
fn effect(kind: &str) -> &'static str {
    if kind == ObjectKind::FIRST_BOOT_MACHINE.name {
        "its token gets 503 until it is back, and is revoked after an hour; `machines remove` revokes it now"
    } else {
        "what it says is served for an hour as it was"
    }
}

#[cfg(test)]
mod tests {
    use super::super::manifest;
    use super::super::object_set::Layer;
    use super::super::place::TextHash;
    use super::*;

    fn machine(name: &str) -> Vec<Object> {
        let text = format!(
            r#"{{"apiVersion": "machine-config-server.io/v1alpha1", "kind": "FirstBootMachine",
                "metadata": {{"name": "{name}"}}, "spec": {{"pool": "worker"}}}}"#
        );
        manifest::parse(text.as_bytes()).unwrap()
    }

    fn place() -> Place {
        let (directory, text) = (Some((1, 2)), Some(TextHash::of(b"")));
        Place { path: "/site/machines.yaml".into(), directory, text }
    }

    fn judge(lost: &mut LostObjects, present: &[Vec<Object>], now: Duration) {
        let mut gathered = ObjectSet::default();
        let objects = present.concat().into();
        gathered.update(Layer::Manifests, [(Path::new("/site/m.yaml"), &objects)]);
        lost.judge(&gathered, &BTreeSet::new(), now);
    }

    #[test]
    fn machines_that_were_lost_with_most_are_so_after_a_restart_with_many_new_ones() {
        let (start, soon) = (Duration::ZERO, Duration::from_secs(1));
        let mut before = LostObjects::default();
        for name in ["a", "b"] {
            before.add(&place(), machine(name), Loss::Unlinked, start);
        }
        judge(&mut before, &[machine("c")], start);
        judge(&mut before, &[machine("c")], soon);
        assert_eq!(before.missing().machines.len(), 2);
        let mut after = LostObjects::default();
        for stored in before.stored(Path::new("/site")) {
            let object = machine(&stored.name).remove(0);
            after.restore(&place(), object, (stored.loss, stored.is_with_most));
        }
        let present: Vec<_> = ["c", "d", "e", "f"].map(machine).into();
        judge(&mut after, &present, start);
        judge(&mut after, &present, soon);
        assert_eq!(after.missing().machines.len(), 2);
    }
}
