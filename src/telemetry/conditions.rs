//! Conditions for readiness: faults other than those of pools, with reasons.
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use model::escape::escaped;
use prometheus_client::metrics::counter::Counter;

use crate::common::sync::lock;

/// Condition of one thing. Readiness shows its reason, a counter counts each failure, and the log has only changes.
#[derive(Debug)]
#[must_use = "the condition is not reported yet"]
pub struct Condition<'a> {
    thing: Cow<'static, str>,
    /// Reason of the fault, `None` without one.
    reason: Option<String>,
    counter: Option<&'a Counter>,
}

impl<'a> Condition<'a> {
    /// Creates a condition, with `reason` if it is a fault.
    pub fn new(thing: impl Into<Cow<'static, str>>, reason: Option<String>) -> Self {
        Self { thing: thing.into(), reason, counter: None }
    }

    pub fn ok(thing: impl Into<Cow<'static, str>>) -> Self {
        Self::new(thing, None)
    }

    pub fn failed(thing: impl Into<Cow<'static, str>>, reason: impl Into<String>) -> Self {
        Self::new(thing, Some(reason.into()))
    }

    /// Creates a fault with all these reasons, or none if there are no reasons.
    pub fn of_all(thing: impl Into<Cow<'static, str>>, reasons: &[String]) -> Self {
        Self::new(thing, Some(reasons.join("; ")).filter(|reason| !reason.is_empty()))
    }

    /// Counts each failure with `counter` if there is one, repeated failures too.
    pub fn counted_by(self, counter: impl Into<Option<&'a Counter>>) -> Self {
        Self { counter: counter.into(), ..self }
    }

    /// Stores the condition in `conditions`. If it has changed, calls `log` with the reason, or with `None` after a
    /// recovery.
    pub fn report(self, conditions: &Conditions, log: impl FnOnce(Option<&str>)) {
        if let (Some(counter), Some(_)) = (self.counter, &self.reason) {
            counter.inc();
        }
        if conditions.set(self.thing, self.reason.clone()) {
            log(self.reason.as_deref());
        }
    }

    /// Reports like [`Self::report`], without a log line for the recovery.
    pub fn report_failure(self, conditions: &Conditions, log: impl FnOnce(&str)) {
        self.report(conditions, |reason| {
            if let Some(reason) = reason {
                log(reason);
            }
        });
    }

    /// Stores the condition without a log line, for things that are logged elsewhere.
    pub fn note(self, conditions: &Conditions) {
        self.report(conditions, |_| {});
    }
}

/// Faults by thing, shared by reporters and readiness.
#[derive(Debug, Clone, Default)]
pub struct Conditions(Arc<Mutex<BTreeMap<Cow<'static, str>, String>>>);

impl Conditions {
    /// Stores the reason of `thing`'s fault, or removes it with `None`. Returns true if it has changed.
    fn set(&self, thing: impl Into<Cow<'static, str>>, reason: Option<String>) -> bool {
        let thing = thing.into();
        let mut reasons = lock(&self.0);
        if reasons.get(&thing) == reason.as_ref() {
            return false;
        }
        match reason {
            Some(reason) => reasons.insert(thing, reason),
            None => reasons.remove(&thing),
        };
        true
    }

    /// One line for each thing, without reasons, for unauthenticated clients.
    pub fn things(&self) -> Vec<String> {
        let reasons = lock(&self.0);
        reasons.keys().map(|thing| format!("{thing}: failed")).collect()
    }

    pub fn lines(&self) -> Vec<String> {
        let reasons = lock(&self.0);
        reasons
            .iter()
            .map(|(thing, reason)| format!("{}: {}", escaped(thing), escaped(reason)))
            .collect()
    }
}

/// Conditions of the server, by their effect on readiness.
#[derive(Debug, Clone, Default)]
pub struct Status {
    /// The server cannot serve, or soon will not: balancers should send machines elsewhere. Readiness is 503.
    pub out_of_service: Conditions,
    /// Machines may get no answer or a wrong one: readiness is 503.
    pub not_ready: Conditions,
    /// Machines get the last good answer: readiness stays 200, so that an external fault does not take the server out
    /// of service.
    pub degraded: Conditions,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_is_counted_each_time_and_logged_when_it_changes() {
        let (conditions, counter) = (Conditions::default(), Counter::default());
        let mut log = Vec::new();
        let mut report = |condition: Condition<'_>| {
            let note = |reason: Option<&str>| log.push(reason.map(str::to_owned));
            condition.counted_by(&counter).report(&conditions, note);
        };
        report(Condition::ok("disk"));
        report(Condition::failed("disk", "full"));
        report(Condition::failed("disk", "full"));
        report(Condition::of_all("disk", &["full".to_owned(), "slow".to_owned()]));
        report(Condition::of_all("disk", &[]));
        report(Condition::ok("disk"));
        let reported = |reason: &str| Some(reason.to_owned());
        assert_eq!(log, [reported("full"), reported("full; slow"), None]);
        assert_eq!(counter.get(), 3);

        Condition::failed("disk", "full").note(&conditions);
        assert_eq!(conditions.lines(), ["disk: full"]);
        let mut log = Vec::new();
        for reason in [None, Some("slow".to_owned())] {
            let note = |reason: &str| log.push(reason.to_owned());
            Condition::new("disk", reason).report_failure(&conditions, note);
        }
        assert_eq!(log, ["slow"]);
    }
}
