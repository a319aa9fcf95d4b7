//! The command `certs`: shows, checks and replaces the certificates of a state directory or a cluster.

pub(in crate::commands) mod check;
mod pointer;
mod report;
mod settings;

use anyhow::bail;
use model::pointer_config::PointerConfig;
use pki::plan::renewal;
use pki::{Certificate, Host, Policy, StoredPair};
use time::OffsetDateTime;

use self::check::CheckReport;
use self::pointer::check_pointer;
use self::report::{CertificateLine, CertificateReport, PointerLine};
use super::print_json;
use super::process::progress::Progress;
use super::stores::certificate_texts::date;
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
        let says = match (seen.foreign_reason(&config), trusts_signer, valid, trusted.is_empty()) {
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
    let mut checked = CheckReport::of(&seen, now)?;
    // These are remarks, not faults of the certificates.
    let found = unless_forbidden(&*store, store.config_findings(manifests))?;
    let ignored_count = found.as_ref().map_or(0, |found| found.ignored.len());
    checked.add(found);
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
