//! `controller`: the certificates and the user data of a cluster, kept in order.

use std::path::PathBuf;

use clap::Args as ClapArgs;

use super::certs::CertificateFlags;
use super::flags::{MetricsAddress, metrics_address};
use crate::app;
use crate::app::controller::{self, Settings};
use crate::controllers::certificates;
use crate::pki::Host;

#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// Kubeconfig for access to the API server; the pod's service account by default
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Namespace of the secrets with user data
    #[arg(long, value_name = "NAME", default_value = "openshift-machine-api")]
    user_data_namespace: String,
    /// Name or address of the server beside those that the cluster tells; without any of those, the
    /// first one goes into the pointer configs
    #[arg(long = "host", value_name = "HOST", value_delimiter = ',')]
    hosts: Vec<Host>,
    #[command(flatten)]
    certificates: CertificateFlags,
    /// Address and port for metrics, /healthz and /readyz; `off` for none
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8798", value_parser = metrics_address)]
    metrics_address: MetricsAddress,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    tracing::info!(version = app::version(), "starting");
    controller::run(Settings {
        kubeconfig: args.kubeconfig.clone(),
        metrics_address: args.metrics_address.0,
        certificates: certificates::Settings {
            user_data_namespace: args.user_data_namespace.clone(),
            hosts: args.hosts.clone(),
            policy: args.certificates.policy(),
        },
    })
}
