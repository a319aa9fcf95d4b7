//! Writes pointer configs into the state directory: one for each served pool.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use pki::Host;
use tokio::time::Instant;

use crate::store::state_directory::{StateDirectory, StateError};

/// Wait before the next attempt to write a pointer config.
const RETRY: Duration = Duration::from_secs(5);

/// Writes missing pointer configs.
pub(crate) struct PointerWriter {
    state: StateDirectory,
    /// Host that machines are sent to.
    host: Host,
    port: u16,
    /// Reasons why a pool has no pointer config.
    pub(in crate::serving) failed: BTreeMap<String, String>,
    /// Time of the next attempt, if there is one.
    pub(in crate::serving) retry_at: Option<Instant>,
}

impl PointerWriter {
    /// Creates a writer of pointer configs in `state` that send machines to `host`, at its port for TLS.
    pub(crate) fn new(state: StateDirectory, host: Host, port: u16) -> Self {
        Self { state, host, port, failed: BTreeMap::new(), retry_at: None }
    }

    /// Writes missing pointer configs of these pools. Returns the pools that have one, with its file. It may block.
    pub(in crate::serving) fn write<'a>(
        &mut self,
        pools: impl Iterator<Item = &'a String>,
    ) -> Vec<(String, PathBuf)> {
        let before = std::mem::take(&mut self.failed);
        let mut written = Vec::new();
        self.retry_at = None;
        for pool in pools {
            let error = match self.state.write_pointer(pool, &self.host, self.port) {
                Ok(path) => {
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
