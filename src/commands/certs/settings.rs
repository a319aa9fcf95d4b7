//! Flags of `certs`.

use std::path::PathBuf;

use clap::Args;
use time::OffsetDateTime;

use super::pointer::check_pointer;
use super::{check, show};
use crate::commands::probe::Address;
use crate::commands::state_location::StateLocationFlags;
use crate::flags::CertificateFlags;

/// Settings of `certs show`.
#[derive(Debug, Args)]
pub(crate) struct ShowSettings {
    #[command(flatten)]
    place: StateLocationFlags,
    /// Print JSON, for scripts
    #[arg(long)]
    json: bool,
}

/// Settings of `certs check`.
#[derive(Debug, Args)]
pub(crate) struct CheckSettings {
    #[command(flatten)]
    place: StateLocationFlags,
    /// Take the pools from these manifests, and also report secrets that unauthenticated clients can read in
    /// their configs; not needed for a cluster
    #[arg(long, value_name = "DIR", conflicts_with_all = ["kubeconfig", "in_cluster", "connect"])]
    manifests: Option<PathBuf>,
    /// Check this pointer config instead: trust, names, size and spec
    #[arg(long, value_name = "FILE")]
    pointer: Option<PathBuf>,
    /// Print JSON, for scripts
    #[arg(long)]
    json: bool,
    /// Exit with 1 if a field in configs or in the pointer config has no effect: an unknown one, or one that
    /// is newer than the config's spec
    #[arg(long)]
    strict: bool,
    /// Check it against the server that listens there, instead of the kept certificates
    #[arg(long, value_name = "HOST:PORT", requires = "pointer",
        conflicts_with_all = ["state_dir", "kubeconfig", "in_cluster"])]
    connect: Option<Address>,
}

/// Settings of `certs rotate`.
#[derive(Debug, Args)]
pub(crate) struct RotateSettings {
    #[command(flatten)]
    place: StateLocationFlags,
    /// Make a new signing CA first
    #[arg(long)]
    ca: bool,
    /// Rotate even if machines are locked out
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    certificates: CertificateFlags,
}

#[derive(Debug, Args)]
pub(crate) struct DistrustSettings {
    /// SHA-256 fingerprint or common name of a CA, or a file with its certificate
    #[arg(required = true, value_name = "CERTIFICATE")]
    named: Vec<String>,
    #[command(flatten)]
    place: StateLocationFlags,
    /// Distrust the CAs, instead of only printing the effects
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    certificates: CertificateFlags,
}

impl ShowSettings {
    /// Prints the certificates.
    pub(crate) fn run(&self, now: OffsetDateTime) -> anyhow::Result<()> {
        show(&*self.place.open()?, self.json, now)
    }
}

impl CheckSettings {
    /// Checks the certificates, or a pointer config.
    pub(crate) fn run(&self, now: OffsetDateTime) -> anyhow::Result<()> {
        let output = [self.json, self.strict];
        let Some(file) = &self.pointer else {
            let manifests = self.manifests.as_deref();
            return check(&*self.place.open()?, manifests, output, now);
        };
        let state = (&self.place.location(), self.manifests.as_deref());
        check_pointer(file, self.connect.as_ref(), state, output, now)
    }
}

impl RotateSettings {
    /// Makes a new serving pair, or requests it from the controller.
    pub(crate) fn run(&self, now: OffsetDateTime) -> anyhow::Result<()> {
        self.place.open()?.rotate(self.ca, self.force, &self.certificates.policy(), now)
    }
}

impl DistrustSettings {
    /// Distrusts CAs for good.
    pub(crate) fn run(&self, now: OffsetDateTime) -> anyhow::Result<()> {
        self.place.open()?.distrust(&self.named, self.yes, &self.certificates.policy(), now)
    }
}
