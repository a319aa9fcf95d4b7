//! The decision about one request.

use core::net::IpAddr;
use std::sync::Arc;

use time::OffsetDateTime;

use super::mode::AccessMode;
use super::modes::Modes;
use super::network::Networks;
use super::proof::{Credential, Proof, Refusal, Verifier};

/// A request for a config, as far as it is judged.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The pool that is asked for, whether there is one or not.
    pub pool: &'a str,
    /// Where it comes from.
    pub address: IpAddr,
    /// True if nobody on the way can read it.
    pub is_private: bool,
    /// What it brings.
    pub credential: Credential<'a>,
    /// True if so many requests from there have failed that only what is cheap to judge is judged.
    pub has_failed_often: bool,
}

/// Who is let in.
#[derive(Debug, Default)]
pub struct Policy {
    /// How much is restricted.
    pub modes: Modes,
    /// From where it may be asked.
    pub networks: Networks,
    /// Who judges credentials, in this order.
    pub verifiers: Vec<Arc<dyn Verifier>>,
}

/// What comes of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// The mode that is in force for its pool.
    pub mode: AccessMode,
    /// Whether it may have the config.
    pub judged: Result<Proof, Refusal>,
}

impl Verdict {
    /// Why it gets nothing, `None` if it gets the config.
    #[must_use]
    pub fn refusal(&self) -> Option<Refusal> {
        let counts = |refusal: &Refusal| match self.mode {
            AccessMode::Enforce => true,
            AccessMode::Audit => false,
            AccessMode::Off => *refusal == Refusal::OtherNetwork,
        };
        self.judged.as_ref().err().copied().filter(counts)
    }

    /// Returns `true` if it was proven that it may have the config.
    #[must_use]
    pub fn is_proven(&self) -> bool {
        self.mode != AccessMode::Off && self.judged.is_ok()
    }

    /// Why it would get nothing if the pool were enforced.
    #[must_use]
    pub fn would_be_refused(&self) -> Option<Refusal> {
        self.judged.as_ref().err().copied().filter(|_| self.mode == AccessMode::Audit)
    }
}

/// Judges a request. Networks count where nothing else is restricted as well: who names some means it.
#[must_use]
pub fn decide(request: &Request<'_>, policy: &Policy, now: OffsetDateTime) -> Verdict {
    let mode = policy.modes.of(request.pool);
    let judged = if !policy.networks.allow(request.pool, request.address) {
        Err(Refusal::OtherNetwork)
    } else if mode == AccessMode::Off {
        Ok(Proof::NotAsked)
    } else {
        judge(request, policy, now)
    };
    Verdict { mode, judged }
}

fn judge(request: &Request<'_>, policy: &Policy, now: OffsetDateTime) -> Result<Proof, Refusal> {
    by_rules(request, policy, now).map_err(|refusal| match refusal {
        _ if !policy.modes.are_known(request.pool) => Refusal::NotRead,
        _ if request.has_failed_often => Refusal::TooMany,
        refusal => refusal,
    })
}

fn by_rules(request: &Request<'_>, policy: &Policy, now: OffsetDateTime) -> Result<Proof, Refusal> {
    if !request.is_private {
        return Err(Refusal::PlainPort);
    }
    let credential = match request.credential {
        Credential::Missing => return Err(Refusal::Missing),
        Credential::Malformed => return Err(Refusal::Malformed),
        Credential::Bearer(credential) => credential,
    };
    let may_judge =
        |verifier: &&Arc<dyn Verifier>| verifier.is_cheap() || !request.has_failed_often;
    let verify = |verifier: &Arc<dyn Verifier>| verifier.verify(credential, request.pool, now);
    let judged = policy.verifiers.iter().filter(may_judge).find_map(verify);
    judged.unwrap_or(Err(Refusal::Malformed))
}

#[cfg(test)]
mod tests;
