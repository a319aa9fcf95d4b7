//! `bootstrap`: a server for the first control-plane machines, from the files that the installer lays
//! out.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};
use model::objects::{ApiServer, Object};
use model::registry_ca::RegistryHost;

use super::server::{AccessSettings, PairFiles, ServerSettings, ServingOptions, run as serve};
use crate::files::bounded;
use crate::serving::tls_policy::{TlsPolicy, warn_passed_over};
use crate::source::directory::Layout;
use crate::source::{self, manifest};

/// What is to be served.
pub struct BootstrapSettings {
    /// The folder with `machine-pools`, `machine-configs`, `controller-config` and `api-server`.
    pub base: PathBuf,
    /// The kubeconfig that machines get.
    pub kubeconfig: PathBuf,
    /// Each image registry with the file of its authorities, below `base`.
    pub registry_cas: Vec<(RegistryHost, PathBuf)>,
    /// With which certificate.
    pub pair: PairFiles,
    /// How it is served; a TLS profile goes before the TLS policy.
    pub options: ServingOptions,
    /// Whether manifests with something that has no effect are refused.
    pub is_strict: bool,
}

/// Serves until SIGTERM or SIGINT.
pub fn run(settings: BootstrapSettings) -> anyhow::Result<()> {
    let BootstrapSettings { base, kubeconfig, registry_cas, pair, mut options, is_strict } =
        settings;
    std::fs::File::open(&kubeconfig)
        .with_context(|| format!("--bootstrap-kubeconfig {}", kubeconfig.display()))?;
    let profile = base.join("api-server").join("apiserver.yaml");
    if let Some(policy) = tls_policy(&profile, &options.policy) {
        options.policy = policy;
    }
    serve(ServerSettings {
        source: source::Settings::Directory(Layout::Bootstrap {
            base,
            kubeconfig,
            registry_cas,
            is_strict,
        }),
        options,
        pair,
        pair_secret: None,
        access: AccessSettings::default(),
        ledger_directory: None,
        peers: None,
        pointers: None,
        local: None,
    })
}

/// The policy of the API server's TLS profile, which goes before the flags as it does for the
/// reference. A profile that cannot be used must not end an installation: it is logged, and the
/// flags hold.
fn tls_policy(path: &Path, flags: &TlsPolicy) -> Option<TlsPolicy> {
    let bytes = match bounded::read(path) {
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
            Some(policy.with_groups_of(flags))
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
