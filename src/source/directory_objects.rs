//! Result of reading a directory.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::inputs::{Layering, Problem, SharedInputs};
use model::objects::{FirstBootMachine, MachineConfig, MachineConfigPool};

/// Result of a scan, before the comparison with the previous one.
#[derive(Default)]
pub(super) struct DirectoryObjects {
    pub(super) pools: BTreeMap<String, Arc<MachineConfigPool>>,
    pub(super) machine_configs: BTreeMap<String, Arc<MachineConfig>>,
    pub(super) machines: BTreeMap<String, Arc<FirstBootMachine>>,
    pub(super) layering: Layering,
    pub(super) shared: SharedInputs,
    pub(super) problems: Vec<Problem>,
    pub(super) warnings: Vec<Problem>,
    /// True if a link leads out of the watched directory.
    pub(super) leads_out: bool,
}
