//! Why a pool's MachineConfigs cannot be merged into one.

use std::sync::Arc;

use crate::objects::{InvalidSelector, MachineConfig};

/// Why a pool has no merged configuration. The MachineConfigs that it has to do with are named.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Unmergeable {
    /// The pool's selector selects nothing, whatever there is.
    #[error("spec.machineConfigSelector: {0}")]
    Selector(#[from] InvalidSelector),
    /// No MachineConfig has the labels that the pool selects.
    #[error("no MachineConfig has the labels that spec.machineConfigSelector selects")]
    NoneSelected,
    /// A MachineConfig without labels, whose role is not known. Only a selector by what a label is not selects one.
    #[error("MachineConfig {0} has no labels, so its role is not known")]
    NoLabels(String),
    /// The Ignition config of a MachineConfig cannot be read or is not valid.
    #[error("MachineConfig {name}: spec.config: {error}")]
    Ignition {
        /// The MachineConfig.
        name: String,
        /// What is wrong with it.
        error: Arc<ignition::Error>,
    },
    /// A file has setuid, setgid or sticky bits, which have no effect in the spec that it is written in.
    #[error(
        "MachineConfig {name}: spec.config: storage.files[{index}].mode: special bits have no effect before Ignition \
         spec 3.6.0"
    )]
    SpecialMode {
        /// The MachineConfig.
        name: String,
        /// The file's place in its list.
        index: usize,
    },
    /// A kernel that there is not.
    #[error(
        "MachineConfig {name}: spec.kernelType: {kernel_type:?} is not default, realtime or 64k-pages"
    )]
    KernelType {
        /// The MachineConfig.
        name: String,
        /// The kernel.
        kernel_type: String,
    },
    /// An extension that the operating system does not have.
    #[error(
        "MachineConfig {name}: spec.extensions: {extension:?} is no extension of the operating system"
    )]
    Extension {
        /// The MachineConfig.
        name: String,
        /// The extension.
        extension: String,
    },
    /// The extension `kernel-devel`, which is of the default kernel, with another kernel.
    #[error(
        "MachineConfigs {}: extension kernel-devel needs kernelType default, not {kernel_type}",
        names.join(", ")
    )]
    KernelDevel {
        /// The MachineConfigs that say either.
        names: Vec<String>,
        /// The kernel.
        kernel_type: String,
    },
    /// A value could not be written as JSON.
    #[error("cannot be written as JSON: {0}")]
    Json(Arc<ignition::Error>),
    /// Valid MachineConfigs whose Ignition configs together are one that Ignition refuses.
    #[error("MachineConfigs {}: {conflict}", names.join(", "))]
    Conflict {
        /// The MachineConfigs that it is about.
        names: Vec<String>,
        /// What is wrong with their merged config.
        conflict: Conflict,
        /// What the render controller makes of them nevertheless.
        merged: Arc<MachineConfig>,
    },
}

/// What Ignition refuses in a merged config.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Conflict {
    /// The MachineConfigs say what does not go together, at a place in the merged config.
    #[error("merged into one, {0}")]
    Invalid(Arc<ignition::Error>),
    /// A file has no contents of its own. A pool's files overwrite what is on the machine, and with nothing Ignition does
    /// not do that.
    #[error(
        "file {path} has no contents.source to overwrite with: give it one, or set overwrite to false"
    )]
    NoContents {
        /// The file.
        path: String,
    },
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
    /// What the render controller writes where it does not see that no machine boots from it.
    #[must_use]
    pub fn merged(&self) -> Option<&Arc<MachineConfig>> {
        match self {
            Self::Conflict { merged, .. } => Some(merged),
            _ => None,
        }
    }
}
