//! The tokens of `serve`: kept in order while the server runs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use model::access::rotation::RotationPolicy;
use model::access::{AccessMode, Records};
use time::OffsetDateTime;

use super::access::{Gate, KeepTokens, Kept};
use crate::files::watch::{DirectoryWatch, Scanned};
use crate::store::state_directory::StateDirectory;
use crate::store::token_files::TokensReconciled;

/// How late at the latest everything is looked at again: a clock may be set.
const LONGEST_WAIT: Duration = Duration::from_secs(600);
/// How soon it is tried again what failed.
const RETRY: Duration = Duration::from_secs(5);

/// Keeps the tokens and who carries them in order. The process may end at any moment: whatever is done is
/// whole at every step.
pub(crate) struct TokenKeeper {
    state: StateDirectory,
    policy: RotationPolicy,
}

impl TokenKeeper {
    /// A keeper that has not looked yet.
    pub(crate) fn new(state: StateDirectory, policy: RotationPolicy) -> Self {
        Self { state, policy }
    }

    /// What is known where nothing can be written: a disk that is full opens no pool.
    pub(crate) fn unwritten(
        &self,
        wanted: &BTreeMap<String, AccessMode>,
        now: OffsetDateTime,
        reason: String,
    ) -> Kept {
        let standing = self.state.standing(wanted, now).or_else(|_| self.state.records());
        let records = standing.ok().filter(|records| !records.tokens.is_empty());
        // It may heal by itself, with no change of these files: a disk has room again.
        Kept { records, requeue_at: Some(now + RETRY), attention: vec![reason] }
    }
}

impl KeepTokens for TokenKeeper {
    fn keep(
        &mut self,
        wanted: &BTreeMap<String, AccessMode>,
        accept: &mut dyn FnMut(&Records),
    ) -> Kept {
        let now = OffsetDateTime::now_utc();
        match self.state.reconcile_tokens(wanted, &self.policy, now, accept) {
            Ok(reconciled) => {
                for because in &reconciled.done {
                    tracing::info!("tokens: {because}");
                }
                let TokensReconciled { attention, requeue_at, records, .. } = reconciled;
                Kept { records: Some(records), requeue_at, attention }
            }
            Err(error) => self.unwritten(wanted, now, error.to_string()),
        }
    }
}

/// Has the tokens looked at when somebody changes their files, and when something is due; for ever.
pub(crate) async fn keep(state: StateDirectory, gate: Arc<Gate>) {
    let mut files = DirectoryWatch::new(vec![state.path().to_owned()]);
    let (mut seen, mut due) = (None, None);
    loop {
        tokio::task::block_in_place(|| {
            files.scan(|_| {
                let is_due = due.is_some_and(|due| due <= OffsetDateTime::now_utc());
                // Taken before the look: what is changed meanwhile is seen by the next one.
                let stamps = state.token_stamps(SystemTime::now());
                if is_due || stamps.is_none() || stamps != seen {
                    seen = stamps;
                    due = gate.keep_tokens();
                }
                Scanned::Settled
            });
        });
        let left = due.map(|due| Duration::try_from(due - OffsetDateTime::now_utc()));
        let wait = left.and_then(Result::ok).unwrap_or(LONGEST_WAIT);
        tokio::select! {
            () = files.changed() => {}
            () = tokio::time::sleep(wait.clamp(Duration::from_secs(1), LONGEST_WAIT)) => {}
        }
    }
}
