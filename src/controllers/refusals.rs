//! Secrets with user data that could not be written. Each is retried later, and does not delay others.

use std::collections::{BTreeMap, BTreeSet};

use model::escape::{REASON, cut};
use tokio::time::Instant;

use super::runtime::{Requeue, backoff};
use crate::backoff::Backoff;
use crate::kubernetes::{Applied, ControlError};

#[derive(Default)]
pub(super) struct Refusals(BTreeMap<String, Refusal>);

struct Refusal {
    until: Instant,
    waits: Backoff,
    /// Reason, if the API server refused the write for good.
    reason: Option<String>,
}

pub(super) enum WriteOutcome {
    /// The write succeeded.
    Written,
    /// The write failed for the first time.
    Refused(String),
    /// A conflict, or a repeated failure.
    Nothing,
}

impl Refusals {
    /// Secrets that must not be retried yet.
    pub(super) fn at(&self, now: Instant) -> BTreeSet<String> {
        self.waiting(now).into_keys().collect()
    }

    /// Secrets that must not be retried yet, with the reason if the API server refused them for good.
    pub(super) fn waiting(&self, now: Instant) -> BTreeMap<String, Option<String>> {
        let waiting = self.0.iter().filter(|(_, refusal)| refusal.until > now);
        waiting.map(|(name, refusal)| (name.clone(), refusal.reason.clone())).collect()
    }

    /// The time of the next look, at the first retry at the latest.
    pub(super) fn requeue(&self, requeue: Requeue, now: Instant) -> Requeue {
        let waits = self.0.values().map(|refusal| refusal.until.saturating_duration_since(now));
        waits.min().map_or(requeue, |wait| requeue.or_after(wait))
    }

    /// Removes Secrets that need no write any longer.
    pub(super) fn retain(&mut self, is_due: impl Fn(&str) -> bool) {
        self.0.retain(|name, _| is_due(name));
    }

    /// Records the result of a write.
    pub(super) fn note(
        &mut self,
        name: &str,
        result: Result<Applied, ControlError>,
    ) -> WriteOutcome {
        let error = match result {
            Ok(Applied::Superseded) => return WriteOutcome::Nothing,
            Ok(Applied::Done) => {
                self.0.remove(name);
                return WriteOutcome::Written;
            }
            Err(error) => error,
        };
        let is_new = !self.0.contains_key(name);
        let new = || Refusal { until: Instant::now(), waits: backoff(), reason: None };
        let refusal = self.0.entry(name.to_owned()).or_insert_with(new);
        refusal.until = Instant::now() + refusal.waits.next();
        let text = error.to_string();
        refusal.reason = error.is_for_good().then(|| cut(&text, REASON).into_owned());
        if is_new { WriteOutcome::Refused(text) } else { WriteOutcome::Nothing }
    }
}
