//! Makes a token and a pointer config for each machine with a name, and arms tokens again.
//!
//! [`plan`] decides; after one write the machine's objects are read again. Servers record the use of a token in the same
//! status: each write has the version that was read as its precondition.

mod objects;
mod plan;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use clap::Args;
use futures_util::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::api::ApiResource;
use kube::runtime::events::EventType;
use model::access::Token;
use model::escape::{REASON, cut};
use time::OffsetDateTime;
use tokio::time::Instant;

use self::objects::{KIND, Machine, machine, machine_object, secret_object};
use self::plan::{ObservedMachine, PointerInputs, Step, next};
use super::NAMESPACE;
use super::certificates::Observer;
use super::metadata_cache::{AllMetadata, MetadataCache};
use super::runtime::{self, Reconciler, Requeue, Watched};
use crate::kubernetes::apply::{Applied, apply, apply_status, read, read_custom};
use crate::kubernetes::client::resource;
use crate::kubernetes::events::Events;
use crate::kubernetes::write::{ObjectName, StatusPatch};
use crate::kubernetes::{ControlError, Health};
use crate::sync::lock;
use crate::telemetry::conditions::Condition;

/// Maximum number of writes for a machine in one look.
const MAX_STEPS: usize = 8;
/// Machines that are read and written at the same time.
const AT_ONCE: usize = 8;
/// Minimum time between two reads of what all pointer configs are made of.
const BETWEEN_READS: Duration = Duration::from_secs(1);
/// Wait before another attempt for a machine whose Secret was refused or whose objects keep changing.
const RETRY: Duration = Duration::from_secs(10);

/// Settings of the controller.
#[derive(Debug, Clone, Args)]
pub(crate) struct Settings {
    /// Make a token and a pointer config for each FirstBootMachine in the namespace of the controller
    #[arg(long, help_heading = "Access")]
    pub first_boot_machines: bool,
}

/// Makes tokens and pointer configs of machines with names.
pub(crate) struct MachineController {
    client: Client,
    observer: Observer,
    events: Events,
    health: Health,
    machines: MetadataCache,
    secrets: MetadataCache,
    shared: Option<(Instant, PointerInputs)>,
    checks: BTreeMap<String, MachineCheck>,
    /// Tokens whose hash is written, and whose Secret is not.
    pending: Mutex<BTreeMap<String, Token>>,
}

type Versions = [Option<String>; 2];

/// Result of the last look at a machine.
struct MachineCheck {
    /// Versions of its object and its Secret.
    versions: Versions,
    /// Reason why it has no token, or no pointer config, as it was reported.
    fault: Option<String>,
    /// Time of the next look without a change.
    again: Option<OffsetDateTime>,
}

impl MachineController {
    /// Creates a controller that has not looked yet. `identity` is this process' name in events.
    pub(crate) fn new(observer: Observer, identity: &str, health: Health) -> Self {
        let client = observer.client.clone();
        Self {
            events: Events::new(client.clone(), identity),
            client,
            observer,
            health,
            machines: MetadataCache::default(),
            secrets: MetadataCache::default(),
            shared: None,
            checks: BTreeMap::new(),
            pending: Mutex::default(),
        }
    }

    /// Runs forever. Returns the error that ended it.
    pub(crate) async fn run(self) -> ControlError {
        let (client, health) = (self.client.clone(), self.health.clone());
        Box::pin(runtime::run(self, &client, &health)).await
    }

    /// Reads what all pointer configs are made of, unless that was just done. If it has changed, all machines are due.
    /// The second value is the time until it must be read again.
    async fn read_shared(&mut self) -> Result<(PointerInputs, Option<Duration>), ControlError> {
        if let Some((at, shared)) = &self.shared
            && let Some(wait) = BETWEEN_READS.checked_sub(at.elapsed())
        {
            return Ok((shared.clone(), Some(wait)));
        }
        let shared = PointerInputs::of(&self.observer.observe_pointers().await?)?;
        if self.shared.as_ref().is_some_and(|(_, before)| *before != shared) {
            self.checks.values_mut().for_each(|check| check.versions = [None, None]);
        }
        self.shared = Some((Instant::now(), shared.clone()));
        Ok((shared, None))
    }

    fn pending(&self) -> MutexGuard<'_, BTreeMap<String, Token>> {
        lock(&self.pending)
    }

    /// Keeps a token until its Secret is written.
    fn keep_pending(&self, name: &str, token: Option<Token>) {
        match token {
            Some(token) => drop(self.pending().insert(name.to_owned(), token)),
            None => drop(self.pending().remove(name)),
        }
    }

    /// Reads a machine's object and its Secret, with their versions; `None` if the object is gone or being deleted.
    async fn read(
        &self,
        name: &str,
    ) -> Result<Option<(Machine, Option<Secret>, Versions)>, ControlError> {
        let object = read_custom(&self.client, &machine_object(name), &kind()).await?;
        let Some(object) = object else { return Ok(None) };
        let secret = read::<Secret>(&self.client, &secret_object(name)).await?;
        let versions =
            [version(&object.metadata), secret.as_ref().and_then(|it| version(&it.metadata))];
        let machine = machine(object.metadata, object.data)?;
        Ok((!machine.is_deleted).then_some((machine, secret, versions)))
    }

    /// Reads and writes the objects of a machine until nothing is left to write. `None` if it is gone.
    async fn settle(
        &self,
        name: &str,
        shared: &PointerInputs,
    ) -> Result<Option<MachineCheck>, ControlError> {
        let mut refused: Option<String> = None;
        for _ in 0..MAX_STEPS {
            let Some((machine, secret, versions)) = self.read(name).await? else {
                return Ok(None);
            };
            let fresh = Token::generate().map_err(|_| ControlError::NoRandomness)?;
            let now = OffsetDateTime::now_utc();
            let pending = self.pending().get(name).cloned();
            let seen = ObservedMachine {
                machine: &machine,
                secret: secret.as_ref(),
                pending: pending.as_ref(),
                refused: refused.as_deref(),
            };
            match next(&seen, shared, &fresh, now)? {
                Step::Token(token, status) => {
                    let patch = machine.status_patch(status);
                    let applied = self.write_status(name, &patch).await?;
                    self.keep_pending(name, (applied == Applied::Done).then_some(token));
                }
                Step::Arm(status) => {
                    let patch = machine.status_patch(status);
                    if self.write_status(name, &patch).await? == Applied::Done {
                        tracing::info!(machine = name, "armed the token of a machine again");
                    }
                }
                Step::Secret(write) => match apply::<Secret, _>(&self.client, &write).await {
                    Ok(Applied::Done) => {
                        tracing::info!(machine = name, object = %write.object, "wrote the pointer config of a machine");
                    }
                    Ok(Applied::Superseded) => {}
                    Err(error) if error.is_for_good() => {
                        refused = Some(cut(&error.to_string(), REASON).into_owned());
                    }
                    Err(error) => return Err(error),
                },
                Step::Report { status, is_ready, reason, until } => {
                    if let Some(status) = status {
                        let patch = machine.status_patch(status);
                        if self.write_status(name, &patch).await? == Applied::Superseded {
                            continue;
                        }
                    }
                    let fault = (!is_ready).then_some(reason);
                    self.report_fault(&machine, fault.as_deref()).await;
                    let again = until.or_else(|| refused.as_ref().map(|_| now + RETRY));
                    if fault.is_none() {
                        self.keep_pending(name, None);
                    }
                    return Ok(Some(MachineCheck { versions, fault, again }));
                }
            }
        }
        let again = Some(OffsetDateTime::now_utc() + RETRY);
        Ok(Some(MachineCheck { versions: [None, None], fault: None, again }))
    }

    async fn write_status(&self, name: &str, patch: &StatusPatch) -> Result<Applied, ControlError> {
        apply_status(&self.client, &kind(), &machine_object(name), patch).await
    }

    /// Reports a new fault of a machine, or its end.
    async fn report_fault(&self, machine: &Machine, fault: Option<&str>) {
        let name = &machine.name;
        let before = self.checks.get(name).and_then(|check| check.fault.as_deref());
        match fault {
            Some(fault) if before != Some(fault) => {
                tracing::warn!(
                    machine = name,
                    reason = fault,
                    fix = "correct the FirstBootMachine, or what the reason names",
                    "a machine has no valid token or pointer config"
                );
                let reference = machine.reference();
                self.events
                    .publish_about(EventType::Warning, "machine-not-ready", &reference, fault)
                    .await;
            }
            None if before.is_some() => {
                tracing::info!(machine = name, "the machine has a token and a pointer config now");
            }
            _ => {}
        }
    }

    /// Machines that must be looked at.
    fn due(
        &self,
        machines: &AllMetadata,
        secrets: &AllMetadata,
        now: OffsetDateTime,
    ) -> Vec<String> {
        let is_due = |name: &String, metadata: &ObjectMeta| {
            let Some(check) = self.checks.get(name) else { return true };
            let secret = secrets.get(&secret_object(name).name);
            let versions = [version(metadata), secret.and_then(|it| version(it))];
            check.versions != versions || check.again.is_some_and(|again| again <= now)
        };
        let due = machines.iter().filter(|(name, metadata)| is_due(name, metadata));
        due.map(|(name, _)| name.clone()).collect()
    }

    fn report(&self) {
        let line = |(name, check): (&String, &MachineCheck)| {
            Some(format!("machine {name}: {}", check.fault.as_ref()?))
        };
        let lines: Vec<_> = self.checks.iter().filter_map(line).collect();
        Condition::of_all("machines", &lines).note(&self.health.status.degraded);
    }
}

impl Reconciler for MachineController {
    const SUBJECT: &'static str = "machines";

    fn watched(&self) -> Vec<Watched> {
        let machines = Watched::custom(machine_object("*"), kind()).cached_in(&self.machines);
        let secrets = ObjectName::secret(NAMESPACE, "*");
        let secrets = Watched::core::<Secret>(secrets).cached_in(&self.secrets);
        Observer::watched_pointers().into_iter().chain([machines, secrets]).collect()
    }

    async fn reconcile(&mut self) -> Result<Requeue, ControlError> {
        let (Some(machines), Some(secrets)) = (self.machines.all(), self.secrets.all()) else {
            return Ok(Requeue::Resync);
        };
        self.checks.retain(|name, _| machines.contains_key(name));
        self.pending().retain(|name, _| machines.contains_key(name));
        if machines.is_empty() {
            self.report();
            return Ok(Requeue::Resync);
        }
        let (shared, read_again) = self.read_shared().await?;
        let now = OffsetDateTime::now_utc();
        let due: BTreeSet<_> = self.due(&machines, &secrets, now).into_iter().collect();
        let this = &*self;
        let looks = due.into_iter().map(async |name| {
            let check = this.settle(&name, &shared).await;
            (name, check)
        });
        let done: Vec<_> = stream::iter(looks).buffer_unordered(AT_ONCE).collect().await;
        let mut failure = None;
        for (name, check) in done {
            match check {
                Ok(Some(check)) => drop(self.checks.insert(name, check)),
                Ok(None) => drop(self.checks.remove(&name)),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        self.report();
        if let Some(error) = failure {
            return Err(error);
        }
        let again = self.checks.values().filter_map(|check| check.again).min();
        let requeue = again.map_or(Requeue::Resync, |again| Requeue::at(again, now));
        Ok(read_again.map_or(requeue, |wait| requeue.or_after(wait)))
    }
}

fn kind() -> ApiResource {
    resource("machine-config-server.io", "v1alpha1", KIND, "firstbootmachines")
}

fn version(metadata: &ObjectMeta) -> Option<String> {
    metadata.resource_version.clone()
}
