//! All that an administrator wants to see at a glance: pools, machines, certificates, registries, and
//! what has changed. One value, shown on the page and as JSON.

mod approval;
mod machine_row;
mod named_machine;
mod pool_machines;
mod trust_map;

use std::sync::Arc;

use model::access::approval::{ApprovedMachine, WaitingMachine};
use model::access::machine::NamedMachine;
use model::history::Change;
use model::ledger::Severity;
use serde::Serialize;
use time::OffsetDateTime;
use utoipa::ToSchema;

pub use self::approval::{APPROVED_COLUMNS, WAITING_COLUMNS, approved_row, waiting_row};
pub use self::machine_row::{MACHINE_COLUMNS, MachineLine, machine_row};
pub use self::named_machine::{NAMED_COLUMNS, named_row};
pub use self::pool_machines::PoolMachines;
pub use self::trust_map::{PointerGroup, PointerStatus, TrustMap, TrustedCertificate};

/// State of a server at one time.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Overview {
    /// Time of this state.
    #[serde(with = "time::serde::rfc3339")]
    pub at: OffsetDateTime,
    /// Server that reports the state.
    pub server: Server,
    /// Host and port with TLS that machines use; the host is `HOST` if it is not known.
    pub authority: String,
    /// Reasons why the server is not ready, one line each; empty if it is ready.
    pub not_ready: Vec<String>,
    /// Other faults for administrators.
    pub degraded: Vec<String>,
    /// Pools by name.
    pub pools: Vec<Pool>,
    /// Machines that requested a config, stuck ones first, and the latest first among these.
    #[serde(serialize_with = "<[MachineLine]>::serialize")]
    #[schema(value_type = Vec<MachineLine>)]
    pub machines: Arc<Vec<MachineLine>>,
    /// True if the nodes of a cluster show which machines have joined.
    pub knows_nodes: bool,
    /// Machines with a name, with the state of their tokens.
    pub named_machines: Vec<NamedMachine>,
    /// Machines that wait for approval, those that have shown a token first.
    pub waiting_machines: Vec<WaitingMachine>,
    /// Machines that are approved.
    pub approved_machines: Vec<ApprovedMachine>,
    /// Other servers whose machines are missing above, with the reason.
    pub silent_servers: Vec<String>,
    /// Certificates served over TLS, leaf first.
    pub certificates: Vec<Certificate>,
    /// Known pointer configs, with the verdict if a machine boots from each.
    pub pointers: Vec<PointerStatus>,
    /// Certificates and pointer configs, and the trust between them.
    #[serde(skip)]
    pub trust: TrustMap,
    /// Image registries whose CAs machines get.
    pub registries: Vec<String>,
    /// Registries of operating system images for which no CA is given: machines verify them by the CAs of their
    /// operating system.
    pub registries_without_ca: Vec<RegistryInUse>,
    /// Recent changes, the latest first.
    pub changes: Vec<Change>,
    /// Number of earlier changes, which are only in the log.
    pub older_changes: u64,
}

/// A registry that machines pull their operating system from.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct RegistryInUse {
    /// Host and port, `host[:port]`.
    pub host: String,
    /// Pools whose machines use it.
    pub pools: Vec<String>,
}

/// State of a cluster's controller.
#[derive(Debug, Clone, Serialize)]
pub struct ControllerOverview {
    /// Time of this state.
    #[serde(with = "time::serde::rfc3339")]
    pub at: OffsetDateTime,
    /// Process that reports the state.
    pub server: Server,
    /// Faults, one line each.
    pub not_ready: Vec<String>,
    /// Other faults for administrators.
    pub degraded: Vec<String>,
    /// Certificates served over TLS, leaf first.
    pub certificates: Vec<Certificate>,
    /// User data of the cluster, with the verdict if a machine boots from each.
    pub pointers: Vec<PointerStatus>,
    /// Certificates and pointer configs, and the trust between them.
    #[serde(skip)]
    pub trust: TrustMap,
}

/// Process that reports a state.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Server {
    /// Version, as printed by the command `version`.
    pub version: String,
    /// Time of its start.
    #[serde(with = "time::serde::rfc3339")]
    pub since: OffsetDateTime,
}

/// A pool and its config.
#[derive(Debug, Clone, Default, Serialize, ToSchema)]
pub struct Pool {
    /// Name of the MachineConfigPool.
    pub name: String,
    /// Served MachineConfig, if there is one.
    pub configuration: Option<String>,
    /// Reason why its machines get nothing, or an older config; `null` if there is none.
    pub problem: Option<String>,
    /// Access mode: `off` for all clients, `audit` for all clients with a report of those that would be refused,
    /// `enforce` for clients with a proof.
    pub access: String,
    /// Ignition specs that were requested.
    pub specs: Vec<String>,
    /// Oldest version of Ignition among its machines.
    pub oldest_ignition: Option<String>,
    /// Oldest version that they should have, `VERSION:warn` or `VERSION:hold`.
    pub min_ignition: Option<String>,
    /// Number of its machines with an older one.
    pub with_old_ignition: usize,
    /// Number of its machines that came by the port without TLS.
    pub without_tls: usize,
    /// True if the pool is closed on the port without TLS.
    pub is_plain_port_closed: bool,
    /// True if its machines need approval.
    pub needs_approval: bool,
}

impl Pool {
    /// Warning about machines with an old Ignition; `None` if there are none.
    pub fn old_ignition(&self) -> Option<String> {
        let Self { name, oldest_ignition, min_ignition, with_old_ignition: count, .. } = self;
        let (oldest, min) = (oldest_ignition.as_ref()?, min_ignition.as_ref()?);
        let (min, action) = min.split_once(':').unwrap_or((min, ""));
        let held = if action == "hold" { " and is held" } else { "" };
        let machines = if *count == 1 { "machine" } else { "machines" };
        (*count > 0).then(|| {
            format!(
                "pool {name}: {count} {machines} came with Ignition older than {min}{held}, the oldest with {oldest}: \
                 update the boot image"
            )
        })
    }
}

/// A certificate with its time line.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Certificate {
    /// Common name of the subject.
    pub subject: String,
    /// Common name of the issuer.
    pub issuer: String,
    /// Algorithm and size of the key: `ECDSA P-256`, `RSA 2048`.
    pub key: String,
    /// Names and addresses.
    pub hosts: Vec<String>,
    /// First moment of its validity.
    #[serde(with = "time::serde::rfc3339")]
    pub not_before: OffsetDateTime,
    /// Last moment of its validity.
    #[serde(with = "time::serde::rfc3339")]
    pub not_after: OffsetDateTime,
    /// Time of its renewal.
    #[serde(with = "time::serde::rfc3339")]
    pub renewal: OffsetDateTime,
}

/// Sorts machines: stuck ones first, and the latest first among these.
pub fn sort(machines: &mut [MachineLine]) {
    machines.sort_by_key(|MachineLine { machine, status }| {
        (status.rank, std::cmp::Reverse(machine.last), machine.address)
    });
}

impl Overview {
    /// Number of machines with this rank.
    pub fn count(&self, rank: Severity) -> usize {
        self.machines.iter().filter(|line| line.status.rank == rank).count()
    }
}
