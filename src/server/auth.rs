//! Judges requests by the policy in force.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use http::header::{AUTHORIZATION, USER_AGENT};
use http::{HeaderMap, HeaderValue};
use model::access::approval::UnapprovedRequest;
use model::access::{self, BrokenRule, Credential, Policy, Proof, Verdict, decide};
use model::ignition_version::IgnitionVersion;
use time::OffsetDateTime;
use tokio::time::Instant;

use super::connection::Peer;
use super::connection_limiter::Transport;
use super::machine_request::MachineRequest;
use super::source_buckets::SourceBuckets;
use crate::serving::named_machines::NamedMachines;

/// Number of failed attempts that a source has at once.
const BURST: u32 = 100;
/// Time after which a source gets another attempt.
const REFILL: Duration = Duration::from_secs(1);

pub(super) const CHALLENGE: HeaderValue =
    HeaderValue::from_static("Bearer realm=\"machine-config-server\"");

/// Policy in force, which can be swapped, and failed attempts.
#[derive(Debug)]
pub struct Authorizer {
    policy: Arc<ArcSwap<Policy>>,
    machines: NamedMachines,
    pub(super) attempts: SourceBuckets,
}

impl Default for Authorizer {
    /// Judges each request by a policy without restrictions.
    fn default() -> Self {
        Self::new(Arc::default(), NamedMachines::default())
    }
}

impl Authorizer {
    /// Judges each request by the present `policy`, those of single machines by the use of their tokens, and those of
    /// machines that need approval by their approval.
    pub(crate) fn new(policy: Arc<ArcSwap<Policy>>, machines: NamedMachines) -> Self {
        Self { policy, machines, attempts: SourceBuckets::new(BURST, REFILL) }
    }

    /// Holds a machine that may have its config, needs approval and has none.
    pub(super) fn require_approval(
        &self,
        verdict: &mut Verdict,
        (pool, peer, headers): (&str, Peer, &HeaderMap),
    ) {
        if !verdict.needs_approval || verdict.refusal().is_some() {
            return;
        }
        let asked = UnapprovedRequest {
            pool,
            address: peer.address.ip(),
            proof: verdict.judged.as_ref().ok(),
            ignition: IgnitionVersion::of_user_agent(user_agent(headers)),
        };
        if !self.machines.approvals.admit(&asked) {
            verdict.broken_rule = Some(BrokenRule::NotApproved);
        }
    }

    /// The machine whose token a request has.
    pub(super) fn machine(&self, verdict: &Verdict) -> Option<MachineRequest> {
        let Ok(Proof::Machine(name)) = &verdict.judged else { return None };
        let tokens = self.machines.tokens.clone()?;
        Some(MachineRequest { tokens, name: Arc::clone(name) })
    }

    pub(super) fn evaluate(&self, pool: &str, peer: Peer, headers: &HeaderMap) -> Verdict {
        let source = peer.address.into();
        let now = Instant::now();
        let values = headers.get_all(AUTHORIZATION);
        let asked = access::Request {
            pool,
            address: peer.address.ip(),
            is_private: peer.transport == Transport::Tls,
            user_agent: user_agent(headers),
            credential: Credential::of(values.iter().map(HeaderValue::as_bytes)),
            has_failed_often: self.attempts.is_exhausted(source, now),
        };
        let verdict = decide(&asked, &self.policy.load(), OffsetDateTime::now_utc());
        if verdict.access_refusal().is_some() {
            self.attempts.count(source, now);
        }
        verdict
    }
}

fn user_agent(headers: &HeaderMap) -> &str {
    headers.get(USER_AGENT).and_then(|agent| agent.to_str().ok()).unwrap_or_default()
}
