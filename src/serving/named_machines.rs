//! Parts of serving that judge single machines.

use std::sync::Arc;

use super::approvals::MachineApprovals;
use super::machine_tokens::MachineTokens;
use super::overlays::Overlays;

/// Parts that requests and pages share with the pipeline. Without a state directory there are approvals only.
#[derive(Debug, Clone, Default)]
pub struct NamedMachines {
    pub(crate) tokens: Option<Arc<MachineTokens>>,
    pub(crate) overlays: Option<Arc<Overlays>>,
    pub(crate) approvals: Arc<MachineApprovals>,
}
