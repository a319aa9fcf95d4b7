//! State that all routes for machines share.

use std::sync::Arc;

use model::ledger::{FailureReport, Ledger};
use telemetry::Metrics;
use telemetry::conditions::Status;
use tokio::sync::mpsc;

use super::auth::Authorizer;
use crate::serving::answers::Answers;
use crate::serving::awaited_pools::AwaitedPools;
use crate::serving::live_reads::LiveReads;
use crate::serving::tokens::named_machines::NamedMachines;

/// Reads of the source that requests wait for.
#[derive(Debug, Default)]
pub struct SourceReads {
    /// Bound for the age of what is served, if there is one.
    pub live: Option<LiveReads>,
    /// Requests for pools before all are read, if the source takes them.
    pub awaited: Option<AwaitedPools>,
}

/// State of the routes for machines.
#[derive(Debug)]
pub struct MachineRoutes {
    pub answers: Arc<Answers>,
    pub named: NamedMachines,
    pub reads: SourceReads,
    pub metrics: Arc<Metrics>,
    /// Conditions for readiness, such as a faulty serving certificate.
    pub status: Status,
    pub ledger: Ledger,
    pub auth: Authorizer,
    /// Receiver of reports of failed first boots; `None` if machines cannot send any.
    pub reports: Option<mpsc::Sender<FailureReport>>,
}
