//! A MachineConfig, parsed and checked on its own.

use std::sync::Arc;

use ignition::{Config, MergeInput, SpecVersion};

use super::unmergeable::{MachineConfigFault, Unmergeable};
use crate::objects::{MachineConfig, MachineConfigSpec};

/// Kernel type of machines without a MachineConfig that sets one.
pub(super) const DEFAULT_KERNEL: &str = "default";
const KERNELS: [&str; 2] = ["realtime", "64k-pages"];
/// Extension with the headers of the default kernel.
pub(super) const KERNEL_DEVEL: &str = "kernel-devel";

/// Extensions of the operating system, as listed in the render controller.
const EXTENSIONS: [&str; 7] = [
    "ipsec",
    "kerberos",
    KERNEL_DEVEL,
    "sandboxed-containers",
    "sysstat",
    "two-node-ha",
    "usbguard",
];

/// Permission bits without the special ones, which have no effect before spec 3.6.
const PERMISSIONS: i64 = 0o777;

/// A MachineConfig with its Ignition config parsed, which takes most of the time of merging. Cache it while the
/// MachineConfig does not change; it needs more memory than the text.
#[derive(Debug)]
pub struct ParsedMachineConfig {
    machine_config: Arc<MachineConfig>,
    part: Result<Option<MergeInput>, MachineConfigFault>,
}

impl ParsedMachineConfig {
    /// Parses and checks a MachineConfig. A faulty one affects only the pools that select it.
    pub fn new(machine_config: &Arc<MachineConfig>) -> Self {
        Self { part: part(machine_config), machine_config: Arc::clone(machine_config) }
    }

    /// The original MachineConfig.
    pub fn machine_config(&self) -> &Arc<MachineConfig> {
        &self.machine_config
    }

    pub(super) fn name(&self) -> &str {
        self.machine_config.name()
    }

    pub(super) fn spec(&self) -> &MachineConfigSpec {
        &self.machine_config.spec
    }

    /// Parsed Ignition config, `None` if it has none.
    pub(super) fn part(&self) -> Result<Option<&MergeInput>, Unmergeable> {
        let faulty =
            |fault: &MachineConfigFault| Unmergeable::Faulty(self.name().to_owned(), fault.clone());
        self.part.as_ref().map(Option::as_ref).map_err(faulty)
    }

    /// The kernel type, if it is not the default one.
    pub(super) fn special_kernel(&self) -> Option<&str> {
        let kernel = &self.spec().kernel_type;
        KERNELS.contains(&kernel.as_str()).then_some(kernel)
    }
}

fn part(machine_config: &MachineConfig) -> Result<Option<MergeInput>, MachineConfigFault> {
    let kernel_type = &machine_config.spec.kernel_type;
    if !kernel_type.is_empty()
        && kernel_type != DEFAULT_KERNEL
        && !KERNELS.contains(&&**kernel_type)
    {
        return Err(MachineConfigFault::KernelType(kernel_type.clone()));
    }
    let mut extensions = machine_config.spec.extensions.iter().flatten();
    if let Some(unknown) = extensions.find(|name| !EXTENSIONS.contains(&name.as_str())) {
        return Err(MachineConfigFault::Extension(unknown.clone()));
    }
    let Some(text) = machine_config.ignition() else { return Ok(None) };
    let refused = |error| MachineConfigFault::Ignition(Arc::new(error));
    let mut config = Config::parse(&text).map_err(refused)?;
    let has_special_bits =
        |mode: Option<i64>| mode.is_some_and(|mode| !(0..=PERMISSIONS).contains(&mode));
    let mut modes = config.body().storage.files.iter().map(|file| file.mode);
    if config.declared() < SpecVersion::V3_6
        && let Some(index) = modes.position(has_special_bits)
    {
        return Err(MachineConfigFault::SpecialMode(index));
    }
    config.prepare_files();
    MergeInput::new(&config).map(Some).map_err(refused)
}
