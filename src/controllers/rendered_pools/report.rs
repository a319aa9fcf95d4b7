//! Reports of rendered pools: log, events, readiness and metrics.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::EventType;
use model::rendered_pools::Rendering;

use super::objects::{Pool, reference};
use crate::kubernetes::events::Events;
use crate::kubernetes::{Health, Malformed};
use crate::telemetry::conditions::Condition;

/// Reporter, which knows what it reported before.
pub(super) struct Report {
    events: Events,
    health: Health,
    /// Reasons that pools are not rendered, by pool, as they were reported.
    reported: BTreeMap<String, String>,
}

/// Pools that are not rendered, with the reason.
#[derive(Default)]
pub(super) struct Attention(BTreeMap<String, (Option<ObjectReference>, String)>);

impl Attention {
    pub(super) fn add(&mut self, pool: &Pool, reason: String) {
        self.0.insert(pool.object.name().to_owned(), (Some(reference(pool)), reason));
    }

    pub(super) fn add_unread(&mut self, unread: &Malformed) {
        self.0.insert(unread.object.name.clone(), (None, unread.reason.clone()));
    }
}

impl Report {
    pub(super) fn new(client: Client, identity: &str, health: Health) -> Self {
        Self { events: Events::new(client, identity), health, reported: BTreeMap::new() }
    }

    /// Reports the reason that a pool is not rendered, once for each pool and reason.
    pub(super) async fn attention(&mut self, attention: Attention) {
        let line = |(pool, (_, reason)): (&String, &(_, String))| {
            format!("MachineConfigPool {pool}: {reason}")
        };
        let lines: Vec<String> = attention.0.iter().map(line).collect();
        Condition::of_all("pools", &lines).note(&self.health.status.degraded);
        let count = lines.len().try_into().unwrap_or(i64::MAX);
        self.health.metrics.pools_attention.set(count);
        for (pool, (object, reason)) in &attention.0 {
            if self.reported.get(pool) == Some(reason) {
                continue;
            }
            tracing::error!(
                pool,
                reason,
                fix = "correct the MachineConfig that the reason names",
                "cannot render the pool, keeping its last configuration"
            );
            if let Some(object) = object {
                self.events.publish_about(EventType::Warning, "not-rendered", object, reason).await;
            }
        }
        for pool in self.reported.keys().filter(|pool| !attention.0.contains_key(*pool)) {
            tracing::info!(pool, "pool renders again");
        }
        let reasons = attention.0.into_iter().map(|(pool, (_, reason))| (pool, reason));
        self.reported = reasons.collect();
    }

    /// Reports that a pool was set to a rendered MachineConfig.
    pub(super) async fn rendered(&self, pool: &Pool, rendering: &Rendering) {
        let (name, before) = (pool.object.name(), pool.object.spec_configuration());
        let config = rendering.machine_config.name();
        self.health.metrics.pools_rendered.inc();
        tracing::info!(pool = name, config, before, "set the pool to a rendered MachineConfig");
        let note = format!("set spec.configuration to MachineConfig {config}");
        self.events.publish_about(EventType::Normal, "rendered", &reference(pool), &note).await;
    }

    /// Reports the reason that nothing is deleted, or with `None` that all ledgers answered.
    pub(super) fn ledgers(&self, reason: Option<&String>) {
        Condition::new("boot ledgers", reason.cloned()).report(
            &self.health.status.degraded,
            |reason| {
                if let Some(reason) = reason {
                    tracing::warn!(
                        reason,
                        fix = "check whether the servers run",
                        "did not delete unused MachineConfigs, because a boot ledger did not answer"
                    );
                } else {
                    tracing::info!("all boot ledgers answer again");
                }
            },
        );
    }
}
