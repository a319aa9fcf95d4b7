//! Faults other than those of pools, with reasons, for readiness.
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use common::sync::lock;
use model::escape::escaped;

/// Faults by thing, shared by reporters and readiness.
#[derive(Debug, Clone, Default)]
pub struct Conditions(Arc<Mutex<BTreeMap<Cow<'static, str>, String>>>);

impl Conditions {
    /// Stores the reason of `thing`'s fault, or removes it with `None`. Returns true if it has changed.
    pub(super) fn set(&self, thing: Cow<'static, str>, reason: Option<String>) -> bool {
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
