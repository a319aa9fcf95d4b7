//! What the certificates of a state directory or a cluster are, whether they are in order, and new
//! ones.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ObjectMeta, Patch, PatchParams};
use kube::core::PartialObjectMetaExt as _;
use kube::{Api, Client};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::print_line;
use crate::controllers::NAMESPACE;
use crate::controllers::certificates::{AUTHORITY, Observer, ROTATE, SERVING};
use crate::kube_client;
use crate::pki::plan::renewal;
use crate::pki::{
    Certificate, CertificateState, Holder, Host, Lockout, Policy, RotationPlan, Step, StoredPair,
    locked_out, plan,
};
use crate::store::state_folder::{Asked, StateFolder};
use crate::user_data::{self, Assessment, LeftAlone, assess};

/// Where certificates are kept.
#[derive(Debug, Clone)]
pub enum Place {
    /// In a folder, with pointer configs.
    Folder(PathBuf),
    /// In a cluster.
    Cluster {
        /// A kubeconfig; without one, the pod's service account is used.
        kubeconfig: Option<PathBuf>,
        /// Where the secrets with user data are.
        user_data_namespace: String,
    },
}

/// What a place holds.
struct Seen {
    place: String,
    observed: CertificateState,
    pointers: Vec<(String, Vec<u8>)>,
}

impl Seen {
    /// The pointer configs from which no machine could boot, and the bundle where those who take
    /// their trust from it could not. Nobody where nothing is served, which is told once for all.
    fn lockouts(&self, now: OffsetDateTime) -> Vec<Lockout> {
        let chain = self.observed.chain();
        if chain.is_empty() {
            return Vec::new();
        }
        let pointers = self.pointers.iter();
        let mut holders: Vec<_> =
            pointers.filter_map(|(name, text)| user_data::holder(name, text)).collect();
        let trusted = self.observed.trusted();
        if !trusted.is_empty() {
            let name = format!("{}: the bundle", self.place);
            holders.push(Holder { name, trusted, hosts: Vec::new() });
        }
        locked_out(&chain, &holders, now)
    }

    /// Why a pointer config that names authorities trusts none that is known to be the server's.
    fn stranger(&self, pointer: &[u8]) -> Option<LeftAlone> {
        let authority = self.observed.authority.as_ref();
        let mut known =
            authority.map(|pair| Certificate::read_all(&pair.previous)).unwrap_or_default();
        let root = self.observed.root_authority.as_deref();
        known.extend(Certificate::read_all(root.unwrap_or_default()));
        match assess(pointer, &self.observed.trusted(), &known) {
            Assessment::LeftAlone(reason @ (LeftAlone::Foreign | LeftAlone::NameOnly)) => {
                Some(reason)
            }
            _ => None,
        }
    }
}

/// Prints what there is.
pub fn show(place: &Place, now: OffsetDateTime) -> anyhow::Result<()> {
    let seen = see(place)?;
    let Seen { observed, pointers, .. } = &seen;
    let policy = Policy::default();
    let bundle = observed.trusted();
    let signer: Vec<_> = observed.authority.iter().filter_map(StoredPair::leaf).collect();
    let leaf = observed.served();

    let row = |what: &str, certificate: &Certificate| -> anyhow::Result<_> {
        let hosts: Vec<_> = certificate.hosts.iter().map(Host::to_string).collect();
        Ok(vec![
            what.to_owned(),
            certificate.common_name.clone(),
            certificate.issuer.clone(),
            certificate.key_kind.clone(),
            date(certificate.not_before)?,
            date(certificate.not_after)?,
            date(renewal(certificate, &policy))?,
            hosts.join(","),
        ])
    };
    let mut rows = vec![
        ["WHAT", "SUBJECT", "ISSUER", "KEY", "VALID FROM", "UNTIL", "RENEWAL", "HOSTS"]
            .map(str::to_owned)
            .to_vec(),
    ];
    let older = bundle.iter().filter(|certificate| !signer.contains(certificate));
    let certificates = leaf.iter().map(|leaf| ("serving pair", leaf));
    let certificates = certificates.chain(signer.iter().map(|signer| ("authority", signer)));
    for (what, certificate) in certificates.chain(older.map(|older| ("older authority", older))) {
        rows.push(row(what, certificate)?);
    }
    for line in table(&rows) {
        print_line(&line);
    }

    for (name, text) in pointers {
        if let Some(reason) = seen.stranger(text) {
            print_line(&format!("{name}: left alone: {reason}"));
            continue;
        }
        let trusted = user_data::authorities(text);
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

/// Tells until when everything is in order, or who could not boot, one line each.
///
/// # Errors
/// What needs to be done, if something does, or how many could not boot.
pub fn check(place: &Place, now: OffsetDateTime) -> anyhow::Result<()> {
    let seen = see(place)?;
    let RotationPlan { step, requeue_at } = plan(&seen.observed, &Policy::default(), now);
    let attention = match step {
        None if seen.observed.serving.is_none() => Some("there is no serving pair".to_owned()),
        None => None,
        Some(Step::Authority(reason)) => Some(format!("the certificate authority: {reason}")),
        Some(Step::Bundle(_)) => {
            Some("the bundle does not hold the authorities that it should".to_owned())
        }
        Some(Step::Pointers) => {
            Some("pointer configs trust other authorities than the bundle".to_owned())
        }
        Some(Step::Serving(reason, _)) => Some(format!("the serving pair: {reason}")),
    };
    for (name, text) in &seen.pointers {
        if let Some(reason @ LeftAlone::NameOnly) = seen.stranger(text) {
            print_line(&format!("{name}: left alone: {reason}"));
        }
    }
    let lockouts = seen.lockouts(now);
    for lockout in &lockouts {
        print_line(&lockout.to_string());
    }
    match (attention, lockouts.len()) {
        (Some(attention), _) => bail!("{}: {attention}", seen.place),
        (None, 0) => print_line(&format!("in order, until {}", date(requeue_at)?)),
        (None, many) => bail!("{}: locked out: {many}", seen.place),
    }
    Ok(())
}

/// Makes a new serving pair, with `ca` a new authority first; in a cluster, asks its controller to.
pub fn rotate(place: &Place, ca: bool, policy: &Policy, now: OffsetDateTime) -> anyhow::Result<()> {
    let folder = match place {
        Place::Folder(folder) => folder,
        Place::Cluster { kubeconfig, .. } => {
            return in_cluster(kubeconfig.as_deref(), async |client| {
                let names = [ca.then_some(AUTHORITY), Some(SERVING)];
                for name in names.into_iter().flatten() {
                    ask(&client, name, now).await?;
                    print_line(&format!("asked for a rotation of Secret {NAMESPACE}/{name}"));
                }
                Ok(())
            });
        }
    };
    let state = open(folder)?;
    let hosts = present_hosts(&state)?;
    if hosts.is_empty() {
        bail!("{}: there is no serving certificate yet: run `serve` first", folder.display());
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

/// Says in the log what was done.
pub fn log_step(step: &Step) {
    match step {
        Step::Authority(reason) => tracing::info!(%reason, "made a certificate authority"),
        Step::Bundle(_) => tracing::info!("wrote the bundle of certificate authorities"),
        Step::Pointers => tracing::info!("wrote the pointer configs"),
        Step::Serving(reason, _) => tracing::info!(%reason, "issued a serving pair"),
    }
}

fn see(place: &Place) -> anyhow::Result<Seen> {
    match place {
        Place::Folder(folder) => see_folder(folder),
        Place::Cluster { kubeconfig, user_data_namespace } => {
            in_cluster(kubeconfig.as_deref(), async |client| {
                see_cluster(client, user_data_namespace).await
            })
        }
    }
}

fn see_folder(folder: &Path) -> anyhow::Result<Seen> {
    let state = open(folder)?;
    let hosts = present_hosts(&state)?;
    let pointers = state.pointers()?.into_iter();
    Ok(Seen {
        place: folder.display().to_string(),
        observed: state.observe(&hosts, Asked::default())?,
        pointers: pointers.map(|file| (file.path.display().to_string(), file.text)).collect(),
    })
}

async fn see_cluster(client: Client, namespace: &str) -> anyhow::Result<Seen> {
    let state = Observer::new(client, namespace.to_owned(), Vec::new()).observe().await?;
    let observed = state.certificates(&state.user_data_duties()?, &BTreeSet::new())?;
    let pointers = state.user_data.iter().filter_map(|(name, secret)| {
        let data = secret.data.as_ref()?.get("userData")?;
        Some((format!("Secret {namespace}/{name}"), data.0.clone()))
    });
    Ok(Seen { place: "the cluster".to_owned(), pointers: pointers.collect(), observed })
}

fn in_cluster<T>(
    kubeconfig: Option<&Path>,
    work: impl AsyncFnOnce(Client) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let client = kube_client::connect(kubeconfig.map(Path::to_owned)).await?;
        work(client).await
    })
}

/// The folder, which has to be there: a slip in its name must not make a new one.
fn open(folder: &Path) -> anyhow::Result<StateFolder> {
    if !folder.is_dir() {
        bail!("--state-dir {}: there is no such directory", folder.display());
    }
    Ok(StateFolder::open(folder)?)
}

/// The names of the serving certificate that is there, for one that replaces it.
fn present_hosts(state: &StateFolder) -> anyhow::Result<Vec<Host>> {
    let leaf = state.observe(&[], Asked::default())?.served();
    let Some(leaf) = leaf else { return Ok(Vec::new()) };
    let mut hosts: Vec<Host> = leaf.hosts.into_iter().collect();
    // The main one is the common name.
    hosts.sort_by_key(|host| host.to_string() != leaf.common_name);
    Ok(hosts)
}

/// Asks the controller for a rotation, by a new value of an annotation.
async fn ask(client: &Client, name: &str, now: OffsetDateTime) -> anyhow::Result<()> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
    let metadata = ObjectMeta {
        annotations: Some([(ROTATE.to_owned(), date(now)?)].into()),
        ..ObjectMeta::default()
    };
    // Whatever the secret is by now, it is what is to be made anew: it has no precondition.
    let patch = Patch::Merge(metadata.into_request_partial::<Secret>());
    secrets
        .patch_metadata(name, &PatchParams::default(), &patch)
        .await
        .with_context(|| format!("Secret {NAMESPACE}/{name}"))?;
    Ok(())
}

/// Rows as lines, each column as wide as its widest cell.
fn table(rows: &[Vec<String>]) -> Vec<String> {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

fn date(time: OffsetDateTime) -> anyhow::Result<String> {
    time.format(&Rfc3339).with_context(|| format!("{time} cannot be written as a date"))
}
