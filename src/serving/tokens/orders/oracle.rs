//! Objects as a server must serve them, by the table of docs/src/explanation/changes.md.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::Instant;

use super::site::{Content, File, Id, Objects, PLAIN, State, Tree, is_machine, is_plain};

pub(super) const HOUR: Duration = Duration::from_secs(3600);

/// How an object was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    /// An administrator removed it: its file alone was deleted, or is valid without it.
    Removed,
    Emptied,
    Dangling,
    WithDirectory,
}

#[derive(Debug, Clone)]
struct LostObject {
    content: Content,
    file: PathBuf,
    folder: Option<u32>,
    why: Why,
    since: Instant,
    is_with_most: bool,
}

/// Objects of the last valid text of a file.
#[derive(Debug, Clone, Default)]
struct KnownFile {
    folder: Option<u32>,
    objects: Objects,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Presence {
    Served(Content),
    /// Served as it last was, and its token waits.
    Missing(Content),
    Absent,
}

/// Knowledge of the files, and what follows.
#[derive(Debug, Clone, Default)]
pub(super) struct Oracle {
    known: BTreeMap<PathBuf, KnownFile>,
    lost: BTreeMap<Id, LostObject>,
    served: BTreeMap<Id, Content>,
}

impl Oracle {
    pub(super) fn presence(&self, id: Id) -> Presence {
        match (self.served.get(id), self.lost.get(id)) {
            (Some(content), _) => Presence::Served(*content),
            (None, Some(lost)) => Presence::Missing(lost.content),
            (None, None) => Presence::Absent,
        }
    }

    /// The object as it is served, and the file that had it.
    pub(super) fn content(&self, id: Id) -> Option<(Content, PathBuf)> {
        let lost = self.lost.get(id).map(|lost| (lost.content, lost.file.clone()));
        let mut known = self.known.iter();
        let known = known.find_map(|(path, file)| {
            let (_, content) = file.objects.iter().find(|(known, _)| *known == id)?;
            Some((*content, path.clone()))
        });
        known.or(lost)
    }

    /// Returns `true` if anything is known of an object.
    pub(super) fn knows(&self, id: Id) -> bool {
        let mut known = self.known.values().flat_map(|file| &file.objects);
        self.lost.contains_key(id) || known.any(|(known, _)| *known == id)
    }

    /// Takes what another process knew.
    pub(super) fn restart(&mut self, now: Instant) {
        for lost in self.lost.values_mut() {
            lost.since = now;
            // Where a config without a manifest was is not stored once it is lost.
            lost.folder = lost.folder.filter(|_| !is_plain(&lost.file));
        }
    }

    /// An administrator says that a machine is removed.
    pub(super) fn remove(&mut self, id: Id) {
        self.lost.remove(id);
        for file in self.known.values_mut() {
            file.objects.retain(|(known, _)| *known != id);
        }
        self.served.remove(id);
    }

    /// An object was removed with most others for a moment, and may wait.
    pub(super) fn wait(&mut self, id: Id, content: Content, file: &Path, now: Instant) {
        let (file, why) = (file.to_owned(), Why::Removed);
        let lost = LostObject { content, file, folder: None, why, since: now, is_with_most: true };
        self.lost.insert(id, lost);
    }

    /// Judges what is there once nothing has changed for a while.
    pub(super) fn judge(&mut self, visible: Option<&Tree>, now: Instant) {
        let nothing = Tree::default();
        let tree = visible.unwrap_or(&nothing);
        for (path, file) in &tree.files {
            self.read(path, file, folder_of(tree, path), now);
        }
        let (known, missing) = std::mem::take(&mut self.known)
            .into_iter()
            .partition(|(path, _)| tree.files.contains_key(path));
        self.known = known;
        for (path, KnownFile { folder, objects }) in BTreeMap::<_, _>::into_iter(missing) {
            self.lose(&objects, &path, folder, (Why::WithDirectory, now));
        }
        for lost in self.lost.values_mut().filter(|lost| lost.why != Why::Removed) {
            let folder = folder_of(tree, &lost.file);
            let why = match tree.files.get(&lost.file).map(|file| file.state) {
                Some(State::Dangling) => Why::Dangling,
                Some(State::Valid) if folder == lost.folder => Why::Removed,
                Some(_) => lost.why,
                None if folder.is_some() && folder == lost.folder => Why::Removed,
                None => Why::WithDirectory,
            };
            if why != lost.why {
                (lost.why, lost.since) = (why, now);
            }
        }
        self.served.clear();
        for (id, content) in self.known.values().flat_map(|file| &file.objects) {
            self.served.entry(*id).or_insert(*content);
        }
        self.lost.retain(|id, _| !self.served.contains_key(id));
        self.note_majority(is_machine);
        self.note_majority(|id| id.starts_with("p-") || id.starts_with('e'));
        self.lost.retain(|_, lost| {
            let is_removed = lost.why == Why::Removed && !lost.is_with_most;
            !is_removed && now - lost.since < HOUR
        });
    }

    fn read(&mut self, path: &Path, file: &File, folder: Option<u32>, now: Instant) {
        let known = self.known.entry(path.to_owned()).or_default();
        let before = known.folder;
        let has_any = !known.objects.is_empty();
        known.folder = folder;
        let (objects, why) = match file.state {
            State::Valid if before == folder => (file.objects.clone(), Why::Removed),
            State::Valid => (file.objects.clone(), Why::WithDirectory),
            State::Empty if !is_plain(path) => (Vec::new(), Why::Emptied),
            State::Dangling => (Vec::new(), Why::Dangling),
            State::Comment if !has_any && !is_plain(path) => (Vec::new(), Why::Emptied),
            State::Invalid | State::Comment | State::Empty => {
                // As it last was. A config without a manifest is back with its file, whatever that says.
                let back = if is_plain(path) { self.lost.remove(PLAIN) } else { None };
                known.objects.extend(back.map(|lost| (PLAIN, lost.content)));
                return;
            }
        };
        let lost = std::mem::replace(&mut known.objects, objects);
        let kept: Vec<_> = known.objects.iter().map(|(id, _)| *id).collect();
        let lost: Vec<_> = lost.into_iter().filter(|(id, _)| !kept.contains(id)).collect();
        let folder = if why == Why::Emptied { folder } else { before };
        self.lose(&lost, path, folder, (why, now));
    }

    fn lose(
        &mut self,
        objects: &Objects,
        file: &Path,
        folder: Option<u32>,
        (why, since): (Why, Instant),
    ) {
        for (id, content) in objects {
            let (content, file) = (*content, file.to_owned());
            let lost = LostObject { content, file, folder, why, since, is_with_most: false };
            self.lost.entry(*id).or_insert(lost);
        }
    }

    /// Losing more than half of a kind at once is an accident.
    fn note_majority(&mut self, is_counted: impl Fn(Id) -> bool) {
        let served = self.served.keys().filter(|id| is_counted(id)).count();
        let lost = self.lost.iter_mut().filter(|(id, _)| is_counted(id));
        let lost: Vec<_> = lost.map(|(_, lost)| lost).collect();
        let all = served + lost.len();
        let is_new = |lost: &&mut LostObject| lost.why == Why::Removed && !lost.is_with_most;
        let new: Vec<_> = lost.into_iter().filter(is_new).collect();
        if 2 * new.len() > all {
            for lost in new {
                lost.is_with_most = true;
            }
        }
    }
}

fn folder_of(tree: &Tree, path: &Path) -> Option<u32> {
    tree.folders.get(path.parent()?).copied()
}
