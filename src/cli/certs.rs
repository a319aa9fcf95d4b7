//! `certs`: what the certificates of a state directory or a cluster are, whether they are in order,
//! and new ones.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use clap::{Args as ClapArgs, Subcommand};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::print_line;
use crate::controllers::{AUTHORITY, Controller, NAMESPACE, ROTATE, SERVING, Settings};
use crate::kube_client;
use crate::pki::plan::renewal;
use crate::pki::{
    Certificate, CertificateState, Host, KeyAlgorithm, Policy, RotationPlan, Step, plan,
};
use crate::store::state_folder::{Asked, StateFolder};
use crate::user_data;

#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print what there is.
    Show(Place),
    /// Tell whether something needs to be done; exit with 1 if so.
    Check(Place),
    /// Make a new serving pair, or with --ca a new certificate authority first. Machines that hold
    /// older pointer configs go on booting.
    Rotate {
        #[command(flatten)]
        place: Place,
        /// Make a new certificate authority too
        #[arg(long)]
        ca: bool,
        #[command(flatten)]
        certificates: CertificateFlags,
    },
}

#[derive(Debug, ClapArgs)]
struct Place {
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

impl Place {
    fn is_cluster(&self) -> bool {
        self.in_cluster || self.kubeconfig.is_some()
    }

    /// What is there.
    fn see(&self) -> anyhow::Result<Seen> {
        if self.is_cluster() {
            return self.with_cluster(async |controller, _| {
                let state = controller.observe().await?;
                let observed = state.observed(&BTreeSet::new());
                let pointers = state.user_data.iter().filter_map(|(name, secret)| {
                    let data = secret.data.as_ref()?.get("userData")?;
                    Some((format!("Secret {}/{name}", self.user_data_namespace), data.0.clone()))
                });
                Ok(Seen { place: "the cluster".to_owned(), pointers: pointers.collect(), observed })
            });
        }
        let state = open(self)?;
        let hosts = present_hosts(&state)?;
        let pointers = state.pointers()?.into_iter();
        Ok(Seen {
            place: self.state_dir.display().to_string(),
            observed: state.observe(&hosts, Asked::default())?,
            pointers: pointers.map(|file| (file.path.display().to_string(), file.text)).collect(),
        })
    }

    fn with_cluster<T>(
        &self,
        work: impl AsyncFnOnce(Controller, Client) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let client = kube_client::connect(self.kubeconfig.clone()).await?;
            let settings = Settings {
                user_data_namespace: self.user_data_namespace.clone(),
                hosts: Vec::new(),
                policy: Policy::default(),
                identity: "certs".to_owned(),
            };
            work(Controller::new(client.clone(), settings, Arc::default()), client).await
        })
    }
}

/// What a place holds.
struct Seen {
    place: String,
    observed: CertificateState,
    pointers: Vec<(String, Vec<u8>)>,
}

/// How new certificates are made.
#[derive(Debug, ClapArgs)]
#[command(next_help_heading = "Certificates")]
pub(super) struct CertificateFlags {
    /// Kind of new keys: p256, p384, rsa2048, rsa3072, rsa4096
    #[arg(long, value_name = "KIND", default_value = "p256", value_parser = key_algorithm)]
    key_algorithm: KeyAlgorithm,
}

impl CertificateFlags {
    pub(super) fn policy(&self) -> Policy {
        Policy { algorithm: self.key_algorithm, ..Policy::default() }
    }
}

fn key_algorithm(text: &str) -> Result<KeyAlgorithm, String> {
    let found = KeyAlgorithm::ALL.iter().find(|(name, _)| *name == text);
    found.map(|(_, algorithm)| *algorithm).ok_or_else(|| {
        let names = KeyAlgorithm::ALL.map(|(name, _)| name);
        format!("expected one of {}", names.join(", "))
    })
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let now = OffsetDateTime::now_utc();
    match &args.command {
        Command::Show(place) => show(place, now),
        Command::Check(place) => check(place, now),
        Command::Rotate { place, ca, certificates } => {
            rotate(place, *ca, &certificates.policy(), now)
        }
    }
}

/// Says in the log what was done.
pub(super) fn log_step(step: &Step) {
    match step {
        Step::Authority(reason) => tracing::info!(%reason, "made a certificate authority"),
        Step::Bundle(_) => tracing::info!("wrote the bundle of certificate authorities"),
        Step::Pointers => tracing::info!("wrote the pointer configs"),
        Step::Serving(reason, _) => tracing::info!(%reason, "issued a serving pair"),
    }
}

/// The folder, which has to be there: a slip in its name must not make a new one.
fn open(place: &Place) -> anyhow::Result<StateFolder> {
    if !place.state_dir.is_dir() {
        bail!("--state-dir {}: there is no such directory", place.state_dir.display());
    }
    Ok(StateFolder::open(&place.state_dir)?)
}

/// The names of the serving certificate that is there, for one that replaces it.
fn present_hosts(state: &StateFolder) -> anyhow::Result<Vec<Host>> {
    let serving = state.observe(&[], Asked::default())?.serving.unwrap_or_default();
    let leaf = Certificate::read_all(&serving.certificates).into_iter().next();
    let Some(leaf) = leaf else { return Ok(Vec::new()) };
    let mut hosts: Vec<Host> = leaf.hosts.into_iter().collect();
    // The main one is the common name.
    hosts.sort_by_key(|host| host.to_string() != leaf.common_name);
    Ok(hosts)
}

fn rotate(place: &Place, ca: bool, policy: &Policy, now: OffsetDateTime) -> anyhow::Result<()> {
    if place.is_cluster() {
        return place.with_cluster(async |_, client| {
            if ca {
                ask(&client, AUTHORITY, now).await?;
            }
            ask(&client, SERVING, now).await
        });
    }
    let state = open(place)?;
    let hosts = present_hosts(&state)?;
    if hosts.is_empty() {
        bail!(
            "{}: there is no serving certificate yet: run `serve` first",
            place.state_dir.display()
        );
    }
    let asked = Asked { authority: ca, serving: true };
    let done = state.reconcile(&hosts, asked, policy, now, &mut || policy.algorithm.generate())?;
    for step in &done.steps {
        print_line(&match step {
            Step::Authority(reason) => format!("made a certificate authority: {reason}"),
            Step::Bundle(_) => format!("wrote {}", state.bundle_path().display()),
            Step::Pointers => "wrote the pointer configs".to_owned(),
            Step::Serving(reason, _) => format!("issued a serving pair: {reason}"),
        });
    }
    Ok(())
}

fn check(place: &Place, now: OffsetDateTime) -> anyhow::Result<()> {
    let Seen { place, observed, .. } = place.see()?;
    let RotationPlan { step, requeue_at } = plan(&observed, &Policy::default(), now);
    let attention = match step {
        None if observed.serving.is_none() => "there is no serving pair".to_owned(),
        None => {
            print_line(&format!("in order, until {}", date(requeue_at)));
            return Ok(());
        }
        Some(Step::Authority(reason)) => format!("the certificate authority: {reason}"),
        Some(Step::Bundle(_)) => {
            "the bundle does not hold the authorities that it should".to_owned()
        }
        Some(Step::Pointers) => {
            "pointer configs trust other authorities than the bundle".to_owned()
        }
        Some(Step::Serving(reason, _)) => format!("the serving pair: {reason}"),
    };
    bail!("{place}: {attention}");
}

fn show(place: &Place, now: OffsetDateTime) -> anyhow::Result<()> {
    let Seen { observed, pointers, .. } = place.see()?;
    let policy = Policy::default();
    let authority = observed.authority.unwrap_or_default();
    let serving = observed.serving.unwrap_or_default();
    let bundle = Certificate::read_all(observed.bundle.as_deref().unwrap_or_default());
    let signer: Vec<_> =
        Certificate::read_all(&authority.certificates).into_iter().take(1).collect();
    let leaf = Certificate::read_all(&serving.certificates).into_iter().take(1);

    let row = |what: &str, certificate: &Certificate| {
        let hosts: Vec<_> = certificate.hosts.iter().map(Host::to_string).collect();
        vec![
            what.to_owned(),
            certificate.common_name.clone(),
            certificate.issuer.clone(),
            certificate.key_kind.clone(),
            date(certificate.not_before),
            date(certificate.not_after),
            date(renewal(certificate, &policy)),
            hosts.join(","),
        ]
    };
    let mut rows = vec![
        ["WHAT", "SUBJECT", "ISSUER", "KEY", "VALID FROM", "UNTIL", "RENEWAL", "HOSTS"]
            .map(str::to_owned)
            .to_vec(),
    ];
    rows.extend(leaf.map(|certificate| row("serving pair", &certificate)));
    rows.extend(signer.iter().map(|certificate| row("authority", certificate)));
    let older = bundle.iter().filter(|certificate| !signer.contains(certificate));
    rows.extend(older.map(|certificate| row("older authority", certificate)));
    print_table(&rows);

    for (name, text) in pointers {
        let trusted = user_data::authorities(&text);
        let trusts_signer = signer.iter().any(|signer| trusted.contains(signer));
        let valid = trusted.iter().any(|certificate| certificate.is_valid_at(now));
        print_line(&match (trusts_signer, valid, trusted.is_empty()) {
            (true, ..) => format!("{name}: trusts the authority"),
            (_, _, true) => format!("{name}: names no authority that is understood"),
            (_, true, _) => format!("{name}: trusts older authorities only"),
            (_, false, _) => format!("{name}: trusts no authority that is valid"),
        });
    }
    Ok(())
}

/// Asks the controller for a rotation, by a new value of an annotation.
async fn ask(client: &Client, name: &str, now: OffsetDateTime) -> anyhow::Result<()> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
    let patch = Patch::Merge(json!({"metadata": {"annotations": {ROTATE: date(now)}}}));
    secrets
        .patch(name, &PatchParams::default(), &patch)
        .await
        .with_context(|| format!("Secret {NAMESPACE}/{name}"))?;
    print_line(&format!("asked for a rotation of Secret {NAMESPACE}/{name}"));
    Ok(())
}

fn print_table(rows: &[Vec<String>]) {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for row in rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        print_line(cells.collect::<Vec<_>>().join("  ").trim_end());
    }
}

fn date(time: OffsetDateTime) -> String {
    time.format(&Rfc3339).unwrap_or_default()
}
