//! Pools and MachineConfigs, as far as the plan depends on them.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::objects::MachineConfig;

/// A pool with its merged MachineConfig.
#[derive(Debug, Clone)]
pub struct PoolState {
    /// The pool's name.
    pub name: String,
    /// UID, which distinguishes it from earlier pools of this name.
    pub uid: String,
    /// The MachineConfig that `spec.configuration` names, empty for none.
    pub spec: String,
    /// The MachineConfig that `status.configuration` names, empty for none.
    pub status: String,
    /// True if the configuration stays: an administrator paused the pool, or is deleting it.
    pub is_paused: bool,
    /// Result of merging its MachineConfigs, or the reason that there is none.
    pub merged: Result<Arc<MachineConfig>, String>,
    /// The MachineConfig that this process set it to last.
    pub last_set: Option<String>,
}

/// A MachineConfig that is made for a pool or might be, by its metadata.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RenderedConfig {
    /// This controller made it.
    Own {
        /// The pool that owns it.
        pool_uid: String,
        /// Number that grows with each rendering of the pool.
        revision: u64,
    },
    /// Another controller generated it.
    Generated,
    /// An administrator made it.
    Custom,
}

/// MachineConfigs by name.
pub type RenderedConfigs = BTreeMap<String, RenderedConfig>;
