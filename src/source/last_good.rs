//! The last good texts of a directory's files, in the state directory: a server that is started with a file that is
//! broken, empty or not there yet serves what the last one served.
//!
//! ```text
//! last-good/index.json   which file had which text, and what was lost
//! last-good/texts/HASH   a text, by its SHA-256
//! ```
//!
//! YAML is stored as JSON: a restart does not wait for the YAML parser. The digest of its file tells that this is still
//! the same.
//!
//! Texts are on the disk before the index that names them, and removed after it. A text that does not have its hash
//! counts as missing, so that a power cut leaves the texts that were written whole.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use common::parallel;
use files::bounded::{self, entries_if_there, read_if_there, remove_if_there};
use files::error::FileError;
use files::owners::Reader;
use files::replace::{self, PRIVATE};
use model::objects::{FirstBootMachine, Object, ObjectKind};
use model::presence::Loss;
use serde::{Deserialize, Serialize};

use super::files::is_machine;
use super::manifest;
use super::place::{DirectoryId, TextHash};

/// Stored state of the files, without the texts.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Index {
    /// Path of the directory, as it was given to the server; `None` from a version that did not store it.
    #[serde(default)]
    pub(super) root: Option<String>,
    /// Files by their path in the directory.
    pub(super) files: BTreeMap<PathBuf, StoredFile>,
    /// Objects that were lost and not removed.
    #[serde(default)]
    pub(super) lost: Vec<StoredLoss>,
    /// Digest of all files and their stamps, if each of them was valid.
    #[serde(default)]
    pub(super) stamps: Option<u64>,
    /// Files of each pool whose config is made of manifests alone.
    #[serde(default)]
    pub(super) pools: BTreeMap<String, BTreeSet<PathBuf>>,
    /// Files with objects that all pools share.
    #[serde(default)]
    pub(super) shared: BTreeSet<PathBuf>,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StoredFile {
    pub(super) text: TextHash,
    /// The directory of the file.
    pub(super) directory: Option<DirectoryId>,
    /// Digest of the file, if the text is not the same: a manifest in YAML is stored as JSON.
    #[serde(default)]
    pub(super) source: Option<u64>,
    /// True for a config without a manifest.
    #[serde(default)]
    pub(super) is_plain: bool,
    /// Machines of the text that a command has removed.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) removed: BTreeSet<String>,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StoredLoss {
    pub(super) path: PathBuf,
    pub(super) text: TextHash,
    pub(super) directory: Option<DirectoryId>,
    pub(super) loss: Loss,
    /// True if it was lost with most of its kind.
    #[serde(default)]
    pub(super) is_with_most: bool,
    pub(super) kind: String,
    pub(super) namespace: String,
    pub(super) name: String,
}

/// The index with its texts.
pub(super) type Stored = (Index, BTreeMap<TextHash, Bytes>);

/// The directory of the texts.
#[derive(Debug, Clone)]
pub(super) struct LastGood {
    directory: PathBuf,
}

impl LastGood {
    pub(super) fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    fn index(&self) -> PathBuf {
        self.directory.join("index.json")
    }

    fn texts(&self) -> PathBuf {
        self.directory.join("texts")
    }

    /// Reads the index that an earlier server has stored, `None` if there is none.
    pub(super) fn load_index(&self) -> Result<Option<Index>, FileError> {
        let path = self.index();
        let Some(json) = read_if_there(&path)? else { return Ok(None) };
        Ok(Some(serde_json::from_slice(&json).map_err(FileError::at(&path))?))
    }

    /// Reads a text, `None` if it is not whole.
    pub(super) fn text(&self, hash: &TextHash) -> Option<Bytes> {
        let text = bounded::read(&self.texts().join(&hash.0)).ok()?;
        (TextHash::of(&text) == *hash).then(|| text.into())
    }

    /// Reads what an earlier server has stored, `None` if there is nothing. Entries whose text is not whole are left
    /// out.
    pub(super) fn load(&self) -> Result<Option<Stored>, FileError> {
        let Some(mut index) = self.load_index()? else { return Ok(None) };
        let files = index.files.values().map(|file| &file.text);
        let named: BTreeSet<_> = files.chain(index.lost.iter().map(|lost| &lost.text)).collect();
        let named: Vec<_> = named.into_iter().cloned().collect();
        let read = parallel::map(&named, |hash| self.text(hash));
        let texts = named.into_iter().zip(read);
        let texts: BTreeMap<_, _> = texts.filter_map(|(hash, text)| Some((hash, text?))).collect();
        index.files.retain(|_, file| texts.contains_key(&file.text));
        index.lost.retain(|lost| texts.contains_key(&lost.text));
        Ok(Some((index, texts)))
    }

    /// The object of a machine.
    pub(super) fn machine(&self, name: &str) -> Result<Option<Arc<FirstBootMachine>>, FileError> {
        let Some((index, texts)) = self.load()? else { return Ok(None) };
        let files = index.files.values().filter(|it| !it.is_plain && !it.removed.contains(name));
        let mut objects =
            files.flat_map(|file| manifest::parse(&texts[&file.text]).unwrap_or_default());
        Ok(objects.find_map(|object| match object {
            Object::FirstBootMachine(machine) if machine.name() == name => Some(machine),
            _ => None,
        }))
    }

    /// Discards a machine: what its file says of it, and its loss.
    pub(super) fn discard_machine(&self, name: &str) -> Result<(), FileError> {
        let Some((mut index, texts)) = self.load()? else { return Ok(()) };
        let is_it = |object: &Object| is_machine(object, name);
        index.lost.retain(|lost| {
            (&*lost.kind, &*lost.name) != (ObjectKind::FIRST_BOOT_MACHINE.name, name)
        });
        for file in index.files.values_mut().filter(|file| !file.is_plain) {
            let objects = manifest::parse(&texts[&file.text]).unwrap_or_default();
            if objects.iter().any(is_it) {
                file.removed.insert(name.to_owned());
            }
        }
        self.save(&index, [])
    }

    /// Writes the texts that are not stored yet, then the index, and removes texts that it does not name.
    pub(super) fn save<'a>(
        &self,
        index: &Index,
        texts: impl IntoIterator<Item = (&'a TextHash, &'a Bytes)>,
    ) -> Result<(), FileError> {
        let directory = self.texts();
        replace::create_directory(&directory, Reader::Itself)?;
        for (hash, text) in texts {
            let path = directory.join(&hash.0);
            if bounded::read(&path).is_ok_and(|stored| stored == *text) {
                continue;
            }
            // All are synced at once, before the index names them.
            let mut options = File::options();
            let options = options.write(true).create(true).truncate(true).mode(PRIVATE);
            let written = options.open(&path).and_then(|mut file| file.write_all(text));
            written.map_err(FileError::at(&path))?;
        }
        let synced = File::open(&directory)
            .and_then(|opened| nix::unistd::syncfs(&opened).map_err(std::io::Error::from));
        synced.map_err(FileError::at(&directory))?;
        let path = self.index();
        let json = serde_json::to_vec(index).map_err(FileError::at(&path))?;
        replace::replace(&path, &json, PRIVATE, Reader::Itself)?;
        let files = index.files.values().map(|file| &file.text);
        let named: BTreeSet<_> = files.chain(index.lost.iter().map(|lost| &lost.text)).collect();
        for stored in entries_if_there(&directory)? {
            let is_named = |name: &str| named.contains(&TextHash(name.to_owned()));
            if !stored.file_name().and_then(|name| name.to_str()).is_some_and(is_named) {
                remove_if_there(&stored)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn stored(directory: &Path, texts: &[(&str, &str)]) -> LastGood {
        let store = LastGood::new(directory.join("last-good"));
        let texts: Vec<_> = texts
            .iter()
            .map(|(path, text)| {
                (*path, TextHash::of(text.as_bytes()), Bytes::from((*text).to_owned()))
            })
            .collect();
        let file = |hash: &TextHash| StoredFile {
            text: hash.clone(),
            directory: Some((1, 2)),
            source: None,
            is_plain: false,
            removed: BTreeSet::new(),
        };
        let files = texts.iter().map(|(path, hash, _)| (PathBuf::from(path), file(hash)));
        let index = Index { files: files.collect(), ..Index::default() };
        store.save(&index, texts.iter().map(|(_, hash, text)| (hash, text))).unwrap();
        store
    }

    #[test]
    fn what_was_saved_is_loaded_and_no_more() {
        let directory = tempfile::tempdir().unwrap();
        let empty = LastGood::new(directory.path().join("last-good"));
        assert!(empty.load().unwrap().is_none());
        stored(directory.path(), &[("a", "1"), ("b", "1"), ("c", "2")]);
        let store = stored(directory.path(), &[("a", "1"), ("c", "3")]);
        let (index, texts) = store.load().unwrap().unwrap();
        let of = |path: &str| &texts[&index.files[Path::new(path)].text][..];
        assert_eq!((of("a"), of("c"), index.files.len()), (&b"1"[..], &b"3"[..], 2));
        assert_eq!(entries_if_there(&store.texts()).unwrap().len(), 2);
    }

    #[test]
    fn a_text_that_is_not_whole_is_left_out_and_written_again() {
        let directory = tempfile::tempdir().unwrap();
        let store = stored(directory.path(), &[("a", "one"), ("b", "two")]);
        let path = store.texts().join(&TextHash::of(b"one").0);
        std::fs::write(&path, "on").unwrap();
        let (index, _) = store.load().unwrap().unwrap();
        assert_eq!(index.files.keys().collect::<Vec<_>>(), [Path::new("b")]);
        stored(directory.path(), &[("a", "one"), ("b", "two")]);
        assert_eq!(store.load().unwrap().unwrap().0.files.len(), 2);
    }
}
