//! A MachineConfig, read and checked by itself.

use std::sync::Arc;

use ignition::{Config, Part, SpecVersion};

use super::unmergeable::Unmergeable;
use crate::objects::{MachineConfig, MachineConfigSpec};

/// The kernel that a machine has where no MachineConfig says otherwise.
pub(super) const DEFAULT_KERNEL: &str = "default";
/// The other kernels.
const KERNELS: [&str; 2] = ["realtime", "64k-pages"];
/// The extension with the headers of the default kernel.
pub(super) const KERNEL_DEVEL: &str = "kernel-devel";

/// The extensions that the operating system has, as the render controller knows them.
const EXTENSIONS: [&str; 7] = [
    "ipsec",
    "kerberos",
    KERNEL_DEVEL,
    "sandboxed-containers",
    "sysstat",
    "two-node-ha",
    "usbguard",
];

/// What file modes have no effect beyond, before spec 3.6.
const PERMISSIONS: i64 = 0o777;

/// A MachineConfig with its Ignition config parsed, which takes most of the time in merging. Worth keeping as long as the
/// MachineConfig does not change; it takes more memory than the text.
#[derive(Debug)]
pub struct ParsedMachineConfig {
    machine_config: Arc<MachineConfig>,
    part: Result<Option<Part>, Unmergeable>,
}

impl ParsedMachineConfig {
    /// Reads and checks a MachineConfig. A faulty one fails only the pools that select it.
    #[must_use]
    pub fn new(machine_config: &Arc<MachineConfig>) -> Self {
        Self { part: part(machine_config), machine_config: Arc::clone(machine_config) }
    }

    /// The MachineConfig itself.
    #[must_use]
    pub fn machine_config(&self) -> &Arc<MachineConfig> {
        &self.machine_config
    }

    pub(super) fn name(&self) -> &str {
        self.machine_config.name()
    }

    pub(super) fn spec(&self) -> &MachineConfigSpec {
        &self.machine_config.spec
    }

    /// Its Ignition config, `None` where it has none.
    pub(super) fn part(&self) -> Result<Option<&Part>, Unmergeable> {
        self.part.as_ref().map(Option::as_ref).map_err(Clone::clone)
    }

    /// The kernel, where it is not the default one.
    pub(super) fn special_kernel(&self) -> Option<&str> {
        let kernel = &self.spec().kernel_type;
        KERNELS.contains(&kernel.as_str()).then_some(kernel)
    }
}

fn part(machine_config: &MachineConfig) -> Result<Option<Part>, Unmergeable> {
    let name = || machine_config.name().to_owned();
    let kernel_type = &machine_config.spec.kernel_type;
    if !kernel_type.is_empty()
        && kernel_type != DEFAULT_KERNEL
        && !KERNELS.contains(&&**kernel_type)
    {
        return Err(Unmergeable::KernelType { name: name(), kernel_type: kernel_type.clone() });
    }
    // Without an Ignition config, extensions are not looked at by the render controller either.
    let Some(text) = machine_config.ignition() else { return Ok(None) };
    let refused = |error| Unmergeable::Ignition { name: name(), error: Arc::new(error) };
    let mut config = Config::parse(text).map_err(refused)?;
    let has_special_bits =
        |mode: Option<i64>| mode.is_some_and(|mode| !(0..=PERMISSIONS).contains(&mode));
    let mut modes = config.body().storage.files.iter().map(|file| file.mode);
    if config.declared() < SpecVersion::V3_6
        && let Some(index) = modes.position(has_special_bits)
    {
        return Err(Unmergeable::SpecialMode { name: name(), index });
    }
    let mut extensions = machine_config.spec.extensions.iter().flatten();
    if let Some(unknown) = extensions.find(|name| !EXTENSIONS.contains(&name.as_str())) {
        return Err(Unmergeable::Extension { name: name(), extension: unknown.clone() });
    }
    config.prepare_files();
    Part::new(&config).map(Some).map_err(refused)
}
