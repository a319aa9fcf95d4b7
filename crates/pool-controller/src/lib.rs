//! Renders the pools of a cluster where no machine config operator does: merges the MachineConfigs of each, and sets the
//! pool to the result.
//!
//! The crate `rendered-pools` decides. A rendered MachineConfig is there before a pool names it, and has the contents of
//! its name while one does; each write has the version that was read as its precondition. While the operator's
//! controller is there, nothing is written.
#![forbid(unsafe_code)]
// Only the program and its tests use this library: a comment is for what a name does not say.
#![allow(missing_docs)]

mod ledgers;
mod objects;
mod observe;
mod report;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use clap::Args;
use common::flags::host_and_port;
use common::pool_merges;
use common::reconcile::Requeue;
use controllers::metadata_cache::{AllMetadata, MetadataCache};
use controllers::retries::{Retries, WriteOutcome};
use controllers::runtime::Reconciler;
use futures_util::{StreamExt as _, stream};
use kube::Client;
use kubernetes::apply::{
    Applied, CustomWrite, apply_custom, apply_spec, apply_status, read_custom,
};
use kubernetes::{ControlError, Health, ObjectName};
use model::inputs::{ServingMode, served_configuration};
use model::merged_pool::{ByLabels, MergedPools, Unmergeable};
use model::objects::{InvalidSelector, MachineConfig, MachineConfigPool, is_object_name};
use rendered_pools::{
    Fault, LargeConfig, PoolField, PoolPlan, PoolState, Prepare, RenderedConfigs, Rendering,
    expired, faults, plan,
};
use tokio::time::Instant;

use self::ledgers::LedgerQuery;
use self::objects::{Pool, configuration, prepare_write, rendered};
use self::observe::{
    Contents, Sources, expect_no_operator, read_controller_config, read_pools, watched,
};
use self::report::{Report, UnrenderedPools};

pub use self::ledgers::Ledgers;

/// Pools that are written at the same time.
const AT_ONCE: usize = 8;
/// Wait for a watch that does not show yet what another client wrote. Its next event ends the wait.
const ANOTHER_LOOK: std::time::Duration = std::time::Duration::from_secs(2);

/// Reason to wait before a MachineConfig is restored once more.
const CHANGED_AGAIN: &str =
    "was restored, and another client changed its contents again: stop that client";

/// Settings of rendering.
#[derive(Debug, Clone, Args)]
pub struct Settings {
    /// Merge each pool's MachineConfigs and set the pool to the result, in clusters without the machine
    /// config operator
    #[arg(long, help_heading = "Pools")]
    pub render_pools: bool,
    /// Metrics address of the servers; their boot ledgers are read before a rendered MachineConfig is
    /// deleted, without it none is deleted
    #[arg(
        long,
        value_name = "HOST:PORT",
        value_parser = host_and_port,
        requires = "render_pools",
        help_heading = "Pools"
    )]
    pub ledgers: Option<String>,
}

pub struct PoolController {
    client: Client,
    health: Health,
    report: Report,
    known: MetadataCache,
    sources: Sources,
    contents: Contents,
    merged: MergedPools,
    /// The last result of merging of each pool, and those that its spec or status still names.
    results: BTreeMap<String, Vec<Arc<MachineConfig>>>,
    /// The MachineConfig that each pool's spec was set to.
    last_set: BTreeMap<String, String>,
    /// The MachineConfig that each pool's status was set to.
    last_served: BTreeMap<String, String>,
    /// Repairs of rendered MachineConfigs that may not last.
    repairs: Retries,
    /// Rendered MachineConfigs that could not be written, or whose pools could not, with the reason.
    retries: Retries,
    refused: BTreeMap<String, String>,
    ledgers: LedgerQuery,
}

impl PoolController {
    /// A controller that has not looked yet. `identity` is this process' name, in events.
    pub fn new(client: Client, ledgers: Option<Ledgers>, identity: &str, health: Health) -> Self {
        Self {
            report: Report::new(client.clone(), identity, health.clone()),
            client,
            health,
            known: MetadataCache::default(),
            sources: Sources::default(),
            contents: Contents::default(),
            merged: MergedPools::default(),
            results: BTreeMap::new(),
            last_set: BTreeMap::new(),
            last_served: BTreeMap::new(),
            repairs: Retries::default(),
            retries: Retries::default(),
            refused: BTreeMap::new(),
            ledgers: LedgerQuery::new(ledgers),
        }
    }

    /// Merges all pools: the result for a paused one may be what it names already.
    async fn merge(&mut self, pools: &[Pool], all: &AllMetadata) -> Result<(), ControlError> {
        self.sources.update(&self.client, all).await?;
        let images = read_controller_config(&self.client).await?;
        let before = self.merged.merges();
        let objects = pools.iter().map(|pool| &pool.object);
        let sources = ByLabels::new(self.sources.machine_configs());
        pool_merges::update(&mut self.merged, objects, &sources, images.as_ref());
        self.health.metrics.pools_merged.inc_by(self.merged.merges() - before);
        let mut earlier = std::mem::take(&mut self.results);
        for pool in pools {
            let name = pool.object.name();
            let mut results = earlier.remove(name).unwrap_or_default();
            let now = self.merged.get(name).and_then(Result::ok);
            results.retain(|it| {
                names(pool).contains(it.name()) && now.is_none_or(|now| now.name() != it.name())
            });
            results.extend(now.cloned());
            self.results.insert(name.to_owned(), results);
        }
        Ok(())
    }

    fn state(&self, pool: &Pool, all: &AllMetadata) -> PoolState {
        let Pool { object: pool, is_paused, precondition, .. } = pool;
        let name = pool.name();
        let unread = self.sources.unread(&pool.spec.machine_config_selector, all);
        let merged = self.merged.get(name);
        // A pool with an empty selector and a configuration is meant to keep that one.
        let is_meant = matches!(merged, Some(Err(Unmergeable::Selector(InvalidSelector::Empty))))
            && !pool.spec_configuration().is_empty();
        PoolState {
            name: name.to_owned(),
            uid: precondition.uid.clone(),
            spec: pool.spec_configuration().to_owned(),
            status: pool.status_configuration().to_owned(),
            served: served(pool).to_owned(),
            is_paused: *is_paused || is_meant,
            merged: match (unread, merged) {
                (Some(reason), _) => Err(reason),
                (None, Some(merged)) => merged.cloned().map_err(ToString::to_string),
                (None, None) => Err("new".to_owned()),
            },
            known: self.results.get(name).cloned().unwrap_or_default(),
            last_set: self.last_set.get(name).cloned(),
            last_served: self.last_served.get(name).cloned(),
        }
    }

    fn states(&self, pools: &[Pool], all: &AllMetadata) -> Vec<PoolState> {
        pools.iter().map(|pool| self.state(pool, all)).collect()
    }

    fn rendered(&self, all: &AllMetadata) -> RenderedConfigs {
        rendered(all, |name| self.contents.is_changed(name))
    }

    /// Plans the writes of pools, and finds what keeps others from it.
    fn plans<'a>(
        &self,
        pools: &'a [Pool],
        all: &AllMetadata,
    ) -> (UnrenderedPools, Vec<(&'a Pool, Rendering)>) {
        let (rendered, now) = (self.rendered(all), Instant::now());
        let (mut attention, mut renderings) = (UnrenderedPools::default(), Vec::new());
        for pool in pools.iter().filter(|pool| !pool.is_deleted) {
            let state = self.state(pool, all);
            match plan(&state, &rendered) {
                PoolPlan::Render(rendering) => {
                    renderings.push((pool, rendering));
                    continue;
                }
                PoolPlan::Hold(hold) => attention.add(pool, &hold.to_string()),
                PoolPlan::Keep => {}
            }
            for fault in faults(&state, &rendered) {
                match fault {
                    Fault::Repairable(rendering) => renderings.push((pool, rendering)),
                    Fault::Lost(loss) => attention.add(pool, &loss.to_string()),
                }
            }
        }
        renderings.retain(|(pool, rendering)| {
            let name = rendering.machine_config.name();
            let is_repair = matches!(rendering.prepare, Some(Prepare::Repair(_)));
            let is_waiting = is_repair && self.repairs.is_waiting(name, now);
            if is_waiting {
                attention.add(pool, &format!("MachineConfig {name} {CHANGED_AGAIN}"));
            }
            !is_waiting
        });
        (attention, renderings)
    }

    /// Makes the writes of pools, several pools at a time. Returns true if another client came first.
    async fn render(
        &mut self,
        renderings: &[(&Pool, Rendering)],
        all: &AllMetadata,
    ) -> Result<bool, ControlError> {
        let is_due = |config: &str| {
            renderings.iter().any(|(_, rendering)| rendering.machine_config.name() == config)
        };
        self.retries.retain(is_due);
        self.refused.retain(|config, _| is_due(config));
        let (this, now) = (&*self, Instant::now());
        let is_waiting = |config: &MachineConfig| this.retries.is_waiting(config.name(), now);
        let due = renderings.iter().filter(|(_, it)| !is_waiting(&it.machine_config));
        let writes = due.map(async |(pool, rendering)| {
            let result = this.write(pool, rendering, all).await;
            (pool, rendering, result)
        });
        let done: Vec<_> = stream::iter(writes).buffer_unordered(AT_ONCE).collect().await;
        let mut is_superseded = false;
        for (pool, rendering, result) in done {
            let config = rendering.machine_config.name();
            is_superseded |= matches!(result, Ok(Applied::Superseded));
            match self.retries.note(config, result, &self.health) {
                WriteOutcome::Written => {
                    self.refused.remove(config);
                    self.written(pool, rendering);
                }
                WriteOutcome::Refused(error) => {
                    self.refused.insert(config.to_owned(), error);
                }
                WriteOutcome::Nothing => {}
            }
        }
        self.report.log_set();
        Ok(is_superseded)
    }

    async fn write(
        &self,
        pool: &Pool,
        rendering: &Rendering,
        all: &AllMetadata,
    ) -> Result<Applied, ControlError> {
        let Rendering { machine_config, prepare, set } = rendering;
        let config = machine_config.name();
        if self.is_newer(pool, *set, all).await? {
            return Ok(Applied::Superseded);
        }
        if let Some(prepare) = prepare {
            let present = all.get(config).map(|metadata| &**metadata);
            let write = prepare_write(pool, machine_config, *prepare, present)?;
            let prepared = apply_custom(&self.client, &write).await?;
            if prepared == Applied::Superseded {
                return Ok(prepared);
            }
        }
        let (object, precondition) = (ObjectName::pool(pool.object.name()), &pool.precondition);
        let fields = configuration(config, &self.merged.sources(&object.name));
        match set {
            None => Ok(Applied::Done),
            Some(PoolField::Spec) => apply_spec(&self.client, &object, precondition, &fields).await,
            Some(PoolField::Status) => {
                let written = apply_status(&self.client, &object, precondition, &fields).await;
                written.map(Applied::from)
            }
        }
    }

    /// Returns `true` if a field that is to be set names a MachineConfig that the watch has not shown yet: an administrator
    /// made it a moment ago.
    async fn is_newer(
        &self,
        pool: &Pool,
        set: Option<PoolField>,
        all: &AllMetadata,
    ) -> Result<bool, ControlError> {
        let named = match set {
            None => return Ok(false),
            Some(PoolField::Spec) => pool.object.spec_configuration(),
            Some(PoolField::Status) => pool.object.status_configuration(),
        };
        if all.contains_key(named) || !is_object_name(named) {
            return Ok(false);
        }
        let present = read_custom(&self.client, &ObjectName::machine_config(named)).await?;
        Ok(present.is_some())
    }

    fn written(&mut self, pool: &Pool, rendering: &Rendering) {
        let (name, config) = (pool.object.name(), rendering.machine_config.name());
        match rendering.prepare {
            Some(Prepare::Repair(_)) => {
                self.repairs.delay(config, Instant::now());
                self.contents.discard(config);
                self.report.restored(pool, config);
            }
            Some(Prepare::Create(_)) if rendering.set.is_none() => {
                self.report.restored(pool, config);
            }
            _ => {}
        }
        if let Some(field) = rendering.set {
            let last = match field {
                PoolField::Spec => &mut self.last_set,
                PoolField::Status => &mut self.last_served,
            };
            last.insert(name.to_owned(), config.to_owned());
            self.report.set(pool, field, config);
            if let Some(large) = LargeConfig::of(&rendering.machine_config) {
                self.report.large(pool, config, large);
            }
        }
    }

    /// Deletes the rendered MachineConfigs that nothing needs.
    async fn expire(&mut self, pools: &[Pool], all: &AllMetadata) -> Result<(), ControlError> {
        let rendered = self.rendered(all);
        let candidates = self.states(pools, all);
        let candidates = expired(&candidates, &rendered, &BTreeSet::new());
        let Some(served) = self.ledgers.served(&candidates).await else { return Ok(()) };
        self.report.ledgers(served.as_ref().err());
        let Ok(served) = served else { return Ok(()) };
        // Pools can have changed while the ledgers were asked.
        let (pools, unread) = read_pools(&self.client).await?;
        if !unread.is_empty() {
            return Ok(());
        }
        for name in expired(&self.states(&pools, all), &rendered, &served) {
            let Some(present) = all.get(name) else { continue };
            let write = CustomWrite::delete(ObjectName::machine_config(name), present)?;
            if apply_custom(&self.client, &write).await? == Applied::Done {
                tracing::info!(object = %ObjectName::machine_config(name), "deleted a MachineConfig that no pool \
                    and no boot ledger names");
            }
        }
        Ok(())
    }
}

impl Reconciler for PoolController {
    const SUBJECT: &'static str = "rendered pools";

    fn watched(&self) -> Vec<ObjectName> {
        watched()
    }

    fn cached(&self) -> Vec<(ObjectName, MetadataCache)> {
        vec![(ObjectName::machine_config("*"), self.known.clone())]
    }

    async fn reconcile(&mut self) -> Result<Requeue, ControlError> {
        if let Err(error) = expect_no_operator(&self.client).await {
            // A configuration that the operator sets is no conflict after it is gone.
            self.last_set.clear();
            self.last_served.clear();
            self.report.attention(UnrenderedPools::default());
            return Err(error);
        }
        let Some(all) = self.known.all() else { return Ok(Requeue::Resync) };
        let (pools, unread) = read_pools(&self.client).await?;
        let is_active =
            |name: &String| pools.iter().any(|it| it.object.name() == name && !it.is_paused);
        self.last_set.retain(|name, _| is_active(name));
        self.last_served.retain(|name, _| is_active(name));
        self.merge(&pools, &all).await?;
        let named = pools.iter().flat_map(names).map(str::to_owned).collect();
        self.contents.update(&self.client, &all, &named).await?;
        self.repairs.retain(|name| self.contents.is_changed(name));
        let (mut attention, renderings) = self.plans(&pools, &all);
        for unread in &unread {
            attention.add_unread(unread);
        }
        let is_superseded = self.render(&renderings, &all).await?;
        for (pool, rendering) in &renderings {
            if let Some(reason) = self.refused.get(rendering.machine_config.name()) {
                attention.add(pool, reason);
            }
        }
        self.report.attention(attention);
        if unread.is_empty() {
            self.expire(&pools, &all).await?;
        }
        let requeue = if is_superseded { Requeue::After(ANOTHER_LOOK) } else { Requeue::Resync };
        let now = Instant::now();
        Ok(self.repairs.requeue(self.retries.requeue(requeue, now), now))
    }
}

/// The MachineConfig that servers serve for a pool, empty for none.
fn served(pool: &MachineConfigPool) -> &str {
    served_configuration(ServingMode::Cluster, pool)
}

/// The MachineConfigs that a pool's machines get or are meant to get.
fn names(pool: &Pool) -> BTreeSet<&str> {
    let names = [pool.object.spec_configuration(), served(&pool.object)];
    names.into_iter().filter(|name| !name.is_empty()).collect()
}
