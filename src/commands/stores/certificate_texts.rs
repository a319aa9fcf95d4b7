//! Certificates in files, and texts about them that commands print and log.

use std::path::Path;

use anyhow::Context as _;
use pki::{Certificate, LEFT_OUT, LEFT_OUT_FIX, Step, Warning};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::commands::print_stderr;
use crate::files::bounded;

/// Warns of machines that are locked out.
pub(in crate::commands) fn warn_locked_out(attention: impl IntoIterator<Item = Warning>) {
    for it in attention.into_iter().filter(|it| matches!(it, Warning::LockedOut(_))) {
        print_stderr(&format!("warning: {it}"));
    }
}

/// A warning about the signing CA or the serving pair, with its file or object.
pub(in crate::commands) fn located(attention: &Warning, [ca, serving]: &[String; 2]) -> String {
    match attention {
        Warning::Ca(_) => format!("{ca}: {attention}"),
        Warning::Serving(_) | Warning::ServingExpired => format!("{serving}: {attention}"),
        _ => attention.to_string(),
    }
}

/// Logs keys and pairs that were removed from the store.
pub(crate) fn log_dropped(dropped: &[String]) {
    for what in dropped {
        tracing::warn!(what, reason = LEFT_OUT, fix = LEFT_OUT_FIX, "removed from the CA store");
    }
}

/// Logs an applied step.
pub(in crate::commands) fn log_step(step: &Step) {
    match step {
        Step::Ca(reason) => tracing::info!(%reason, "made a signing CA"),
        Step::Store(reason) => tracing::info!(%reason, "rewrote the CA store"),
        Step::Bundle(_) => tracing::info!("wrote the trust bundle"),
        Step::Pointers => tracing::info!("wrote the pointer configs"),
        Step::Serving(reason, _) => tracing::info!(%reason, "issued a serving certificate"),
    }
}

/// Formats a time for people and annotations.
pub(in crate::commands) fn date(time: OffsetDateTime) -> anyhow::Result<String> {
    time.format(&Rfc3339).with_context(|| format!("{time} cannot be written as a date"))
}

/// Reads a file with certificates.
pub(in crate::commands) fn read_certificates(path: &Path) -> anyhow::Result<Vec<Certificate>> {
    Certificate::read_trusted(&bounded::read(path)?)?.context("has no certificate")
}
