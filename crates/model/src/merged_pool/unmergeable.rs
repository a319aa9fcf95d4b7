//! Reasons why a pool's MachineConfigs cannot be merged.

use std::sync::Arc;

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
    /// The Ignition config of a MachineConfig is unreadable or invalid.
    #[error("MachineConfig {name}: spec.config: {error}")]
    Ignition {
        /// Name of the MachineConfig.
        name: String,
        /// Fault of its Ignition config.
        error: Arc<ignition::Error>,
    },
    /// A file has setuid, setgid or sticky bits, which have no effect in its spec.
    #[error(
        "MachineConfig {name}: spec.config: storage.files[{index}].mode: special bits have no effect before Ignition \
         spec 3.6.0"
    )]
    SpecialMode {
        /// Name of the MachineConfig.
        name: String,
        /// Index of the file.
        index: usize,
    },
    /// The kernel type is unknown.
    #[error(
        "MachineConfig {name}: spec.kernelType: {kernel_type:?} is not default, realtime or 64k-pages"
    )]
    KernelType {
        /// Name of the MachineConfig.
        name: String,
        /// Kernel type.
        kernel_type: String,
    },
    /// The extension is unknown.
    #[error(
        "MachineConfig {name}: spec.extensions: {extension:?} is not an extension of the operating system"
    )]
    Extension {
        /// Name of the MachineConfig.
        name: String,
        /// Name of the extension.
        extension: String,
    },
    /// The extension `kernel-devel`, which is for the default kernel, is combined with another kernel.
    #[error(
        "MachineConfigs {}: extension kernel-devel needs kernelType default, not {kernel_type}",
        names.join(", ")
    )]
    KernelDevel {
        /// Names of the MachineConfigs with either.
        names: Vec<String>,
        /// Kernel type.
        kernel_type: String,
    },
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

/// Faults of a merged config.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Conflict {
    /// Values of the MachineConfigs conflict at a place in the merged config.
    #[error("merged into one, {0}")]
    Invalid(Arc<ignition::Error>),
    /// A file is in the place of a directory that another node needs.
    #[error("{path} is below {parent}, which is a file")]
    NotADirectory {
        /// Path of the node.
        path: String,
        /// Path of the file.
        parent: String,
    },
    /// A file has the contents of one MachineConfig and the hash of another.
    #[error(
        "file {path} has contents without its verification.hash: set or remove the hash where the contents are set"
    )]
    OtherHash {
        /// Path of the file.
        path: String,
    },
    /// A file has no contents. Files of a pool overwrite existing ones, and Ignition cannot overwrite with nothing.
    #[error(
        "file {path} has no contents.source to overwrite with: give it one, or set overwrite to false"
    )]
    NoContents {
        /// Path of the file.
        path: String,
    },
    /// The config fetches the one of its pool, as a pointer config does. Machines would fetch forever.
    #[error("the config fetches {url}, which is this pool's own: it is a pointer config")]
    FetchesItself {
        /// URL without its query.
        url: String,
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
    /// MachineConfig that the render controller writes without noticing the conflict.
    #[must_use]
    pub fn merged(&self) -> Option<&Arc<MachineConfig>> {
        match self {
            Self::Conflict { merged, .. } => Some(merged),
            _ => None,
        }
    }
}
