//! `render`: the config of a pool's machines, without a server.

use std::path::PathBuf;

use anyhow::{anyhow, bail};
use clap::Args as ClapArgs;
use ignition::SpecVersion;

use super::flags::spec;
use crate::commands::place::Place;
use crate::commands::probe::Address;
use crate::commands::render::{self, From, Rendered};
use crate::source::cluster;

#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// The pool
    pool: String,
    /// Directory of manifests, YAML or JSON, any file names
    #[arg(conflicts_with_all = ["kubeconfig", "in_cluster"])]
    dir: Option<PathBuf>,
    /// The Ignition spec: 2.2, 3.0 to 3.6; 3.6 by default, of a pointer config 3.1
    #[arg(long, value_name = "SPEC", value_parser = spec)]
    spec: Option<SpecVersion>,
    /// Refuse manifests with something that has no effect: an unknown field, or one that is newer than
    /// the config's spec
    #[arg(long, conflicts_with = "pointer")]
    strict: bool,
    /// Print the MachineConfig that the config is made of, as JSON: where the pool names none, the one that the
    /// MachineConfigs that it selects come to
    #[arg(long, conflicts_with_all = ["pointer", "spec", "strict"])]
    machine_config: bool,
    /// Print which MachineConfig each file, unit and argument in it comes from, and which others it covers
    #[arg(long, requires = "machine_config", conflicts_with_all = ["kubeconfig", "in_cluster"])]
    explain: bool,
    /// Print the pointer config, by which a machine fetches its config, instead of that itself
    #[arg(long, conflicts_with = "dir")]
    pointer: bool,
    /// Where a pointer config sends machines; by default where the one that is kept does
    #[arg(long, value_name = "HOST:PORT", requires = "pointer")]
    server: Option<Address>,
    /// Where `serve` keeps the CAs that a pointer config trusts
    #[arg(long, value_name = "DIR", default_value = "certs", requires = "pointer")]
    state_dir: PathBuf,
    /// A cluster, reached by this kubeconfig
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// A cluster, reached by the pod's service account
    #[arg(long, conflicts_with = "kubeconfig")]
    in_cluster: bool,
    /// Namespace of the cluster's secrets with user data
    #[arg(long, value_name = "NAME", default_value = "openshift-machine-api")]
    user_data_namespace: String,
    /// The API server's URL in the kubeconfig that machines of a cluster get
    #[arg(long, value_name = "URL", value_parser = super::start::url)]
    apiserver_url: Option<String>,
    /// Directory with the token that machines of a cluster join with, in `token`, and the API
    /// server's certificate authorities, in `ca.crt`
    #[arg(long, value_name = "DIR", default_value = "/etc/mcs/bootstrap-token")]
    bootstrap_token_dir: PathBuf,
}

pub(super) fn run(args: Args) -> anyhow::Result<()> {
    let is_cluster = args.in_cluster || args.kubeconfig.is_some();
    let what = if args.pointer {
        let authorities = if is_cluster {
            Place::Cluster {
                kubeconfig: args.kubeconfig,
                user_data_namespace: args.user_data_namespace,
            }
        } else {
            Place::Directory(args.state_dir)
        };
        Rendered::Pointer { authorities, server: args.server, spec: args.spec }
    } else {
        let from = match args.dir {
            Some(directory) => From::Manifests(directory),
            None if is_cluster => From::Cluster(cluster::Settings {
                kubeconfig: args.kubeconfig,
                apiserver_url: args.apiserver_url.ok_or_else(|| {
                    anyhow!("missing --apiserver-url: machines join the cluster by it; see --help")
                })?,
                token_dir: args.bootstrap_token_dir,
                cache_dir: None,
                registry_credentials: None,
            }),
            None => bail!("missing DIR, --kubeconfig or --in-cluster; see --help"),
        };
        if args.machine_config {
            let what = Rendered::MachineConfig { from, is_explained: args.explain };
            return render::run(&args.pool, what);
        }
        Rendered::Config {
            from,
            spec: args.spec.unwrap_or(SpecVersion::NEWEST),
            is_strict: args.strict,
        }
    };
    render::run(&args.pool, what)
}
