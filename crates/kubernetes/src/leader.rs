//! Elects one active controller of several by a Lease, as Kubernetes' own controllers do.
//!
//! The holder renews the Lease; other candidates measure by their own clocks how long it stays unchanged, so that
//! different clocks do no harm. A holder that shuts down releases it, and the next one takes over at once; after a
//! crash, the next one takes over when the Lease expires.
//!
//! No library is used: kube-lease-manager, the one that fits kube 5, compares the holder's timestamps with the local
//! clock, and frees an expired Lease without a precondition, so that two candidates can hold it at once.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, Client};
use model::objects::ObjectKind;
use tokio::time::Instant;

use super::lease::{Decision, created, decide, released, renewed, taken};
use super::write::ObjectName;
use crate::health::Health;

const RENEWAL: Duration = Duration::from_secs(3);
/// Time without a renewal after which an attempt that fails is the last, well before the Lease expires.
const DEADLINE: Duration = Duration::from_secs(10);
/// Time of an attempt to read and write the Lease. After one over a dead connection, which says nothing, there is time for
/// another one.
const LONGEST_ATTEMPT: Duration = Duration::from_secs(5);
/// Interval between reads by candidates, and between the holder's retries.
const PERIOD: Duration = Duration::from_secs(2);

const LATE: &str = "no answer in time";

pub struct LeaderElector {
    leases: Api<Lease>,
    object: ObjectName,
    identity: String,
    health: Health,
}

impl LeaderElector {
    /// Creates a candidate with the unique name `identity`.
    pub fn new(
        client: Client,
        namespace: &str,
        name: &str,
        identity: String,
        health: Health,
    ) -> Self {
        let object = ObjectName::new(ObjectKind::LEASE, namespace, name);
        Self { leases: Api::namespaced(client, namespace), object, identity, health }
    }

    /// Waits until this candidate holds the Lease, and returns when it asked for that: others count from when they see it,
    /// which is later.
    pub async fn acquire(&self) -> Instant {
        let mut seen: Option<(Option<LeaseSpec>, Instant)> = None;
        loop {
            let asked = Instant::now();
            let attempt = tokio::time::timeout(LONGEST_ATTEMPT, self.try_acquire(&mut seen)).await;
            let result = attempt.unwrap_or_else(|_| Err(kube::Error::Service(LATE.into())));
            self.health.lease(&self.object, result.as_ref().err());
            if let Ok(true) = result {
                return asked;
            }
            tokio::time::sleep(PERIOD).await;
        }
    }

    /// Renews the Lease, which was asked for at `renewed`, as long as this candidate holds it.
    pub async fn hold(&self, mut renewed: Instant) {
        let mut next = renewed + RENEWAL;
        loop {
            tokio::time::sleep_until(next).await;
            let asked = Instant::now();
            let left = DEADLINE.saturating_sub(asked - renewed).max(PERIOD);
            let attempt = tokio::time::timeout(left.min(LONGEST_ATTEMPT), self.renew());
            let error = match attempt.await {
                Ok(Ok(true)) => {
                    (renewed, next) = (asked, asked + RENEWAL);
                    continue;
                }
                Ok(Ok(false)) => return,
                Ok(Err(error)) => error.to_string(),
                Err(_) => LATE.to_owned(),
            };
            tracing::warn!(
                %error,
                fix = "check the API server and the network to it; another replica takes over meanwhile",
                "cannot renew the Lease"
            );
            if renewed.elapsed() >= DEADLINE {
                return;
            }
            next = Instant::now() + PERIOD;
        }
    }

    /// Releases the Lease, if it is held.
    pub async fn release(&self) -> kube::Result<()> {
        let lease = self.leases.get_opt(&self.object.name).await?;
        if let Some(lease) = lease.and_then(|lease| released(lease, &self.identity)) {
            self.replace(&lease).await?;
        }
        Ok(())
    }

    /// Tries once; `seen` is the last contents of the Lease, and the time since which it has them.
    async fn try_acquire(
        &self,
        seen: &mut Option<(Option<LeaseSpec>, Instant)>,
    ) -> kube::Result<bool> {
        let lease = self.leases.get_opt(&self.object.name).await?;
        let spec = lease.as_ref().and_then(|lease| lease.spec.clone());
        let since = match seen.take() {
            Some((before, since)) if before == spec => since,
            _ => Instant::now(),
        };
        *seen = Some((spec, since));
        match (decide(lease.as_ref(), &self.identity, since.elapsed()), lease) {
            (Decision::Wait, _) => Ok(false),
            (Decision::Take, Some(lease)) => {
                self.replace(&taken(lease, &self.identity, &now())).await
            }
            (Decision::Create | Decision::Take, _) => {
                let lease = created(&self.object.name, &self.identity, &now());
                first(self.leases.create(&PostParams::default(), &lease).await)
            }
        }
    }

    /// Renews the Lease; returns false if it is lost.
    async fn renew(&self) -> kube::Result<bool> {
        let lease = self.leases.get_opt(&self.object.name).await?;
        match lease.and_then(|lease| renewed(lease, &self.identity, &now())) {
            Some(lease) => self.replace(&lease).await,
            None => Ok(false),
        }
    }

    /// Replaces the Lease that was read, with its UID and version as preconditions. Returns true on success.
    async fn replace(&self, lease: &Lease) -> kube::Result<bool> {
        first(self.leases.replace(&self.object.name, &PostParams::default(), lease).await)
    }
}

fn now() -> MicroTime {
    MicroTime(Timestamp::now())
}

/// True if a write succeeded, and false if another client was first.
fn first(result: kube::Result<Lease>) -> kube::Result<bool> {
    match result {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use core::convert::Infallible;

    use http::{Request, Response};
    use kube::client::Body;

    use super::super::lease::DURATION;
    use super::*;

    /// A candidate for a Lease that is its own, at an API server that takes so many milliseconds for each request in turn; the
    /// last number is for all that follow.
    fn candidate(takes: &'static [u64]) -> LeaderElector {
        let mut next = 0;
        let service = tower::service_fn(move |_: Request<Body>| {
            let takes = Duration::from_millis(takes[next.min(takes.len() - 1)]);
            next += 1;
            async move {
                tokio::time::sleep(takes).await;
                let lease = created("lease", "me", &now());
                let body = serde_json::to_vec(&lease).unwrap();
                Ok::<_, Infallible>(Response::new(Body::from(body)))
            }
        });
        let client = Client::new(service, "ns");
        LeaderElector::new(client, "ns", "lease", "me".to_owned(), Health::default())
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_is_renewed_by_a_slow_api_server_and_left_before_it_expires_without_one() {
        let long = Duration::from_secs(3600);
        let held = async |takes| {
            let started = Instant::now();
            let _ = tokio::time::timeout(long, candidate(takes).hold(started)).await;
            started.elapsed()
        };
        // It is read and written, which is twice.
        assert!(held(&[2_400]).await >= long);
        // By a connection that is dead, and by the next one.
        assert!(held(&[1_000_000, 100]).await >= long);
        let given_up = held(&[1_000_000]).await;
        assert!(given_up > DEADLINE && given_up < DURATION, "{given_up:?}");
    }

    /// A Lease that the API server wrote long before it answered can be another candidate's by then.
    #[tokio::test(start_paused = true)]
    async fn a_lease_is_held_from_when_it_was_asked_for() {
        let started = Instant::now();
        let asked = candidate(&[100, 1_000_000, 2_000]).acquire().await;
        assert_eq!(asked - started, LONGEST_ATTEMPT + PERIOD);
        assert_eq!(started.elapsed(), LONGEST_ATTEMPT + PERIOD + Duration::from_secs(4));
        let slow = candidate(&[100, 4_500, 1_000_000]);
        let asked = slow.acquire().await;
        slow.hold(asked).await;
        assert!(asked.elapsed() < DURATION, "{:?}", asked.elapsed());
    }
}
