//! Removal of a machine in a directory: requested by a command, carried out by the running server.

use std::time::{Duration, Instant};

use anyhow::ensure;
use files::lock::LockError;
use time::OffsetDateTime;

use crate::commands::serve::memory;
use crate::source::directory::discard_machine;
use crate::store::state_directory::StateDirectory;
use crate::store::state_error::StateError;

/// Maximum wait for a running server.
const LONGEST: Duration = Duration::from_secs(10);
/// Interval between looks if it is done.
const LOOK: Duration = Duration::from_millis(50);

/// Completes the removal of a machine, if one is requested: waits until the running server has revoked the token, which it has
/// in memory. Without a server, revokes it while none can start.
pub(super) fn complete(
    state: &StateDirectory,
    name: &str,
    now: OffsetDateTime,
) -> anyhow::Result<()> {
    let started = Instant::now();
    let request = state.removed_path().join(name);
    while request.exists() {
        let why = match state.revoke_machine(name, now) {
            Ok(_alone) => {
                discard_machine(&memory(state.path()), name)?;
                state.note_removed(name)?;
                return Ok(());
            }
            Err(StateError::Lock(LockError::Served { process, .. })) => format!(
                "{process} serves from the directory, and revokes it once its manifests have no FirstBootMachine {name}"
            ),
            Err(StateError::Lock(error)) => error.to_string(),
            Err(error) => return Err(error.into()),
        };
        ensure!(started.elapsed() < LONGEST, "its token is not revoked yet: {why}");
        std::thread::sleep(LOOK);
    }
    Ok(())
}
