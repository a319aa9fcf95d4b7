//! Pointer configs of `serve`, in `user-data/` of the state directory.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use files::bounded::{self, if_there, read_if_there};
use files::error::FileError;
use files::lock::POINTERS;
use files::replace::{self, PRIVATE, PUBLIC, Replacement};
use ignition::{POINTER_SPEC, pointer};
use model::access::Token;
use model::pointer_config::{
    Authorization, LeftAlone, MAX_BYTES, PointerConfig, WrittenFetch, pool_url, pools_of,
};
use pki::{Host, Lockout, LockoutReason, PointerTrust};

use super::state_directory::{StateDirectory, Trust};
use super::state_error::StateError;

/// Maximum length of a pool's name in bytes, for a pointer config in its name: Linux has 255 for the name of a file, and
/// the file is prepared as `.POOL.ign.PID`.
pub(crate) const MAX_POOL_BYTES: usize = 255 - ".".len() - ".ign".len() - ".4194304".len();

#[derive(Debug)]
pub(crate) struct PointerFile {
    pub path: PathBuf,
    pub text: Vec<u8>,
}

impl StateDirectory {
    pub(super) fn pointers_path(&self) -> PathBuf {
        self.path().join(POINTERS)
    }

    /// Observes the pointer configs for a rotation.
    pub(super) fn observe_pointers(&self, trust: &Trust) -> Result<Vec<PointerTrust>, StateError> {
        let files = self.pointers()?;
        let pools = self.pools_by(&files);
        let pointers = files.iter().map(|PointerFile { path, text }| {
            let title = path.display().to_string();
            let config = PointerConfig::read(text);
            let assessed = config.assess(&trust.trusted, &trust.known);
            // Only the beginning of a too large file was read.
            let faults = match assessed.left_alone() {
                Some(LeftAlone::TooLarge) => vec![too_large(&title)],
                _ => config.lockouts(&title, &pools),
            };
            let pointer = config.trust(self.pointer_name(path)?, &title, assessed);
            Ok(PointerTrust { faults, ..pointer })
        });
        pointers.collect()
    }

    /// The pointer configs, sorted by name.
    pub(crate) fn pointers(&self) -> Result<Vec<PointerFile>, StateError> {
        let mut files = Vec::new();
        for path in self.pointer_paths()? {
            // One byte more than the maximum shows that a file is too large.
            let most = MAX_BYTES as u64 + 1;
            if let Some(text) = if_there(&path, bounded::read_start(&path, most))? {
                files.push(PointerFile { path, text });
            }
        }
        Ok(files)
    }

    pub(crate) fn pools(&self) -> Result<BTreeSet<String>, StateError> {
        Ok(self.pools_by(&self.pointers()?))
    }

    fn pools_by(&self, files: &[PointerFile]) -> BTreeSet<String> {
        let files = files.iter().filter(|file| !self.is_of_machine(&file.path));
        let named = files.filter_map(|PointerFile { path, text }| {
            Some((path.file_stem()?.to_str()?, &text[..]))
        });
        self.pools.as_deref().cloned().unwrap_or_else(|| pools_of(named))
    }

    /// Paths of all pointer configs, those of pools first.
    pub(super) fn pointer_paths(&self) -> Result<Vec<PathBuf>, StateError> {
        let mut paths = self.pool_pointer_paths()?;
        let of_machines = self.machine_pointers_path();
        if of_machines.is_dir() {
            paths.extend(configs_in(&of_machines)?);
        }
        Ok(paths)
    }

    /// Paths of the pointer configs that machines of a pool share.
    pub(super) fn pool_pointer_paths(&self) -> Result<Vec<PathBuf>, StateError> {
        configs_in(&self.pointers_path())
    }

    /// Directory of the pointer configs of single machines.
    pub(crate) fn machine_pointers_path(&self) -> PathBuf {
        self.pointers_path().join("machines")
    }

    /// Returns `true` for the pointer config of a single machine.
    pub(crate) fn is_of_machine(&self, pointer: &Path) -> bool {
        pointer.parent() == Some(&self.machine_pointers_path())
    }

    /// Name of a pointer config, by which writes find it again.
    pub(super) fn pointer_name<'a>(&self, path: &'a Path) -> Result<&'a str, StateError> {
        let name = path.strip_prefix(self.pointers_path()).ok().and_then(Path::to_str);
        Ok(name.ok_or_else(|| FileError::other(path, "its name is not UTF-8"))?)
    }

    /// Path of the pointer config that machines of a pool share.
    pub(crate) fn pointer_path(&self, pool: &str) -> PathBuf {
        self.pointers_path().join(format!("{pool}.ign"))
    }

    /// Ensures that pools have a pointer config for `host` and `port`. An existing one that fits is not changed, nor is
    /// one that another party wrote. Returns the outcome of each, `None` for those that the failure of an earlier one
    /// concerns too.
    pub(crate) fn write_pointers(
        &self,
        pools: &[&str],
        host: &Host,
        port: u16,
    ) -> Vec<Option<Result<(), StateError>>> {
        let due = |pool: &str| -> Result<_, StateError> {
            let url = pool_url(host, port, pool);
            let path = self.pointer_path(pool);
            let present = read_if_there(&path)?.unwrap_or_default();
            let is_due = !PointerConfig::read(&present).fetches_from(&url);
            Ok(is_due.then_some(DuePointer { path, present, url }))
        };
        let is_due = |pool: &str| !matches!(due(pool), Ok(None));
        let mut outcomes: Vec<_> =
            pools.iter().map(|pool| (!is_due(pool)).then_some(Ok(()))).collect();
        let Some(first) = outcomes.iter().position(Option::is_none) else { return outcomes };
        let opened = self.lock().and_then(|lock| Ok((lock, self.issued()?, self.trust()?)));
        let (_lock, issued, trust) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                outcomes[first] = Some(Err(error));
                return outcomes;
            }
        };
        let (mut files, mut indices) = (Vec::new(), Vec::new());
        for (index, pool) in pools.iter().enumerate().skip(first) {
            if outcomes[index].is_some() {
                continue;
            }
            // Another process may have written it meanwhile.
            let text = due(pool).and_then(|due| {
                let Some(due) = due else { return Ok(None) };
                let contents = due.text(&trust, (pool, issued.newest(pool)))?;
                Ok(Some(Replacement { mode: mode(&contents), path: due.path, contents }))
            });
            outcomes[index] = Some(text.map(|file| {
                indices.extend(file.iter().map(|_| index));
                files.extend(file);
            }));
        }
        let replaced = replace::replace_all(&self.pointers_path(), &files, self.reader());
        for (index, replaced) in indices.into_iter().zip(replaced) {
            outcomes[index] = Some(replaced.map_err(StateError::from));
        }
        outcomes
    }

    /// Writes a pointer config that fetches the config of a pool from `url`, with a token if there is one. It replaces
    /// none that another party wrote. The caller holds the lock.
    pub(super) fn make_pointer(
        &self,
        due: &DuePointer,
        (pool, token): (&str, Option<&Token>),
    ) -> Result<(), StateError> {
        let text = due.text(&self.trust()?, (pool, token))?;
        Ok(self.replace_pointer(&due.path, &text)?)
    }

    /// Replaces a pointer config. With a token, it is readable only by its owner.
    pub(super) fn replace_pointer(&self, path: &Path, text: &[u8]) -> Result<(), FileError> {
        self.replace(path, text, mode(text))
    }
}

/// A pointer config that does not fetch from `url`.
pub(super) struct DuePointer {
    pub(super) path: PathBuf,
    /// Its present text.
    pub(super) present: Vec<u8>,
    pub(super) url: String,
}

impl DuePointer {
    /// The text that replaces it.
    fn text(
        &self,
        trust: &Trust,
        (pool, token): (&str, Option<&Token>),
    ) -> Result<Vec<u8>, StateError> {
        let Self { path, present, url } = self;
        let Trust { bundle, trusted, known, .. } = trust;
        let before = PointerConfig::read(present);
        let is_ours = before.is_plain() && before.assess(trusted, known).left_alone().is_none();
        if !is_ours && !present.trim_ascii().is_empty() {
            return Err(StateError::Occupied { path: path.clone(), url: url.clone() });
        }
        let bundle = bundle.as_deref().unwrap_or_default();
        let config = format!("{}\n", pointer(url, bundle, POINTER_SPEC)).into_bytes();
        let with = token
            .and_then(|token| PointerConfig::read(&config).with_bearer(pool, token.as_str()).ok());
        Ok(with.unwrap_or(config))
    }
}

/// Mode of the file of a pointer config: with a token, only its owner reads it.
fn mode(text: &[u8]) -> u32 {
    let is_secret = |fetch: &WrittenFetch| fetch.authorization != Authorization::Missing;
    let has_secret = PointerConfig::read(text).written_fetches().iter().any(is_secret);
    if has_secret { PRIVATE } else { PUBLIC }
}

fn too_large(title: &str) -> Lockout {
    let reason = LockoutReason::Pointer(LeftAlone::TooLarge.to_string());
    Lockout { holder: title.to_owned(), reason }
}

/// Paths of the pointer configs in a directory, sorted.
fn configs_in(directory: &Path) -> Result<Vec<PathBuf>, StateError> {
    let mut paths = bounded::entries(directory).map_err(FileError::at(directory))?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "ign"));
    paths.sort();
    Ok(paths)
}
