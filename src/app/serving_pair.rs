//! The serving pair in its files, followed: a pair that belongs together is taken over, any other
//! leaves the one before.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use arc_swap::ArcSwapOption;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::folder_watch::{FolderWatch, Scanned};
use crate::objects::TlsProfile;
use crate::overview::History;
use crate::pki::Certificate;
use crate::server::tls::{Pair, PairError};
use crate::server::tls_policy::{TlsPolicy, warn_passed_over};
use crate::source::Reporting;
use crate::telemetry::Metrics;

/// A certificate file with its key's; both may be one file.
#[derive(Debug, Clone)]
pub struct PairFiles {
    /// The certificate, followed by the authorities that are sent with it.
    pub certificate: PathBuf,
    /// PEM: PKCS#1, SEC1 or PKCS#8.
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

/// Reads the certificates that are shown at the moment.
pub(super) type ShownChain = Box<dyn Fn() -> Vec<Certificate> + Send + Sync>;

/// The pair that is served.
pub(super) struct ServingPair {
    files: PairFiles,
    shown: Arc<Shown>,
    reporting: Reporting,
    history: History,
}

/// What clients are shown.
struct Shown {
    terms: Mutex<Terms>,
    /// Made of them.
    tls: Arc<ArcSwapOption<rustls::ServerConfig>>,
}

struct Terms {
    policy: TlsPolicy,
    pair: Pair,
}

impl ServingPair {
    /// Reads the pair for the first time.
    pub(super) fn read(
        files: PairFiles,
        policy: TlsPolicy,
        reporting: Reporting,
        history: History,
    ) -> Result<Self, PairError> {
        let pair = Pair::read(&files.certificate, &files.key, &policy)?;
        let tls = Arc::new(ArcSwapOption::from_pointee(pair.config(&policy)?));
        note(&pair, &reporting.metrics);
        let shown = Arc::new(Shown { terms: Mutex::new(Terms { policy, pair }), tls });
        Ok(Self { files, shown, reporting, history })
    }

    /// The TLS configuration in force, swapped when another pair is taken over.
    pub(super) fn tls(&self) -> Arc<ArcSwapOption<rustls::ServerConfig>> {
        Arc::clone(&self.shown.tls)
    }

    /// What reads the certificates that are shown now, leaf first.
    pub(super) fn shown_chain(&self) -> ShownChain {
        let shown = Arc::clone(&self.shown);
        Box::new(move || {
            let terms = shown.terms();
            terms.pair.chain().filter_map(Certificate::from_der).collect()
        })
    }

    /// What takes over a cluster's TLS profile whenever it is another one; where there is none,
    /// `flags` hold. A profile that cannot be used leaves what was spoken before.
    pub(super) fn follow_profile(
        &self,
        flags: TlsPolicy,
    ) -> impl FnMut(Option<&TlsProfile>) + Send + 'static {
        let shown = Arc::clone(&self.shown);
        let degraded = self.reporting.status.degraded.clone();
        let mut known: Option<TlsProfile> = None;
        move |profile| {
            if known.as_ref() == profile {
                return;
            }
            known = profile.cloned();
            let policy = match profile.map(TlsPolicy::from_profile) {
                None => Ok((flags.clone(), Vec::new())),
                Some(Ok((policy, passed_over))) => Ok((policy.with_groups_of(&flags), passed_over)),
                Some(Err(error)) => Err(error.to_string()),
            };
            let taken_over = policy.and_then(|(policy, passed_over)| {
                warn_passed_over(&passed_over);
                shown.speak(policy).map_err(|error| error.to_string())
            });
            match &taken_over {
                Ok(()) => tracing::info!(
                    profile = profile.map_or("none", |profile| profile.kind.as_str()),
                    "TLS profile taken over"
                ),
                Err(error) => {
                    tracing::error!(error, "the TLS profile cannot be used; what was before stays");
                }
            }
            degraded.set("TLS profile", taken_over.err());
        }
    }

    /// Takes over the pair whenever its files change, for ever.
    pub(super) async fn follow(self) {
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

    fn take_over(&self) -> Result<(), PairError> {
        let mut terms = self.shown.terms();
        let pair = Pair::read(&self.files.certificate, &self.files.key, &terms.policy)?;
        if !pair.same(&terms.pair) {
            self.shown.tls.store(Some(Arc::new(pair.config(&terms.policy)?)));
            note(&pair, &self.reporting.metrics);
            let until = pair.expires.date();
            self.history.note(
                format!("another serving certificate, valid until {until}"),
                OffsetDateTime::now_utc(),
            );
            terms.pair = pair;
        }
        Ok(())
    }
}

impl Shown {
    fn terms(&self) -> MutexGuard<'_, Terms> {
        self.terms.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn speak(&self, policy: TlsPolicy) -> Result<(), PairError> {
        let mut terms = self.terms();
        self.tls.store(Some(Arc::new(terms.pair.config(&policy)?)));
        terms.policy = policy;
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
