//! What readiness tells an administrator beside the pools: things out of order, with the reason.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use model::escape::escaped;

/// Conditions by the thing that each is about. Shared by those who notice, and the one who tells.
#[derive(Debug, Clone, Default)]
pub struct Conditions(Arc<Mutex<BTreeMap<Cow<'static, str>, String>>>);

impl Conditions {
    /// Notes the reason that `thing` is out of order, or with `None` that it is in order. Tells
    /// whether that is news.
    pub fn set(&self, thing: impl Into<Cow<'static, str>>, reason: Option<String>) -> bool {
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

    /// Notes all reasons that `thing` is out of order, none where it is in order. Tells them in one line
    /// where that is news.
    #[must_use = "it may be news"]
    pub fn set_all(&self, thing: &'static str, reasons: &[String]) -> Option<String> {
        let reason = Some(reasons.join("; ")).filter(|reason| !reason.is_empty());
        self.set(thing, reason.clone()).then_some(reason).flatten()
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
