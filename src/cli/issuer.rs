//! `issuer`: certificates for others, through cert-manager.

use std::path::PathBuf;

use clap::Args as ClapArgs;

use super::flags::{LISTENING, MetricsAddress, MetricsNames, metrics_address};
use crate::commands;
use crate::commands::issuer::{self, Settings};
use crate::controllers::NAMESPACE;

#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// Kubeconfig for access to the API server; the pod's service account by default
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Namespace of the secrets that a ClusterIssuer names
    #[arg(long, value_name = "NAME", default_value = NAMESPACE)]
    cluster_resource_namespace: String,
    /// Address and port for metrics, /healthz and /readyz; `off` for none
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8800", value_parser = metrics_address,
        help_heading = LISTENING)]
    metrics_address: MetricsAddress,
    #[command(flatten)]
    metrics_names: MetricsNames,
}

pub(super) fn run(args: Args) -> anyhow::Result<()> {
    tracing::info!(version = commands::version(), "starting");
    issuer::run(Settings {
        kubeconfig: args.kubeconfig,
        administrators: args.metrics_names.at(args.metrics_address),
        cluster_resource_namespace: args.cluster_resource_namespace,
    })
}
