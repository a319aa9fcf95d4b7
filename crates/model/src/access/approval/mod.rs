//! Approval: machines that get their config only after an administrator has granted it.
//!
//! ```text
//!  pool or FirstBootMachine requires it
//!         │
//!  request ─> access allowed ─> approved? ── yes ─> config
//!                                  │
//!                                  no ─> 503, waiting: Ignition asks again
//!
//!  grant of a command ─────────┐
//!  annotation of the pool ─────┼─> a time for each subject ─> open for one window ─> ended
//!  annotation of the machine ──┘
//! ```
//!
//! A grant has the time at which it was given, so that all servers of a cluster agree when it ends, and one that is read
//! again after its end approves nothing. That of a machine with an object is for one first boot of this object with this
//! content: it ends early when the object changes, is removed, or its token is armed again.

mod approved_object;
mod given;
mod grants;
mod listed;
mod subject;
mod waiting;

pub use approved_object::{ApprovedObject, BoundApprovals};
pub use given::{Approvals, Ended, OpenApproval};
pub use grants::{
    APPROVAL_ANNOTATION, APPROVED_PREFIX, ApprovalGrants, annotation_of, granted_at,
    parse_granted_at, read_grants,
};
pub use listed::{ApprovedMachine, WaitingMachine, merged};
pub use subject::Subject;
pub use waiting::{MAX_WAITING, UnapprovedRequest, WaitingMachines, Waits};
