//! Manages the tokens of `serve` while the server runs.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use model::access::rotation::RotationPolicy;
use model::access::{AccessMode, Records};
use time::OffsetDateTime;

use crate::files::watch::{DirectoryWatch, Scanned};
use crate::store::state_directory::{Stamps, StateDirectory};
use crate::store::token_files::TokensReconciled;
use crate::telemetry::log_token_steps;

/// Waits between two looks, short enough for a changed clock.
const SHORTEST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(600);
/// Wait after a failed look.
const RETRY: Duration = Duration::from_secs(5);

/// Manages tokens and pointer configs with tokens. Every step is atomic, so that the process can end at any time.
pub(crate) struct TokenReconciler {
    state: StateDirectory,
    policy: RotationPolicy,
    /// Watch of the directory, created at the first wait for a change.
    files: Option<DirectoryWatch>,
    /// Stamps of the files before the last look.
    seen: Option<Stamps>,
    /// Time at which something becomes due without any change, if ever.
    requeue_at: Option<OffsetDateTime>,
}

impl TokenReconciler {
    /// Creates a manager that has not looked yet.
    pub(crate) fn new(state: StateDirectory, policy: RotationPolicy) -> Self {
        Self { state, policy, files: None, seen: None, requeue_at: None }
    }

    /// Applies due steps for pools with these modes. `accept` is called with the records before pointer configs carry
    /// new tokens. Returns the records, `None` if they cannot be determined, with faults for administrators, one line
    /// each. It may block.
    pub(in crate::serving) fn reconcile(
        &mut self,
        wanted: &BTreeMap<String, AccessMode>,
        accept: &mut dyn FnMut(&Records),
    ) -> (Option<Records>, Vec<String>) {
        let now = OffsetDateTime::now_utc();
        // Stamps are taken before the look: the next one sees later changes.
        self.seen = self.state.token_stamps(SystemTime::now());
        match self.state.reconcile_tokens(wanted, &self.policy, now, accept) {
            Ok(TokensReconciled { done, attention, requeue_at, records }) => {
                log_token_steps(&done);
                self.requeue_at = requeue_at;
                (Some(records), attention)
            }
            Err(error) => {
                // The error can pass without a change of these files: a full disk may have room later.
                self.requeue_at = Some(now + RETRY);
                (self.unwritten(wanted, now), vec![error.to_string()])
            }
        }
    }

    /// Records if nothing can be written: a full disk opens no pool.
    fn unwritten(
        &self,
        wanted: &BTreeMap<String, AccessMode>,
        now: OffsetDateTime,
    ) -> Option<Records> {
        let current = self.state.current_records(wanted, now).or_else(|_| self.state.records());
        current.ok().filter(|records| !records.tokens.is_empty())
    }

    /// Waits until the tokens must be looked at: their files have changed, or something is due. It is cancel safe.
    pub(in crate::serving) async fn due(&mut self) {
        let directory = self.state.path();
        let files =
            self.files.get_or_insert_with(|| DirectoryWatch::new(vec![directory.to_owned()]));
        loop {
            let left = self.requeue_at.map(|at| Duration::try_from(at - OffsetDateTime::now_utc()));
            let wait = left.and_then(Result::ok).unwrap_or(LONGEST_WAIT);
            tokio::select! {
                () = files.changed() => {}
                () = tokio::time::sleep(wait.clamp(SHORTEST_WAIT, LONGEST_WAIT)) => {}
            }
            let mut is_due = self.requeue_at.is_some_and(|at| at <= OffsetDateTime::now_utc());
            tokio::task::block_in_place(|| {
                files.scan(|_| {
                    let stamps = self.state.token_stamps(SystemTime::now());
                    is_due |= stamps.is_none() || stamps != self.seen;
                    Scanned::SETTLED
                });
            });
            if is_due {
                return;
            }
        }
    }
}
