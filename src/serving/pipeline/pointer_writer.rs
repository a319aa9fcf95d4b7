//! Writes pointer configs into the state directory: one for each served pool.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use pki::Host;
use tokio::time::Instant;

use crate::files::stamp::FileStamp;
use crate::store::state_directory::{StateDirectory, StateError};

/// Wait before the next attempt to write a pointer config.
const RETRY: Duration = Duration::from_secs(5);

/// Writes missing pointer configs.
pub(crate) struct PointerWriter {
    state: StateDirectory,
    /// Host that machines are sent to.
    host: Host,
    port: u16,
    /// Stamps of files that have the pointer config of their pool.
    written: HashMap<PathBuf, FileStamp>,
    /// Reasons why a pool has no pointer config.
    pub(in crate::serving) failed: BTreeMap<String, String>,
    /// Time of the next attempt, if there is one.
    pub(in crate::serving) retry_at: Option<Instant>,
}

impl PointerWriter {
    /// Creates a writer of pointer configs in `state` that send machines to `host`, at its port for TLS.
    pub(crate) fn new(state: StateDirectory, host: Host, port: u16) -> Self {
        let (written, failed) = Default::default();
        Self { state, host, port, written, failed, retry_at: None }
    }

    /// Writes missing pointer configs of these pools. Returns the pools that have one, with its file. It may block.
    pub(in crate::serving) fn write<'a>(
        &mut self,
        pools: impl Iterator<Item = &'a String>,
    ) -> Vec<(String, PathBuf)> {
        let before = std::mem::take(&mut self.failed);
        let mut written = Vec::new();
        self.retry_at = None;
        let now = SystemTime::now();
        let mut known = std::mem::take(&mut self.written);
        for pool in pools {
            let path = self.state.pointer_path(pool);
            let stamp = stamp(&path, now);
            if stamp.is_some() && known.remove(&path) == stamp {
                self.written.extend(stamp.map(|stamp| (path.clone(), stamp)));
                written.push((pool.clone(), path));
                continue;
            }
            let error = match self.state.write_pointer(pool, &self.host, self.port) {
                Ok(()) => {
                    // What was just written has no stamp yet, and is read once more by the next call.
                    self.written.extend(stamp.map(|stamp| (path.clone(), stamp)));
                    written.push((pool.clone(), path));
                    continue;
                }
                Err(error) => error,
            };
            let text = error.to_string();
            if before.get(pool) != Some(&text) {
                tracing::error!(
                    pool,
                    error = text,
                    fix = "do what the error names; check space and permissions of the state directory",
                    "cannot write the pointer config"
                );
            }
            self.failed.insert(pool.clone(), text);
            if !matches!(error, StateError::Occupied { .. }) {
                self.retry_at = Some(Instant::now() + RETRY);
            }
            if let StateError::Lock(_) = error {
                // The others would wait as long.
                break;
            }
        }
        written
    }
}

/// Stamp of a file, if each later change has another one.
fn stamp(path: &Path, now: SystemTime) -> Option<FileStamp> {
    let stamp = FileStamp::of(&std::fs::metadata(path).ok()?);
    Some(stamp).filter(|stamp| stamp.is_settled(now))
}
