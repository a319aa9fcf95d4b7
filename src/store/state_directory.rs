//! The certificates of `serve`, in a folder.
//!
//! ```text
//! ca.key            the signing authority: its key and certificate, and those of older ones
//! ca.crt            the bundle: every authority that pointer configs trust
//! tls.key           the serving pair: its key and its chain
//! tls.crt           the same chain, for whoever wants it apart
//! user-data/*.ign   pointer configs
//! ```
//!
//! Pointer configs are in [`super::pointer_files`], the tokens that they carry in [`super::token_files`].
//!
//! A file is replaced whole or not at all, and what has to change together is in one file: a pair
//! never falls apart, whenever the process dies. Files that hold a key are their owner's alone.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pki::certificate::{is_whole_pem, key_of};
use pki::{
    Asked, Certificate, CertificateState, Host, IssueError, MAX_STEPS, Next, Policy, Step,
    StoredPair, Unusable, Warning, Write, next, read_chain,
};
use time::OffsetDateTime;

use super::state_error::read_if_there;
use crate::files::lock::{LOCK, LockTimeout};
use crate::files::owners::{Reader, Status};
use crate::files::replace::{self, PRIVATE, PUBLIC, WriteError};
use crate::files::stamp::FileStamp;

pub use super::state_error::StateError;
pub use crate::files::lock::DirectoryLock;

/// The file of the signing authority.
pub(super) const CA: &str = "ca.key";
/// The file of the serving pair.
pub(super) const SERVING: &str = "tls.key";

/// A folder of certificates and pointer configs.
#[derive(Debug, Clone)]
pub struct StateDirectory {
    path: PathBuf,
    /// For whom its files are.
    reader: Reader,
    timeout: LockTimeout,
    /// The pools that have a config, where that is known.
    pub(super) pools: Option<Arc<BTreeSet<String>>>,
}

/// What was done, and when to look again.
#[derive(Debug)]
pub struct Reconciled {
    /// The steps, in their order.
    pub steps: Vec<Step>,
    /// Keys and pairs that have expired and left the store for newer ones.
    pub left_out: Vec<String>,
    /// What is not in order, and stays as it is.
    pub attention: Vec<Warning>,
    /// When something will be due by itself.
    pub requeue_at: OffsetDateTime,
}

/// The certificates' files and pointer configs with their stamps, `None` for a file that is missing.
#[derive(Debug, PartialEq, Eq)]
pub struct Stamps(Vec<(PathBuf, Option<FileStamp>)>);

/// Whom machines are to trust, and whom they may have trusted.
pub(super) struct Trust {
    /// As it is stored.
    pub(super) bundle: Option<Vec<u8>>,
    /// The authorities of the bundle.
    pub(super) trusted: Vec<Certificate>,
    /// The signing authority's store.
    ca: Option<StoredPair>,
    /// The authorities in it.
    pub(super) known: Vec<Certificate>,
}

impl StateDirectory {
    /// The folder of a server that runs as another user perhaps: what is written is for that user. `tell`
    /// is given the folder when another process that changes it is waited for.
    pub fn open(path: &Path, tell: fn(&Path)) -> Result<Self, WriteError> {
        let reader = Self::serving_user(path).map_or(Reader::Itself, Reader::User);
        Self::open_for(path, reader, LockTimeout::of_command(tell))
    }

    /// The folder of the server that this process is, made if it is not there.
    pub fn of_this_server(path: &Path) -> Result<Self, WriteError> {
        Self::open_for(path, Reader::Itself, LockTimeout::SERVER)
    }

    fn open_for(path: &Path, reader: Reader, timeout: LockTimeout) -> Result<Self, WriteError> {
        let directory = Self { path: path.to_owned(), reader, timeout, pools: None };
        replace::create_directory_for(&directory.pointers_path(), reader)?;
        Ok(directory)
    }

    /// The same, judged by the pools that have a config. Without them, pools are known by pointer configs.
    #[must_use]
    pub fn with_pools(self, pools: Option<Arc<BTreeSet<String>>>) -> Self {
        Self { pools, ..self }
    }

    pub(super) fn reader(&self) -> Reader {
        self.reader
    }

    /// Puts a file in place, for the server.
    pub(super) fn replace(
        &self,
        path: &Path,
        contents: &[u8],
        mode: u32,
    ) -> Result<(), WriteError> {
        replace::replace_for(path, contents, mode, self.reader)
    }

    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The bundle of authorities.
    #[must_use]
    pub fn bundle_path(&self) -> PathBuf {
        self.path.join("ca.crt")
    }

    pub(super) fn ca_path(&self) -> PathBuf {
        self.path.join(CA)
    }

    /// The serving pair, key and chain in one file.
    #[must_use]
    pub fn serving_path(&self) -> PathBuf {
        self.path.join(SERVING)
    }

    pub(super) fn lock_path(&self) -> PathBuf {
        self.path.join(LOCK)
    }

    pub(super) fn chain_path(&self) -> PathBuf {
        self.path.join("tls.crt")
    }

    /// Does what is due, and what is asked for, and makes what is missing. `wanted` decides on the names of
    /// the serving certificate and on what is asked for, under the lock. Another process that holds it is
    /// waited for, for a while.
    pub fn reconcile<E: From<StateError>>(
        &self,
        wanted: impl FnOnce() -> Result<(Vec<Host>, Asked), E>,
        policy: &Policy,
        now: OffsetDateTime,
    ) -> Result<Reconciled, E> {
        let _lock = self.lock()?;
        let (hosts, asked) = wanted()?;
        Ok(self.reconcile_locked(&hosts, asked, policy, now)?)
    }

    fn reconcile_locked(
        &self,
        hosts: &[Host],
        mut asked: Asked,
        policy: &Policy,
        now: OffsetDateTime,
    ) -> Result<Reconciled, StateError> {
        self.expect_readable()?;
        self.join_pair()?;
        let generate = &mut |_| policy.algorithm.generate();
        let (mut steps, mut left_out) = (Vec::new(), Vec::new());
        for _ in 0..MAX_STEPS {
            let state = self.observe(hosts, &asked)?;
            let next = next(&state, policy, now, generate);
            let failed = |error| StateError::Issue { path: self.path.clone(), error };
            match next.map_err(failed)? {
                // A folder's CAs issue themselves.
                Next::Settled { until, attention, asking: _ } => {
                    self.write_chain()?;
                    return Ok(Reconciled { steps, left_out, attention, requeue_at: until });
                }
                Next::Step { step, writes } => {
                    for write in &writes {
                        left_out.extend(write.left_out(state.ca.as_ref()));
                        self.apply(write)?;
                        asked = write.leaves(&asked);
                    }
                    steps.push(step);
                }
            }
        }
        Err(StateError::Endless { path: self.path.clone(), steps: MAX_STEPS })
    }

    /// Stamps of the certificates' files and pointer configs, which differ once any of them changes.
    pub fn stamps(&self) -> Result<Stamps, StateError> {
        let mut paths = self.pointer_paths()?;
        paths.extend([self.bundle_path(), self.ca_path(), self.serving_path()]);
        let stamp = |path: PathBuf| {
            let metadata = std::fs::metadata(&path).ok();
            (path, metadata.map(|metadata| FileStamp::of(&metadata)))
        };
        Ok(Stamps(paths.into_iter().map(stamp).collect()))
    }

    /// What needs an administrator now; `None` while a step is due, which may settle it. Writes nothing.
    pub fn attention(
        &self,
        hosts: &[Host],
        policy: &Policy,
        now: OffsetDateTime,
    ) -> Result<Option<Vec<Warning>>, StateError> {
        let _lock = self.lock()?;
        let state = self.observe(hosts, &Asked::default())?;
        // A step that needs a key is due, and is not taken here.
        let generate = &mut |_| Err(IssueError::NoKey(String::new()));
        match next(&state, policy, now, generate) {
            Ok(Next::Settled { attention, .. }) => Ok(Some(attention)),
            Ok(Next::Step { .. }) | Err(_) => Ok(None),
        }
    }

    /// Stores one thing.
    fn apply(&self, write: &Write) -> Result<(), StateError> {
        match write {
            Write::Ca(StoredPair { certificates, key, previous, .. })
            | Write::Store(StoredPair { certificates, key, previous, .. }) => {
                let text = [&key[..], certificates, previous].concat();
                self.put_broken_aside()?;
                self.replace(&self.ca_path(), &text, PRIVATE)?;
            }
            Write::Bundle(pem) => self.replace(&self.bundle_path(), pem.as_bytes(), PUBLIC)?,
            Write::Pointer { name, text } => {
                self.replace_pointer(&self.pointers_path().join(name), text)?;
            }
            Write::Serving(StoredPair { certificates, key, .. }) => {
                let text = [&key[..], certificates].concat();
                self.replace(&self.serving_path(), &text, PRIVATE)?;
                self.write_chain()?;
            }
        }
        Ok(())
    }

    /// Moves a file whose text is broken out of the way of one that replaces it: what was in it is not
    /// known, and may be somebody's only copy.
    fn put_broken_aside(&self) -> Result<(), StateError> {
        let path = self.ca_path();
        let failed = |error| StateError::Read { path: path.clone(), error };
        let is_broken =
            std::fs::read(&path).is_ok_and(|text| !is_whole_pem(&text)) || path.is_dir();
        if !is_broken {
            return Ok(());
        }
        let mut aside = self.path.join("ca.key.broken");
        for number in 2.. {
            if !aside.exists() {
                break;
            }
            aside.set_file_name(format!("ca.key.broken-{number}"));
        }
        std::fs::rename(&path, aside).map_err(failed)
    }

    /// What there is now.
    pub fn observe(&self, hosts: &[Host], asked: &Asked) -> Result<CertificateState, StateError> {
        let trust = self.trust()?;
        let pointers = self.observe_pointers(&trust)?;
        let Trust { bundle, ca, .. } = trust;
        Ok(CertificateState {
            issuer: None,
            external: None,
            ca,
            bundle,
            serving: self.read_serving(),
            root_ca: None,
            pointers,
            hosts: hosts.to_vec(),
            // This machine's own are among them.
            are_hosts_used: false,
            is_shared: false,
            asked: asked.clone(),
        })
    }

    /// Where the signing authority and the serving pair are, as people read it.
    #[must_use]
    pub fn key_files(&self) -> [String; 2] {
        [self.ca_path(), self.serving_path()].map(|path| path.display().to_string())
    }

    /// The files with keys that others than their owner can read, but for the group that serves from them.
    #[must_use]
    pub fn open_files(&self) -> Vec<PathBuf> {
        let is_open = |path: &PathBuf| {
            let found = std::fs::metadata(path).map(|found| Status::of(&found));
            found.is_ok_and(|found| found.mode & 0o077 & !self.reader.needed(found) != 0)
        };
        [self.ca_path(), self.serving_path()].into_iter().filter(is_open).collect()
    }

    /// A pair that somebody brought in two files becomes one file too.
    fn join_pair(&self) -> Result<(), StateError> {
        let key = read_if_there(&self.serving_path())?.unwrap_or_default();
        let chain = read_if_there(&self.chain_path())?.unwrap_or_default();
        if !read_chain(&key).is_ok_and(|chain| chain.is_empty()) {
            return Ok(());
        }
        let Some(pair) = key_of(&key) else { return Ok(()) };
        let certificates = match read_chain(&chain) {
            Ok(chain) if chain.first().is_some_and(|leaf| leaf.matches(&pair)) => {
                chain.iter().map(Certificate::to_pem).collect::<String>().into_bytes()
            }
            // One that machines cannot read is somebody's as well: it is served as it is, and reported.
            Err(Unusable::Refused { .. }) => chain,
            _ => return Ok(()),
        };
        let pair = StoredPair { certificates, key, ..StoredPair::default() };
        self.replace(&self.serving_path(), &pair.text(), PRIVATE)?;
        Ok(())
    }

    /// The chain in a file of its own follows the one beside the key.
    fn write_chain(&self) -> Result<(), StateError> {
        let pair = read_if_there(&self.serving_path())?.unwrap_or_default();
        let chain = read_chain(&pair).unwrap_or_default();
        let chain: String = chain.iter().map(Certificate::to_pem).collect();
        if !chain.is_empty() {
            self.replace(&self.chain_path(), chain.as_bytes(), PUBLIC)?;
        }
        Ok(())
    }

    /// Whom machines are to trust.
    pub(super) fn trust(&self) -> Result<Trust, StateError> {
        let bundle = read_if_there(&self.bundle_path())?;
        let trusted = Certificate::read_all(bundle.as_deref().unwrap_or_default());
        let ca = self.read_ca(&trusted);
        let known = ca.as_ref().map(StoredPair::cas).unwrap_or_default();
        Ok(Trust { bundle, trusted, ca, known })
    }

    fn read_ca(&self, bundle: &[Certificate]) -> Option<StoredPair> {
        let text = match read_if_there(&self.ca_path()) {
            Ok(text) => text?,
            Err(error) => return Some(StoredPair::unreadable(error.to_string())),
        };
        // A key alone: its certificate is in the bundle, as whoever brings a CA has it.
        let own = Certificate::read_all(&text).into_iter().next().or_else(|| {
            let key = key_of(&text)?;
            bundle.iter().find(|certificate| certificate.matches(&key)).cloned()
        });
        let certificates = own.map(|own| own.to_pem().into()).unwrap_or_default();
        // What belongs to whom is told by the keys.
        let previous = text.clone();
        Some(StoredPair { certificates, key: text, previous, unreadable: None })
    }

    fn read_serving(&self) -> Option<StoredPair> {
        let read = || {
            let Some(text) = read_if_there(&self.serving_path())? else { return Ok(None) };
            // One that cannot be read is there too.
            let has_chain = !read_chain(&text).is_ok_and(|chain| chain.is_empty());
            let chain = if has_chain { None } else { read_if_there(&self.chain_path())? };
            let certificates = chain.unwrap_or_else(|| text.clone());
            Ok(Some(StoredPair { certificates, key: text, ..StoredPair::default() }))
        };
        read().unwrap_or_else(|error: StateError| Some(StoredPair::unreadable(error.to_string())))
    }

    /// Held while the folder is changed.
    pub fn lock(&self) -> Result<DirectoryLock, StateError> {
        Ok(DirectoryLock::take(&self.path, self.reader, self.timeout)?)
    }
}
