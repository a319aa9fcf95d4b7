//! Plan for a pool.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::objects::MachineConfig;

use super::size::LargeConfig;
use super::state::{PoolState, RenderedConfig, RenderedConfigs};

/// Plan for a pool.
#[derive(Debug, Clone)]
pub enum PoolPlan {
    /// Nothing to do: the pool names its rendered MachineConfig, or is paused.
    Keep,
    /// The configuration stays until an input changes.
    Hold(HoldReason),
    /// The pool gets a rendered MachineConfig.
    Render(Rendering),
}

/// A rendered MachineConfig for a pool, and the writes that it takes, in their order.
#[derive(Debug, Clone)]
pub struct Rendering {
    /// The rendered MachineConfig.
    pub machine_config: Arc<MachineConfig>,
    /// Write to the rendered MachineConfig.
    pub prepare: Option<Prepare>,
    /// Write to the pool.
    pub set: Option<PoolField>,
}

/// Write to a rendered MachineConfig, with its new revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prepare {
    /// Creates it.
    Create(u64),
    /// Writes all of an existing one, whatever it contains, with this pool as its owner.
    Reuse(u64),
    /// The same for one whose contents another client changed.
    Repair(u64),
}

/// Field of a pool that is set to a rendered MachineConfig.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolField {
    /// The spec.
    Spec,
    /// The status, which keeps servers at an earlier one.
    Status,
}

/// Fault of a MachineConfig that a pool keeps.
#[derive(Debug, Clone)]
pub enum Fault {
    /// This controller can write it again.
    Repairable(Rendering),
    /// It is lost, or its contents are.
    Lost(LostConfig),
}

/// Loss of a MachineConfig that a pool keeps.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LostConfig {
    /// It does not exist.
    #[error(
        "it names MachineConfig {0}, which does not exist: create it, or have the pool rendered again"
    )]
    Missing(String),
    /// Another client changed it.
    #[error(
        "it names MachineConfig {0}, whose contents are not those that its name was made of: restore it, or have \
         the pool rendered again"
    )]
    Changed(String),
}

/// Reason that a pool is not set to the result of its MachineConfigs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HoldReason {
    /// The MachineConfigs cannot be merged.
    #[error("{0}")]
    Unmergeable(String),
    /// The pool names a MachineConfig that no controller made.
    #[error(
        "spec.configuration names MachineConfig {0}, which no controller rendered: remove spec.configuration to have \
         the pool rendered"
    )]
    Custom(String),
    /// Another controller sets the pool too.
    #[error(
        "another controller set spec.configuration to MachineConfig {0}: stop that controller, then remove \
         spec.configuration"
    )]
    Contested(String),
    /// Another client sets the pool's status too.
    #[error(
        "another client set status.configuration back to MachineConfig {0}, which servers serve: remove \
         status.configuration, or pause the pool to keep it"
    )]
    SetBack(String),
    /// The name of the rendered MachineConfig is taken.
    #[error("MachineConfig {0} exists, and this controller did not make it: delete or rename it")]
    Taken(String),
    /// The API server would refuse the rendered MachineConfig.
    #[error("the rendered MachineConfig cannot be stored: {0}")]
    TooLarge(LargeConfig),
}

/// Plans for a pool. `configs` has at least the MachineConfigs that it names and the rendered ones that it owns.
pub fn plan(pool: &PoolState, configs: &RenderedConfigs) -> PoolPlan {
    if pool.is_paused {
        return PoolPlan::Keep;
    }
    if let Some(hold) = held_by_others(pool, configs) {
        return PoolPlan::Hold(hold);
    }
    let merged = match &pool.merged {
        Ok(merged) => merged,
        Err(reason) => return PoolPlan::Hold(HoldReason::Unmergeable(reason.clone())),
    };
    let is_named = pool.spec == merged.name();
    let revision = next_revision(pool, configs);
    let prepare = match configs.get(merged.name()) {
        Some(RenderedConfig::Own { pool_uid, is_changed, .. })
            if is_named && *pool_uid == pool.uid =>
        {
            is_changed.then_some(Prepare::Repair(revision))
        }
        Some(RenderedConfig::Own { .. }) => Some(Prepare::Reuse(revision)),
        Some(RenderedConfig::Generated | RenderedConfig::Custom) => {
            return PoolPlan::Hold(HoldReason::Taken(merged.name().to_owned()));
        }
        None => Some(Prepare::Create(revision)),
    };
    if let (Some(_), Some(large @ LargeConfig::TooLarge(_))) = (prepare, LargeConfig::of(merged)) {
        return PoolPlan::Hold(HoldReason::TooLarge(large));
    }
    let set = if !is_named {
        Some(PoolField::Spec)
    } else if prepare.is_none() && pool.served != pool.spec {
        if pool.last_served.as_ref() == Some(&pool.spec) {
            return PoolPlan::Hold(HoldReason::SetBack(pool.served.clone()));
        }
        Some(PoolField::Status)
    } else {
        None
    };
    if prepare.is_none() && set.is_none() {
        return PoolPlan::Keep;
    }
    PoolPlan::Render(Rendering { machine_config: Arc::clone(merged), prepare, set })
}

/// Faults of the MachineConfigs that a pool keeps, because it is paused or held.
pub fn faults(pool: &PoolState, configs: &RenderedConfigs) -> Vec<Fault> {
    let kept = BTreeSet::from([&pool.spec, &pool.served]);
    let kept = kept.into_iter().filter(|name| !name.is_empty());
    kept.filter_map(|name| fault(pool, name, configs)).collect()
}

fn fault(pool: &PoolState, name: &str, configs: &RenderedConfigs) -> Option<Fault> {
    let revision = next_revision(pool, configs);
    let (prepare, loss) = match configs.get(name) {
        None => (Prepare::Create(revision), LostConfig::Missing(name.to_owned())),
        Some(RenderedConfig::Own { is_changed: true, .. }) => {
            (Prepare::Repair(revision), LostConfig::Changed(name.to_owned()))
        }
        Some(_) => return None,
    };
    let Some(known) = pool.known.iter().find(|known| known.name() == name) else {
        return Some(Fault::Lost(loss));
    };
    let machine_config = Arc::clone(known);
    Some(Fault::Repairable(Rendering { machine_config, prepare: Some(prepare), set: None }))
}

/// Reason to leave the configuration to another client.
fn held_by_others(pool: &PoolState, configs: &RenderedConfigs) -> Option<HoldReason> {
    let is_ours_to_set = || pool.last_set.as_ref().is_none_or(|last| *last == pool.spec);
    match configs.get(&pool.spec)? {
        RenderedConfig::Custom => Some(HoldReason::Custom(pool.spec.clone())),
        RenderedConfig::Generated if !is_ours_to_set() => {
            Some(HoldReason::Contested(pool.spec.clone()))
        }
        RenderedConfig::Generated | RenderedConfig::Own { .. } => None,
    }
}

fn next_revision(pool: &PoolState, configs: &RenderedConfigs) -> u64 {
    let revisions = configs.values().filter_map(|config| match config {
        RenderedConfig::Own { pool_uid, revision, .. } if *pool_uid == pool.uid => Some(*revision),
        _ => None,
    });
    revisions.max().unwrap_or_default().saturating_add(1)
}
