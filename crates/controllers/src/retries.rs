//! Writes that failed or did not last, by the name of their object. Each is retried later, and does not delay others.

use std::collections::{BTreeMap, BTreeSet};

use common::backoff::Backoff;
use common::reconcile::{Requeue, retries};
use kubernetes::{Applied, ControlError, Health};
use model::escape::{REASON, cut};
use tokio::time::Instant;

/// Objects whose writes are retried, each later and later.
#[derive(Default)]
pub struct Retries(BTreeMap<String, Retry>);

pub struct Retry {
    until: Instant,
    waits: Backoff,
    /// Reason, if the API server refused the write for good.
    reason: Option<String>,
}

pub enum WriteOutcome {
    Written,
    /// The write failed for the first time.
    Refused(String),
    /// A conflict, or a repeated failure.
    Nothing,
}

impl Retries {
    /// True if an object must not be retried yet.
    pub fn is_waiting(&self, name: &str, now: Instant) -> bool {
        self.0.get(name).is_some_and(|retry| retry.until > now)
    }

    /// Objects that must not be retried yet.
    pub fn at(&self, now: Instant) -> BTreeSet<String> {
        self.waiting(now).into_keys().collect()
    }

    /// Objects that must not be retried yet, with the reason if the API server refused them for good.
    pub fn waiting(&self, now: Instant) -> BTreeMap<String, Option<String>> {
        let waiting = self.0.iter().filter(|(_, retry)| retry.until > now);
        waiting.map(|(name, retry)| (name.clone(), retry.reason.clone())).collect()
    }

    /// The time of the next look, at the first retry at the latest.
    pub fn requeue(&self, requeue: Requeue, now: Instant) -> Requeue {
        let waits = self.0.values().map(|retry| retry.until.saturating_duration_since(now));
        waits.min().map_or(requeue, |wait| requeue.or_after(wait))
    }

    /// Removes objects that need no write any longer.
    pub fn retain(&mut self, is_due: impl Fn(&str) -> bool) {
        self.0.retain(|name, _| is_due(name));
    }

    /// Records the result of a write, and counts a failure.
    pub fn note(
        &mut self,
        name: &str,
        result: Result<Applied, ControlError>,
        health: &Health,
    ) -> WriteOutcome {
        let error = match result {
            Ok(Applied::Superseded) => return WriteOutcome::Nothing,
            Ok(Applied::Done) => {
                self.0.remove(name);
                return WriteOutcome::Written;
            }
            Err(error) => error,
        };
        health.metrics.failures.inc();
        let is_new = !self.0.contains_key(name);
        let text = error.to_string();
        let retry = self.delay(name, Instant::now());
        retry.reason = error.is_for_good().then(|| cut(&text, REASON).into_owned());
        if is_new { WriteOutcome::Refused(text) } else { WriteOutcome::Nothing }
    }

    /// Delays the next write of an object, longer each time.
    pub fn delay(&mut self, name: &str, now: Instant) -> &mut Retry {
        let new = || Retry { until: now, waits: retries(), reason: None };
        let retry = self.0.entry(name.to_owned()).or_insert_with(new);
        retry.until = now + retry.waits.next();
        retry
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_that_does_not_last_waits_and_one_that_does_is_discarded() {
        let (mut retries, now) = (Retries::default(), Instant::now());
        assert!(!retries.is_waiting("a", now));
        retries.delay("a", now);
        assert!(retries.is_waiting("a", now) && !retries.is_waiting("b", now));
        assert_ne!(retries.requeue(Requeue::Resync, now), Requeue::Resync);
        retries.retain(|name| name == "a");
        assert!(retries.is_waiting("a", now));
        retries.retain(|_| false);
        assert!(!retries.is_waiting("a", now));
        assert_eq!(retries.requeue(Requeue::Resync, now), Requeue::Resync);
    }
}
