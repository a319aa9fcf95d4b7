//! What the certificates of a state directory or a cluster are, whether they are in order, and new
//! ones.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use kube::Client;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::{exposure, print_line, terminal};
use crate::access::rotation::Pointer;
use crate::controllers::certificates::{AUTHORITY, Ask, ClusterState, Observer, SERVING, ask};
use crate::controllers::{Applied, ControlError, MAX_TRIES, NAMESPACE, ObjectName, access};
use crate::kube_client;
use crate::pki::plan::renewal;
use crate::pki::{
    self, Asked, Attention, Certificate, CertificateState, Host, LEFT_OUT, Next, Policy, Step,
    StoredPair, next, told_lockouts,
};
use crate::store::state_folder::{Reconciled, StateFolder};
use crate::store::unreadable::Unreadable;
use crate::table::table;
use crate::user_data::{self, Assessment, LeftAlone, assess, carriers};

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
pub(super) struct Seen {
    pub(super) place: String,
    pub(super) observed: CertificateState,
    pub(super) pointers: Vec<(String, Vec<u8>)>,
    /// Those of them that no machine is made from, as an administrator says.
    pub(super) unused: BTreeSet<String>,
    /// Files with keys that others than their owner can read.
    pub(super) open_files: Vec<String>,
    /// The pools that have a config, empty where they are not known.
    pub(super) pools: BTreeSet<String>,
    /// What is wrong with files that the server could not read when it is started again.
    pub(super) unreadable: Vec<String>,
    /// Where the signing CA and the serving pair are.
    pub(super) files: [String; 2],
}

impl Seen {
    /// Further authorities that were the server's once.
    fn known(&self) -> Vec<Certificate> {
        let stored = self.observed.authority.iter().flat_map(StoredPair::authorities);
        let root = self.observed.root_authority.as_deref().unwrap_or_default();
        stored.chain(Certificate::read_all(root)).collect()
    }

    /// What the pointer configs carry that a rotation of tokens looks after.
    pub(super) fn carriers(&self) -> Vec<Pointer> {
        let (trusted, known) = (self.observed.trusted(), self.known());
        let used = self.pointers.iter().filter(|(name, _)| !self.unused.contains(name));
        used.flat_map(|(name, text)| carriers(name, text, &trusted, &known, true)).collect()
    }

    /// Why a pointer config that names authorities trusts none that is known to be the server's, or
    /// is not looked at.
    pub(super) fn stranger(&self, pointer: &[u8]) -> Option<LeftAlone> {
        match assess(pointer, &self.observed.trusted(), &self.known()) {
            Assessment::LeftAlone(
                reason @ (LeftAlone::Foreign | LeftAlone::NameOnly | LeftAlone::TooLarge),
            ) => Some(reason),
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
    let names = ["WHAT", "SUBJECT", "ISSUER", "KEY", "VALID FROM", "UNTIL", "RENEWAL", "HOSTS"];
    let mut rows = Vec::new();
    let older = bundle.iter().filter(|certificate| !signer.contains(certificate));
    let certificates = leaf.iter().map(|leaf| ("serving pair", leaf));
    let certificates = certificates.chain(signer.iter().map(|signer| ("authority", signer)));
    for (what, certificate) in certificates.chain(older.map(|older| ("older authority", older))) {
        rows.push(row(what, certificate)?);
    }
    terminal::print(&table(&names, &rows, terminal::look()));

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

/// Tells until when everything is in order, or what is not, one line each; and what strangers can read in
/// configs, of a folder in those of `manifests`.
///
/// # Errors
/// What needs to be done, if something does, or how much is out of order.
pub fn check(
    place: &Place,
    manifests: Option<&Path>,
    policy: &Policy,
    now: OffsetDateTime,
) -> anyhow::Result<()> {
    let seen = see(place)?;
    // Worth knowing, and no fault of the certificates.
    exposed(place, manifests)?.iter().for_each(|line| print_line(line));
    warn(&pki::large_user_data(&seen.observed));
    let next = next(&seen.observed, policy, now, &mut |_| policy.algorithm.generate())?;
    let open_files = seen.open_files.iter();
    let mut told: Vec<String> =
        open_files.map(|path| format!("{path}: others than its owner can read the key")).collect();
    told.extend(seen.unreadable.iter().cloned());
    let verdict = match next {
        Next::Step { step, .. } => {
            // What is due first is told alone: the rest may come of it.
            told.extend(told_lockouts(&seen.observed, now).iter().map(ToString::to_string));
            told.extend(faults(&seen, policy, now)?);
            Some(match step {
                Step::Authority(reason) | Step::Store(reason) => {
                    format!("the certificate authority: {reason}")
                }
                Step::Bundle(_) => {
                    "the bundle does not hold the authorities that it should".to_owned()
                }
                Step::Pointers => {
                    "pointer configs trust other authorities than the bundle".to_owned()
                }
                Step::Serving(reason, _) => format!("the serving pair: {reason}"),
            })
        }
        Next::Settled { attention, .. } if !attention.iter().all(Attention::is_warning) => {
            let faults = attention.iter().filter(|it| !it.is_warning());
            told.extend(faults.map(|it| located(it, &seen.files)));
            Some(Attention::verdict(&attention))
        }
        Next::Settled { .. } if seen.observed.serving.is_none() => {
            Some("there is no serving pair".to_owned())
        }
        Next::Settled { .. } if !seen.unreadable.is_empty() => {
            Some("the server cannot read all of its files".to_owned())
        }
        Next::Settled { .. } if !told.is_empty() => Some("keys can be read by others".to_owned()),
        Next::Settled { until, .. } => {
            print_line(&format!("in order, until {}", date(until)?));
            None
        }
    };
    for (name, text) in &seen.pointers {
        if let Some(reason @ LeftAlone::NameOnly) = seen.stranger(text) {
            print_line(&format!("{name}: left alone: {reason}"));
        }
    }
    for line in &told {
        print_line(line);
    }
    match verdict {
        Some(verdict) => bail!("{}: {verdict}", seen.place),
        None => Ok(()),
    }
}

/// What strangers can read in the configs of pools that are not enforced.
fn exposed(place: &Place, manifests: Option<&Path>) -> anyhow::Result<Vec<String>> {
    match (place, manifests) {
        (Place::Folder(_), None) => Ok(Vec::new()),
        (Place::Folder(folder), Some(manifests)) => {
            exposure::of_manifests(manifests, &open(folder)?.records()?.enforced)
        }
        (Place::Cluster { kubeconfig, .. }, _) => {
            let lines = in_cluster(kubeconfig.as_deref(), async |client| {
                let enforced = access::records(&client).await?.enforced;
                exposure::of_cluster(client, &enforced).await
            });
            // Whoever looks at certificates need not have a right to configs.
            let unknown = |error| vec![format!("what strangers can read is not known: {error:#}")];
            Ok(lines.unwrap_or_else(unknown))
        }
    }
}

/// What cannot be used, and no step mends.
fn faults(seen: &Seen, policy: &Policy, now: OffsetDateTime) -> anyhow::Result<Vec<String>> {
    let generate = &mut |_| policy.algorithm.generate();
    let (_, attention) = pki::foresee(&seen.observed, policy, now, generate)?;
    let is_fault = |it: &&Attention| matches!(it, Attention::Authority(_) | Attention::Serving(_));
    Ok(attention.iter().filter(is_fault).map(|it| located(it, &seen.files)).collect())
}

/// Makes a new serving pair, with `ca` a new authority first; in a cluster, asks its controller to.
/// With `force` even where machines are locked out.
///
/// # Errors
/// Why it cannot be done, and who would be locked out, if it is for that.
pub fn rotate(
    place: &Place,
    ca: bool,
    force: bool,
    policy: &Policy,
    now: OffsetDateTime,
) -> anyhow::Result<()> {
    let folder = match place {
        Place::Folder(folder) => folder,
        Place::Cluster { kubeconfig, user_data_namespace } => {
            return in_cluster(kubeconfig.as_deref(), async |client| {
                ask_rotation(&client, user_data_namespace, [ca, force], policy, now).await
            });
        }
    };
    let state = open(folder)?;
    let hosts = present_hosts(&state)?;
    if hosts.is_empty() && !force {
        // What is there and cannot be used is a better reason than that there is none.
        let observed = state.observe(&hosts, &Asked::default())?;
        let generate = &mut |_| policy.algorithm.generate();
        refuse(&state, pki::foresee(&observed, policy, now, generate)?.1)?;
        bail!("{}: there is no serving certificate yet: run `serve` first", folder.display());
    }
    let asked = Asked { authority: ca, serving: true, force, distrust: Vec::new() };
    let done = state.reconcile(&hosts, asked, policy, now, &mut |_| policy.algorithm.generate())?;
    print_steps(&state, &done);
    refuse(&state, done.attention)
}

/// Asks a cluster's controller for a new serving pair, with `ca` for a new authority first.
async fn ask_rotation(
    client: &Client,
    user_data_namespace: &str,
    [ca, is_forced]: [bool; 2],
    policy: &Policy,
    now: OffsetDateTime,
) -> anyhow::Result<()> {
    for secret in [ca.then_some(AUTHORITY), Some(SERVING)].into_iter().flatten() {
        let request = Ask::Rotation { secret, value: date(now)?, is_forced };
        let is_first = secret == AUTHORITY || !ca;
        ask_again(secret, async || {
            let (seen, cluster) = see_cluster(client, user_data_namespace).await?;
            let seen_asked = seen.observed.asked;
            let asked = Asked { authority: ca, serving: true, force: is_forced, ..seen_asked };
            let state = CertificateState { asked, ..seen.observed };
            let generate = &mut |_| policy.algorithm.generate();
            // What the controller would refuse is better told here than asked for.
            let (_, attention) = pki::foresee(&state, policy, now, generate)?;
            let refused = attention.iter().find(|it| it.is_refused_request());
            if let Some(refused) = refused.filter(|_| is_first) {
                bail!("{}: {refused}", seen.place);
            }
            Ok(ask(client, &cluster, &request).await?)
        })
        .await?;
        print_line(&format!("asked for a rotation of Secret {NAMESPACE}/{secret}"));
    }
    Ok(())
}

/// Asks the controller for something, and looks anew where somebody else has changed the secret since
/// it was read.
pub(super) async fn ask_again(
    secret: &str,
    mut once: impl AsyncFnMut() -> anyhow::Result<Applied>,
) -> anyhow::Result<()> {
    for _ in 0..MAX_TRIES {
        if once().await? == Applied::Done {
            return Ok(());
        }
    }
    let object = ObjectName::secret(NAMESPACE, secret);
    Err(ControlError::Contended { object, tries: MAX_TRIES }.into())
}

pub(super) fn print_steps(state: &StateFolder, done: &Reconciled) {
    for what in &done.left_out {
        print_line(&format!("warning: {LEFT_OUT}: {what}"));
    }
    for step in &done.steps {
        print_line(&match step {
            Step::Authority(reason) => format!("made a certificate authority: {reason}"),
            Step::Store(reason) => format!("stored the certificate authorities anew: {reason}"),
            Step::Bundle(_) => format!("wrote {}", state.bundle_path().display()),
            Step::Pointers => "wrote the pointer configs".to_owned(),
            Step::Serving(reason, _) => format!("issued a serving pair: {reason}"),
        });
    }
}

/// Prints what may be wrong, by the platform that machines are made on.
fn warn(attention: &[Attention]) {
    for warning in attention.iter().filter(|attention| attention.is_warning()) {
        print_line(&format!("warning: {warning}"));
    }
}

/// What was asked for and is not done is a failure.
pub(super) fn refuse(state: &StateFolder, attention: Vec<Attention>) -> anyhow::Result<()> {
    warn(&attention);
    let is_met = |it: &Attention| matches!(it, Attention::LockedOut(_)) || it.is_warning();
    match attention.into_iter().find(|attention| !is_met(attention)) {
        Some(attention) => bail!("{}", located(&attention, &state.key_files())),
        None => Ok(()),
    }
}

/// What is said of the signing CA or of the serving pair, with the name of where it is.
pub(super) fn located(attention: &Attention, [authority, serving]: &[String; 2]) -> String {
    match attention {
        Attention::Authority(_) => format!("{authority}: {attention}"),
        Attention::Serving(_) | Attention::ServingExpired => format!("{serving}: {attention}"),
        _ => attention.to_string(),
    }
}

/// Says in the log what is not in order.
pub(super) fn log_attention(attention: &Attention, text: &str) {
    let what = attention.label();
    if attention.is_warning() {
        tracing::warn!(what, "{text}");
    } else {
        tracing::error!(what, "{text}");
    }
}

/// Says in the log what is kept no more.
pub(super) fn log_left_out(left_out: &[String]) {
    for what in left_out {
        tracing::warn!(what, "{LEFT_OUT}");
    }
}

/// Says in the log what was done.
pub fn log_step(step: &Step) {
    match step {
        Step::Authority(reason) => tracing::info!(%reason, "made a certificate authority"),
        Step::Store(reason) => tracing::info!(%reason, "stored the certificate authorities anew"),
        Step::Bundle(_) => tracing::info!("wrote the bundle of certificate authorities"),
        Step::Pointers => tracing::info!("wrote the pointer configs"),
        Step::Serving(reason, _) => tracing::info!(%reason, "issued a serving pair"),
    }
}

/// What is to be served from a place.
pub(super) struct Served {
    /// What the place is called.
    pub(super) place: String,
    /// Leaf first; empty without a serving pair.
    pub(super) chain: Vec<Certificate>,
    /// The pools that have a config, empty where they are not known.
    pub(super) pools: BTreeSet<String>,
}

pub(super) fn served(place: &Place) -> anyhow::Result<Served> {
    let seen = see(place)?;
    Ok(Served { place: seen.place, chain: seen.observed.chain(), pools: seen.pools })
}

pub(super) fn see(place: &Place) -> anyhow::Result<Seen> {
    match place {
        Place::Folder(folder) => see_folder(folder),
        Place::Cluster { kubeconfig, user_data_namespace } => {
            in_cluster(kubeconfig.as_deref(), async |client| {
                Ok(see_cluster(&client, user_data_namespace).await?.0)
            })
        }
    }
}

pub(super) fn see_folder(folder: &Path) -> anyhow::Result<Seen> {
    let state = open(folder)?;
    let hosts = present_hosts(&state)?;
    let pointers = state.pointers()?.into_iter();
    Ok(Seen {
        pools: state.pools()?,
        place: folder.display().to_string(),
        observed: state.observe(&hosts, &Asked::default())?,
        open_files: state.open_files().iter().map(|path| path.display().to_string()).collect(),
        unreadable: state.unreadable().iter().map(Unreadable::to_string).collect(),
        files: state.key_files(),
        pointers: pointers.map(|file| (file.path.display().to_string(), file.text)).collect(),
        unused: BTreeSet::new(),
    })
}

/// What a cluster holds, and its objects as they were read.
pub(super) async fn see_cluster(
    client: &Client,
    namespace: &str,
) -> anyhow::Result<(Seen, ClusterState)> {
    let controller = Observer::new(client.clone(), namespace.to_owned(), Vec::new());
    let state = controller.observe_as_kept().await?;
    let observed = state.certificates(&state.user_data_duties()?, &BTreeSet::new())?;
    let title = |name: &String| format!("Secret {namespace}/{name}");
    let pointers = state.user_data.iter().filter_map(|(name, secret)| {
        let data = secret.data.as_ref()?.get("userData")?;
        Some((title(name), data.0.clone()))
    });
    let unused = state.user_data.iter().filter(|(_, secret)| access::is_unused(secret));
    let seen = Seen {
        pools: state.pools.iter().map(|pool| pool.name.clone()).collect(),
        place: "the cluster".to_owned(),
        pointers: pointers.collect(),
        unused: unused.map(|(name, _)| title(name)).collect(),
        open_files: Vec::new(),
        unreadable: Vec::new(),
        files: [AUTHORITY, SERVING].map(|name| format!("Secret {NAMESPACE}/{name}")),
        observed,
    };
    Ok((seen, state))
}

pub(super) fn in_cluster<T>(
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
pub(super) fn open(folder: &Path) -> anyhow::Result<StateFolder> {
    if !folder.is_dir() {
        bail!("--state-dir {}: there is no such directory", folder.display());
    }
    Ok(StateFolder::open(folder)?)
}

/// The names of the serving certificate that is there, for one that replaces it.
pub(super) fn present_hosts(state: &StateFolder) -> anyhow::Result<Vec<Host>> {
    let leaf = state.observe(&[], &Asked::default())?.served();
    let Some(leaf) = leaf else { return Ok(Vec::new()) };
    let mut hosts: Vec<Host> = leaf.hosts.into_iter().collect();
    // The main one is the common name.
    hosts.sort_by_key(|host| host.to_string() != leaf.common_name);
    Ok(hosts)
}

fn date(time: OffsetDateTime) -> anyhow::Result<String> {
    time.format(&Rfc3339).with_context(|| format!("{time} cannot be written as a date"))
}
