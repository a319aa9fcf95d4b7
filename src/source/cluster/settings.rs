//! Settings for reading the inputs from a cluster.

use std::path::PathBuf;

use clap::Args;
use common::flags::url;
use model::objects::SecretName;

#[derive(Debug, Clone, Default, Args)]
pub struct Settings {
    /// URL of the API server in the kubeconfig for machines
    #[arg(long, value_name = "URL", value_parser = url)]
    pub apiserver_url: String,
    /// Kubeconfig for this server's access to the API server; the pod's service account by default
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Directory with the token that machines join the cluster with, in `token`, and the API server's CAs, in
    /// `ca.crt`
    #[arg(
        long = "bootstrap-token-dir",
        value_name = "DIR",
        default_value = "/etc/mcs/bootstrap-token"
    )]
    pub token_dir: PathBuf,
    /// Directory for a copy of the cluster's state, without the token, so that a server that starts while the
    /// API server is unavailable can serve
    #[arg(long, value_name = "DIR")]
    pub cache_dir: Option<PathBuf>,
    /// Serve machines with names, by their FirstBootMachines in the namespace openshift-machine-config-operator
    #[arg(long = "first-boot-machines", help_heading = "Access")]
    pub machines: bool,
    /// Secret with the registry credentials for machines of all enforced pools; `None` reads no Secret.
    #[arg(skip)]
    pub registry_credentials: Option<SecretName>,
}
