//! Files of a site: what an administrator means them to say, and what accidents make of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::Instant;

/// Name of an object: `m-` machines, `p-` pools, `c-` MachineConfigs; others are configs without a manifest.
pub(super) type Id = &'static str;

/// An object by one text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Content {
    pub(super) revision: u32,
    /// Pool of a machine, empty for others.
    pub(super) pool: Id,
}

pub(super) type Objects = Vec<(Id, Content)>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Valid,
    /// Not YAML, as in the middle of a write.
    Invalid,
    /// Valid, with a comment and nothing else.
    Comment,
    Empty,
    /// A link that leads nowhere.
    Dangling,
}

#[derive(Debug, Clone)]
pub(super) struct File {
    pub(super) state: State,
    /// The contents that its administrator means.
    pub(super) objects: Objects,
}

/// A directory of manifests.
#[derive(Debug, Clone, Default)]
pub(super) struct Tree {
    pub(super) files: BTreeMap<PathBuf, File>,
    /// Folders that are there, each with a number that no other one has.
    pub(super) folders: BTreeMap<PathBuf, u32>,
}

/// The thing in the place of the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InPlace {
    Nothing,
    EmptyDirectory,
    /// A directory with other machines, one of its files with the name of one of ours.
    WrongDirectory,
}

pub(super) struct Site {
    directory: TempDir,
    /// The thing that is visible in the place of the directory.
    pub(super) visible: Option<Tree>,
    /// The administrator's directory, while it is elsewhere.
    elsewhere: Option<Tree>,
    /// The folder `more`, while it is elsewhere.
    hidden: Option<(u32, BTreeMap<PathBuf, File>)>,
    last_folder: u32,
    last_revision: u32,
    /// Objects with the revisions that a whole text has said.
    written: BTreeSet<(Id, u32)>,
    /// Time of the last change of a file.
    pub(super) changed_at: Instant,
}

/// File that kubelet has as a link.
pub(super) const LINKED: &str = "kubelet.yaml";
const FOLDER: &str = "more";
/// A config without a manifest.
pub(super) const PLAIN: Id = "edge.ign";

const FILES: [(&str, &[Id]); 9] = [
    ("machines.yaml", &["m-a", "m-b"]),
    ("m-c.yaml", &["m-c"]),
    ("machine-m-d.yaml", &["m-d"]),
    ("more/m-e.yaml", &["m-e"]),
    (LINKED, &["m-f"]),
    ("pools.yaml", &["p-x", "c-x"]),
    ("p-y.yaml", &["p-y"]),
    ("p-z.yaml", &["c-y", "p-z"]),
    (PLAIN, &[PLAIN]),
];

const WRONG_FILES: [(&str, &[Id]); 3] = [
    ("machines.yaml", &["m-q", "m-r"]),
    ("more/other.yaml", &["m-s", "m-t"]),
    ("w.yaml", &["p-w"]),
];

pub(super) fn is_machine(id: Id) -> bool {
    id.starts_with("m-")
}

pub(super) fn is_plain(path: &Path) -> bool {
    path == Path::new(PLAIN)
}

pub(super) fn ids() -> impl Iterator<Item = Id> {
    FILES.iter().chain(&WRONG_FILES).flat_map(|(_, ids)| ids.iter().copied())
}

/// Files that the directory has in the beginning.
pub(super) fn names() -> Vec<PathBuf> {
    FILES.iter().map(|(file, _)| file.into()).collect()
}

/// Address of the network that a machine of this revision may ask from.
pub(super) fn address(revision: u32) -> std::net::Ipv4Addr {
    (0x0a00_0000 + revision).into()
}

impl Site {
    pub(super) fn new() -> Self {
        let directory = match Path::new("/dev/shm") {
            memory if memory.is_dir() => tempfile::tempdir_in(memory).unwrap(),
            _ => tempfile::tempdir().unwrap(),
        };
        let mut site = Self {
            directory,
            visible: None,
            elsewhere: None,
            hidden: None,
            last_folder: 0,
            last_revision: 0,
            written: BTreeSet::new(),
            changed_at: Instant::now(),
        };
        site.make_tree(&FILES);
        site
    }

    pub(super) fn root(&self) -> PathBuf {
        self.directory.path().join("manifests")
    }

    pub(super) fn state(&self) -> PathBuf {
        self.directory.path().join("state")
    }

    fn path(&self, file: &Path) -> PathBuf {
        self.root().join(file)
    }

    fn make_tree(&mut self, files: &[(&str, &[Id])]) {
        fs::create_dir_all(self.path(Path::new(FOLDER))).unwrap();
        let folders = ["", FOLDER].map(|folder| (folder.into(), self.new_folder()));
        self.visible = Some(Tree { folders: folders.into(), files: BTreeMap::new() });
        for (file, ids) in files {
            let objects = ids.iter().map(|id| (*id, self.new_content(id, "p-x"))).collect();
            self.rename_into_place(Path::new(file), objects);
        }
    }

    fn new_folder(&mut self) -> u32 {
        self.last_folder += 1;
        self.last_folder
    }

    /// A content that no object had before.
    pub(super) fn new_content(&mut self, id: Id, pool: Id) -> Content {
        self.last_revision += 1;
        let pool = if is_machine(id) { pool } else { "" };
        Content { revision: self.last_revision, pool }
    }

    /// Returns `true` if a whole text said this of an object.
    pub(super) fn was_written(&self, id: Id, content: Content) -> bool {
        self.written.contains(&(id, content.revision))
    }

    /// Objects that a file had in the beginning, and that no file is meant to have.
    pub(super) fn unused_of(&self, file: &Path) -> Vec<Id> {
        let meant = self.meant();
        let ids = FILES.iter().filter(|(name, _)| Path::new(name) == file);
        let ids = ids.flat_map(|(_, ids)| ids.iter().copied());
        ids.filter(|id| meant.iter().all(|(meant, _)| meant != id)).collect()
    }

    /// The administrator's directory, if it is in its place.
    pub(super) fn own(&self) -> Option<&Tree> {
        self.visible.as_ref().filter(|_| !self.is_lost())
    }

    pub(super) fn is_lost(&self) -> bool {
        self.elsewhere.is_some()
    }

    pub(super) fn is_folder_hidden(&self) -> bool {
        self.hidden.is_some()
    }

    /// Objects that the administrator means to have, by what the files are meant to say.
    pub(super) fn meant(&self) -> Objects {
        let own = self.elsewhere.as_ref().or(self.visible.as_ref()).unwrap();
        let hidden = self.hidden.iter().flat_map(|(_, files)| files.values());
        own.files.values().chain(hidden).flat_map(|file| file.objects.clone()).collect()
    }

    fn tree(&mut self) -> &mut Tree {
        self.changed_at = Instant::now();
        self.visible.as_mut().unwrap()
    }

    fn set(&mut self, file: &Path, state: State, objects: Objects) {
        self.written.extend(objects.iter().map(|(id, content)| (*id, content.revision)));
        self.tree().files.insert(file.to_owned(), File { state, objects });
    }

    /// Marks a file as being in a state; what it is meant to say stays.
    fn mark(&mut self, file: &Path, state: State) {
        self.tree().files.get_mut(file).unwrap().state = state;
    }

    pub(super) fn rename_into_place(&mut self, file: &Path, objects: Objects) {
        self.prepare(file, &objects);
        self.put_in_place(file, objects);
    }

    /// Writes a new file beside, with a name that nobody reads.
    pub(super) fn prepare(&self, file: &Path, objects: &Objects) {
        fs::write(self.beside(file), text(file, objects)).unwrap();
    }

    pub(super) fn put_in_place(&mut self, file: &Path, objects: Objects) {
        fs::rename(self.beside(file), self.path(file)).unwrap();
        self.set(file, State::Valid, objects);
    }

    fn beside(&self, file: &Path) -> PathBuf {
        let name = file.file_name().unwrap().to_str().unwrap();
        self.path(file).with_file_name(format!(".{name}.tmp"))
    }

    /// Writes the text of a file in place, if it is not a link that leads nowhere.
    fn write_bytes(&mut self, file: &Path, bytes: &str) {
        let path = self.path(file);
        if path.is_symlink() && !path.exists() {
            fs::remove_file(&path).unwrap();
        }
        fs::write(&path, bytes).unwrap();
        self.changed_at = Instant::now();
    }

    pub(super) fn write_in_place(&mut self, file: &Path, objects: Objects) {
        self.write_bytes(file, &text(file, &objects));
        self.set(file, State::Valid, objects);
    }

    /// Writes the first half of a text: whole documents if `is_valid`, else it ends within one.
    pub(super) fn write_half(&mut self, file: &Path, objects: &Objects, is_valid: bool) {
        let text = text(file, objects);
        let cut = text.rfind("---").filter(|at| is_valid && *at > 0).unwrap_or(text.len() - 9);
        self.write_bytes(file, &text[..cut]);
    }

    /// Empties a file, breaks it, or makes it a link that leads nowhere.
    pub(super) fn damage(&mut self, file: &Path, state: State) {
        match state {
            State::Valid => return self.repair(file),
            State::Invalid => self.write_bytes(file, "kind: MachineConfig\nspec: ["),
            State::Comment => self.write_bytes(file, "# What was here is being written again.\n"),
            State::Empty => self.write_bytes(file, ""),
            State::Dangling => {
                fs::remove_file(self.path(file)).unwrap();
                symlink("/nowhere/manifest.yaml", self.path(file)).unwrap();
            }
        }
        self.mark(file, state);
    }

    pub(super) fn repair(&mut self, file: &Path) {
        let objects = self.visible.as_ref().unwrap().files[file].objects.clone();
        self.write_in_place(file, objects);
    }

    pub(super) fn remove(&mut self, file: &Path) -> File {
        fs::remove_file(self.path(file)).unwrap();
        self.tree().files.remove(file).unwrap()
    }

    /// Swaps the folder that the link [`LINKED`] leads through, as kubelet does.
    pub(super) fn swap_data(&mut self, objects: Objects) {
        let version = format!("..version-{}", self.new_folder());
        let (root, data) = (self.root(), self.path(Path::new("..data")));
        fs::create_dir(root.join(&version)).unwrap();
        fs::write(root.join(&version).join(LINKED), text(Path::new(LINKED), &objects)).unwrap();
        symlink(&version, root.join("..data_tmp")).unwrap();
        let before = fs::read_link(&data).ok();
        fs::rename(root.join("..data_tmp"), data).unwrap();
        if let Some(before) = before {
            fs::remove_dir_all(root.join(before)).unwrap();
        }
        let link = Path::new("..data").join(LINKED);
        if fs::read_link(root.join(LINKED)).ok().as_ref() != Some(&link) {
            symlink(&link, root.join("..link_tmp")).unwrap();
            fs::rename(root.join("..link_tmp"), root.join(LINKED)).unwrap();
        }
        self.set(Path::new(LINKED), State::Valid, objects);
    }

    /// Takes the directory from its place, as when it is not mounted.
    pub(super) fn lose_directory(&mut self, in_place: InPlace) {
        fs::rename(self.root(), self.directory.path().join("elsewhere")).unwrap();
        self.elsewhere = self.visible.take();
        self.changed_at = Instant::now();
        match in_place {
            InPlace::Nothing => {}
            InPlace::EmptyDirectory => {
                fs::create_dir(self.root()).unwrap();
                let folders = [(PathBuf::new(), self.new_folder())].into();
                self.visible = Some(Tree { folders, files: BTreeMap::new() });
            }
            InPlace::WrongDirectory => self.make_tree(&WRONG_FILES),
        }
    }

    pub(super) fn return_directory(&mut self) {
        if self.visible.is_some() {
            fs::remove_dir_all(self.root()).unwrap();
        }
        fs::rename(self.directory.path().join("elsewhere"), self.root()).unwrap();
        self.visible = self.elsewhere.take();
        self.changed_at = Instant::now();
    }

    pub(super) fn hide_folder(&mut self) {
        fs::rename(self.path(Path::new(FOLDER)), self.path(Path::new(".more"))).unwrap();
        let tree = self.tree();
        let (files, others) = std::mem::take(&mut tree.files)
            .into_iter()
            .partition(|(path, _)| path.starts_with(FOLDER));
        tree.files = others;
        let folder = tree.folders.remove(Path::new(FOLDER)).unwrap();
        self.hidden = Some((folder, files));
    }

    pub(super) fn return_folder(&mut self) {
        fs::rename(self.path(Path::new(".more")), self.path(Path::new(FOLDER))).unwrap();
        let (folder, files) = self.hidden.take().unwrap();
        self.tree().files.extend(files);
        self.tree().folders.insert(FOLDER.into(), folder);
    }

    /// Replaces the directory by a new one at once, as programs do that roll out releases.
    pub(super) fn roll_out(&mut self, change: impl FnOnce(&mut BTreeMap<PathBuf, File>)) {
        let old = self.directory.path().join("old");
        fs::rename(self.root(), &old).unwrap();
        let mut files = self.visible.take().unwrap().files;
        change(&mut files);
        self.make_tree(&[]);
        for (path, File { objects, .. }) in files {
            self.rename_into_place(&path, objects);
        }
        fs::remove_dir_all(old).unwrap();
    }
}

fn text(file: &Path, objects: &Objects) -> String {
    let documents = objects.iter().map(|(id, content)| document(id, *content).to_string());
    let documents: Vec<_> = documents.collect();
    if is_plain(file) { documents.concat() } else { documents.join("\n---\n") }
}

/// A manifest, or a config without one. Each revision has another length, so that each has another stamp.
fn document(id: Id, Content { revision, pool }: Content) -> Value {
    let pad = "x".repeat(revision as usize % 61);
    let config = json!({
        "ignition": {"version": "3.4.0"},
        "storage": {"files": [
            {"path": format!("/etc/m{pad}"), "contents": {"source": format!("data:,{revision}")}},
        ]},
    });
    let api = "machineconfiguration.openshift.io/v1";
    let mut object = match id.split_once('-') {
        Some(("m", _)) => json!({
            "apiVersion": "machine-config-server.io/v1alpha1", "kind": "FirstBootMachine",
            "spec": {"pool": pool, "addresses": [address(revision)]},
        }),
        Some(("p", _)) => json!({
            "apiVersion": api, "kind": "MachineConfigPool",
            "spec": {"configuration": {"name": format!("r-{revision}")}},
        }),
        Some(("c", _)) => json!({
            "apiVersion": api, "kind": "MachineConfig", "spec": {"config": config},
        }),
        _ => return config,
    };
    object["metadata"] = json!({"name": id, "annotations": {"pad": pad}});
    object
}
