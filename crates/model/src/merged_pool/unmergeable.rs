//! Reasons why a pool's MachineConfigs cannot be merged.

use std::sync::Arc;

use ignition::Unwritable;

use super::argument_setter::UnknownSetter;
use crate::objects::{InvalidSelector, MachineConfig};

/// Reasons why a pool has no merged configuration, with the names of the MachineConfigs.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Unmergeable {
    /// The pool's selector is invalid, and selects nothing.
    #[error("spec.machineConfigSelector: {0}")]
    Selector(#[from] InvalidSelector),
    /// No MachineConfig matches the pool's selector.
    #[error("no MachineConfig has the labels that spec.machineConfigSelector selects")]
    NoneSelected,
    /// A MachineConfig has no labels, so its role is unknown. Only a selector with NotIn or DoesNotExist selects one.
    #[error("MachineConfig {0} has no labels, so its role is not known")]
    NoLabels(String),
    /// The MachineConfig with this name is faulty by itself.
    #[error("MachineConfig {0}: {1}")]
    Faulty(String, MachineConfigFault),
    /// The extension `kernel-devel`, which is for the default kernel, is combined with this other one, by these
    /// MachineConfigs.
    #[error(
        "MachineConfigs {names}: extension kernel-devel needs kernelType default, not {1}",
        names = .0.join(", ")
    )]
    KernelDevel(Vec<String>, String),
    /// The pool's annotation names no setter of kernel arguments.
    #[error("{0}")]
    ArgumentSetter(#[from] UnknownSetter),
    /// MachineConfigs repeat this kernel argument, which belongs to the one before it, and Ignition sets it once.
    #[error(
        "MachineConfigs {names}: spec.kernelArguments: {1} is repeated, and Ignition sets it once: write each size of \
         huge pages and its number as one entry, such as \"hugepagesz=1G hugepages=4\"",
        names = .0.join(", ")
    )]
    RepeatedArgument(Vec<String>, String),
    /// A value has no JSON form.
    #[error("cannot be written as JSON: {0}")]
    Json(Arc<ignition::Error>),
    /// Valid MachineConfigs have Ignition configs that are invalid when merged.
    #[error("MachineConfigs {}: {conflict}", names.join(", "))]
    Conflict {
        /// Names of the MachineConfigs that conflict.
        names: Vec<String>,
        /// Fault of the merged config.
        conflict: Conflict,
        /// MachineConfig that the render controller would write.
        merged: Arc<MachineConfig>,
    },
}

/// Faults of one MachineConfig.
#[derive(Debug, Clone, thiserror::Error)]
pub enum MachineConfigFault {
    /// The Ignition config is unreadable or invalid.
    #[error("spec.config: {0}")]
    Ignition(Arc<ignition::Error>),
    /// The file with this index has setuid, setgid or sticky bits, which have no effect in its spec.
    #[error(
        "spec.config: storage.files[{0}].mode: special bits have no effect before Ignition spec 3.6.0"
    )]
    SpecialMode(usize),
    /// The kernel type is unknown.
    #[error("spec.kernelType: {0:?} is not default, realtime or 64k-pages")]
    KernelType(String),
    /// The extension is unknown.
    #[error("spec.extensions: {0:?} is not an extension of the operating system")]
    Extension(String),
    /// The kernel argument with this index cannot be in one line.
    #[error("spec.kernelArguments[{0}]: it has a control character, such as the end of a line")]
    ControlCharacter(usize),
}

/// Faults of a merged config.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Conflict {
    /// Values of the MachineConfigs conflict at a place in the merged config.
    #[error("merged into one, {0}")]
    Invalid(Arc<ignition::Error>),
    /// Ignition's files stage cannot write the merged config.
    #[error("{0}")]
    Unwritable(Unwritable),
    /// The file with this path has no contents. Files of a pool overwrite existing ones, and Ignition cannot overwrite
    /// with nothing.
    #[error(
        "file {0} has no contents.source to overwrite with: give it one, or set overwrite to false"
    )]
    NoContents(String),
    /// The config fetches the one of its pool by this URL, as a pointer config does. Machines would fetch forever.
    #[error("the config fetches {0}, which is this pool's own: it is a pointer config")]
    FetchesItself(String),
}

impl From<ignition::Error> for Unmergeable {
    fn from(error: ignition::Error) -> Self {
        Self::Json(Arc::new(error))
    }
}

impl From<serde_json::Error> for Unmergeable {
    fn from(error: serde_json::Error) -> Self {
        Self::Json(Arc::new(error.into()))
    }
}

impl Unmergeable {
    /// MachineConfig that the render controller writes without noticing the conflict.
    pub fn merged(&self) -> Option<&Arc<MachineConfig>> {
        match self {
            Self::Conflict { merged, .. } => Some(merged),
            _ => None,
        }
    }
}
