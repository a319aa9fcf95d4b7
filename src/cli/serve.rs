//! The command `serve`: a directory of manifests, with everything else created that a first boot needs.

use std::path::PathBuf;

use clap::Args as ClapArgs;
use model::access::AccessMode;
use pki::Host;

use super::access_flags::IssuerFlags;
use super::registry_auth::RegistryCredentialsFlags;
use crate::commands::serve::{self, ServeSettings};
use crate::commands::server::AccessSettings;
use crate::commands::serving_flags::ServingFlags;
use crate::flags::{AUDIT, CertificateFlags, TokenFlags};

#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// Directory of manifests, YAML or JSON, any file names
    dir: PathBuf,
    /// Where the certificates and pointer configs are made and kept
    #[arg(long, value_name = "DIR", default_value = "certs")]
    state_dir: PathBuf,
    /// Name or address that machines reach this server by, the first one goes into the pointer
    /// configs; this machine's own are added
    #[arg(long = "host", value_name = "HOST", value_delimiter = ',')]
    hosts: Vec<Host>,
    /// Who gets configs where a pool does not say so itself: off everybody, audit everybody, telling who
    /// would be refused, enforce who has a token
    #[arg(long, value_name = "off|audit|enforce", default_value = AUDIT, help_heading = "Access")]
    access: AccessMode,
    /// Refuse manifests with something that has no effect: an unknown field, or one that is newer than
    /// the config's spec
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    issuer: IssuerFlags,
    #[command(flatten)]
    tokens: TokenFlags,
    #[command(flatten)]
    certificates: CertificateFlags,
    #[command(flatten)]
    registry_auth: RegistryCredentialsFlags,
    #[command(flatten)]
    serving: ServingFlags,
}

pub(super) fn run(args: Args) -> anyhow::Result<()> {
    serve::run(ServeSettings {
        manifests: args.dir,
        state: args.state_dir,
        hosts: args.hosts,
        registry_credentials: args.registry_auth.secret(),
        certificates: args.certificates.policy(),
        options: args.serving.options()?,
        is_strict: args.strict,
        access: AccessSettings {
            mode: args.access,
            issuer: args.issuer.issuer()?,
            ..AccessSettings::default()
        },
        tokens: args.tokens.policy(),
    })
}
