//! The command `controller`: the controllers of a cluster, of which one process is active.

pub(crate) mod page;

use std::path::PathBuf;

use anyhow::ensure;
use clap::Args;
use controllers::certificates::{self, CertificateController, Observer, TrustSnapshot};
use controllers::machines::{self, MachineController};
use controllers::registry_ca::RegistryCaController;
use controllers::tokens::{self, TokenController};
use controllers::{NAMESPACE, run_controller};
use kubernetes::{ControlError, Health};
use model::ledger::Outcome;
use pool_controller::{Ledgers, PoolController};

use super::process::leader_elected::LeaderElected;
use super::server::administrators::AdministratorsAddress;
use crate::serving::ledger::peers;

/// Name of the leader's Lease.
const LEASE: &str = "machine-config-server-controller";

#[derive(Debug, Clone, Args)]
#[command(mut_arg("metrics_address", |arg| arg.default_value("127.0.0.1:8798")))]
pub(crate) struct Settings {
    /// Kubeconfig for access to the API server; the pod's service account by default
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    #[command(flatten)]
    certificates: certificates::Settings,
    #[command(flatten)]
    access: tokens::Settings,
    #[command(flatten)]
    machines: machines::Settings,
    #[command(flatten)]
    pools: pool_controller::Settings,
    #[command(flatten)]
    administrators: AdministratorsAddress,
}

/// Runs the controllers until a signal.
pub(crate) fn run(settings: Settings) -> anyhow::Result<()> {
    tracing::info!(version = super::version(), "starting");
    let Settings { kubeconfig, administrators, certificates, access, machines, pools } = settings;
    ensure!(
        !machines.first_boot_machines || certificates.user_data_namespace != NAMESPACE,
        "--first-boot-machines: --user-data-namespace must be another one than {NAMESPACE}, which has the Secrets of machines"
    );
    let external = certificates.external()?;
    let (health, shown) = (Health::default(), TrustSnapshot::default());
    let pages = page::router(shown.clone(), health.status.clone());
    let leader_elected =
        LeaderElected { kubeconfig, administrators, lease: LEASE, pages, health: health.clone() };
    leader_elected.run(async |client, identity| {
        let (has_machines, observer) =
            (machines.first_boot_machines, || certificates.observer(&client));
        let pools = pools.render_pools.then(|| {
            let ledgers = pools.ledgers.map(ledgers);
            PoolController::new(client.clone(), ledgers, &identity, health.clone())
        });
        let machines =
            has_machines.then(|| MachineController::new(observer(), &identity, health.clone()));
        let tokens = TokenController::new(observer(), access, &identity, health.clone());
        let registry_cas = RegistryCaController::new(client.clone(), &identity, health.clone());
        let observer = Observer { external, has_machines, ..observer() };
        let certificates =
            CertificateController::new(observer, certificates, &identity, health.clone(), shown);
        tokio::select! {
            error = run_controller(tokens, &client, &health) => error.into(),
            error = run_controller(certificates, &client, &health) => error.into(),
            error = run_controller(registry_cas, &client, &health) => error.into(),
            error = if_on(pools.map(|pools| run_controller(pools, &client, &health))) => error,
            error = if_on(machines.map(|it| run_controller(it, &client, &health))) => error,
        }
    })
}

/// Runs a controller that is on; one that is off never ends.
async fn if_on(controller: Option<impl Future<Output = ControlError>>) -> anyhow::Error {
    match controller {
        Some(controller) => controller.await.into(),
        None => std::future::pending().await,
    }
}

/// Asks the boot ledgers of all servers behind a name.
fn ledgers(servers: String) -> Ledgers {
    Box::new(move || {
        let servers = servers.clone();
        Box::pin(async move {
            let answers = peers::ask(&servers).await;
            if !answers.silent.is_empty() {
                return Err(answers.silent.join("; "));
            }
            let machines = answers.parts.into_iter().flat_map(|part| part.machines);
            let requests = machines.filter_map(|machine| machine.requests);
            let served = requests.filter_map(|requests| match requests.outcome {
                Outcome::Served { config, .. } => Some(config),
                Outcome::Refused { .. } => None,
            });
            Ok(served.collect())
        })
    })
}
