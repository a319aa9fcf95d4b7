//! Parts of serving that machines with names need.

use std::sync::Arc;

use super::machine_tokens::MachineTokens;
use super::overlays::Overlays;

/// Parts that requests and pages share with the pipeline; none without a state directory.
#[derive(Debug, Clone, Default)]
pub struct NamedMachines {
    pub(crate) tokens: Option<Arc<MachineTokens>>,
    pub(crate) overlays: Option<Arc<Overlays>>,
}
