//! Pools and MachineConfigs, as far as the plan depends on them.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::objects::MachineConfig;

/// A pool, with what it is to be set to.
#[derive(Debug, Clone)]
pub struct PoolState {
    /// The pool's name.
    pub name: String,
    /// Which pool of this name it is.
    pub uid: String,
    /// The MachineConfig that `spec.configuration` names, empty for none.
    pub spec: String,
    /// The MachineConfig that `status.configuration` names, empty for none.
    pub status: String,
    /// Whether an administrator paused it, or is deleting it: its configuration stays.
    pub is_paused: bool,
    /// What its MachineConfigs come to, or why they come to nothing.
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
        /// Grows with each time that the pool is set to it or to another one.
        revision: u64,
    },
    /// Another controller generated it.
    Generated,
    /// An administrator made it.
    Custom,
}

/// MachineConfigs by name.
pub type RenderedConfigs = BTreeMap<String, RenderedConfig>;
