//! Pools and MachineConfigs, as far as the plan depends on them.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::objects::MachineConfig;

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
    /// The one of these two that servers serve.
    pub served: String,
    /// True if the configuration stays: an administrator paused the pool, or is deleting it.
    pub is_paused: bool,
    /// Result of merging its MachineConfigs, or the reason that there is none.
    pub merged: Result<Arc<MachineConfig>, String>,
    /// Results of merging that this process still has, of those that the pool names.
    pub known: Vec<Arc<MachineConfig>>,
    /// The MachineConfig that this process set it to last.
    pub last_set: Option<String>,
    /// The MachineConfig that this process set its status to last.
    pub last_served: Option<String>,
}

/// The generator of this controller's MachineConfigs; its version follows.
pub const GENERATOR: &str = "machine-config-server/";
/// Number of digits at the end of a rendered MachineConfig's name.
const DIGITS: usize = 32;

/// Metadata of a MachineConfig that show who made it, and for which pool.
#[derive(Debug, Clone, Copy, Default)]
pub struct Origin<'a> {
    /// Name and UID of the pool that owns it.
    pub owner: Option<(&'a str, &'a str)>,
    /// Value of [`GENERATED_BY`](model::merged_pool::GENERATED_BY), empty without the annotation.
    pub generated_by: &'a str,
    /// Value of the annotation with the revision.
    pub revision: &'a str,
    /// True if it has the label that pools select MachineConfigs by.
    pub has_role: bool,
}

impl Origin<'_> {
    /// True for a MachineConfig named `name` that was rendered for a pool, and is no part of one. A copy has another
    /// name or a role.
    pub fn is_rendered(&self, name: &str) -> bool {
        let is_of = |(pool, _): (&str, &str)| is_rendered_name(name, pool);
        self.owner.is_some_and(is_of) && !self.generated_by.is_empty() && !self.has_role
    }
}

fn is_rendered_name(name: &str, pool: &str) -> bool {
    let rest = name.strip_prefix("rendered-").and_then(|rest| rest.strip_prefix(pool));
    let digits = rest.and_then(|rest| rest.strip_prefix('-')).unwrap_or_default();
    digits.len() == DIGITS && digits.bytes().all(|it| matches!(it, b'0'..=b'9' | b'a'..=b'f'))
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
        /// True if its contents were read and are not those of its name.
        is_changed: bool,
    },
    /// Another controller generated it.
    Generated,
    /// An administrator made it.
    Custom,
}

impl RenderedConfig {
    /// Tells who made the MachineConfig named `name`.
    pub fn of(name: &str, origin: &Origin<'_>) -> Self {
        match origin.owner {
            Some((_, uid))
                if origin.is_rendered(name) && origin.generated_by.starts_with(GENERATOR) =>
            {
                let revision = origin.revision.parse().unwrap_or_default();
                Self::Own { pool_uid: uid.to_owned(), revision, is_changed: false }
            }
            _ if origin.generated_by.is_empty() => Self::Custom,
            _ => Self::Generated,
        }
    }
}

/// MachineConfigs by name.
pub type RenderedConfigs = BTreeMap<String, RenderedConfig>;
