//! Manages the tokens of `serve` while the server runs.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use common::schedule::Schedule;
use files::shared_watch::SharedWatch;
use model::access::rotation::RotationPolicy;
use model::access::{AccessMode, Records};
use telemetry::log_token_steps;
use time::OffsetDateTime;

use crate::store::state_directory::StateDirectory;
use crate::store::token_files::TokensReconciled;

/// Minimum wait between two looks without a change.
const SHORTEST_WAIT: Duration = Duration::from_secs(1);

/// Manages tokens and pointer configs with tokens. Every step is atomic, so that the process can end at any time.
pub(crate) struct TokenReconciler {
    state: StateDirectory,
    policy: RotationPolicy,
    pub(in crate::serving) schedule: Schedule,
}

impl TokenReconciler {
    /// Creates a reconciler that has not looked yet.
    pub(crate) fn new(state: StateDirectory, policy: RotationPolicy) -> Self {
        Self { state, policy, schedule: Schedule::default() }
    }

    /// Follows the files that tokens depend on.
    pub(crate) fn follow(&mut self, watch: &mut SharedWatch) {
        let state = self.state.clone();
        self.schedule =
            Schedule::of(watch.notify_of(move || state.token_stamps(SystemTime::now())));
    }

    /// Applies due steps for pools with these modes. `accept` is called with the records before pointer configs contain
    /// new tokens. Returns the records, `None` if they cannot be determined, with faults for administrators, one line
    /// each. It may block.
    pub(in crate::serving) fn reconcile(
        &mut self,
        wanted: &BTreeMap<String, AccessMode>,
        accept: &mut dyn FnMut(&Records),
    ) -> (Option<Records>, Vec<String>) {
        let now = OffsetDateTime::now_utc();
        match self.state.reconcile_tokens(wanted, &self.policy, now, accept) {
            Ok(TokensReconciled { done, attention, requeue_at, records }) => {
                log_token_steps(&done);
                let wait = requeue_at.map(|at| Duration::try_from(at - now).unwrap_or_default());
                self.schedule.wait(wait.map(|wait| wait.max(SHORTEST_WAIT)));
                (Some(records), attention)
            }
            Err(error) => {
                self.schedule.wait(None);
                self.schedule.retry();
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
}
