//! `bootstrap`: the reference server's command line, for the first control-plane machines.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use model::registry_ca::RegistryHost;

use super::flags::{PairFlags, ServingFlags};
use crate::commands::bootstrap::{self, BootstrapSettings};

#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// Directory with machine-pools, machine-configs, controller-config and api-server
    #[arg(long, value_name = "DIR", default_value = "/etc/mcs/bootstrap")]
    server_basedir: PathBuf,
    /// Kubeconfig that machines get
    #[arg(long, value_name = "FILE", default_value = "/etc/kubernetes/kubeconfig")]
    bootstrap_kubeconfig: PathBuf,
    /// Certificate authorities of image registries, each in a file below the base directory
    #[arg(long, value_name = "HOST=FILE,...", value_delimiter = ',', value_parser = registry_ca)]
    bootstrap_certs: Vec<(RegistryHost, PathBuf)>,
    /// Refuse manifests with something that has no effect: an unknown field, or one that is newer than
    /// the config's spec
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    pair: PairFlags,
    #[command(flatten)]
    serving: ServingFlags,
}

pub(super) fn run(args: Args) -> anyhow::Result<()> {
    args.serving.log_start();
    bootstrap::run(BootstrapSettings {
        base: args.server_basedir,
        kubeconfig: args.bootstrap_kubeconfig,
        registry_cas: args.bootstrap_certs,
        pair: args.pair.files(),
        options: args.serving.options()?,
        is_strict: args.strict,
    })
}

fn registry_ca(text: &str) -> Result<(RegistryHost, PathBuf), String> {
    let (host, file) = text.split_once('=').ok_or("expected HOST=FILE")?;
    if file.is_empty() || file.contains('=') {
        return Err("expected HOST=FILE".to_owned());
    }
    let host = RegistryHost::parse(host).map_err(|error| error.to_string())?;
    // A leading slash is taken as below the base directory too, as the reference joins paths.
    Ok((host, PathBuf::from(file.trim_start_matches('/'))))
}
