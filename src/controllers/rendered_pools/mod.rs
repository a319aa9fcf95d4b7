//! Renders the pools of a cluster where no machine config operator does: merges the MachineConfigs of each, and sets the
//! pool to the result.
//!
//! [`model::rendered_pools`] decides. A rendered MachineConfig is there before a pool names it; each write has the version
//! that was read as its precondition. While the operator's controller is there, nothing is written.

mod ledgers;
mod objects;
mod observe;
mod report;

use std::collections::{BTreeMap, BTreeSet};

use clap::Args;
use futures_util::{StreamExt as _, stream};
use kube::Client;
use model::merged_pool::{MergedPools, Unmergeable};
use model::objects::InvalidSelector;
use model::rendered_pools::{PoolPlan, PoolState, RenderedConfigs, Rendering, expired, plan};
use tokio::time::Instant;

use self::ledgers::Asked;
use self::objects::{
    Pool, PrepareWrite, config_object, delete_write, pool_object, pool_write, prepare_write,
    rendered,
};
use self::observe::{
    Sources, configs, expect_no_operator, pools, read_controller_config, read_pools, watched,
};
use self::report::{Attention, Report};
use super::known::{AllMetadata, Known};
use super::refusals::{Noted, Refusals};
use super::runtime::{self, Reconciler, Requeue, Watched};
use crate::flags::host_and_port;
use crate::kubernetes::apply::{Applied, apply_custom, apply_fields};
use crate::kubernetes::{ControlError, Health};

pub use self::ledgers::{Answer, Ledgers};

/// Pools that are written at the same time.
const AT_ONCE: usize = 8;
/// Wait until the watches show what other clients wrote.
const ANOTHER_LOOK: std::time::Duration = std::time::Duration::from_millis(200);

/// Settings of rendering.
#[derive(Debug, Clone, Args)]
pub struct Settings {
    /// Merge each pool's MachineConfigs and set the pool to the result, in clusters without the machine
    /// config operator
    #[arg(long, help_heading = "Pools")]
    render_pools: bool,
    /// Metrics address of the servers; their boot ledgers are read before a rendered MachineConfig is
    /// deleted, without it none is deleted
    #[arg(
        long,
        value_name = "HOST:PORT",
        value_parser = host_and_port,
        requires = "render_pools",
        help_heading = "Pools"
    )]
    ledgers: Option<String>,
}

impl Settings {
    /// True if pools are rendered.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.render_pools
    }

    /// Address of the servers' boot ledgers.
    #[must_use]
    pub fn ledgers(&self) -> Option<&str> {
        self.ledgers.as_deref()
    }
}

/// Renders the pools of a cluster.
pub struct PoolController {
    client: Client,
    health: Health,
    report: Report,
    known: Known,
    sources: Sources,
    merged: MergedPools,
    /// The MachineConfig that each pool was set to.
    last_set: BTreeMap<String, String>,
    /// Rendered MachineConfigs that could not be written, or whose pools could not, with the reason.
    refusals: Refusals,
    refused: BTreeMap<String, String>,
    ledgers: Asked,
}

impl PoolController {
    /// A controller that has not looked yet. `identity` is this process' name, in events.
    #[must_use]
    pub fn new(client: Client, ledgers: Option<Ledgers>, identity: &str, health: Health) -> Self {
        Self {
            report: Report::new(client.clone(), identity, health.clone()),
            client,
            health,
            known: Known::default(),
            sources: Sources::default(),
            merged: MergedPools::default(),
            last_set: BTreeMap::new(),
            refusals: Refusals::default(),
            refused: BTreeMap::new(),
            ledgers: Asked::new(ledgers),
        }
    }

    /// Renders the pools until that fails. Returns the reason.
    pub async fn run(self) -> ControlError {
        let (client, health) = (self.client.clone(), self.health.clone());
        Box::pin(runtime::run(self, &client, &health)).await
    }

    /// Merges the pools that are not paused.
    async fn merge(&mut self, pools: &[Pool], all: &AllMetadata) -> Result<(), ControlError> {
        self.sources.update(&self.client, all).await?;
        let images = read_controller_config(&self.client).await?;
        let before = self.merged.merges();
        let merged = pools.iter().filter(|pool| !pool.is_paused).map(|pool| &pool.object);
        self.merged.update(merged, &self.sources.machine_configs(), images.as_ref());
        self.health.metrics.pools_merged.inc_by(self.merged.merges() - before);
        Ok(())
    }

    fn state(&self, pool: &Pool, all: &AllMetadata) -> PoolState {
        let Pool { object: pool, uid, is_paused, .. } = pool;
        let name = pool.name();
        let unread = self.sources.unread(pool.machine_config_selector(), all);
        let merged = self.merged.get(name);
        // A pool with an empty selector and a configuration is meant to keep that one.
        let is_meant = matches!(merged, Some(Err(Unmergeable::Selector(InvalidSelector::Empty))))
            && !pool.spec_configuration().is_empty();
        PoolState {
            name: name.to_owned(),
            uid: uid.clone(),
            spec: pool.spec_configuration().to_owned(),
            status: pool.status_configuration().to_owned(),
            is_paused: *is_paused || is_meant,
            merged: match (unread, merged) {
                (Some(reason), _) => Err(reason),
                (None, Some(merged)) => merged.cloned().map_err(ToString::to_string),
                (None, None) => Err("paused".to_owned()),
            },
            last_set: self.last_set.get(name).cloned(),
        }
    }

    fn states(&self, pools: &[Pool], all: &AllMetadata) -> Vec<PoolState> {
        pools.iter().map(|pool| self.state(pool, all)).collect()
    }

    /// Makes the writes of pools, several pools at a time. Returns true if another client came first.
    async fn render(
        &mut self,
        renderings: Vec<(&Pool, Rendering)>,
        all: &AllMetadata,
    ) -> Result<bool, ControlError> {
        let is_due = |config: &str| {
            renderings.iter().any(|(_, rendering)| rendering.machine_config.name() == config)
        };
        self.refusals.retain(is_due);
        self.refused.retain(|config, _| is_due(config));
        let waiting = self.refusals.at(Instant::now());
        let due =
            renderings.into_iter().filter(|(_, it)| !waiting.contains(it.machine_config.name()));
        let this = &*self;
        let writes = due.map(async |(pool, rendering)| {
            let result = this.write(pool, &rendering, all).await;
            (pool, rendering, result)
        });
        let done: Vec<_> = stream::iter(writes).buffer_unordered(AT_ONCE).collect().await;
        let mut is_superseded = false;
        for (pool, rendering, result) in done {
            let config = rendering.machine_config.name();
            is_superseded |= matches!(result, Ok(Applied::Superseded));
            if result.is_err() {
                self.health.metrics.failures.inc();
            }
            match self.refusals.note(config, result) {
                Noted::Written if rendering.is_set => {
                    self.refused.remove(config);
                    self.last_set.insert(pool.object.name().to_owned(), config.to_owned());
                    self.report.rendered(pool, &rendering).await;
                }
                Noted::Refused(error) => {
                    self.refused.insert(config.to_owned(), error);
                }
                Noted::Written | Noted::Nothing => {}
            }
        }
        Ok(is_superseded)
    }

    async fn write(
        &self,
        pool: &Pool,
        rendering: &Rendering,
        all: &AllMetadata,
    ) -> Result<Applied, ControlError> {
        let Rendering { machine_config, prepare, is_set } = rendering;
        let present = all.get(machine_config.name()).map(|metadata| &**metadata);
        let prepared = match prepare_write(pool, machine_config, *prepare, present)? {
            PrepareWrite::Create(write) => apply_custom(&self.client, &configs(), &write).await?,
            PrepareWrite::Patch(patch) => {
                let (object, patch) = *patch;
                apply_fields(&self.client, &configs(), &object, &patch).await?
            }
        };
        if prepared == Applied::Superseded || !is_set {
            return Ok(prepared);
        }
        let sources = self.merged.sources(pool.object.name());
        let patch = pool_write(pool, machine_config.name(), &sources);
        apply_fields(&self.client, &pools(), &pool_object(pool.object.name()), &patch).await
    }

    /// Deletes the rendered MachineConfigs that nothing needs.
    async fn expire(&mut self, pools: &[Pool], all: &AllMetadata) -> Result<(), ControlError> {
        let rendered: RenderedConfigs = rendered(all).collect();
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
            let write = delete_write(name, present)?;
            if apply_custom(&self.client, &configs(), &write).await? == Applied::Done {
                tracing::info!(object = %config_object(name), "deleted a MachineConfig that no pool \
                    and no boot ledger names");
            }
        }
        Ok(())
    }
}

impl Reconciler for PoolController {
    const KEEPS: &'static str = "rendered pools";

    fn watched(&self) -> Vec<Watched> {
        let all = Watched::custom(config_object("*"), configs()).known_to(&self.known);
        watched().into_iter().chain([all]).collect()
    }

    async fn reconcile(&mut self) -> Result<Requeue, ControlError> {
        if let Err(error) = expect_no_operator(&self.client).await {
            // A configuration that the operator sets is no conflict after it is gone.
            self.last_set.clear();
            self.report.attention(Attention::default()).await;
            return Err(error);
        }
        let Some(all) = self.known.all() else { return Ok(Requeue::Resync) };
        let (pools, unread) = read_pools(&self.client).await?;
        let is_active =
            |name: &String| pools.iter().any(|it| it.object.name() == name && !it.is_paused);
        self.last_set.retain(|name, _| is_active(name));
        self.merge(&pools, &all).await?;
        let rendered: RenderedConfigs = rendered(&all).collect();
        let (mut attention, mut renderings) = (Attention::default(), Vec::new());
        for unread in &unread {
            attention.add_unread(unread);
        }
        for pool in &pools {
            match plan(&self.state(pool, &all), &rendered) {
                PoolPlan::Keep => {}
                PoolPlan::Hold(hold) => attention.add(pool, hold.to_string()),
                PoolPlan::Render(rendering) => renderings.push((pool, rendering)),
            }
        }
        let configs =
            renderings.iter().map(|(pool, it)| (*pool, it.machine_config.name().to_owned()));
        let configs: Vec<_> = configs.collect();
        let is_superseded = self.render(renderings, &all).await?;
        for (pool, config) in configs {
            if let Some(reason) = self.refused.get(&config) {
                attention.add(pool, reason.clone());
            }
        }
        self.report.attention(attention).await;
        if unread.is_empty() {
            self.expire(&pools, &all).await?;
        }
        let requeue = if is_superseded { Requeue::After(ANOTHER_LOOK) } else { Requeue::Resync };
        Ok(self.refusals.requeue(requeue, Instant::now()))
    }
}
