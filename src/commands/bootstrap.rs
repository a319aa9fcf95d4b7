//! The command `bootstrap`: a server for the first control-plane machines, from the files of the installer.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use clap::Args;
use files::bounded;
use model::objects::Object;
use model::registry_ca::RegistryHost;

use super::server::flags::ServingFlags;
use super::server::{AccessSettings, ClusterFlags, PairFiles, ServerSettings, run as serve};
use crate::serving::tls::policy::{TlsPolicy, warn_ignored_suites};
use crate::source::directory::Layout;
use crate::source::{self, manifest};

#[derive(Debug, Args)]
pub(crate) struct BootstrapSettings {
    /// Directory with `machine-pools`, `machine-configs`, `controller-config` and `api-server`
    #[arg(long, value_name = "DIR", default_value = "/etc/mcs/bootstrap")]
    server_basedir: PathBuf,
    /// Kubeconfig for machines
    #[arg(long, value_name = "FILE", default_value = "/etc/kubernetes/kubeconfig")]
    bootstrap_kubeconfig: PathBuf,
    /// CAs of image registries, each in a file below the base directory
    #[arg(long, value_name = "HOST=FILE,...", value_delimiter = ',', value_parser = registry_ca)]
    bootstrap_certs: Vec<(RegistryHost, PathBuf)>,
    /// Refuse manifests with a field without effect: an unknown one, or one that is newer than the config's spec
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    pair: PairFiles,
    #[command(flatten)]
    serving: ServingFlags,
}

/// Serves until SIGTERM or SIGINT.
pub(crate) fn run(settings: BootstrapSettings) -> anyhow::Result<()> {
    let BootstrapSettings {
        server_basedir: base,
        bootstrap_kubeconfig: kubeconfig,
        bootstrap_certs: registry_cas,
        strict: is_strict,
        pair,
        serving,
    } = settings;
    serving.log_start();
    let flags = serving.tls_policy()?;
    bounded::read_start(&kubeconfig, 0)
        .with_context(|| format!("--bootstrap-kubeconfig {}", kubeconfig.display()))?;
    let profile = base.join("api-server").join("apiserver.yaml");
    serve(ServerSettings {
        source: source::Settings::Directory(Layout::Bootstrap {
            base,
            kubeconfig,
            registry_cas,
            is_strict,
        }),
        serving,
        policy: tls_policy(&profile, &flags).unwrap_or(flags),
        pair,
        access: AccessSettings::default(),
        ledger_directory: None,
        cluster: ClusterFlags::default(),
        pointers: None,
        local: None,
    })
}

fn registry_ca(text: &str) -> Result<(RegistryHost, PathBuf), String> {
    let parts = text.split_once('=').filter(|(_, file)| !file.is_empty() && !file.contains('='));
    let (host, file) = parts.ok_or("expected HOST=FILE")?;
    let host = RegistryHost::parse(host).map_err(|error| error.to_string())?;
    // A leading slash is taken as below the base directory too, as in the reference.
    Ok((host, PathBuf::from(file.trim_start_matches('/'))))
}

/// Policy of the API server's TLS profile, which overrides the flags as in the reference. An unusable profile must not
/// end an installation: it is logged, and the flags apply.
fn tls_policy(path: &Path, flags: &TlsPolicy) -> Option<TlsPolicy> {
    let bytes = match bounded::read(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
        read => read.map_err(anyhow::Error::from),
    };
    match bytes.and_then(|bytes| read_profile(&bytes)) {
        Ok((policy, skipped)) => {
            warn_ignored_suites(&skipped);
            Some(policy.with_groups_of(flags))
        }
        Err(error) => {
            tracing::warn!(
                path = %path.display(),
                error = format!("{error:#}"),
                fix = "correct the file, or remove it to use the TLS flags",
                "cannot read the TLS profile, using the TLS flags"
            );
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
        .ok_or_else(|| anyhow!("has no APIServer object"))?;
    Ok(match &api_server.spec.tls_security_profile {
        Some(profile) => TlsPolicy::from_profile(profile)?,
        None => TlsPolicy::new("VersionTLS12", &[])?,
    })
}
