//! Merges the MachineConfigs that a pool selects, as OpenShift's render controller does.
//!
//! ```text
//!  pool's selector ── select ──> MachineConfigs ── parse ──> ParsedMachineConfig ──┐
//!                                                                                  │
//!  ControllerConfig's images ──────────────────────────────────────────────────── merge ──> MachineConfig
//!                                                                                  └─ origins: who said what
//! ```
//!
//! The MachineConfigs of the role `worker` come first, then those of other roles, each by name: those of a custom pool
//! override the workers'. Ignition configs are merged by Ignition's rules ([`ignition::merge()`]); [`merge()`] merges
//! the other fields of MachineConfigs. A pool can have its kernel arguments in the Ignition config
//! ([`ArgumentSetter`]).
//!
//! Differences from the render controller: the merged config is checked, and refused with the names of the conflicting
//! MachineConfigs, where the render controller writes a config that no machine boots from; spec 3.6 is read; an unknown
//! extension is refused in a MachineConfig without an Ignition config, too.
//!
//! Source: `MergeMachineConfigs` and `ValidateMachineConfig` of openshift/machine-config-operator.

mod argument_setter;
mod ignition_config;
mod kernel_arguments;
mod merge;
mod origins;
mod parsed;
mod pools;
mod select;
mod unmergeable;

pub use argument_setter::{
    ArgumentSetter, KERNEL_ARGUMENTS_ANNOTATION, UnknownSetter, unused_setter,
};
pub use merge::{GENERATED_BY, has_contents_of_name, merge};
pub use origins::{Member, Origin, origins};
pub use parsed::ParsedMachineConfig;
pub use pools::{DueMerge, MergedPools, ParsedMachineConfigs, shared_sources};
pub use select::{ByLabels, LabelGroup};
pub use unmergeable::{Conflict, MachineConfigFault, Unmergeable};

#[cfg(test)]
mod tests;
