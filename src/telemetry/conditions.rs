//! What readiness tells an administrator beside the pools: things out of order, with the reason.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use model::escape::escaped;
use prometheus_client::metrics::counter::Counter;

/// How it stands with one thing: readiness has its reason, a counter each failure, and the log only what is news.
#[derive(Debug)]
#[must_use = "nobody is told yet"]
pub struct Condition<'a> {
    thing: Cow<'static, str>,
    /// Why it is not in order, `None` if it is.
    reason: Option<String>,
    counter: Option<&'a Counter>,
}

impl<'a> Condition<'a> {
    /// In order, or not for `reason`.
    pub fn new(thing: impl Into<Cow<'static, str>>, reason: Option<String>) -> Self {
        Self { thing: thing.into(), reason, counter: None }
    }

    /// In order.
    pub fn ok(thing: impl Into<Cow<'static, str>>) -> Self {
        Self::new(thing, None)
    }

    /// Not in order.
    pub fn failed(thing: impl Into<Cow<'static, str>>, reason: impl Into<String>) -> Self {
        Self::new(thing, Some(reason.into()))
    }

    /// Not in order for all these reasons, or in order where there are none.
    pub fn of_all(thing: impl Into<Cow<'static, str>>, reasons: &[String]) -> Self {
        Self::new(thing, Some(reasons.join("; ")).filter(|reason| !reason.is_empty()))
    }

    /// Has `counter` count it as a failure, news or not, if it is one.
    pub fn counted_by(self, counter: &'a Counter) -> Self {
        Self { counter: Some(counter), ..self }
    }

    /// Notes it among `conditions`, and where that is news has `log` say so: the reason, or with `None` that it is in
    /// order again.
    pub fn report(self, conditions: &Conditions, log: impl FnOnce(Option<&str>)) {
        if let (Some(counter), Some(_)) = (self.counter, &self.reason) {
            counter.inc();
        }
        if conditions.set(self.thing, self.reason.clone()) {
            log(self.reason.as_deref());
        }
    }

    /// The same for a thing whose recovery the log need not have.
    pub fn report_failure(self, conditions: &Conditions, log: impl FnOnce(&str)) {
        self.report(conditions, |reason| {
            if let Some(reason) = reason {
                log(reason);
            }
        });
    }

    /// The same for what the log has in other words.
    pub fn note(self, conditions: &Conditions) {
        self.report(conditions, |_| {});
    }
}

/// Conditions by the thing that each is about. Shared by those who notice, and the one who tells.
#[derive(Debug, Clone, Default)]
pub struct Conditions(Arc<Mutex<BTreeMap<Cow<'static, str>, String>>>);

impl Conditions {
    /// Notes the reason that `thing` is out of order, or with `None` that it is in order. Tells
    /// whether that is news.
    fn set(&self, thing: impl Into<Cow<'static, str>>, reason: Option<String>) -> bool {
        let thing = thing.into();
        let mut reasons = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if reasons.get(&thing) == reason.as_ref() {
            return false;
        }
        match reason {
            Some(reason) => reasons.insert(thing, reason),
            None => reasons.remove(&thing),
        };
        true
    }

    /// One line a thing, without its reason: what whoever may ask is told.
    #[must_use]
    pub fn things(&self) -> Vec<String> {
        let reasons = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        reasons.keys().map(|thing| format!("{thing}: not in order")).collect()
    }

    /// One line a thing, with its reason.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let reasons = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        reasons
            .iter()
            .map(|(thing, reason)| format!("{}: {}", escaped(thing), escaped(reason)))
            .collect()
    }
}

/// What keeps the server from being ready, and what an administrator should know all the same.
#[derive(Debug, Clone, Default)]
pub struct Status {
    /// Whoever is sent here is sent in vain, or soon will be: a balancer should send machines
    /// elsewhere. Readiness is 503 as well.
    pub out_of_service: Conditions,
    /// Machines may get no answer or a wrong one: readiness is 503.
    pub not_ready: Conditions,
    /// Machines get what was right last: readiness stays 200, so that nothing takes the server out
    /// of service for a fault that is not its own.
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
