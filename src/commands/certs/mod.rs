//! What the certificates of a state directory or a cluster are, whether they are in order, and new
//! ones.

pub mod distrust;
mod exposure;
pub mod pointer;
mod report;

use std::path::Path;

use anyhow::{Context as _, bail};
use kube::Client;
use model::user_data::{self, LeftAlone};
use pki::plan::renewal;
use pki::{
    self, Asked, Certificate, CertificateState, Host, LEFT_OUT, Lockout, LockoutReason, Next,
    Policy, Step, StoredPair, Warning, next, told_lockouts,
};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::certs::exposure::Worth;
use super::certs::report::{Checked, Shown, ShownCertificate, ShownPointer, print};
use super::kept::{
    Place, Seen, in_cluster, open, present_hosts, see, see_by, see_cluster, see_directory,
};
use super::{print_line, tell};
use crate::controllers::certificates::{AUTHORITY, Ask, SERVING, ask};
use crate::controllers::tokens;
use crate::controllers::{MAX_TRIES, NAMESPACE};
use crate::kubernetes::{Applied, ControlError, ObjectName};
use crate::store::state_directory::{Reconciled, StateDirectory};

/// Prints what there is.
pub fn show(place: &Place, is_json: bool, now: OffsetDateTime) -> anyhow::Result<()> {
    let seen = see(place)?;
    let Seen { observed, pointers, .. } = &seen;
    let policy = Policy::default();
    let bundle = observed.trusted();
    let signer: Vec<_> = observed.authority.iter().filter_map(StoredPair::leaf).collect();
    let leaf = observed.served();

    let shown = |what, certificate: &Certificate| -> anyhow::Result<_> {
        Ok(ShownCertificate {
            what,
            subject: certificate.common_name.clone(),
            issuer: certificate.issuer.clone(),
            key: certificate.key_kind.clone(),
            not_before: date(certificate.not_before)?,
            not_after: date(certificate.not_after)?,
            renewal: date(renewal(certificate, &policy))?,
            hosts: certificate.hosts.iter().map(Host::to_string).collect(),
        })
    };
    let older = bundle.iter().filter(|certificate| !signer.contains(certificate));
    let certificates = leaf.iter().map(|leaf| ("serving pair", leaf));
    let certificates = certificates.chain(signer.iter().map(|signer| ("authority", signer)));
    let certificates = certificates.chain(older.map(|older| ("older authority", older)));
    let certificates: Result<_, _> =
        certificates.map(|(what, certificate)| shown(what, certificate)).collect();

    let pointers = pointers.iter().map(|(name, text)| {
        let trusted = user_data::trusted(text);
        let trusts_signer = signer.iter().any(|signer| trusted.contains(signer));
        let valid = trusted.iter().any(|certificate| certificate.is_valid_at(now));
        let says = match (seen.stranger(text), trusts_signer, valid, trusted.is_empty()) {
            (Some(reason), ..) => format!("left alone: {reason}"),
            (_, true, ..) => "trusts the authority".to_owned(),
            (_, _, _, true) => "names no authority that is understood".to_owned(),
            (_, _, true, _) => "trusts older authorities only".to_owned(),
            (_, _, false, _) => "trusts no authority that is valid".to_owned(),
        };
        ShownPointer { name: name.clone(), says }
    });
    let shown = Shown { certificates: certificates?, pointer_configs: pointers.collect() };
    print(&shown, is_json)
}

/// Tells until when everything is in order, or what is not, one line each; and what strangers can read in
/// configs. Of a folder, `manifests` say which pools and configs there are.
///
/// # Errors
/// What needs to be done, if something does, or how much is out of order; where it `is_strict`, how much has no
/// effect in configs.
pub fn check(
    place: &Place,
    manifests: Option<&Path>,
    [is_json, is_strict]: [bool; 2],
    policy: &Policy,
    now: OffsetDateTime,
) -> anyhow::Result<()> {
    let seen = see_by(place, manifests)?;
    let mut checked = judged(&seen, policy, now)?;
    // Worth knowing, and no fault of the certificates.
    let Worth { exposed, ignored } = worth(place, manifests)?;
    let ignored_count = ignored.len();
    checked.exposed = exposed;
    checked.warnings.extend(ignored);
    print(&checked, is_json)?;
    match checked.verdict {
        Some(verdict) => bail!("{}: {verdict}", seen.place),
        None if is_strict && ignored_count > 0 => {
            bail!("--strict refuses what has no effect: {ignored_count}")
        }
        None => Ok(()),
    }
}

/// What needs an administrator.
fn judged(seen: &Seen, policy: &Policy, now: OffsetDateTime) -> anyhow::Result<Checked> {
    let next = next(&seen.observed, policy, now, &mut |_| policy.algorithm.generate())?;
    let open_files = seen.open_files.iter();
    let mut told: Vec<String> =
        open_files.map(|path| format!("{path}: others than its owner can read the key")).collect();
    told.extend(seen.unreadable.iter().cloned());
    let mut in_order_until = None;
    let verdict = match next {
        Next::Step { step, .. } => {
            // What is due first is told alone: the rest may come of it.
            told.extend(told_lockouts(&seen.observed, now).iter().map(ToString::to_string));
            told.extend(faults(seen, policy, now)?);
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
        Next::Settled { attention, .. } if !attention.iter().all(Warning::is_warning) => {
            let faults = attention.iter().filter(|it| !it.is_warning());
            told.extend(faults.map(|it| located(it, &seen.files)));
            Some(Warning::verdict(&attention))
        }
        Next::Settled { .. } if seen.observed.serving.is_none() => {
            Some("there is no serving pair".to_owned())
        }
        Next::Settled { .. } if !seen.unreadable.is_empty() => {
            Some("the server cannot read all of its files".to_owned())
        }
        Next::Settled { .. } if !told.is_empty() => Some("keys can be read by others".to_owned()),
        Next::Settled { until, .. } => {
            in_order_until = Some(date(until)?);
            None
        }
    };
    let pointers = pki::pointer_warnings(&seen.observed);
    let left_alone = seen.pointers.iter().filter_map(|(name, text)| {
        let reason = seen.stranger(text).filter(|reason| *reason == LeftAlone::NameOnly)?;
        Some(format!("{name}: left alone: {reason}"))
    });
    Ok(Checked {
        exposed: Vec::new(),
        warnings: pointers.iter().map(ToString::to_string).collect(),
        in_order_until,
        left_alone: left_alone.collect(),
        faults: told,
        verdict,
    })
}

/// What strangers can read in the configs of pools that are not enforced, and what has no effect in configs.
fn worth(place: &Place, manifests: Option<&Path>) -> anyhow::Result<Worth> {
    match (place, manifests) {
        (Place::Directory(_), None) => Ok(Worth::default()),
        (Place::Directory(directory), Some(manifests)) => {
            exposure::of_manifests(manifests, &open(directory)?.records()?.enforced)
        }
        (Place::Cluster { kubeconfig, .. }, _) => {
            let worth = in_cluster(kubeconfig.as_deref(), async |client| {
                let enforced = tokens::records(&client).await?.enforced;
                exposure::of_cluster(client, &enforced).await
            });
            // Whoever looks at certificates need not have a right to configs.
            let unknown = |error| Worth {
                exposed: vec![format!("what strangers can read is not known: {error:#}")],
                ..Worth::default()
            };
            Ok(worth.unwrap_or_else(unknown))
        }
    }
}

/// What cannot be used, and no step mends.
fn faults(seen: &Seen, policy: &Policy, now: OffsetDateTime) -> anyhow::Result<Vec<String>> {
    let generate = &mut |_| policy.algorithm.generate();
    let (_, attention) = pki::dry_run(&seen.observed, policy, now, generate)?;
    let is_fault = |it: &&Warning| matches!(it, Warning::Authority(_) | Warning::Serving(_));
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
    let directory = match place {
        Place::Directory(directory) => directory,
        Place::Cluster { kubeconfig, user_data_namespace } => {
            return in_cluster(kubeconfig.as_deref(), async |client| {
                ask_rotation(&client, user_data_namespace, [ca, force], policy, now).await
            });
        }
    };
    let state = open(directory)?;
    let hosts = present_hosts(&state)?;
    if hosts.is_empty() && !force {
        // What is there and cannot be used is a better reason than that there is none.
        let observed = state.observe(&hosts, &Asked::default())?;
        let generate = &mut |_| policy.algorithm.generate();
        refuse(&state, pki::dry_run(&observed, policy, now, generate)?.1, force)?;
        bail!("{}: there is no serving certificate yet: run `serve` first", directory.display());
    }
    let asked = Asked { authority: ca, serving: true, force, distrust: Vec::new() };
    let done = state.reconcile(&hosts, asked, policy, now, &mut |_| policy.algorithm.generate())?;
    print_steps(&state, &done);
    refuse(&state, done.attention, force)
}

/// Asks a cluster's controller for a new serving pair, with `ca` for a new authority first.
async fn ask_rotation(
    client: &Client,
    user_data_namespace: &str,
    [ca, is_forced]: [bool; 2],
    policy: &Policy,
    now: OffsetDateTime,
) -> anyhow::Result<()> {
    let mut foreseen = Vec::new();
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
            let (_, attention) = pki::dry_run(&state, policy, now, generate)?;
            let refused = attention.iter().find(|it| it.is_refused_request());
            if let Some(refused) = refused.filter(|_| is_first) {
                bail!("{}: {refused}", seen.place);
            }
            foreseen = attention;
            Ok(ask(client, &cluster, &request).await?)
        })
        .await?;
        print_line(&format!("asked for a rotation of Secret {NAMESPACE}/{secret}"));
    }
    warn_locked_out(foreseen);
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

pub(super) fn print_steps(state: &StateDirectory, done: &Reconciled) {
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
fn warn(attention: &[Warning]) {
    for warning in attention.iter().filter(|attention| attention.is_warning()) {
        print_line(&format!("warning: {warning}"));
    }
}

/// What was asked for and is not done is a failure, and so is a pointer config of this folder that does not
/// boot by the certificates that are there now, unless the caller `accepts_lockouts`. Others who cannot boot
/// are named in warnings: a pointer config that could not whatever is served, one that trusts other CAs than
/// were ever here, and machines elsewhere.
pub(super) fn refuse(
    state: &StateDirectory,
    attention: Vec<Warning>,
    accepts_lockouts: bool,
) -> anyhow::Result<()> {
    warn(&attention);
    let seen = see_directory(state.path(), None)?;
    let is_ours = |text: &[u8]| seen.stranger(text) != Some(LeftAlone::Foreign);
    let is_kept =
        |holder: &str| seen.pointers.iter().any(|(name, text)| name == holder && is_ours(text));
    let is_met = |it: &Warning| match it {
        Warning::LockedOut(Lockout { reason: LockoutReason::Pointer(_), .. }) => true,
        Warning::LockedOut(Lockout { holder, .. }) => accepts_lockouts || !is_kept(holder),
        it => it.is_warning(),
    };
    let (met, unmet): (Vec<_>, Vec<_>) = attention.into_iter().partition(is_met);
    let mut unmet = unmet.into_iter();
    let first = unmet.next();
    warn_locked_out(met.into_iter().chain(unmet));
    match first {
        Some(attention) => bail!("{}", located(&attention, &state.key_files())),
        None => Ok(()),
    }
}

fn warn_locked_out(attention: impl IntoIterator<Item = Warning>) {
    for it in attention.into_iter().filter(|it| matches!(it, Warning::LockedOut(_))) {
        tell(&format!("warning: {it}"));
    }
}

/// What is said of the signing CA or of the serving pair, with the name of where it is.
pub(super) fn located(attention: &Warning, [authority, serving]: &[String; 2]) -> String {
    match attention {
        Warning::Authority(_) => format!("{authority}: {attention}"),
        Warning::Serving(_) | Warning::ServingExpired => format!("{serving}: {attention}"),
        _ => attention.to_string(),
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

fn date(time: OffsetDateTime) -> anyhow::Result<String> {
    time.format(&Rfc3339).with_context(|| format!("{time} cannot be written as a date"))
}
