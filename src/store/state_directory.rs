//! Certificates of `serve`, in a directory.
//!
//! ```text
//! ca.key            the signing CA: its key and certificate, and those of older CAs
//! ca.crt            the bundle: every CA that pointer configs trust
//! tls.key           the serving certificate: its key and its chain
//! tls.crt           the same chain, in a separate file
//! user-data/*.ign   pointer configs
//! ```
//!
//! Pointer configs are in [`super::pointer_files`], their tokens in [`super::token_files`], and requests for
//! rotations in [`super::rotation_requests`].
//!
//! Files are replaced atomically, and values that must change together are in one file: certificate and key always
//! match, even if the process dies. Files with a key are readable only by their owner.

use std::collections::BTreeSet;
use std::ops::ControlFlow::{self, Break, Continue};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use files::bounded::{self, read_if_there};
use files::error::FileError;
use files::lock::{LockError, LockTimeout, ServerLock};
use files::owners::Reader;
use files::replace::{self, PRIVATE, PUBLIC};
use files::stamp::FileStamp;
use pki::certificate::{is_whole_pem, key_of};
use pki::{
    Certificate, CertificateState, Host, IssueError, MAX_STEPS, NextAction, Policy,
    RotationRequest, Step, StoredPair, Unusable, Warning, Write, next, read_chain,
};
use time::OffsetDateTime;

pub(crate) use super::state_error::StateError;
pub(crate) use files::lock::DirectoryLock;

pub(super) const CA: &str = "ca.key";
pub(super) const SERVING: &str = "tls.key";

/// A directory of certificates and pointer configs.
#[derive(Debug, Clone)]
pub(crate) struct StateDirectory {
    path: PathBuf,
    /// Process that must be able to read the files.
    reader: Reader,
    timeout: LockTimeout,
    /// Pools that have a config, if they are known.
    pub(super) pools: Option<Arc<BTreeSet<String>>>,
}

#[derive(Debug)]
pub(crate) struct Reconciled {
    /// Applied steps, in their order.
    pub steps: Vec<Step>,
    /// Expired keys and pairs that were removed from the store for newer ones.
    pub dropped: Vec<String>,
    /// Faults that are not repaired.
    pub attention: Vec<Warning>,
    /// Requests for rotations that were refused, or could not be begun, and wait.
    pub waiting: RotationRequest,
    /// Reason why they could not be begun, or not withdrawn.
    pub stuck: Option<StateError>,
    /// Time at which something may become due without any change.
    pub requeue_at: OffsetDateTime,
}

/// Stamps of files in the directory, `None` for a missing one.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Stamps(Vec<(PathBuf, Option<FileStamp>)>);

impl Stamps {
    pub(super) fn of(own: impl IntoIterator<Item = PathBuf>, pointers: Vec<PathBuf>) -> Self {
        let stamp = |path: PathBuf| {
            let metadata = std::fs::metadata(&path).ok();
            (path, metadata.map(|metadata| FileStamp::of(&metadata)))
        };
        Self(own.into_iter().chain(pointers).map(stamp).collect())
    }

    pub(super) fn are_settled(&self, now: SystemTime) -> bool {
        self.0.iter().all(|(_, stamp)| stamp.is_none_or(|stamp| stamp.is_settled(now)))
    }
}

/// CAs that machines trust or may trust.
pub(super) struct Trust {
    pub(super) bundle: Option<Vec<u8>>,
    pub(super) trusted: Vec<Certificate>,
    /// Store of the signing CA.
    ca: Option<StoredPair>,
    pub(super) known: Vec<Certificate>,
}

impl StateDirectory {
    /// Opens the directory of a server that may run as another user, for which files are written. `tell` is called with
    /// the directory during a wait for another process.
    pub(crate) fn open(path: &Path, tell: fn(&Path)) -> Result<Self, FileError> {
        let reader = Self::serving_user(path).map_or(Reader::Itself, Reader::User);
        Self::open_for(path, reader, LockTimeout::of_command(tell))
    }

    /// Opens the directory of this server process, and creates it if it is missing.
    pub(crate) fn of_this_server(path: &Path) -> Result<Self, FileError> {
        Self::open_for(path, Reader::Itself, LockTimeout::SERVER)
    }

    fn open_for(path: &Path, reader: Reader, timeout: LockTimeout) -> Result<Self, FileError> {
        let directory = Self { path: path.to_owned(), reader, timeout, pools: None };
        replace::create_directory(&directory.pointers_path(), reader)?;
        Ok(directory)
    }

    /// Takes the right to serve from the directory.
    pub(crate) fn lock_for_serving(&self, limit: Duration) -> Result<ServerLock, LockError> {
        ServerLock::take(&self.path, self.reader, limit)
    }

    /// Sets the pools that have a config. Without them, pools are known from pointer configs.
    pub(crate) fn with_pools(self, pools: Option<Arc<BTreeSet<String>>>) -> Self {
        Self { pools, ..self }
    }

    pub(super) fn reader(&self) -> Reader {
        self.reader
    }

    /// Replaces a file, for the server.
    pub(crate) fn replace(&self, path: &Path, contents: &[u8], mode: u32) -> Result<(), FileError> {
        replace::replace(path, contents, mode, self.reader)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn bundle_path(&self) -> PathBuf {
        self.path.join("ca.crt")
    }

    pub(super) fn ca_path(&self) -> PathBuf {
        self.path.join(CA)
    }

    /// Path of the file with key and chain of the serving certificate.
    pub(crate) fn serving_path(&self) -> PathBuf {
        self.path.join(SERVING)
    }

    pub(super) fn chain_path(&self) -> PathBuf {
        self.path.join("tls.crt")
    }

    /// Applies due steps and requests, and creates missing files. `wanted` decides, under the lock, on the names of the
    /// serving certificate and on CAs to distrust. Waits a limited time for another process.
    pub(crate) fn reconcile<E: From<StateError>>(
        &self,
        wanted: impl FnOnce() -> Result<(Vec<Host>, Vec<String>), E>,
        policy: &Policy,
        now: OffsetDateTime,
    ) -> Result<Reconciled, E> {
        let _lock = self.lock()?;
        let (hosts, distrust) = wanted()?;
        Ok(self.reconcile_locked(&hosts, &distrust, policy, now)?)
    }

    /// The same while the lock is held.
    pub(super) fn reconcile_locked(
        &self,
        hosts: &[Host],
        distrust: &[String],
        policy: &Policy,
        now: OffsetDateTime,
    ) -> Result<Reconciled, StateError> {
        self.expect_readable()?;
        self.join_pair()?;
        let generate = &mut |_| policy.algorithm.generate();
        let (mut steps, mut dropped, mut stuck) = (Vec::new(), Vec::new(), None);
        let mut waiting = RotationRequest::default();
        let (requeue_at, attention) = self.converge(MAX_STEPS, || {
            let mut state = self.observe(hosts)?;
            waiting.clone_from(&state.requested);
            if stuck.is_some() {
                state.requested = RotationRequest::default();
            }
            distrust.clone_into(&mut state.requested.distrust);
            let next = next(&state, policy, now, generate);
            match next.map_err(|error| FileError::other(&self.path, error))? {
                // CAs in a directory are self-signed.
                NextAction::Settled { until, attention, request_action: _ } => {
                    self.write_chain()?;
                    Ok(Break((until, attention)))
                }
                NextAction::Step { step, writes } => {
                    for write in &writes {
                        dropped.extend(write.dropped(state.ca.as_ref()));
                        let left = write.leaves(&state.requested);
                        let begun = self.begin_rotation(&state.requested, &left);
                        if let Err(error) = begun {
                            // What is due without it is planned again.
                            stuck = Some(error);
                            return Ok(Continue(()));
                        }
                        self.apply(write)?;
                        self.finish_rotation(&state.requested, &left)?;
                        state.requested = left;
                    }
                    steps.push(step);
                    Ok(Continue(()))
                }
            }
        })?;
        Ok(Reconciled { steps, dropped, attention, waiting, stuck, requeue_at })
    }

    /// Takes looks until one finds no step: each observes what is stored, and applies one step of what is planned for it. One
    /// look more than `max_steps` is allowed.
    pub(super) fn converge<T>(
        &self,
        max_steps: usize,
        mut look: impl FnMut() -> Result<ControlFlow<T>, StateError>,
    ) -> Result<T, StateError> {
        for _ in 0..=max_steps {
            if let Break(settled) = look()? {
                return Ok(settled);
            }
        }
        Err(FileError::other(&self.path, format!("not finished after {max_steps} steps")).into())
    }

    /// Stamps of the certificates' files and pointer configs, which change with any of them.
    pub(crate) fn stamps(&self) -> Result<Stamps, StateError> {
        let own = [self.bundle_path(), self.ca_path(), self.serving_path()];
        Ok(Stamps::of(own.into_iter().chain(self.rotation_paths()), self.pointer_paths()?))
    }

    /// Faults that need an administrator; `None` while a step is due, which may repair them. Writes nothing.
    pub(crate) fn attention(
        &self,
        hosts: &[Host],
        policy: &Policy,
        now: OffsetDateTime,
    ) -> Result<Option<Vec<Warning>>, StateError> {
        let _lock = self.lock()?;
        let state = self.observe(hosts)?;
        // A step that needs a key is due, and not taken here.
        let generate = &mut |_| Err(IssueError::NoKey(String::new()));
        match next(&state, policy, now, generate) {
            Ok(NextAction::Settled { attention, .. }) => Ok(Some(attention)),
            Ok(NextAction::Step { .. }) | Err(_) => Ok(None),
        }
    }

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

    /// Moves a broken file aside before another one replaces it: its contents are unknown, and may be the only copy.
    fn put_broken_aside(&self) -> Result<(), StateError> {
        let path = self.ca_path();
        let is_broken =
            bounded::read(&path).is_ok_and(|text| !is_whole_pem(&text)) || path.is_dir();
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
        Ok(std::fs::rename(&path, aside).map_err(FileError::at(&path))?)
    }

    pub(crate) fn observe(&self, hosts: &[Host]) -> Result<CertificateState, StateError> {
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
            // The hosts include this machine's own names.
            are_hosts_used: false,
            is_shared: false,
            requested: self.rotation_requests().asked,
        })
    }

    /// Paths of the signing CA and the serving certificate, for messages.
    pub(crate) fn key_files(&self) -> [String; 2] {
        [self.ca_path(), self.serving_path()].map(|path| path.display().to_string())
    }

    /// Joins a pair in two files, as an administrator provides it, into one file.
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
            // A chain that machines cannot read is provided by someone too: it is served, and reported.
            Err(Unusable::Refused { .. }) => chain,
            _ => return Ok(()),
        };
        let pair = StoredPair { certificates, key, ..StoredPair::default() };
        self.replace(&self.serving_path(), &pair.text(), PRIVATE)?;
        Ok(())
    }

    /// Updates the separate file of the chain.
    fn write_chain(&self) -> Result<(), StateError> {
        let pair = read_if_there(&self.serving_path())?.unwrap_or_default();
        let chain = read_chain(&pair).unwrap_or_default();
        let chain: String = chain.iter().map(Certificate::to_pem).collect();
        if !chain.is_empty() {
            self.replace(&self.chain_path(), chain.as_bytes(), PUBLIC)?;
        }
        Ok(())
    }

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
        // A key alone: its certificate is in the bundle, as with a CA that an administrator provides.
        let own = Certificate::read_all(&text).into_iter().next().or_else(|| {
            let key = key_of(&text)?;
            bundle.iter().find(|certificate| certificate.matches(&key)).cloned()
        });
        let certificates = own.map(|own| own.to_pem().into()).unwrap_or_default();
        // Keys and certificates are matched to each other later.
        let previous = text.clone();
        Some(StoredPair { certificates, key: text, previous, unreadable: None })
    }

    fn read_serving(&self) -> Option<StoredPair> {
        let read = || {
            let Some(text) = read_if_there(&self.serving_path())? else { return Ok(None) };
            // An unreadable chain counts as one.
            let has_chain = !read_chain(&text).is_ok_and(|chain| chain.is_empty());
            let chain = if has_chain { None } else { read_if_there(&self.chain_path())? };
            let certificates = chain.unwrap_or_else(|| text.clone());
            Ok(Some(StoredPair { certificates, key: text, ..StoredPair::default() }))
        };
        read().unwrap_or_else(|error: StateError| Some(StoredPair::unreadable(error.to_string())))
    }

    pub(crate) fn lock(&self) -> Result<DirectoryLock, StateError> {
        Ok(DirectoryLock::take(&self.path, self.reader, self.timeout)?)
    }
}
