//! Approval: machines that get their config only after an administrator has said yes.
//!
//! ```text
//!  pool or FirstBootMachine requires it
//!         │
//!  request ─> access allowed ─> approved? ── yes ─> config
//!                                  │
//!                                  no ─> 503, waiting: Ignition asks again
//!
//!  yes of the command ─────────┐
//!  annotation of the pool ─────┼─> a time for each subject ─> open for one window ─> ended
//!  annotation of the machine ──┘
//! ```
//!
//! A yes has the time at which it was said, so that all servers of a cluster agree when it ends, and one that is read
//! again after its end approves nothing.

mod given;
mod subject;
mod waiting;
mod yes;

pub use given::{Approvals, Ended, OpenApproval};
pub use subject::Subject;
pub use waiting::{MAX_WAITING, UnapprovedRequest, WaitingMachines, Waits};
pub use yes::{APPROVAL_ANNOTATION, APPROVED_PREFIX, Yeses, annotation_of, parse_yes, yeses};
