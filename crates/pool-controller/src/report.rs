//! Reports of rendered pools: log, events, readiness and metrics.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::EventType;
use kubernetes::events::Events;
use kubernetes::{Health, Malformed};
use rendered_pools::{LargeConfig, PoolField};
use telemetry::faults;
use telemetry::listed;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use super::objects::{Pool, reference};

/// Maximum number of events that wait for the API server.
const MAX_WAITING: usize = 1_000;

struct Event {
    type_: EventType,
    reason: &'static str,
    pool: ObjectReference,
    note: String,
}

/// Publishes events one after another, so that no pool waits for another one's.
async fn publish(events: Events, mut waiting: mpsc::Receiver<Event>) {
    while let Some(Event { type_, reason, pool, note }) = waiting.recv().await {
        events.publish_about(type_, reason, &pool, &note).await;
    }
}

/// Reporter, which knows what it reported before.
pub(super) struct Report {
    events: mpsc::Sender<Event>,
    _publisher: AbortOnDropHandle<()>,
    health: Health,
    /// Reasons that pools are not rendered, by pool, as they were reported.
    reported: BTreeMap<String, String>,
    /// Changes of pools' specs, and of their statuses, since they were logged.
    rendered: Vec<String>,
    served: Vec<String>,
}

/// Pools that are not rendered, with the reason.
#[derive(Default)]
pub(super) struct UnrenderedPools(BTreeMap<String, (Option<ObjectReference>, String)>);

impl UnrenderedPools {
    pub(super) fn add(&mut self, pool: &Pool, reason: &str) {
        let new = || (Some(reference(pool)), String::new());
        let (_, reasons) = self.0.entry(pool.object.name().to_owned()).or_insert_with(new);
        if !reasons.is_empty() {
            reasons.push_str("; ");
        }
        reasons.push_str(reason);
    }

    pub(super) fn add_unread(&mut self, unread: &Malformed) {
        self.0.insert(unread.object.name.clone(), (None, unread.reason.clone()));
    }
}

impl Report {
    /// Creates a reporter that has reported nothing. Must be called within a runtime.
    pub(super) fn new(client: Client, identity: &str, health: Health) -> Self {
        let (events, waiting) = mpsc::channel(MAX_WAITING);
        let publisher = tokio::spawn(publish(Events::new(client, identity), waiting));
        Self {
            events,
            _publisher: AbortOnDropHandle::new(publisher),
            health,
            reported: BTreeMap::new(),
            rendered: Vec::new(),
            served: Vec::new(),
        }
    }

    fn event(&self, type_: EventType, reason: &'static str, pool: ObjectReference, note: String) {
        if self.events.try_send(Event { type_, reason, pool, note }).is_err() {
            tracing::debug!(reason, "dropped an event, because too many wait for the API server");
        }
    }

    /// Reports the reason that a pool is not rendered, once for each pool and reason: an event of each pool, and a log
    /// line for each reason.
    pub(super) fn attention(&mut self, attention: UnrenderedPools) {
        let line = |(pool, (_, reason)): (&String, &(_, String))| {
            format!("MachineConfigPool {pool}: {reason}")
        };
        let lines: Vec<String> = attention.0.iter().map(line).collect();
        faults::RENDERED_POOLS.report_all(&self.health.status, &lines);
        let count = lines.len().try_into().unwrap_or(i64::MAX);
        self.health.metrics.pools_attention.set(count);
        let mut by_reason: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (pool, (object, reason)) in &attention.0 {
            if self.reported.get(pool) == Some(reason) {
                continue;
            }
            by_reason.entry(reason).or_default().push(pool);
            if let Some(object) = object {
                self.event(EventType::Warning, "not-rendered", object.clone(), reason.clone());
            }
        }
        for (reason, pools) in by_reason {
            tracing::error!(
                pools = pools.len(),
                names = listed(&pools),
                reason,
                fix = "correct the MachineConfig that the reason names",
                "cannot render pools, keeping their last configurations"
            );
        }
        let is_well = |pool: &&String| !attention.0.contains_key(*pool);
        let again: Vec<_> = self.reported.keys().filter(is_well).collect();
        if !again.is_empty() {
            tracing::info!(pools = again.len(), names = listed(&again), "pools render again");
        }
        let reasons = attention.0.into_iter().map(|(pool, (_, reason))| (pool, reason));
        self.reported = reasons.collect();
    }

    /// Reports that a field of a pool was set to a rendered MachineConfig.
    pub(super) fn set(&mut self, pool: &Pool, field: PoolField, config: &str) {
        let (part, before, changes) = match field {
            PoolField::Spec => {
                self.health.metrics.pools_rendered.inc();
                ("spec", pool.object.spec_configuration(), &mut self.rendered)
            }
            PoolField::Status => ("status", pool.object.status_configuration(), &mut self.served),
        };
        let before = if before.is_empty() { "none" } else { before };
        changes.push(format!("{}: {before} -> {config}", pool.object.name()));
        let note = format!("set {part}.configuration to MachineConfig {config}");
        self.event(EventType::Normal, "rendered", reference(pool), note);
    }

    /// Reports that the MachineConfig of a pool is near the size that the API server stores.
    pub(super) fn large(&self, pool: &Pool, config: &str, large: LargeConfig) {
        let name = pool.object.name();
        tracing::warn!(
            pool = name,
            config,
            reason = %large,
            fix = "have machines fetch large files from a server, by a URL in contents.source",
            "a rendered MachineConfig is near the size that the API server stores"
        );
        self.event(
            EventType::Warning,
            "large",
            reference(pool),
            format!("MachineConfig {config}: {large}"),
        );
    }

    /// Logs the pools that were set since the last call, those of a kind in one line.
    pub(super) fn log_set(&mut self) {
        let [rendered, served] = [&mut self.rendered, &mut self.served].map(std::mem::take);
        if !rendered.is_empty() {
            let changes = listed(&rendered);
            tracing::info!(pools = rendered.len(), changes, "set pools to rendered MachineConfigs");
        }
        if !served.is_empty() {
            tracing::info!(
                pools = served.len(),
                changes = listed(&served),
                "set the status of pools, so that servers serve the rendered MachineConfigs"
            );
        }
    }

    pub(super) fn restored(&self, pool: &Pool, config: &str) {
        let name = pool.object.name();
        self.health.metrics.rendered_restored.inc();
        tracing::warn!(
            pool = name,
            config,
            fix = "change the MachineConfigs that the pool selects instead",
            "restored a rendered MachineConfig that another client changed or deleted"
        );
        let note =
            format!("restored MachineConfig {config}, which another client changed or deleted");
        self.event(EventType::Warning, "restored", reference(pool), note);
    }

    /// Reports the reason that nothing is deleted, or with `None` that all ledgers answered.
    pub(super) fn ledgers(&self, reason: Option<&String>) {
        faults::BOOT_LEDGERS.report(&self.health.status, reason.map(String::as_str));
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use kube::client::Body;

    use super::*;

    #[tokio::test]
    async fn pools_do_not_wait_for_events_that_the_api_server_does_not_take() {
        let silent = tower::service_fn(|_: http::Request<Body>| {
            pending::<Result<http::Response<Body>, std::io::Error>>()
        });
        let client = Client::new(silent, "default");
        let report = Report::new(client, "test", Health::default());
        for _ in 0..2 * MAX_WAITING {
            let (pool, note) = (ObjectReference::default(), "note".to_owned());
            report.event(EventType::Normal, "rendered", pool, note);
            tokio::task::yield_now().await;
        }
        assert_eq!(report.events.capacity(), 0, "the rest is dropped");
    }
}
