//! The command `serve`: a directory of manifests, with everything else created that a first boot needs.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args as ClapArgs;
use model::access::AccessMode;
use model::access::machine::Window;
use pki::Host;

use super::access_flags::IssuerFlags;
use super::registry_auth::RegistryCredentialsFlags;
use crate::commands::serve::{self, ServeSettings};
use crate::commands::server::AccessSettings;
use crate::commands::serving_flags::ServingFlags;
use crate::flags::{AUDIT, CertificateFlags, TokenFlags, duration};

#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    /// Directory of manifests, YAML or JSON, any file names
    dir: PathBuf,
    /// Directory for the certificates and pointer configs, which the server makes
    #[arg(long, value_name = "DIR", default_value = "certs")]
    state_dir: PathBuf,
    /// Name or address with which machines reach this server; pointer configs get the first one; this
    /// machine's names and addresses are added
    #[arg(long = "host", value_name = "HOST", value_delimiter = ',')]
    hosts: Vec<Host>,
    /// Access mode of pools without an annotation: off serves all clients; audit serves all and reports
    /// requests that would be refused; enforce serves clients with a token
    #[arg(long, value_name = "off|audit|enforce", default_value = AUDIT, help_heading = "Access")]
    access: AccessMode,
    /// Refuse manifests with a field without effect: an unknown one, or one that is newer than the config's spec
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    issuer: IssuerFlags,
    #[command(flatten)]
    tokens: TokenFlags,
    /// Time that a machine's token stays valid after its config was first sent completely
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = duration, help_heading = "Access")]
    machine_token_window: Duration,
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
        window: Window(args.machine_token_window),
    })
}
