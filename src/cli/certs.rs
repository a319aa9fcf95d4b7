//! `certs`: what the certificates of a state directory or a cluster are, whether they are in order,
//! and new ones.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Subcommand};
use pki::{KeyAlgorithm, Policy};
use time::OffsetDateTime;

use super::examples;
use crate::commands::certs;
use crate::commands::certs::pointer::{Against, check_pointer};
use crate::commands::place::Place;
use crate::commands::probe::Address;
use crate::commands::state_store::StateStore;

#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print what there is.
    #[command(after_help = examples::CERTS_SHOW)]
    Show {
        #[command(flatten)]
        place: PlaceFlags,
        /// Print JSON, for scripts
        #[arg(long)]
        json: bool,
    },
    /// Tell whether something needs to be done; exit with 1 if so. With --pointer, tell whether a
    /// machine would boot from this file.
    #[command(after_help = examples::CERTS_CHECK)]
    Check(CheckFlags),
    /// Make a new serving pair, or with --ca a new certificate authority first. Machines that hold
    /// older pointer configs go on booting.
    #[command(after_help = examples::CERTS_ROTATE)]
    Rotate {
        #[command(flatten)]
        place: PlaceFlags,
        /// Make a new certificate authority too
        #[arg(long)]
        ca: bool,
        /// Do it even if machines that could boot could not after it
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        certificates: CertificateFlags,
    },
    /// Trust CAs never again: whose key has leaked, for one. They leave the bundle, the pointer
    /// configs, what is served, and their keys are deleted. Says first which machines could not boot
    /// any more, and does nothing without --yes.
    #[command(after_help = examples::CERTS_DISTRUST)]
    Distrust {
        /// SHA-256 fingerprint or common name of a CA, or a file with its certificate
        #[arg(required = true, value_name = "CERTIFICATE")]
        named: Vec<String>,
        #[command(flatten)]
        place: PlaceFlags,
        /// Do it
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        certificates: CertificateFlags,
    },
}

#[derive(Debug, ClapArgs)]
struct CheckFlags {
    #[command(flatten)]
    place: PlaceFlags,
    /// Take the pools of these manifests for those that there are, and also tell what strangers can read
    /// in their configs; in a cluster both are known anyway
    #[arg(long, value_name = "DIR", conflicts_with_all = ["kubeconfig", "in_cluster", "connect"])]
    manifests: Option<PathBuf>,
    /// Judge this pointer config instead: trust, names, size and spec
    #[arg(long, value_name = "FILE")]
    pointer: Option<PathBuf>,
    /// Print JSON, for scripts
    #[arg(long)]
    json: bool,
    /// End with 1 where something in configs or in the pointer config has no effect: an unknown field, or
    /// one that is newer than the config's spec
    #[arg(long)]
    strict: bool,
    /// Judge it by the server that listens there, not by what is kept to be served
    #[arg(long, value_name = "HOST:PORT", requires = "pointer",
        conflicts_with_all = ["state_dir", "kubeconfig", "in_cluster"])]
    connect: Option<Address>,
}

impl CheckFlags {
    fn run(&self, now: OffsetDateTime) -> anyhow::Result<()> {
        let output = [self.json, self.strict];
        let Some(file) = &self.pointer else {
            let manifests = self.manifests.as_deref();
            let store = self.place.open()?;
            return certs::check(&*store, manifests, output, &Policy::default(), now);
        };
        let against = match &self.connect {
            Some(address) => Against::Server(address.clone()),
            None => Against::Place(self.place.place(), self.manifests.clone()),
        };
        check_pointer(file, &against, output, now)
    }
}

#[derive(Debug, ClapArgs)]
pub(super) struct PlaceFlags {
    /// Where `serve` keeps its certificates and pointer configs
    #[arg(long, value_name = "DIR", default_value = "certs")]
    state_dir: PathBuf,
    /// The cluster's certificates instead, reached by this kubeconfig
    #[arg(long, value_name = "FILE", conflicts_with = "state_dir")]
    kubeconfig: Option<PathBuf>,
    /// The cluster's certificates instead, reached by the pod's service account
    #[arg(long, conflicts_with_all = ["state_dir", "kubeconfig"])]
    in_cluster: bool,
    /// Namespace of the cluster's secrets with user data
    #[arg(long, value_name = "NAME", default_value = "openshift-machine-api")]
    user_data_namespace: String,
}

impl PlaceFlags {
    pub(super) fn open(&self) -> anyhow::Result<Box<dyn StateStore>> {
        self.place().open()
    }

    fn place(&self) -> Place {
        let Self { state_dir, kubeconfig, in_cluster, user_data_namespace } = self;
        match (kubeconfig, in_cluster) {
            (None, false) => Place::Directory(state_dir.clone()),
            (kubeconfig, _) => Place::Cluster {
                kubeconfig: kubeconfig.clone(),
                user_data_namespace: user_data_namespace.clone(),
            },
        }
    }
}

/// How new certificates are made.
#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Certificates")]
pub(super) struct CertificateFlags {
    /// Kind of new keys: p256, p384, p521, rsa2048, rsa3072, rsa4096
    #[arg(long, value_name = "KIND", default_value = "p256", value_parser = key_algorithm)]
    key_algorithm: KeyAlgorithm,
}

impl CertificateFlags {
    pub(super) fn policy(&self) -> Policy {
        Policy { algorithm: self.key_algorithm, ..Policy::default() }
    }
}

pub(super) fn key_algorithm(text: &str) -> Result<KeyAlgorithm, String> {
    let found = KeyAlgorithm::ALL.iter().find(|(name, _)| *name == text);
    found.map(|(_, algorithm)| *algorithm).ok_or_else(|| {
        let names = KeyAlgorithm::ALL.map(|(name, _)| name);
        format!("expected one of {}", names.join(", "))
    })
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let now = OffsetDateTime::now_utc();
    match &args.command {
        Command::Show { place, json } => certs::show(&*place.open()?, *json, now),
        Command::Check(flags) => flags.run(now),
        Command::Rotate { place, ca, force, certificates } => {
            place.open()?.rotate(*ca, *force, &certificates.policy(), now)
        }
        Command::Distrust { named, place, yes, certificates } => {
            place.open()?.distrust(named, *yes, &certificates.policy(), now)
        }
    }
}
