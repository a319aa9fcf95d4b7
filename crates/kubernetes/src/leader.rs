//! Elects one active controller of several by a Lease, as Kubernetes' own controllers do.
//!
//! The holder renews the Lease; other candidates measure by their own clocks how long it stays unchanged, so that
//! different clocks do no harm. A holder that shuts down releases it, and the next one takes over at once; after a
//! crash, the next one takes over when the Lease expires.
//!
//! No library is used: kube-lease-manager, the one that fits kube 5, compares the holder's timestamps with the local
//! clock, and frees an expired Lease without a precondition, so that two candidates can hold it at once.

use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, Client};
use model::objects::ObjectKind;

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

    pub async fn hold(&self) {
        let mut renewed = Instant::now();
        let mut wait = RENEWAL;
        loop {
            tokio::time::sleep(wait).await;
            wait = PERIOD;
            let error = match tokio::time::timeout(PERIOD, self.renew()).await {
                Ok(Ok(true)) => {
                    (renewed, wait) = (Instant::now(), RENEWAL);
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
            if renewed.elapsed() > DEADLINE {
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
