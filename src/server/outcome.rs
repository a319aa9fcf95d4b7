//! Outcome of a request for a config: for its answer, the metrics, the boot ledger and the log.

use std::sync::Arc;

use ignition::SpecVersion;
use model::access::{self, Verdict};
use model::escape::{NAME, cut_escaped};
use model::refusal::RefusalCode;

use crate::serving::answers::{self, Answer};

/// Outcome of a request for a config.
#[derive(Debug, Clone)]
pub(super) struct Outcome {
    pub(super) pool: String,
    pub(super) verdict: Verdict,
    /// Negotiated version, if access was given and there is one.
    pub(super) version: Option<SpecVersion>,
    pub(super) given: Result<Arc<Answer>, Refused>,
}

/// Reason why a request gets no config.
#[derive(Debug, Clone)]
pub(super) struct Refused {
    pub(super) code: RefusalCode,
    /// One line for the client.
    pub(super) line: String,
    /// The reason for administrators.
    pub(super) reason: String,
}

impl Refused {
    /// A refusal of access. Clients get the same line for all permanent ones.
    pub(super) fn access(refusal: access::Refusal) -> Self {
        let line = match refusal {
            access::Refusal::Unknown => "this server does not know the token, or not yet\n",
            access::Refusal::TooMany => "too many failed attempts from this address\n",
            access::Refusal::OldIgnition => {
                "the Ignition of this machine is older than its pool accepts\n"
            }
            access::Refusal::PoolPlainPort => "this pool is not served on the port without TLS\n",
            access::Refusal::NotApproved => "this machine waits for an administrator's approval\n",
            access::Refusal::NotStored => "the server cannot store the use of this token\n",
            _ => "access to this config is restricted, and the request has no valid token\n",
        };
        Self { code: refusal.code(), line: line.to_owned(), reason: refusal.to_string() }
    }

    /// The reason why a pool has no config at present.
    pub(super) fn pool(refusal: &answers::Refusal, pool: &str) -> Self {
        Self::config(refusal.code(), pool, refusal.to_string())
    }

    /// The reason why a pool has no config for the request. For a temporary cause, the line names the pool.
    pub(super) fn config(code: RefusalCode, pool: &str, reason: String) -> Self {
        let line = if code.status().is_server_error() {
            format!("pool {}: {reason}\n", cut_escaped(pool, NAME))
        } else {
            format!("{reason}\n")
        };
        Self { code, line, reason }
    }
}
