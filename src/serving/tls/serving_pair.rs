//! Follows the files of the serving certificate: a pair that matches is loaded, otherwise the previous one stays.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

use arc_swap::ArcSwapOption;
use clap::Args;
use common::flags::TLS;
use common::sync::lock;
use files::replace::directory_of;
use files::shared_watch::SharedWatch;
use files::watch::Scanned;
use model::history::History;
use model::objects::TlsProfile;
use pki::Certificate;
use telemetry::Reporting;
use telemetry::conditions::Status;
use telemetry::faults;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::sync::watch;

use super::policy::{TlsPolicy, warn_ignored_suites};
use crate::serving::tls::{Pair, PairError};

/// A certificate file with its key's; both may be one file. Authorities that are sent with the certificate follow it; the
/// key is PKCS#1, SEC1 or PKCS#8 in PEM.
#[derive(Debug, Clone, Args)]
pub(crate) struct PairFiles {
    /// Serving certificate in PEM
    #[arg(id = "cert", long = "cert", value_name = "FILE", default_value = "/etc/ssl/mcs/tls.crt",
        help_heading = TLS)]
    pub certificate: PathBuf,
    /// Key of the serving certificate
    #[arg(long, value_name = "FILE", default_value = "/etc/ssl/mcs/tls.key", help_heading = TLS)]
    pub key: PathBuf,
}

/// The serving certificate and its files.
pub(crate) struct ServingPair {
    files: PairFiles,
    active: Arc<ActivePair>,
}

/// The pair that is served.
pub(crate) struct ActivePair {
    tls_state: Mutex<TlsState>,
    /// TLS configuration, once there is a pair.
    tls: Arc<ArcSwapOption<rustls::ServerConfig>>,
    /// True if the pair is that of the files.
    is_of_files: watch::Sender<bool>,
    reporting: Reporting,
    history: History,
}

struct TlsState {
    policy: TlsPolicy,
    pair: Option<Pair>,
}

impl ServingPair {
    /// Reads the pair for the first time. If it `may_come_later`, missing files are no error: until they exist every
    /// handshake fails, and Ignition retries.
    pub(crate) fn read(
        files: PairFiles,
        may_come_later: bool,
        policy: TlsPolicy,
        reporting: Reporting,
        history: History,
    ) -> Result<Self, PairError> {
        let active = Arc::new(ActivePair {
            tls_state: Mutex::new(TlsState { policy, pair: None }),
            tls: Arc::default(),
            is_of_files: watch::Sender::new(false),
            reporting,
            history,
        });
        let pair = Self { files, active };
        match pair.take_over() {
            Err(error) if may_come_later && error.is_missing() => {
                let status = &pair.active.reporting.status;
                faults::SERVING_PAIR_AWAITED.report(status, Some(&error.to_string()));
            }
            taken_over => taken_over?,
        }
        Ok(pair)
    }

    /// TLS configuration in force, swapped when another pair is loaded; empty while there is none.
    pub(crate) fn tls(&self) -> Arc<ArcSwapOption<rustls::ServerConfig>> {
        Arc::clone(&self.active.tls)
    }

    pub(crate) fn active(&self) -> Arc<ActivePair> {
        Arc::clone(&self.active)
    }

    /// A follower of the inputs' TLS profile; without one, `flags` apply.
    pub(crate) fn profile_follower(&self, flags: TlsPolicy) -> ProfileFollower {
        let status = self.active.reporting.status.clone();
        ProfileFollower { active: Arc::clone(&self.active), status, flags, known: None }
    }

    /// A watch of the directories of its files.
    pub(crate) fn watch(&self) -> SharedWatch {
        let PairFiles { certificate, key } = &self.files;
        let mut directories =
            vec![directory_of(certificate).to_owned(), directory_of(key).to_owned()];
        directories.dedup();
        SharedWatch::new(directories)
    }

    /// Loads the pair whenever its files change.
    pub(crate) fn follow(self, watch: &mut SharedWatch) {
        watch.add(move |being_written| {
            if being_written(&self.files.certificate) || being_written(&self.files.key) {
                return Scanned::UNSETTLED;
            }
            let failed = self.take_over().err();
            self.active.report_unusable(OffsetDateTime::now_utc());
            // A missing file is expected, and reported already.
            let failed = failed.filter(|error| !error.is_missing() || self.active.has_files());
            let reason = failed.map(|error| error.to_string());
            let Reporting { metrics, status } = &self.active.reporting;
            let is_new = faults::SERVING_PAIR_UNREAD.report(status, reason.as_deref());
            if is_new && reason.is_some() {
                metrics.certificate_failures.inc();
            }
            Scanned::SETTLED
        });
    }

    fn take_over(&self) -> Result<(), PairError> {
        let PairFiles { certificate, key } = &self.files;
        self.active.take(|policy| Pair::read(certificate, key, policy))?;
        self.active.is_of_files.send_replace(true);
        Ok(())
    }
}

/// Updates the TLS policy to a cluster's TLS profile.
pub(crate) struct ProfileFollower {
    active: Arc<ActivePair>,
    status: Status,
    flags: TlsPolicy,
    known: Option<TlsProfile>,
}

impl ProfileFollower {
    /// Applies a changed profile. An unusable one keeps the previous policy.
    pub(crate) fn take(&mut self, profile: Option<&TlsProfile>) {
        if self.known.as_ref() == profile {
            return;
        }
        self.known = profile.cloned();
        let policy = match profile.map(TlsPolicy::from_profile) {
            None => Ok((self.flags.clone(), Vec::new())),
            Some(Ok((policy, skipped))) => Ok((policy.with_groups_of(&self.flags), skipped)),
            Some(Err(error)) => Err(error.to_string()),
        };
        let taken_over = policy.and_then(|(policy, skipped)| {
            warn_ignored_suites(&skipped);
            self.active.set_tls_policy(policy).map_err(|error| error.to_string())
        });
        if taken_over.is_ok() {
            let profile = profile.map_or("none", |profile| profile.kind.as_str());
            tracing::info!(profile, "applied the TLS profile");
        }
        faults::TLS_PROFILE.report(&self.status, taken_over.err().as_deref());
    }
}

impl ActivePair {
    /// The certificates that are served at present, leaf first.
    pub(crate) fn certificates(&self) -> Vec<Certificate> {
        let tls_state = self.tls_state();
        let chain = tls_state.pair.iter().flat_map(Pair::chain);
        chain.filter_map(Certificate::from_der).collect()
    }

    /// Serves the pair that `read` returns, if it has changed. An error keeps the previous one.
    pub(crate) fn take(
        &self,
        read: impl FnOnce(&TlsPolicy) -> Result<Pair, PairError>,
    ) -> Result<(), PairError> {
        let mut tls_state = self.tls_state();
        let pair = read(&tls_state.policy)?;
        if tls_state.pair.as_ref().is_some_and(|before| pair.same(before)) {
            return Ok(());
        }
        if let (Some(_), Some(fault)) = (&tls_state.pair, pair.fault()) {
            return Err(fault);
        }
        self.tls.store(Some(Arc::new(pair.config(&tls_state.policy)?)));
        let expires = rfc3339(pair.expires);
        self.reporting.metrics.certificate_expiry.set(pair.expires.unix_timestamp());
        tracing::info!(expires, "loaded the serving certificate");
        if tls_state.pair.is_some() {
            let until = pair.expires.date();
            let what = format!("serves another certificate, valid until {until}");
            self.history.note(what, OffsetDateTime::now_utc());
        }
        if pair.fault().is_some() {
            self.reporting.metrics.certificate_failures.inc();
        }
        tls_state.pair = Some(pair);
        drop(tls_state);
        self.report_unusable(OffsetDateTime::now_utc());
        faults::SERVING_PAIR_AWAITED.clear(&self.reporting.status);
        Ok(())
    }

    /// Reports why no machine boots from the served pair, if none does: an unreadable pair is served if there was none
    /// before, for clients that can read it, and any pair expires. All servers have the same pair, so none should be
    /// taken out of service for it.
    fn report_unusable(&self, now: OffsetDateTime) {
        let reason = self.tls_state().pair.as_ref().and_then(|pair| match pair.fault() {
            Some(fault) => Some(fault.to_string()),
            None if pair.expires < now => Some(format!("expired at {}", rfc3339(pair.expires))),
            None => None,
        });
        faults::SERVING_PAIR_UNUSABLE.report(&self.reporting.status, reason.as_deref());
    }

    /// Returns `true` if the pair of the files was loaded; the files may be gone since.
    pub(crate) fn has_files(&self) -> bool {
        *self.is_of_files.borrow()
    }

    /// Waits until the pair of the files is loaded.
    pub(crate) async fn files(&self) {
        // `self` keeps the sender.
        let _ = self.is_of_files.subscribe().wait_for(|is| *is).await;
    }

    fn tls_state(&self) -> MutexGuard<'_, TlsState> {
        lock(&self.tls_state)
    }

    fn set_tls_policy(&self, policy: TlsPolicy) -> Result<(), PairError> {
        let mut tls_state = self.tls_state();
        if let Some(pair) = &tls_state.pair {
            self.tls.store(Some(Arc::new(pair.config(&policy)?)));
        }
        tls_state.policy = policy;
        Ok(())
    }
}

fn rfc3339(time: OffsetDateTime) -> String {
    time.format(&Rfc3339).unwrap_or_default()
}
