//! `serve`: a directory of manifests, with everything made that a first boot needs.

use std::path::PathBuf;

use clap::Args as ClapArgs;

use super::certs::CertificateFlags;
use super::flags::ServingFlags;
use crate::app::serve::{self, ServeSettings};
use crate::pki::Host;

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
    #[command(flatten)]
    certificates: CertificateFlags,
    #[command(flatten)]
    serving: ServingFlags,
}

pub(super) fn run(args: Args) -> anyhow::Result<()> {
    serve::run(ServeSettings {
        manifests: args.dir,
        state: args.state_dir,
        hosts: args.hosts,
        certificates: args.certificates.policy(),
        listen: args.serving.listen(),
        policy: args.serving.tls_policy()?,
        limits: args.serving.limits(),
        compact: args.serving.compact(),
    })
}
