//! `bootstrap`: the reference server's command line, for the first control-plane machines.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use clap::Args as ClapArgs;

use super::flags::{PairFiles, ServingFlags, warn_passed_over};
use super::run::{self, ServerSettings, Source};
use crate::objects::{ApiServer, Object};
use crate::registry_ca::RegistryHost;
use crate::server::tls_policy::TlsPolicy;
use crate::source::directory::Layout;
use crate::source::manifest;

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
    #[command(flatten)]
    pair: PairFiles,
    #[command(flatten)]
    serving: ServingFlags,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    args.serving.log_start();
    std::fs::File::open(&args.bootstrap_kubeconfig).with_context(|| {
        format!("--bootstrap-kubeconfig {}", args.bootstrap_kubeconfig.display())
    })?;
    let from_flags = args.serving.tls_policy()?;
    let profile = args.server_basedir.join("api-server").join("apiserver.yaml");
    run::run(ServerSettings {
        flags: &args.serving,
        source: Source::Directory(Layout::Bootstrap {
            base: args.server_basedir.clone(),
            kubeconfig: args.bootstrap_kubeconfig.clone(),
            registry_cas: args.bootstrap_certs.clone(),
        }),
        policy: tls_policy(&profile).unwrap_or(from_flags),
        pair: args.pair.clone(),
        on_change: Box::new(|_, _| {}),
    })
}

/// The policy of the API server's TLS profile, which goes before the flags as it does for the
/// reference. A profile that cannot be used must not end an installation: it is logged, and the
/// flags hold.
fn tls_policy(path: &Path) -> Option<TlsPolicy> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "no TLS profile; the flags hold");
            return None;
        }
    };
    match read_profile(&bytes) {
        Ok((policy, passed_over)) => {
            warn_passed_over(&passed_over);
            Some(policy)
        }
        Err(error) => {
            tracing::warn!(path = %path.display(), error = format!("{error:#}"), "no TLS profile; the flags hold");
            None
        }
    }
}

fn read_profile(bytes: &[u8]) -> anyhow::Result<(TlsPolicy, Vec<String>)> {
    let api_server = manifest::parse(bytes)?
        .into_iter()
        .find_map(|object| match object {
            Object::ApiServer(api_server) => Some(api_server),
            _ => None,
        })
        .ok_or_else(|| anyhow!("holds no APIServer"))?;
    Ok(match ApiServer::tls_profile(&api_server) {
        Some(profile) => TlsPolicy::from_profile(profile)?,
        None => TlsPolicy::new("VersionTLS12", &[])?,
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
