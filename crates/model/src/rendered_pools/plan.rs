//! What is done about a pool.

use std::sync::Arc;

use super::state::{PoolState, RenderedConfig, RenderedConfigs};
use crate::objects::MachineConfig;

/// What is done about a pool.
#[derive(Debug, Clone)]
pub enum PoolPlan {
    /// Nothing: it names what its MachineConfigs come to, or is paused.
    Keep,
    /// Its configuration stays until somebody changes something.
    Hold(Hold),
    /// It gets a rendered MachineConfig.
    Render(Rendering),
}

/// A rendered MachineConfig for a pool, and the writes that it takes, in their order.
#[derive(Debug, Clone)]
pub struct Rendering {
    /// The rendered MachineConfig.
    pub machine_config: Arc<MachineConfig>,
    /// The write to it.
    pub prepare: Prepare,
    /// Whether the pool has to be set to it.
    pub is_set: bool,
}

/// A write to a rendered MachineConfig, which gives it this revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prepare {
    /// It is made.
    Create(u64),
    /// It is there: its owner and its revision are set.
    Reuse(u64),
}

/// Why a pool's configuration stays though it is not what its MachineConfigs come to.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Hold {
    /// The MachineConfigs cannot be merged.
    #[error("{0}")]
    Unmergeable(String),
    /// It names a MachineConfig that no controller made.
    #[error(
        "spec.configuration names MachineConfig {0}, which no controller rendered: remove spec.configuration to have \
         the pool rendered"
    )]
    Custom(String),
    /// Another controller keeps setting it.
    #[error(
        "another controller set spec.configuration to MachineConfig {0}: stop that controller, then remove \
         spec.configuration"
    )]
    Contested(String),
    /// The name of the rendered MachineConfig is taken.
    #[error("MachineConfig {0} exists, and was not made by this controller: delete or rename it")]
    Taken(String),
}

/// Decides what is done about a pool. `configs` are at least those that it names, and those of its own.
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

/// A configuration that is somebody else's to change.
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
