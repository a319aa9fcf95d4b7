//! One active controller of several: a Lease, as Kubernetes' own controllers use it.
//!
//! Whoever holds the Lease renews it; whoever wants it watches whether it changes, by its own clock
//! alone, so that clocks which differ do no harm. A holder that ends in order gives it back, and
//! the next one takes over at once; one that crashes is succeeded when the Lease has run out.

use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};

/// How long a Lease is good without being renewed.
const DURATION: Duration = Duration::from_secs(15);
/// How often the holder renews it.
const RENEWAL: Duration = Duration::from_secs(5);
/// The holder gives up when it could not renew it for so long: well before anybody takes it.
const DEADLINE: Duration = Duration::from_secs(10);
/// How often others look.
const PERIOD: Duration = Duration::from_secs(2);

/// A candidate for a Lease.
pub struct Candidate {
    leases: Api<Lease>,
    name: &'static str,
    identity: String,
}

impl Candidate {
    /// A candidate by the name of `identity`, which no other one has.
    #[must_use]
    pub fn new(client: Client, namespace: &str, name: &'static str, identity: String) -> Self {
        Self { leases: Api::namespaced(client, namespace), name, identity }
    }

    /// Waits until the Lease is held.
    pub async fn acquire(&self) {
        let mut seen: Option<(Lease, Instant)> = None;
        let mut failing = false;
        loop {
            match self.try_acquire(&mut seen).await {
                Ok(true) => return,
                Ok(false) => failing = false,
                Err(error) => {
                    if !std::mem::replace(&mut failing, true) {
                        tracing::error!(%error, "cannot get at the Lease; trying again");
                    }
                }
            }
            tokio::time::sleep(PERIOD).await;
        }
    }

    /// Renews the Lease until it is lost.
    pub async fn keep(&self) {
        let mut renewed = Instant::now();
        loop {
            tokio::time::sleep(RENEWAL.min(PERIOD)).await;
            if renewed.elapsed() < RENEWAL {
                continue;
            }
            match tokio::time::timeout(PERIOD, self.renew()).await {
                Ok(Ok(true)) => renewed = Instant::now(),
                Ok(Ok(false)) => return,
                Ok(Err(error)) => tracing::warn!(%error, "cannot renew the Lease"),
                Err(_) => tracing::warn!("cannot renew the Lease: no answer"),
            }
            if renewed.elapsed() > DEADLINE {
                return;
            }
        }
    }

    /// Gives the Lease back, if it is held.
    pub async fn release(&self) -> kube::Result<()> {
        let Some(mut lease) = self.leases.get_opt(self.name).await? else { return Ok(()) };
        if holder(&lease) != self.identity {
            return Ok(());
        }
        if let Some(spec) = &mut lease.spec {
            spec.holder_identity = Some(String::new());
            spec.lease_duration_seconds = Some(1);
        }
        self.leases.replace(self.name, &PostParams::default(), &lease).await.map(|_| ())
    }

    async fn try_acquire(&self, seen: &mut Option<(Lease, Instant)>) -> kube::Result<bool> {
        let Some(lease) = self.leases.get_opt(self.name).await? else {
            let lease = Lease {
                metadata: ObjectMeta { name: Some(self.name.to_owned()), ..ObjectMeta::default() },
                spec: Some(self.spec(None)),
            };
            return taken(self.leases.create(&PostParams::default(), &lease).await);
        };
        let is_free = holder(&lease).is_empty() || holder(&lease) == self.identity;
        let since = match seen {
            Some((before, since)) if before.spec == lease.spec => *since,
            _ => Instant::now(),
        };
        *seen = Some((lease.clone(), since));
        let seconds = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds);
        let duration = seconds.and_then(|seconds| u64::try_from(seconds).ok());
        let duration = duration.map_or(DURATION, Duration::from_secs);
        if !is_free && since.elapsed() < duration {
            return Ok(false);
        }
        let next = Lease { spec: Some(self.spec(lease.spec.as_ref())), ..lease };
        taken(self.leases.replace(self.name, &PostParams::default(), &next).await)
    }

    /// Tells whether the Lease is still held.
    async fn renew(&self) -> kube::Result<bool> {
        let Some(mut lease) = self.leases.get_opt(self.name).await? else { return Ok(false) };
        if holder(&lease) != self.identity {
            return Ok(false);
        }
        if let Some(spec) = &mut lease.spec {
            spec.renew_time = Some(MicroTime(Timestamp::now()));
        }
        taken(self.leases.replace(self.name, &PostParams::default(), &lease).await)
    }

    fn spec(&self, before: Option<&LeaseSpec>) -> LeaseSpec {
        let transitions = before.and_then(|spec| spec.lease_transitions).map_or(0, |n| n + 1);
        let now = MicroTime(Timestamp::now());
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: i32::try_from(DURATION.as_secs()).ok(),
            acquire_time: Some(now.clone()),
            renew_time: Some(now),
            lease_transitions: Some(transitions),
            ..LeaseSpec::default()
        }
    }
}

fn holder(lease: &Lease) -> &str {
    lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default()
}

/// Whether a write went through; somebody else's that came first is no error.
fn taken(result: kube::Result<Lease>) -> kube::Result<bool> {
    match result {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
        Err(error) => Err(error),
    }
}
