//! Secrets with user data that could not be written. They are tried again later, each by itself, and hold up
//! nothing else.

use std::collections::{BTreeMap, BTreeSet};

use model::escape::{REASON, cut};
use tokio::time::Instant;

use super::runtime::{Requeue, backoff};
use crate::backoff::Backoff;
use crate::kubernetes::{Applied, ControlError};

/// Those that could not be written, by their names.
#[derive(Default)]
pub(super) struct Refusals(BTreeMap<String, Refusal>);

struct Refusal {
    until: Instant,
    waits: Backoff,
    /// Why the API server refuses it for good, if it has judged it.
    reason: Option<String>,
}

/// What became of a write.
pub(super) enum Noted {
    /// It is done.
    Written,
    /// It failed, and had not before.
    Refused(String),
    /// Nothing that is new: somebody else came first, or it failed again.
    Nothing,
}

impl Refusals {
    /// Those that are not to be tried yet.
    pub(super) fn at(&self, now: Instant) -> BTreeSet<String> {
        self.waiting(now).into_keys().collect()
    }

    /// The same, with the reason where the API server has refused it for good.
    pub(super) fn waiting(&self, now: Instant) -> BTreeMap<String, Option<String>> {
        let waiting = self.0.iter().filter(|(_, refusal)| refusal.until > now);
        waiting.map(|(name, refusal)| (name.clone(), refusal.reason.clone())).collect()
    }

    /// When to look again: no later than the first of them is to be tried again.
    pub(super) fn requeue(&self, requeue: Requeue, now: Instant) -> Requeue {
        let waits = self.0.values().map(|refusal| refusal.until.saturating_duration_since(now));
        waits.min().map_or(requeue, |wait| requeue.or_after(wait))
    }

    /// Forgets those that need not be written any more.
    pub(super) fn retain(&mut self, is_due: impl Fn(&str) -> bool) {
        self.0.retain(|name, _| is_due(name));
    }

    /// Notes what became of a write.
    pub(super) fn note(&mut self, name: &str, result: Result<Applied, ControlError>) -> Noted {
        let error = match result {
            Ok(Applied::Superseded) => return Noted::Nothing,
            Ok(Applied::Done) => {
                self.0.remove(name);
                return Noted::Written;
            }
            Err(error) => error,
        };
        let is_new = !self.0.contains_key(name);
        let new = || Refusal { until: Instant::now(), waits: backoff(), reason: None };
        let refusal = self.0.entry(name.to_owned()).or_insert_with(new);
        refusal.until = Instant::now() + refusal.waits.next();
        let text = error.to_string();
        refusal.reason = error.is_for_good().then(|| cut(&text, REASON).into_owned());
        if is_new { Noted::Refused(text) } else { Noted::Nothing }
    }
}
