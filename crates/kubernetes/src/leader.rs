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

const RENEWAL: Duration = Duration::from_secs(5);
/// Time without a renewal after which the holder stops, well before the Lease expires.
const DEADLINE: Duration = Duration::from_secs(10);
/// Interval between reads by candidates, and between the holder's retries.
const PERIOD: Duration = Duration::from_secs(2);

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

    /// Waits until this candidate holds the Lease.
    pub async fn acquire(&self) {
        let mut seen: Option<(Option<LeaseSpec>, Instant)> = None;
        loop {
            let result = self.try_acquire(&mut seen).await;
            self.health.lease(&self.object, result.as_ref().err());
            if let Ok(true) = result {
                return;
            }
            tokio::time::sleep(PERIOD).await;
        }
    }

    /// Renews the Lease as long as this candidate holds it. An API server that is slow has for its answer what is left of the
    /// deadline, which counts from when the last renewal was asked for: others count from when they see it, which is later.
    pub async fn hold(&self) {
        let mut renewed = Instant::now();
        let mut wait = RENEWAL;
        loop {
            tokio::time::sleep(wait).await;
            wait = PERIOD;
            let asked = Instant::now();
            let left = DEADLINE.saturating_sub(asked - renewed).max(PERIOD);
            let error = match tokio::time::timeout(left, self.renew()).await {
                Ok(Ok(true)) => {
                    (renewed, wait) = (asked, RENEWAL.saturating_sub(asked.elapsed()));
                    continue;
                }
                Ok(Ok(false)) => return,
                Ok(Err(error)) => error.to_string(),
                Err(_) => "no answer in time".to_owned(),
            };
            tracing::warn!(
                %error,
                fix = "check the API server and the network to it; another replica takes over meanwhile",
                "cannot renew the Lease"
            );
            if renewed.elapsed() >= DEADLINE {
                return;
            }
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

    /// The holder of a Lease, with an API server that takes this long for each answer.
    fn holder(takes: Duration) -> LeaderElector {
        let service = tower::service_fn(move |_: Request<Body>| async move {
            tokio::time::sleep(takes).await;
            let lease = created("lease", "me", &now());
            let body = serde_json::to_vec(&lease).unwrap();
            Ok::<_, Infallible>(Response::new(Body::from(body)))
        });
        let client = Client::new(service, "ns");
        LeaderElector::new(client, "ns", "lease", "me".to_owned(), Health::default())
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_is_renewed_by_a_slow_api_server_and_left_before_it_expires_without_one() {
        let long = Duration::from_secs(3600);
        let held = async |takes| {
            let started = Instant::now();
            let _ = tokio::time::timeout(long, holder(takes).hold()).await;
            started.elapsed()
        };
        // It is read and written, which is twice.
        assert!(held(Duration::from_millis(2_400)).await >= long);
        let given_up = held(Duration::from_secs(6)).await;
        assert!(given_up >= DEADLINE && given_up < DURATION, "{given_up:?}");
    }
}
