//! Makes a token and a pointer config for each machine with a name, and arms tokens again.
//!
//! [`plan`] decides one write after the other, each by the objects as the last one has left them. Servers record the use
//! of a token in the same status: each write has the version that is known as its precondition, and what was superseded is
//! read again.

mod objects;
mod plan;

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use clap::Args;
use common::reconcile::Requeue;
use futures_util::{StreamExt as _, stream};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::runtime::events::EventType;
use kubernetes::apply::{Applied, apply, apply_status, read, read_custom};
use kubernetes::events::Events;
use kubernetes::{ControlError, Health, ObjectName};
use model::access::Token;
use model::escape::{REASON, cut};
use serde_json::Value;
use telemetry::faults;
use time::OffsetDateTime;
use tokio::time::Instant;

use self::objects::{Machine, machine, machine_object, secret_object};
use self::plan::{ObservedMachine, PointerInputs, Step, next};
use super::NAMESPACE;
use super::certificates::Observer;
use super::metadata_cache::{AllMetadata, MetadataCache};
use super::runtime::Reconciler;

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
pub struct Settings {
    /// Make a token and a pointer config for each FirstBootMachine in the namespace of the controller
    #[arg(long, help_heading = "Access")]
    pub first_boot_machines: bool,
}

pub struct MachineController {
    client: Client,
    observer: Observer,
    events: Events,
    health: Health,
    machines: MetadataCache,
    secrets: MetadataCache,
    shared: Option<(Instant, PointerInputs)>,
    checks: BTreeMap<String, MachineCheck>,
}

type Versions = [Option<String>; 2];

/// Result of the last look at a machine.
#[derive(Default)]
struct MachineCheck {
    /// Versions of its object and its Secret.
    versions: Versions,
    /// Reason why it has no token, or no pointer config, as it was reported.
    fault: Option<String>,
    /// Times from this look to the next one without a change, if there is one. The clock can be set, also to before it.
    quiet: Option<Range<OffsetDateTime>>,
    /// Token whose hash is written, and whose Secret is not.
    pending: Option<Token>,
}

/// A machine's object and its Secret, as they were read or written last.
struct MachineObjects {
    machine: Machine,
    secret: Option<Secret>,
}

impl MachineObjects {
    fn versions(&self) -> Versions {
        let secret = self.secret.as_ref().and_then(|secret| version(&secret.metadata));
        [Some(self.machine.precondition.resource_version.clone()), secret]
    }
}

impl MachineController {
    /// Creates a controller that has not looked yet. `identity` is this process' name in events.
    pub fn new(observer: Observer, identity: &str, health: Health) -> Self {
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
        }
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

    /// Reads a machine's object and its Secret; `None` if the object is gone or being deleted.
    async fn read(&self, name: &str) -> Result<Option<MachineObjects>, ControlError> {
        let object = read_custom(&self.client, &machine_object(name)).await?;
        let object = object.filter(|object| object.metadata.deletion_timestamp.is_none());
        let Some(object) = object else { return Ok(None) };
        let secret = self.read_secret(name).await?;
        Ok(Some(MachineObjects { machine: machine(object.metadata, object.data)?, secret }))
    }

    async fn read_secret(&self, name: &str) -> Result<Option<Secret>, ControlError> {
        read(&self.client, &secret_object(name)).await
    }

    /// Writes the objects of a machine until nothing is left to write. `None` if it is gone. `pending` is a token until
    /// its Secret is written.
    async fn settle(
        &self,
        name: &str,
        shared: &PointerInputs,
        pending: &mut Option<Token>,
    ) -> Result<Option<MachineCheck>, ControlError> {
        let mut refused: Option<String> = None;
        let mut known = None;
        for _ in 0..MAX_STEPS {
            let objects = match known.take() {
                Some(objects) => Some(objects),
                None => self.read(name).await?,
            };
            let Some(objects) = objects else { return Ok(None) };
            let fresh = Token::generate().map_err(|_| ControlError::NoRandomness)?;
            let now = OffsetDateTime::now_utc();
            let seen = ObservedMachine {
                machine: &objects.machine,
                secret: objects.secret.as_ref(),
                pending: pending.as_ref(),
                refused: refused.as_deref(),
            };
            match next(&seen, shared, &fresh, now) {
                Step::Token(token, status) => {
                    known = self.write_status(objects, &status).await?;
                    *pending = known.is_some().then_some(token);
                }
                Step::Arm(status) => {
                    known = self.write_status(objects, &status).await?;
                    if known.is_some() {
                        tracing::info!(machine = name, "armed the token of a machine again");
                    }
                }
                Step::Secret(text) => match self.write_secret(objects, text).await {
                    Err(error) if error.is_for_good() => {
                        refused = Some(cut(&error.to_string(), REASON).into_owned());
                    }
                    written => known = written?,
                },
                Step::Report { status, is_ready, reason, until } => {
                    let objects = match status {
                        Some(status) => self.write_status(objects, &status).await?,
                        None => Some(objects),
                    };
                    let Some(objects) = objects else { continue };
                    let fault = (!is_ready).then_some(reason);
                    self.report_fault(&objects.machine, fault.as_deref()).await;
                    let again = until.or_else(|| refused.as_ref().map(|_| now + RETRY));
                    let quiet = again.map(|again| now..again);
                    let pending = pending.take().filter(|_| fault.is_some());
                    let versions = objects.versions();
                    return Ok(Some(MachineCheck { versions, fault, quiet, pending }));
                }
            }
        }
        let now = OffsetDateTime::now_utc();
        let quiet = Some(now..now + RETRY);
        Ok(Some(MachineCheck { quiet, pending: pending.take(), ..MachineCheck::default() }))
    }

    /// Returns the objects as they are then; `None` if the write was superseded.
    async fn write_status(
        &self,
        MachineObjects { machine: before, secret }: MachineObjects,
        status: &Value,
    ) -> Result<Option<MachineObjects>, ControlError> {
        let object = machine_object(&before.name);
        let written = apply_status(&self.client, &object, &before.precondition, status).await?;
        let Some(written) = written else { return Ok(None) };
        Ok(Some(MachineObjects { machine: machine(written.metadata, written.data)?, secret }))
    }

    /// Returns the objects as they are then; `None` if the write was superseded.
    async fn write_secret(
        &self,
        MachineObjects { machine, secret }: MachineObjects,
        text: Vec<u8>,
    ) -> Result<Option<MachineObjects>, ControlError> {
        let write = machine.secret_write(secret.as_ref(), text)?;
        if apply(&self.client, &write).await? == Applied::Superseded {
            return Ok(None);
        }
        let name = &machine.name;
        tracing::info!(machine = name, object = %write.object, "wrote the pointer config of a machine");
        let secret = self.read_secret(name).await?;
        Ok(Some(MachineObjects { machine, secret }))
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
                let reference = machine_object(name).reference(&machine.precondition.uid);
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
            let is_over = |quiet: &Range<_>| !quiet.contains(&now);
            check.versions != versions || check.quiet.as_ref().is_some_and(is_over)
        };
        let due = machines.iter().filter(|(name, metadata)| is_due(name, metadata));
        due.map(|(name, _)| name.clone()).collect()
    }

    fn report(&self) {
        let line = |(name, check): (&String, &MachineCheck)| {
            Some(format!("machine {name}: {}", check.fault.as_ref()?))
        };
        let lines: Vec<_> = self.checks.iter().filter_map(line).collect();
        faults::MACHINES.silent().report_all(&self.health.status, &lines);
    }
}

impl Reconciler for MachineController {
    const SUBJECT: &'static str = "machines";

    fn watched(&self) -> Vec<ObjectName> {
        Observer::watched_pointers()
    }

    fn cached(&self) -> Vec<(ObjectName, MetadataCache)> {
        let secrets = ObjectName::secret(NAMESPACE, "*");
        vec![(machine_object("*"), self.machines.clone()), (secrets, self.secrets.clone())]
    }

    async fn reconcile(&mut self) -> Result<Requeue, ControlError> {
        let (Some(machines), Some(secrets)) = (self.machines.all(), self.secrets.all()) else {
            return Ok(Requeue::Resync);
        };
        self.checks.retain(|name, _| machines.contains_key(name));
        if machines.is_empty() {
            self.report();
            return Ok(Requeue::Resync);
        }
        let (shared, read_again) = self.read_shared().await?;
        let now = OffsetDateTime::now_utc();
        let this = &*self;
        let looks = self.due(&machines, &secrets, now).into_iter().map(async |name| {
            let mut pending = this.checks.get(&name).and_then(|check| check.pending.clone());
            let check = this.settle(&name, &shared, &mut pending).await;
            (name, check, pending)
        });
        let done: Vec<_> = stream::iter(looks).buffer_unordered(AT_ONCE).collect().await;
        let mut failure = None;
        for (name, check, pending) in done {
            match check {
                Ok(Some(check)) => drop(self.checks.insert(name, check)),
                Ok(None) => drop(self.checks.remove(&name)),
                Err(error) => {
                    self.checks.entry(name).or_default().pending = pending;
                    failure = failure.or(Some(error));
                }
            }
        }
        self.report();
        if let Some(error) = failure {
            return Err(error);
        }
        let again = self.checks.values().filter_map(|check| Some(check.quiet.as_ref()?.end)).min();
        let requeue = again.map_or(Requeue::Resync, |again| Requeue::at(again, now));
        Ok(read_again.map_or(requeue, |wait| requeue.or_after(wait)))
    }
}

fn version(metadata: &ObjectMeta) -> Option<String> {
    metadata.resource_version.clone()
}
