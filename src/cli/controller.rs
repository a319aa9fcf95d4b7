//! `controller`: the certificates and the user data of a cluster, kept in order.

use std::path::PathBuf;

use anyhow::bail;
use clap::Args as ClapArgs;
use model::access::AccessMode;
use pki::Host;

use super::access_flags::{OFF, TokenFlags, mode};
use super::certs::CertificateFlags;
use super::flags::{LISTENING, MetricsAddress, MetricsNames, metrics_address};
use crate::commands;
use crate::commands::controller::{self, Settings};
use crate::controllers::certificates;
use crate::controllers::certificates::{ExternalPair, IssuerRef, ServingPair, TrustBundle};
use crate::controllers::tokens;

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
    /// Who gets configs where a pool does not say so itself, as its servers have it: unless off, user data
    /// carries tokens
    #[arg(long, value_name = "off|audit|enforce", default_value = OFF, value_parser = mode,
        help_heading = "Access")]
    access: AccessMode,
    #[command(flatten)]
    tokens: TokenFlags,
    #[command(flatten)]
    certificates: CertificateFlags,
    /// cert-manager's issuer of the CA, instead of itself: GROUP/KIND/NAME, or Issuer/NAME in the
    /// controller's own namespace, ClusterIssuer/NAME
    #[arg(long, value_name = "ISSUER", help_heading = "Certificates")]
    ca_from_issuer: Option<IssuerRef>,
    /// Who makes the serving pair: own, or external[:NAMESPACE/SECRET] for somebody else's secret, by default
    /// machine-config-server-external-tls. Nothing is issued then
    #[arg(
        long,
        value_name = "WHO",
        default_value = "own",
        help_heading = "Certificates",
        conflicts_with = "ca_from_issuer"
    )]
    serving_pair: ServingPair,
    /// The CAs that machines are to trust for an external pair; KEY is ca-bundle.crt by default
    #[arg(long, value_name = "NAMESPACE/CONFIGMAP[:KEY]", help_heading = "Certificates")]
    trust_bundle: Option<TrustBundle>,
    /// Address and port for metrics, /healthz and /readyz; `off` for none
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8798", value_parser = metrics_address,
        help_heading = LISTENING)]
    metrics_address: MetricsAddress,
    #[command(flatten)]
    metrics_names: MetricsNames,
}

impl Args {
    /// The pair that somebody else makes, if that is said.
    fn external(&self) -> anyhow::Result<Option<ExternalPair>> {
        match (&self.serving_pair, &self.trust_bundle) {
            (ServingPair::Own, None) => Ok(None),
            (ServingPair::External(secret), Some(trust)) => {
                Ok(Some(ExternalPair { secret: secret.clone(), trust: trust.clone() }))
            }
            (ServingPair::External(_), None) => {
                bail!("--serving-pair external needs --trust-bundle NAMESPACE/CONFIGMAP[:KEY]")
            }
            (ServingPair::Own, Some(_)) => {
                bail!("--trust-bundle goes with --serving-pair external")
            }
        }
    }
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    tracing::info!(version = commands::version(), "starting");
    controller::run(Settings {
        kubeconfig: args.kubeconfig.clone(),
        administrators: args.metrics_names.at(args.metrics_address),
        certificates: certificates::Settings {
            user_data_namespace: args.user_data_namespace.clone(),
            hosts: args.hosts.clone(),
            policy: args.certificates.policy(),
            issuer: args.ca_from_issuer.clone(),
            external: args.external()?,
        },
        access: tokens::Settings { mode: args.access, rotation: args.tokens.policy()? },
    })
}
