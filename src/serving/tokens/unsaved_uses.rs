//! Uses of machines' tokens that their objects lack, because the API server was unreachable.
//!
//! ```text
//! DIR/machine-uses.json   the uses that are to be written to objects, by the name of the machine
//! ```
//!
//! They are on disk before the answer that they are about, so that a server that is started after a kill knows them
//! without the API server, and writes them to the objects once it is back.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use common::sync::lock;
use files::bounded::read_if_there;
use files::error::FileError;
use files::owners::Reader;
use files::replace::{self, PRIVATE};
use model::access::machine::{MachineState, UnsavedUse};
use telemetry::Reporting;
use telemetry::faults;

const FILE: &str = "machine-uses.json";

/// Uses by the name of the machine.
pub(super) type Uses = BTreeMap<String, UnsavedUse>;

/// The file of the uses, and what an earlier process left in it.
#[derive(Debug, Default)]
pub(super) struct UnsavedUses {
    /// `None` without a directory for it.
    path: Option<PathBuf>,
    /// Uses of an earlier process whose tokens this one has not seen.
    restored: Mutex<Uses>,
    /// True if the uses of an earlier process are unknown.
    is_unread: AtomicBool,
    /// Number of calls that store.
    asked: AtomicU64,
    /// Number of calls whose uses are in the file. Held while it is written.
    stored: Arc<tokio::sync::Mutex<u64>>,
}

impl UnsavedUses {
    /// Reads the file of an earlier process, if there is a directory for it.
    pub(super) fn open(directory: Option<&Path>, reporting: &Reporting) -> Self {
        let path = directory.map(|directory| directory.join(FILE));
        let read = path.as_deref().map_or_else(|| Ok(Uses::new()), read);
        let is_unread = AtomicBool::new(read.is_err());
        let reason = read.as_ref().err().map(ToString::to_string);
        faults::USES_UNREAD
            .counted_by(&reporting.metrics.cache_failures)
            .report(&reporting.status, reason.as_deref());
        let restored = Mutex::new(read.unwrap_or_default());
        let (asked, stored) = Default::default();
        Self { path, restored, is_unread, asked, stored }
    }

    /// Returns `true` if the uses of an earlier process are unknown.
    pub(super) fn is_unread(&self) -> bool {
        self.is_unread.load(Ordering::Relaxed)
    }

    /// Notes that the API server has answered: what it has is all that is known. Returns true if the file can be written
    /// from now on.
    pub(super) fn reached(&self) -> bool {
        self.is_unread.swap(false, Ordering::Relaxed)
    }

    /// Names of machines whose tokens this process has not seen.
    pub(super) fn restored(&self) -> Vec<String> {
        lock(&self.restored).keys().cloned().collect()
    }

    /// The use of a machine's token that an earlier process left, if `state` is of the same arming.
    pub(super) fn of(&self, name: &str, state: &MachineState) -> Option<UnsavedUse> {
        lock(&self.restored).get(name).filter(|it| it.is_of(state)).cloned()
    }

    /// Discards the use of an earlier process, which is known otherwise from now on.
    pub(super) fn discard(&self, name: &str) {
        lock(&self.restored).remove(name);
    }

    /// Drops the use of an earlier process if the machine's object, `None` without one, has another token or arming.
    pub(super) fn compare(&self, name: &str, state: Option<&MachineState>) {
        let mut restored = lock(&self.restored);
        let is_of = |it: &UnsavedUse| state.is_some_and(|state| it.is_of(state));
        if restored.get(name).is_some_and(|it| !is_of(it)) {
            restored.remove(name);
        }
    }

    /// Writes the uses, and those of an earlier process, before it returns. Calls during one write share the next, so that
    /// many machines cost no more than a few. A failure is reported.
    pub(super) async fn store(&self, uses: impl FnOnce() -> Uses, reporting: &Reporting) {
        let Some(path) = self.path.clone() else { return };
        let number = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
        let mut stored = Arc::clone(&self.stored).lock_owned().await;
        if *stored >= number {
            return;
        }
        let asked = self.asked.load(Ordering::SeqCst);
        let mut all = lock(&self.restored).clone();
        all.extend(uses());
        if self.is_unread() {
            return;
        }
        let reporting = reporting.clone();
        // A machine may leave meanwhile. The file stays locked until it is written.
        let work = tokio::task::spawn_blocking(move || {
            report_stored(write(&path, &all), &reporting);
            *stored = asked;
        });
        // The task is not cancelled, and a panic ends the process.
        let _ = work.await;
    }
}

fn report_stored(written: Result<(), FileError>, reporting: &Reporting) {
    let reason = written.err().map(|error| error.to_string());
    faults::USES_UNSTORED
        .counted_by(&reporting.metrics.cache_failures)
        .report(&reporting.status, reason.as_deref());
}

fn read(path: &Path) -> Result<Uses, FileError> {
    let Some(json) = read_if_there(path)? else { return Ok(Uses::new()) };
    serde_json::from_slice(&json).map_err(FileError::at(path))
}

fn write(path: &Path, uses: &Uses) -> Result<(), FileError> {
    // No file says the same as one without uses.
    if uses.is_empty() && !path.try_exists().unwrap_or(true) {
        return Ok(());
    }
    let json = serde_json::to_vec_pretty(uses).map_err(FileError::at(path))?;
    replace::create_directory(replace::directory_of(path), Reader::Directory)?;
    replace::replace(path, &json, PRIVATE, Reader::Itself)
}

#[cfg(test)]
mod tests {
    use telemetry::conditions::Status;

    use super::*;

    #[test]
    fn machines_that_come_at_once_share_writes_also_if_one_leaves() {
        let directory = tempfile::tempdir().unwrap();
        let reporting = Reporting { metrics: Arc::default(), status: Status::default() };
        let uses = UnsavedUses::open(Some(directory.path()), &reporting);
        let collected = AtomicU64::new(0);
        let collect = || {
            collected.fetch_add(1, Ordering::Relaxed);
            Uses::new()
        };
        let runtime =
            tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().unwrap();
        runtime.block_on(async {
            // No write ends before the only thread that can write is released.
            let (release, released) = std::sync::mpsc::channel();
            let busy = tokio::task::spawn_blocking(move || released.recv());
            // The first one has its write queued, and leaves.
            let mut first = Box::pin(uses.store(collect, &reporting));
            assert!(futures_util::poll!(&mut first).is_pending());
            drop(first);
            let others = (0..100).map(|_| uses.store(collect, &reporting));
            let mut others = futures_util::future::join_all(others);
            assert!(futures_util::poll!(&mut others).is_pending());
            release.send(()).unwrap();
            others.await;
            busy.await.unwrap().unwrap();
        });
        assert_eq!(collected.into_inner(), 2);
    }
}
