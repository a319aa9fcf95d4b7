//! Flags of `certs`.

use std::path::PathBuf;

use clap::Args;
use common::flags::CertificateFlags;

use crate::commands::probe::Address;
use crate::commands::stores::location::StateLocationFlags;

#[derive(Debug, Args)]
pub(crate) struct ShowSettings {
    #[command(flatten)]
    pub(super) place: StateLocationFlags,
    /// Print JSON, for scripts
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CheckSettings {
    #[command(flatten)]
    pub(super) place: StateLocationFlags,
    /// Take the pools from these manifests, and also report secrets that unauthenticated clients can read in
    /// their configs; not needed for a cluster
    #[arg(long, value_name = "DIR", conflicts_with_all = ["kubeconfig", "in_cluster", "connect"])]
    pub(super) manifests: Option<PathBuf>,
    /// Check this pointer config instead: trust, names, size and spec
    #[arg(long, value_name = "FILE")]
    pub(super) pointer: Option<PathBuf>,
    /// Print JSON, for scripts
    #[arg(long)]
    pub(super) json: bool,
    /// Exit with 1 if a field in configs or in the pointer config has no effect: an unknown one, or one that
    /// is newer than the config's spec
    #[arg(long)]
    pub(super) strict: bool,
    /// Check it against the server that listens there, instead of the kept certificates
    #[arg(long, value_name = "HOST:PORT", requires = "pointer",
        conflicts_with_all = ["state_dir", "kubeconfig", "in_cluster"])]
    pub(super) connect: Option<Address>,
}

#[derive(Debug, Args)]
pub(crate) struct RotateSettings {
    #[command(flatten)]
    pub(super) place: StateLocationFlags,
    /// Make a new signing CA first
    #[arg(long)]
    pub(super) ca: bool,
    /// Rotate even if machines are locked out
    #[arg(long)]
    pub(super) force: bool,
    #[command(flatten)]
    pub(super) certificates: CertificateFlags,
}

#[derive(Debug, Args)]
pub(crate) struct DistrustSettings {
    /// SHA-256 fingerprint or common name of a CA, or a file with its certificate
    #[arg(required = true, value_name = "CERTIFICATE")]
    pub(super) named: Vec<String>,
    #[command(flatten)]
    pub(super) place: StateLocationFlags,
    /// Distrust the CAs, instead of only printing the effects
    #[arg(long)]
    pub(super) yes: bool,
    #[command(flatten)]
    pub(super) certificates: CertificateFlags,
}
