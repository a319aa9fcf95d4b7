//! Judges requests by the policy in force.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use http::header::{AUTHORIZATION, USER_AGENT};
use http::{HeaderMap, HeaderValue};
use model::access::{self, Credential, Policy, Verdict, decide};
use time::OffsetDateTime;
use tokio::time::Instant;

use super::connections::connection::Peer;
use super::connections::connection_limiter::Transport;
use super::source_buckets::SourceBuckets;

/// Number of failed attempts that a source has at once.
const BURST: u32 = 100;
/// Time after which a source gets another attempt.
const REFILL: Duration = Duration::from_secs(1);

/// Policy in force, which can be swapped, and failed attempts.
#[derive(Debug)]
pub struct Authorizer {
    policy: Arc<ArcSwap<Policy>>,
    pub(super) attempts: SourceBuckets,
}

impl Default for Authorizer {
    /// Judges each request by a policy without restrictions.
    fn default() -> Self {
        Self::new(Arc::default())
    }
}

impl Authorizer {
    /// Judges each request by the present `policy`.
    pub(crate) fn new(policy: Arc<ArcSwap<Policy>>) -> Self {
        Self { policy, attempts: SourceBuckets::new(BURST, REFILL) }
    }

    /// Judges a request, regardless of the use of a machine's token and of approvals.
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

pub(super) fn user_agent(headers: &HeaderMap) -> &str {
    headers.get(USER_AGENT).and_then(|agent| agent.to_str().ok()).unwrap_or_default()
}
