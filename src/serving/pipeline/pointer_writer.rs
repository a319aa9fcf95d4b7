//! Writes pointer configs into the state directory: one for each served pool.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use common::schedule::Schedule;
use files::stamp::FileStamp;
use pki::Host;

use crate::store::state_directory::{StateDirectory, StateError};

/// Writes missing pointer configs.
pub(crate) struct PointerWriter {
    state: StateDirectory,
    /// Host that machines are sent to.
    host: Host,
    port: u16,
    /// Stamps of files that have the pointer config of their pool.
    written: HashMap<PathBuf, FileStamp>,
    /// Pools without a pointer config.
    failed: BTreeMap<String, PointerFailure>,
    pub(in crate::serving) schedule: Schedule,
}

impl PointerWriter {
    /// Creates a writer of pointer configs in `state` that send machines to `host`, at its port for TLS.
    pub(crate) fn new(state: StateDirectory, host: Host, port: u16) -> Self {
        let (written, failed) = Default::default();
        Self { state, host, port, written, failed, schedule: Schedule::default() }
    }

    /// Writes missing pointer configs of these pools. Returns the pools that have one, with its file. It may block.
    pub(in crate::serving) fn write<'a>(
        &mut self,
        pools: impl Iterator<Item = &'a String>,
    ) -> Vec<(String, PathBuf)> {
        let before = std::mem::take(&mut self.failed);
        self.schedule.wait(None);
        let now = SystemTime::now();
        let mut known = std::mem::take(&mut self.written);
        let seen = pools.map(|pool| {
            let path = self.state.pointer_path(pool);
            let stamp = stamp(&path, now);
            let is_known = stamp.is_some() && known.remove(&path) == stamp;
            SeenPointer { pool, path, stamp, is_known }
        });
        let seen: Vec<_> = seen.collect();
        let due = seen.iter().filter(|it| !it.is_known).map(|it| it.pool.as_str());
        let due: Vec<_> = due.collect();
        let mut outcomes = self.state.write_pointers(&due, &self.host, self.port).into_iter();
        let mut written = Vec::new();
        for SeenPointer { pool, path, stamp, is_known } in seen {
            match if is_known { Some(Ok(())) } else { outcomes.next().flatten() } {
                Some(Ok(())) => {
                    // What was just written has a later stamp, and is read once more by the next call.
                    self.written.extend(stamp.map(|stamp| (path.clone(), stamp)));
                    written.push((pool.clone(), path));
                }
                Some(Err(error)) => {
                    let is_of_file = error.path() == Some(&path);
                    let failure = PointerFailure { reason: error.to_string(), is_of_file };
                    self.fail(pool, failure, &before);
                    if !matches!(error, StateError::Occupied { .. }) {
                        self.schedule.retry();
                    }
                }
                None => {}
            }
        }
        written
    }

    /// The pools without a pointer config, for administrators, one line each. A fault of another file is reported where that
    /// is read.
    pub(in crate::serving) fn faults(&self) -> Vec<String> {
        let of_file = self.failed.iter().filter(|(_, failure)| failure.is_of_file);
        of_file.map(|(pool, failure)| format!("pool {pool}: {}", failure.reason)).collect()
    }

    /// Notes that a pool has no pointer config, and logs it unless it did `before`.
    fn fail(
        &mut self,
        pool: &str,
        failure: PointerFailure,
        before: &BTreeMap<String, PointerFailure>,
    ) {
        if before.get(pool) != Some(&failure) {
            tracing::error!(
                pool,
                error = failure.reason,
                fix = "do what the error names; check space and permissions of the state directory",
                "cannot write the pointer config"
            );
        }
        self.failed.insert(pool.to_owned(), failure);
    }
}

/// Reason why a pool has no pointer config.
#[derive(Debug, PartialEq)]
struct PointerFailure {
    reason: String,
    /// True if the pool's own file is the reason.
    is_of_file: bool,
}

/// A pool's pointer config at the last look.
struct SeenPointer<'a> {
    pool: &'a String,
    path: PathBuf,
    stamp: Option<FileStamp>,
    /// True if it has not changed since it was found to fit.
    is_known: bool,
}

/// Stamp of a file, if each later change has another one.
fn stamp(path: &Path, now: SystemTime) -> Option<FileStamp> {
    let stamp = FileStamp::of(&std::fs::metadata(path).ok()?);
    Some(stamp).filter(|stamp| stamp.is_settled(now))
}

#[cfg(test)]
mod tests {
    use time::OffsetDateTime;

    use super::*;

    #[test]
    fn a_pointer_config_that_is_removed_or_changed_is_seen_though_it_was_known() {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDirectory::of_this_server(directory.path()).unwrap();
        let host: Host = "localhost".parse().unwrap();
        let wanted = || Ok::<_, StateError>((vec![host.clone()], Vec::new()));
        state.reconcile(wanted, &pki::Policy::default(), OffsetDateTime::now_utc()).unwrap();
        let path = state.pointer_path("worker");
        let mut writer = PointerWriter::new(state, host, 22623);
        let pools = ["infra", "worker"].map(str::to_owned);
        let mut write = || {
            // What was written a moment ago is not known by its stamp.
            for path in ["infra", "worker"].map(|pool| writer.state.pointer_path(pool)) {
                if let Ok(file) = std::fs::metadata(&path) {
                    let stamp = FileStamp::of(&file);
                    while !stamp.is_settled(SystemTime::now()) {
                        std::thread::yield_now();
                    }
                }
            }
            let written = writer.write(pools.iter()).len();
            (written, writer.written.len(), writer.failed.len())
        };
        assert_eq!(write(), (2, 0, 0));
        let text = std::fs::read(&path).unwrap();
        for _ in 0..2 {
            assert_eq!(write(), (2, 2, 0));
        }
        std::fs::remove_file(&path).unwrap();
        assert_eq!(write(), (2, 1, 0));
        assert_eq!(std::fs::read(&path).unwrap(), text);
        assert_eq!(write(), (2, 2, 0));
        std::fs::write(&path, "{}").unwrap();
        assert_eq!(write(), (1, 1, 1), "it is of another program");
        assert_eq!(std::fs::read(&path).unwrap(), b"{}");
        assert!(matches!(&writer.faults()[..], [line] if line.starts_with("pool worker: ")));
    }

    #[test]
    fn a_pool_that_waits_for_another_file_than_its_own_is_not_reported_for_it() {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDirectory::of_this_server(directory.path()).unwrap();
        // Without certificates, none is written: they are named by another path.
        std::fs::create_dir(directory.path().join("ca.crt")).unwrap();
        let mut writer = PointerWriter::new(state, "localhost".parse().unwrap(), 22623);
        assert!(writer.write(["r".to_owned()].iter()).is_empty());
        assert!(writer.failed["r"].reason.contains("ca.crt"), "{:?}", writer.failed);
        assert!(writer.faults().is_empty());
    }
}
