//! All that an administrator wants to see at a glance: pools, machines, certificates, registries, and
//! what has changed. One value, shown on the page and as JSON.

mod history;
mod machine_row;
mod trust_map;

use std::sync::Arc;

use serde::{Deserialize, Serialize, Serializer};
use time::OffsetDateTime;
use utoipa::ToSchema;

use crate::ledger::{BootStatus, Machine, Severity};

pub use self::history::{Change, History};
pub use self::machine_row::{MACHINE_COLUMNS, machine_row};
pub use self::trust_map::{PointerGroup, PointerStatus, TrustMap, TrustedCertificate};

/// What there is to see at one moment.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Overview {
    /// When it was put together.
    #[serde(with = "time::serde::rfc3339")]
    pub at: OffsetDateTime,
    /// The server that tells.
    pub server: Server,
    /// What keeps it from being ready, one line each; nothing if all is well.
    pub not_ready: Vec<String>,
    /// What an administrator should know all the same.
    pub degraded: Vec<String>,
    /// The pools by name.
    pub pools: Vec<Pool>,
    /// The machines that asked, those that are stuck first, and of these the latest first.
    #[serde(serialize_with = "lines")]
    #[schema(value_type = Vec<MachineLine>)]
    pub machines: Arc<Vec<MachineLine>>,
    /// Other servers whose machines are missing above, with the reason.
    pub silent_servers: Vec<String>,
    /// What is served over TLS, leaf first.
    pub certificates: Vec<Certificate>,
    /// Who trusts it, and who does not, as far as this server knows their pointer configs.
    pub pointers: Vec<PointerStatus>,
    /// Who vouches for whom.
    #[serde(skip)]
    pub trust: TrustMap,
    /// The image registries whose certificate authorities machines get.
    pub registries: Vec<String>,
    /// Registries of operating system images for which no CA is given: machines verify them by the CAs of their
    /// operating system.
    pub registries_without_ca: Vec<RegistryInUse>,
    /// What has changed, the latest first.
    pub changes: Vec<Change>,
    /// How many came before these. The log has them.
    pub older_changes: u64,
}

fn lines<S: Serializer>(lines: &[MachineLine], serializer: S) -> Result<S::Ok, S::Error> {
    lines.serialize(serializer)
}

/// A registry that machines pull their operating system from.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct RegistryInUse {
    /// `host[:port]`
    pub host: String,
    /// The pools whose machines do.
    pub pools: Vec<String>,
}

/// What there is to see of a cluster's controller.
#[derive(Debug, Clone, Serialize)]
pub struct ControllerOverview {
    /// When it was put together.
    #[serde(with = "time::serde::rfc3339")]
    pub at: OffsetDateTime,
    /// The process that tells.
    pub server: Server,
    /// What is not in order, one line each.
    pub not_ready: Vec<String>,
    /// What an administrator should know all the same.
    pub degraded: Vec<String>,
    /// What is served over TLS, leaf first.
    pub certificates: Vec<Certificate>,
    /// Who trusts it, and who does not: the cluster's user data.
    pub pointers: Vec<PointerStatus>,
    /// Who vouches for whom.
    #[serde(skip)]
    pub trust: TrustMap,
}

/// The server that tells.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Server {
    /// As the command `version` prints it.
    pub version: String,
    /// Since when it runs.
    #[serde(with = "time::serde::rfc3339")]
    pub since: OffsetDateTime,
}

/// A pool and what its machines are served.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Pool {
    /// `metadata.name`.
    pub name: String,
    /// The machine config that it serves, if it has one.
    pub configuration: Option<String>,
    /// Why its machines get nothing, or something older; `null` if all is well.
    pub problem: Option<String>,
    /// Who gets it: `off` everybody, `audit` everybody, telling who would be refused, `enforce` who proves
    /// that he may have it.
    pub access: String,
    /// The Ignition specs that it was asked for.
    pub specs: Vec<String>,
}

/// A machine, and how it stands with it.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct MachineLine {
    /// What is known of it.
    #[serde(flatten)]
    pub machine: Machine,
    /// What that comes to.
    #[serde(flatten)]
    pub standing: BootStatus,
}

/// A certificate with its time line.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Certificate {
    /// Whose it is.
    pub subject: String,
    /// Who issued it.
    pub issuer: String,
    /// As people call it: `ECDSA P-256`, `RSA 2048`.
    pub key: String,
    /// The names and addresses that it is for.
    pub hosts: Vec<String>,
    /// From when it is valid,
    #[serde(with = "time::serde::rfc3339")]
    pub not_before: OffsetDateTime,
    /// and until when.
    #[serde(with = "time::serde::rfc3339")]
    pub not_after: OffsetDateTime,
    /// When it is to be renewed.
    #[serde(with = "time::serde::rfc3339")]
    pub renewal: OffsetDateTime,
}

/// Puts machines in order: those that are stuck first, and of these the latest first.
pub fn sort(machines: &mut [MachineLine]) {
    machines.sort_by_key(|MachineLine { machine, standing }| {
        (standing.rank, std::cmp::Reverse(machine.last), machine.address)
    });
}

impl Overview {
    /// How many machines have this rank.
    #[must_use]
    pub fn count(&self, rank: Severity) -> usize {
        self.machines.iter().filter(|line| line.standing.rank == rank).count()
    }
}
