//! State that all routes for machines share.

use std::sync::Arc;

use model::ledger::{FailureReport, Ledger};
use tokio::sync::mpsc;

use super::auth::Authorizer;
use crate::serving::answers::Answers;
use crate::serving::awaited_pools::AwaitedPools;
use crate::serving::live_reads::LiveReads;
use crate::serving::tokens::named_machines::NamedMachines;
use crate::telemetry::Metrics;
use crate::telemetry::conditions::Status;

/// State of the routes for machines.
#[derive(Debug)]
pub struct Machines {
    pub answers: Arc<Answers>,
    pub named: NamedMachines,
    /// Bound for the age of what is served, if there is one.
    pub live_reads: Option<LiveReads>,
    /// Requests for pools before all are read, if the source takes them.
    pub awaited_pools: Option<AwaitedPools>,
    pub metrics: Arc<Metrics>,
    /// Conditions for readiness, such as a faulty serving certificate.
    pub status: Status,
    pub ledger: Ledger,
    pub auth: Authorizer,
    /// Receiver of reports of failed first boots; `None` if machines cannot send any.
    pub reports: Option<mpsc::Sender<FailureReport>>,
}
