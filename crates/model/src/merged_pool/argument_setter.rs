//! Setter of the kernel arguments of a pool's MachineConfigs, by an annotation of the pool.
//!
//! Ignition reads an Ignition config only, so `spec.kernelArguments` of a MachineConfig is for machine-config-daemon: a
//! machine without it ignores them. A pool can have them merged into `kernelArguments.shouldExist` of its Ignition
//! config instead.

use crate::objects::{MachineConfig, MachineConfigPool};

/// Annotation of a pool that names who sets the kernel arguments of its MachineConfigs.
pub const KERNEL_ARGUMENTS_ANNOTATION: &str = "machine-config-server.io/kernel-arguments";

/// Setter of the kernel arguments of a pool's MachineConfigs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ArgumentSetter {
    /// machine-config-daemon sets them, by the MachineConfig on the machine's disk.
    #[default]
    Daemon,
    /// Ignition sets them, at the first boot.
    Ignition,
}

impl ArgumentSetter {
    /// Reads the annotation of a pool; `None` without it.
    ///
    /// # Errors
    /// The value is none of the two.
    pub fn of(pool: &MachineConfigPool) -> Result<Option<Self>, UnknownSetter> {
        match pool.annotation_or_empty(KERNEL_ARGUMENTS_ANNOTATION) {
            None => Ok(None),
            Some("ignition") => Ok(Some(Self::Ignition)),
            Some("machine-config-daemon") => Ok(Some(Self::Daemon)),
            Some(other) => Err(UnknownSetter(other.to_owned())),
        }
    }
}

/// Value of the annotation that names no setter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{KERNEL_ARGUMENTS_ANNOTATION}: {0:?}: expected machine-config-daemon or ignition")]
pub struct UnknownSetter(String);

/// Reason why the annotation of a pool has no effect on `served`, the MachineConfig that it names.
pub fn unused_setter(pool: &MachineConfigPool, served: &MachineConfig) -> Option<String> {
    let name = served.name();
    match ArgumentSetter::of(pool) {
        Err(error) => Some(error.to_string()),
        Ok(Some(ArgumentSetter::Ignition))
            if served.spec.kernel_arguments.iter().flatten().next().is_some() =>
        {
            let rendered = "was not rendered by it: it works where this program renders the pool";
            Some(format!(
                "{KERNEL_ARGUMENTS_ANNOTATION}: no effect: MachineConfig {name} {rendered}"
            ))
        }
        Ok(_) => None,
    }
}
