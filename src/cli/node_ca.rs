//! `node-ca`: the registries' certificate authorities of a running node.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args as ClapArgs, ValueEnum};
use model::objects::SecretName;
use model::registry_credentials::{self, DEFAULT_SECRET};

use super::flags::{LISTENING, MetricsAddress, MetricsNames, duration, metrics_address};
use crate::commands::node_ca::{self, NodeCaSettings};
use crate::node_agent::Layout;

#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// Kubeconfig for access to the API server; the pod's service account by default
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The container runtime whose files are kept
    #[arg(long, value_enum, default_value_t = Runtime::Crio)]
    layout: Runtime,
    /// Folder to keep; /etc/docker/certs.d, or for containerd /etc/containerd/certs.d, by default
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// How often to read files too that do not seem to have changed: 10m, 1h 30m, a number of seconds
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = duration)]
    resync: Duration,
    /// Address and port for metrics, /healthz and /readyz; `off` for none
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "off", value_parser = metrics_address,
        help_heading = LISTENING)]
    metrics_address: MetricsAddress,
    #[command(flatten)]
    metrics_names: MetricsNames,
    /// Keep the node's registry logins in step with those of this secret;
    /// openshift-config/pull-secret where no name is given
    #[arg(long, value_name = "NAMESPACE/NAME", num_args = 0..=1, default_missing_value = DEFAULT_SECRET)]
    registry_auth: Option<SecretName>,
    /// File with the registry logins
    #[arg(long, value_name = "FILE", default_value = registry_credentials::PATH)]
    registry_auth_file: PathBuf,
}

/// The container runtimes, by the names that the flag takes.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Runtime {
    /// `HOST[:PORT]/ca.crt`: CRI-O, podman, docker
    Crio,
    /// `HOST[:PORT]/hosts.toml` beside `ca.crt`: containerd
    Containerd,
}

pub(super) fn run(args: Args) -> anyhow::Result<()> {
    node_ca::run(NodeCaSettings {
        kubeconfig: args.kubeconfig,
        layout: match args.layout {
            Runtime::Crio => Layout::Crio,
            Runtime::Containerd => Layout::Containerd,
        },
        directory: args.dir,
        resync: args.resync,
        administrators: args.metrics_names.at(args.metrics_address),
        registry_credentials: args.registry_auth.map(|secret| (secret, args.registry_auth_file)),
    })
}
