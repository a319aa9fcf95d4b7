//! The serving pair in its files, followed: a pair that belongs together is taken over, any other
//! leaves the one before.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use arc_swap::ArcSwapOption;
use time::format_description::well_known::Rfc3339;

use crate::folder_watch::{FolderWatch, Scanned};
use crate::server::tls::{Pair, PairError};
use crate::server::tls_policy::TlsPolicy;
use crate::source::Reporting;
use crate::telemetry::Metrics;

/// A certificate file with its key's; both may be one file.
#[derive(Debug, Clone)]
pub struct PairFiles {
    /// The certificate, followed by the authorities that are sent with it.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

impl PairFiles {
    /// The folders that a replaced file appears in.
    fn folders(&self) -> Vec<PathBuf> {
        let folder = |path: &Path| match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
            _ => PathBuf::from("."),
        };
        let mut folders = vec![folder(&self.certificate), folder(&self.key)];
        folders.dedup();
        folders
    }
}

/// The pair that is served.
pub(super) struct ServingPair {
    files: PairFiles,
    policy: TlsPolicy,
    pair: Pair,
    tls: Arc<ArcSwapOption<rustls::ServerConfig>>,
    reporting: Reporting,
}

impl ServingPair {
    /// Reads the pair for the first time.
    pub(super) fn read(
        files: PairFiles,
        policy: TlsPolicy,
        reporting: Reporting,
    ) -> Result<Self, PairError> {
        let pair = Pair::read(&files.certificate, &files.key, &policy)?;
        let tls = Arc::new(ArcSwapOption::from_pointee(pair.config(&policy)?));
        note(&pair, &reporting.metrics);
        Ok(Self { files, policy, pair, tls, reporting })
    }

    /// The TLS configuration in force, swapped when another pair is taken over.
    pub(super) fn tls(&self) -> Arc<ArcSwapOption<rustls::ServerConfig>> {
        Arc::clone(&self.tls)
    }

    /// Takes over the pair whenever its files change, for ever.
    pub(super) async fn follow(mut self) {
        let watch = FolderWatch::new(self.files.folders());
        let scan = move |being_written: &dyn Fn(&Path) -> bool| {
            if being_written(&self.files.certificate) || being_written(&self.files.key) {
                return Scanned::Unsettled;
            }
            let reason = self.take_over().err().map(|error| error.to_string());
            if self.reporting.status.not_ready.set("serving pair", reason.clone())
                && let Some(reason) = reason
            {
                self.reporting.metrics.certificate_failures.inc();
                tracing::error!(
                    reason,
                    "the serving pair was not taken over; the one before stays"
                );
            }
            Scanned::Settled
        };
        watch.follow(scan).await;
    }

    fn take_over(&mut self) -> Result<(), PairError> {
        let pair = Pair::read(&self.files.certificate, &self.files.key, &self.policy)?;
        if !pair.same(&self.pair) {
            self.tls.store(Some(Arc::new(pair.config(&self.policy)?)));
            note(&pair, &self.reporting.metrics);
            self.pair = pair;
        }
        Ok(())
    }
}

/// Tells the log and the metrics until when the serving pair is good.
fn note(pair: &Pair, metrics: &Metrics) {
    metrics.certificate_expires(pair.expires.unix_timestamp());
    let expires = pair.expires.format(&Rfc3339).unwrap_or_default();
    if pair.expires < SystemTime::now() {
        tracing::error!(expires, "serving a certificate that has expired");
    } else {
        tracing::info!(expires, "serving pair read");
    }
}
