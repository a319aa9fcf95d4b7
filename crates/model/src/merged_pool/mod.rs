//! A pool's configuration out of the MachineConfigs that it selects, as OpenShift's render controller makes it.
//!
//! ```text
//!  pool's selector ── select ──> MachineConfigs ── parse ──> ParsedMachineConfig ──┐ (kept)
//!                                                                                  │
//!  ControllerConfig's images ──────────────────────────────────────────────────── merge ──> MachineConfig
//!                                                                                  └─ origins: who said what
//! ```
//!
//! The MachineConfigs of the role `worker` come first, then those of other roles, each by name: a custom pool has its
//! own over those of all workers. Ignition configs are merged by Ignition's rules ([`ignition::merge()`]); what a
//! MachineConfig has beside its Ignition config is merged in [`merge()`].
//!
//! What differs from the render controller: what two MachineConfigs say together is checked here, and refused with
//! their names, where the render controller writes a config that no machine boots from; spec 3.6 is read.
//!
//! Source: `MergeMachineConfigs` and `ValidateMachineConfig` of openshift/machine-config-operator.

mod ignition_config;
mod merge;
mod origins;
mod parsed;
mod pools;
mod select;
mod unmergeable;

pub use merge::{GENERATED_BY, merge};
pub use origins::{Member, Origin, origins};
pub use parsed::ParsedMachineConfig;
pub use pools::MergedPools;
pub use select::select;
pub use unmergeable::{Conflict, Unmergeable};

#[cfg(test)]
mod tests;
