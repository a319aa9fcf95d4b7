//! Plan for a pool.

use std::sync::Arc;

use super::state::{PoolState, RenderedConfig, RenderedConfigs};
use crate::objects::MachineConfig;

/// Plan for a pool.
#[derive(Debug, Clone)]
pub enum PoolPlan {
    /// Nothing to do: the pool names its rendered MachineConfig, or is paused.
    Keep,
    /// The configuration stays until an input changes.
    Hold(Hold),
    /// The pool gets a rendered MachineConfig.
    Render(Rendering),
}

/// A rendered MachineConfig for a pool, and the writes that it takes, in their order.
#[derive(Debug, Clone)]
pub struct Rendering {
    /// The rendered MachineConfig.
    pub machine_config: Arc<MachineConfig>,
    /// Write to the rendered MachineConfig.
    pub prepare: Prepare,
    /// True if the pool does not name it yet.
    pub is_set: bool,
}

/// Write to a rendered MachineConfig, with its new revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prepare {
    /// Creates it.
    Create(u64),
    /// Sets owner and revision of an existing one.
    Reuse(u64),
}

/// Reason that a pool is not set to the result of its MachineConfigs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Hold {
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
    /// The name of the rendered MachineConfig is taken.
    #[error("MachineConfig {0} exists, and this controller did not make it: delete or rename it")]
    Taken(String),
}

/// Plans for a pool. `configs` has at least the MachineConfigs that it names and the rendered ones that it owns.
#[must_use]
pub fn plan(pool: &PoolState, configs: &RenderedConfigs) -> PoolPlan {
    if pool.is_paused {
        return PoolPlan::Keep;
    }
    if let Some(hold) = held_by_others(pool, configs) {
        return PoolPlan::Hold(hold);
    }
    let merged = match &pool.merged {
        Ok(merged) => merged,
        Err(reason) => return PoolPlan::Hold(Hold::Unmergeable(reason.clone())),
    };
    let is_named = pool.spec == merged.name();
    let prepare = match configs.get(merged.name()) {
        Some(RenderedConfig::Own { pool_uid, .. }) if is_named && *pool_uid == pool.uid => {
            return PoolPlan::Keep;
        }
        Some(RenderedConfig::Own { .. }) => Prepare::Reuse(next_revision(pool, configs)),
        Some(RenderedConfig::Generated | RenderedConfig::Custom) => {
            return PoolPlan::Hold(Hold::Taken(merged.name().to_owned()));
        }
        None => Prepare::Create(next_revision(pool, configs)),
    };
    let machine_config = Arc::clone(merged);
    PoolPlan::Render(Rendering { machine_config, prepare, is_set: !is_named })
}

/// Reason to leave the configuration to another client.
fn held_by_others(pool: &PoolState, configs: &RenderedConfigs) -> Option<Hold> {
    let is_ours_to_set = || pool.last_set.as_ref().is_none_or(|last| *last == pool.spec);
    match configs.get(&pool.spec)? {
        RenderedConfig::Custom => Some(Hold::Custom(pool.spec.clone())),
        RenderedConfig::Generated if !is_ours_to_set() => Some(Hold::Contested(pool.spec.clone())),
        RenderedConfig::Generated | RenderedConfig::Own { .. } => None,
    }
}

fn next_revision(pool: &PoolState, configs: &RenderedConfigs) -> u64 {
    let revisions = configs.values().filter_map(|config| match config {
        RenderedConfig::Own { pool_uid, revision } if *pool_uid == pool.uid => Some(*revision),
        _ => None,
    });
    revisions.max().unwrap_or_default().saturating_add(1)
}
