//! The decision about one request.

use core::net::IpAddr;

use time::OffsetDateTime;

use super::boot_rules::{BootRules, BrokenRule};
use super::machine::KnownMachines;
use super::mode::AccessMode;
use super::modes::Modes;
use super::network::Networks;
use super::proof::{Credential, Proof, Refusal};
use super::records::KnownTokens;
use super::signed::SignedTokens;
use super::token::ShownToken;

/// Properties of a request that decide on access.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// Requested pool, which may not exist.
    pub pool: &'a str,
    /// Client's address.
    pub address: IpAddr,
    /// True if the connection is encrypted.
    pub is_private: bool,
    /// Value of `User-Agent`, empty without one.
    pub user_agent: &'a str,
    /// Credential of the request.
    pub credential: Credential<'a>,
    /// True if so many requests from the address have failed that only cheap credentials are verified.
    pub has_failed_often: bool,
}

/// Rules of access.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    /// Access modes by pool.
    pub modes: Modes,
    /// Allowed networks.
    pub networks: Networks,
    /// Rules about machines.
    pub boot_rules: BootRules,
    /// Tokens of single machines, which count in every mode.
    pub machines: KnownMachines,
    /// Tokens of this server's kind.
    pub tokens: KnownTokens,
    /// Keys of another issuer of tokens.
    pub signed: Option<SignedTokens>,
}

/// Decision about a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Mode in force for the pool.
    pub mode: AccessMode,
    /// Result of the verification, regardless of the mode.
    pub judged: Result<Proof, Refusal>,
    /// Rule about machines that this one breaks.
    pub broken_rule: Option<BrokenRule>,
    /// True if the machine needs approval, which the caller unsets for one that has it.
    pub needs_approval: bool,
}

impl Verdict {
    /// Reason for a refusal, `None` if the client gets the config.
    pub fn refusal(&self) -> Option<Refusal> {
        self.access_refusal()
            .or_else(|| self.broken_rule.and_then(BrokenRule::refusal))
            .or_else(|| self.needs_approval.then_some(Refusal::NotApproved))
    }

    /// Reason for a refusal by what the request proves.
    pub fn access_refusal(&self) -> Option<Refusal> {
        let counts = |refusal: &Refusal| match self.mode {
            AccessMode::Enforce => true,
            AccessMode::Audit => false,
            AccessMode::Off => *refusal == Refusal::OtherNetwork,
        };
        self.judged.as_ref().err().copied().filter(counts)
    }

    /// Token of a single machine that opens the config.
    pub fn machine_token(&self) -> Option<&ShownToken> {
        match &self.judged {
            Ok(Proof::Machine(shown)) => Some(shown),
            _ => None,
        }
    }

    /// Returns `true` if the pool is restricted and the request has a proof.
    pub fn is_proven(&self) -> bool {
        self.mode != AccessMode::Off && self.judged.is_ok()
    }

    /// Reason why the request would be refused if the pool were enforced.
    pub fn would_be_refused(&self) -> Option<Refusal> {
        self.judged.as_ref().err().copied().filter(|_| self.mode == AccessMode::Audit)
    }
}

/// Judges a request. Networks apply to open pools too: an administrator who lists some means it. So does the token of a
/// single machine, which says who asks; if it is still open depends on its [use](super::machine::Usage).
#[must_use]
pub fn decide(request: &Request<'_>, policy: &Policy, now: OffsetDateTime) -> Verdict {
    let Request { pool, address, is_private, credential, .. } = *request;
    let rules = policy.boot_rules.of(pool);
    let broken_rule = rules.broken_by(is_private, request.user_agent);
    if let Some((machine, shown)) = policy.machines.find(credential) {
        let judged = machine.judge(pool, address, is_private).and_then(|()| {
            let is_allowed = policy.networks.allow(pool, address);
            is_allowed.then_some(Proof::Machine(shown)).ok_or(Refusal::OtherNetwork)
        });
        let needs_approval = rules.needs_approval || machine.needs_approval;
        return Verdict { mode: AccessMode::Enforce, judged, broken_rule, needs_approval };
    }
    let mode = policy.modes.of(pool);
    let judged = if !policy.networks.allow(pool, address) {
        Err(Refusal::OtherNetwork)
    } else if mode == AccessMode::Off {
        Ok(Proof::NotAsked)
    } else {
        judge(request, policy, now)
    };
    Verdict { mode, judged, broken_rule, needs_approval: rules.needs_approval }
}

fn judge(request: &Request<'_>, policy: &Policy, now: OffsetDateTime) -> Result<Proof, Refusal> {
    by_rules(request, policy, now).map_err(|refusal| match policy.modes.unknown(request.pool) {
        Some(unknown) => unknown,
        None if request.has_failed_often => Refusal::TooMany,
        None => refusal,
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
    // Verifying a signature is so costly that failed attempts are limited.
    let signed = policy.signed.as_ref().filter(|_| !request.has_failed_often);
    let judged = policy.tokens.verify(credential, request.pool, now);
    judged
        .or_else(|| signed?.verify(credential, request.pool, now))
        .unwrap_or(Err(Refusal::Malformed))
}

#[cfg(test)]
mod tests;
