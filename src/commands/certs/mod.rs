//! The command `certs`: shows, checks and replaces the certificates of a state directory or a cluster.

mod pointer;
mod report;
mod settings;

use anyhow::bail;
use model::pointer_config::{LeftAlone, PointerConfig};
use pki::plan::renewal;
use pki::{
    self, Certificate, Host, NextAction, Policy, Step, StoredPair, Warning, next, reported_lockouts,
};
use time::OffsetDateTime;

use self::pointer::check_pointer;
use self::report::{CertificateLine, CertificateReport, CheckReport, PointerLine};
use super::print_json;
use super::process::progress::Progress;
use super::stores::certificate_texts::{date, located};
use super::stores::exposure::ConfigFindings;
use super::stores::state_store::{ObservedState, unless_forbidden};

pub(crate) use self::settings::{CheckSettings, DistrustSettings, RotateSettings, ShowSettings};

/// Prints the certificates and their holders.
pub(crate) fn show(settings: &ShowSettings, now: OffsetDateTime) -> anyhow::Result<()> {
    let seen = settings.place.open()?.observe(None)?;
    let ObservedState { observed, pointers, .. } = &seen;
    let policy = Policy::default();
    let bundle = observed.trusted();
    let signer: Vec<_> = observed.ca.iter().filter_map(StoredPair::leaf).collect();
    let leaf = observed.served();

    let shown = |(what, kind, certificate): (_, _, &Certificate)| -> anyhow::Result<_> {
        Ok(CertificateLine {
            what,
            kind,
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
    let leaf = leaf.iter().map(|leaf| ("serving pair", "serving certificate", leaf));
    let signers = signer.iter().map(|signer| ("authority", "signing CA", signer));
    let older = older.map(|older| ("older authority", "older CA", older));
    let certificates: Result<_, _> = leaf.chain(signers).chain(older).map(shown).collect();

    let pointers = pointers.iter().map(|(name, text)| {
        let config = PointerConfig::read(text);
        let trusted = config.trusted();
        let trusts_signer = signer.iter().any(|signer| trusted.contains(signer));
        let valid = trusted.iter().any(|certificate| certificate.is_valid_at(now));
        let says = match (seen.stranger(&config), trusts_signer, valid, trusted.is_empty()) {
            (Some(reason), ..) => format!("not updated: {reason}"),
            (_, true, ..) => "trusts the signing CA".to_owned(),
            (_, _, _, true) => "names no readable CA".to_owned(),
            (_, _, true, _) => "trusts older CAs only".to_owned(),
            (_, _, false, _) => "trusts no valid CA".to_owned(),
        };
        PointerLine { name: name.clone(), says }
    });
    let shown =
        CertificateReport { certificates: certificates?, pointer_configs: pointers.collect() };
    if settings.json {
        return print_json(&shown);
    }
    shown.print_lines();
    Ok(())
}

/// Prints the time until which everything is in order, or all faults, one line each, and secrets that unauthenticated
/// clients can read in configs; or checks a pointer config.
///
/// # Errors
/// The due step, or the number of faults; with `--strict`, the number of fields without effect.
pub(crate) fn check(settings: &CheckSettings, now: OffsetDateTime) -> anyhow::Result<()> {
    if let Some(file) = &settings.pointer {
        return check_pointer(file, settings, now);
    }
    let (store, manifests) = (settings.place.open()?, settings.manifests.as_deref());
    let progress = Progress::start("reading the certificates and pointer configs");
    let seen = store.observe(manifests)?;
    progress.at(&format!("checking pointer configs: {}", seen.pointers.len()));
    let mut checked = check_report(&seen, now)?;
    // These are remarks, not faults of the certificates.
    let found = unless_forbidden(&*store, store.config_findings(manifests))?;
    let ConfigFindings { exposed, ignored } = found.unwrap_or_else(|error| {
        let unknown = format!("cannot determine what unauthenticated clients can read: {error:#}");
        ConfigFindings { exposed: vec![unknown], ..ConfigFindings::default() }
    });
    let ignored_count = ignored.len();
    checked.exposed = exposed;
    checked.warnings.extend(ignored);
    drop(progress);
    if settings.json {
        print_json(&checked)?;
    } else {
        checked.print_lines();
    }
    match checked.verdict {
        Some(verdict) => bail!("{}: {verdict}", seen.place),
        None if settings.strict && ignored_count > 0 => {
            bail!("--strict refuses fields without effect: {ignored_count}")
        }
        None => Ok(()),
    }
}

/// Makes a new serving pair, or requests it from the controller.
pub(crate) fn rotate(settings: &RotateSettings, now: OffsetDateTime) -> anyhow::Result<()> {
    let RotateSettings { place, ca, force, certificates } = settings;
    place.open()?.rotate(*ca, *force, &certificates.policy(), now)
}

/// Distrusts CAs for good.
pub(crate) fn distrust(settings: &DistrustSettings, now: OffsetDateTime) -> anyhow::Result<()> {
    let DistrustSettings { named, place, yes, certificates } = settings;
    place.open()?.distrust(named, *yes, &certificates.policy(), now)
}

/// Judges faults and due steps.
fn check_report(seen: &ObservedState, now: OffsetDateTime) -> anyhow::Result<CheckReport> {
    let policy = &Policy::default();
    let next = next(&seen.observed, policy, now, &mut |_| policy.algorithm.generate())?;
    let mut reported = seen.open_files.clone();
    reported.extend(seen.unreadable.iter().cloned());
    let mut in_order_until = None;
    let verdict = match next {
        NextAction::Step { step, .. } => {
            // Only the due step is reported, because other faults may result from it.
            reported.extend(reported_lockouts(&seen.observed, now).iter().map(ToString::to_string));
            reported.extend(faults(seen, policy, now)?);
            Some(match step {
                Step::Ca(reason) | Step::Store(reason) => {
                    format!("the signing CA: {reason}")
                }
                Step::Bundle(_) => "the trust bundle does not have the expected CAs".to_owned(),
                Step::Pointers => {
                    "pointer configs trust other CAs than the trust bundle".to_owned()
                }
                Step::Serving(reason, _) => format!("the serving certificate: {reason}"),
            })
        }
        NextAction::Settled { attention, .. } if !attention.iter().all(Warning::is_warning) => {
            let faults = attention.iter().filter(|it| !it.is_warning());
            reported.extend(faults.map(|it| located(it, &seen.files)));
            Some(Warning::verdict(&attention))
        }
        NextAction::Settled { .. } if seen.observed.serving.is_none() => {
            Some("no serving certificate found".to_owned())
        }
        NextAction::Settled { .. } if !seen.unreadable.is_empty() => {
            Some("the server cannot read all its files".to_owned())
        }
        NextAction::Settled { .. } if !reported.is_empty() => {
            Some("other users can read keys or tokens".to_owned())
        }
        NextAction::Settled { until, .. } => {
            in_order_until = Some(date(until)?);
            None
        }
    };
    let pointers = pki::pointer_warnings(&seen.observed);
    let left_alone = seen.pointers.iter().filter_map(|(name, text)| {
        let config = PointerConfig::read(text);
        let reason = seen.stranger(&config).filter(|it| *it == LeftAlone::NameOnly)?;
        Some(format!("{name}: not updated: {reason}"))
    });
    Ok(CheckReport {
        exposed: Vec::new(),
        warnings: pointers.iter().map(ToString::to_string).collect(),
        in_order_until,
        left_alone: left_alone.collect(),
        faults: reported,
        verdict,
    })
}

/// Unusable pairs that no step repairs.
fn faults(
    seen: &ObservedState,
    policy: &Policy,
    now: OffsetDateTime,
) -> anyhow::Result<Vec<String>> {
    let generate = &mut |_| policy.algorithm.generate();
    let (_, attention) = pki::dry_run(&seen.observed, policy, now, generate)?;
    let is_fault = |it: &&Warning| matches!(it, Warning::Ca(_) | Warning::Serving(_));
    Ok(attention.iter().filter(is_fault).map(|it| located(it, &seen.files)).collect())
}
