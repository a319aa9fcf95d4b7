//! Certificates in files, and texts about them that commands print.

use std::path::Path;

use anyhow::Context as _;
use files::bounded;
use pki::{Certificate, Warning};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::commands::print_stderr;

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

/// Formats a time for people and annotations.
pub(in crate::commands) fn date(time: OffsetDateTime) -> anyhow::Result<String> {
    time.format(&Rfc3339).with_context(|| format!("{time} cannot be written as a date"))
}

/// Reads a file with certificates.
pub(in crate::commands) fn read_certificates(path: &Path) -> anyhow::Result<Vec<Certificate>> {
    Certificate::read_trusted(&bounded::read(path)?)?.context("has no certificate")
}
