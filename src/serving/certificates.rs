//! Renews the certificates of `serve` while the server runs.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use files::shared_watch::SharedWatch;
use futures_util::future::OptionFuture;
use pki::{Host, LEFT_OUT, LEFT_OUT_FIX, Policy, RotationRequest, Step, Warning};
use telemetry::{Reporting, faults, log_attention};
use time::{Duration, OffsetDateTime};
use tokio::sync::{Notify, watch};

use crate::serving::pipeline::publish::ServedInputs;
use crate::store::state_directory::{StateDirectory, StateError};

/// Waits between two looks: the shortest and the longest.
const SHORTEST_WAIT: Duration = Duration::seconds(10);
const LONGEST_WAIT: Duration = Duration::hours(1);
/// Wait after a change of the files before they are checked: each check reads all pointer configs.
const CHECK_AFTER: std::time::Duration = std::time::Duration::from_secs(2);

/// Manages certificates and pointer configs while the server runs. Every step is atomic, so that the process can end at
/// any time.
pub(crate) struct CertificateReconciler {
    state: StateDirectory,
    /// Pools that have a config, once they are known: others change the verdicts on pointer configs.
    pools: Option<Arc<BTreeSet<String>>>,
    hosts: Vec<Host>,
    policy: Policy,
    /// Notified when the files change.
    files: Arc<Notify>,
    /// Reported warnings.
    attention: Vec<Warning>,
    /// Files with tokens that all users can read, and that other users own.
    open: Vec<String>,
    /// Reason why the last attempt failed.
    failure: Option<String>,
    /// Time of the last look, by wall clock and monotonic clock.
    looked_at: (OffsetDateTime, Instant),
    /// Time of the next step, if nothing changes.
    requeue_at: OffsetDateTime,
}

impl CertificateReconciler {
    /// Creates a reconciler that has not looked yet. The first of `hosts` is that of pointer configs.
    pub(crate) fn new(state: StateDirectory, hosts: Vec<Host>, policy: Policy) -> Self {
        let now = OffsetDateTime::now_utc();
        Self {
            state,
            pools: None,
            hosts,
            policy,
            files: Arc::default(),
            attention: Vec::new(),
            open: Vec::new(),
            failure: None,
            looked_at: (now, Instant::now()),
            requeue_at: now,
        }
    }

    /// Follows the files of certificates and pointer configs.
    pub(crate) fn follow(&mut self, watch: &mut SharedWatch) {
        let state = self.state.clone();
        self.files = watch.notify_of(move || state.stamps().ok());
    }

    /// Applies due steps. It may block.
    pub(crate) fn reconcile(&mut self) {
        let now = OffsetDateTime::now_utc();
        self.looked_at = (now, Instant::now());
        let wanted = || Ok::<_, StateError>((self.hosts.clone(), RotationRequest::default()));
        let state = self.state.clone().with_pools(self.pools.clone());
        self.open = state.close_tokens().iter().map(ToString::to_string).collect();
        match state.reconcile(wanted, &self.policy, now) {
            Ok(done) => {
                done.steps.iter().for_each(log_step);
                log_dropped(&done.dropped);
                self.take(done.attention);
                self.failure = None;
                self.requeue_at = done.requeue_at;
            }
            Err(error) => {
                let error = error.to_string();
                if self.failure.as_ref() != Some(&error) {
                    tracing::error!(
                        error,
                        fix = "correct what the error names; `machine-config-server certs check` \
                            shows the state",
                        "cannot keep the certificates up to date, retrying"
                    );
                }
                self.failure = Some(error);
                self.requeue_at = now;
            }
        }
    }

    /// Checks changed files without writing any: an administrator may be replacing them. Returns `false` if that was not
    /// possible, as during another command.
    fn check_files(&mut self) -> bool {
        let state = self.state.clone().with_pools(self.pools.clone());
        let attention = state.attention(&self.hosts, &self.policy, OffsetDateTime::now_utc());
        let is_checked = attention.is_ok();
        if let Ok(Some(attention)) = attention {
            self.take(attention);
        }
        is_checked
    }

    /// Logs new warnings.
    fn take(&mut self, attention: Vec<Warning>) {
        let new = attention.iter().filter(|it| !self.attention.contains(it));
        let [ca, serving] = self.state.key_files();
        new.for_each(|it| log_attention(it, it.object(&ca, &serving)));
        self.attention = attention;
    }

    fn report(&self, reporting: &Reporting) {
        let failure = self.failure.as_ref();
        let failure = failure.map(|_| "cannot be kept up to date; the log has the reason".into());
        let reported = failure.or_else(|| Warning::summary(&self.attention));
        faults::CERTIFICATES.report(&reporting.status, reported.as_deref());
        faults::OPEN_FILES.report_all(&reporting.status, &self.open);
        reporting.metrics.certificates_attention(&Warning::counts(&self.attention));
    }

    /// Applies what becomes due, forever, for the served pools.
    pub(crate) async fn run(
        mut self,
        mut served: watch::Receiver<Option<Arc<ServedInputs>>>,
        reporting: Reporting,
    ) {
        served.mark_changed();
        let mut check_at = None;
        loop {
            // A look does not restart this wait, which compares the clocks only every 10 s.
            let mut due = pin!(wait_until(self.requeue_at, self.looked_at));
            loop {
                self.report(&reporting);
                tokio::select! {
                    () = &mut due => break,
                    Ok(()) = served.changed() => {
                        let pools = served.borrow_and_update().as_ref().and_then(|it| it.pools());
                        if pools.is_some() && pools != self.pools {
                            self.pools = pools;
                            break;
                        }
                    }
                    () = self.files.notified() => check_at = check_at.or_else(|| Some(soon())),
                    Some(()) = OptionFuture::from(check_at.map(tokio::time::sleep_until)) => {
                        let is_checked = tokio::task::block_in_place(|| self.check_files());
                        check_at = (!is_checked).then(soon);
                    }
                }
            }
            tokio::task::block_in_place(|| self.reconcile());
        }
    }
}

/// Time of a check that a change asks for now.
fn soon() -> tokio::time::Instant {
    tokio::time::Instant::now() + CHECK_AFTER
}

/// Waits for the next look. A file can be restored, so a wait never lasts for years. If the clock
/// is set, as after a start without a battery, certificates of the earlier time may need an immediate repair.
async fn wait_until(time: OffsetDateTime, (since, started): (OffsetDateTime, Instant)) {
    let wait = (time - since).clamp(SHORTEST_WAIT, LONGEST_WAIT).unsigned_abs();
    while let Some(left) = wait.checked_sub(started.elapsed()) {
        tokio::time::sleep(left.min(SHORTEST_WAIT.unsigned_abs())).await;
        let set_by = OffsetDateTime::now_utc() - (since + started.elapsed());
        if set_by.abs() > SHORTEST_WAIT {
            return;
        }
    }
}

/// Logs keys and pairs that were removed from the store.
fn log_dropped(dropped: &[String]) {
    for what in dropped {
        tracing::warn!(what, reason = LEFT_OUT, fix = LEFT_OUT_FIX, "removed from the CA store");
    }
}

/// Logs an applied step.
fn log_step(step: &Step) {
    match step {
        Step::Ca(reason) => tracing::info!(%reason, "made a signing CA"),
        Step::Store(reason) => tracing::info!(%reason, "rewrote the CA store"),
        Step::Bundle(_) => tracing::info!("wrote the trust bundle"),
        Step::Pointers => tracing::info!("wrote the pointer configs"),
        Step::Serving(reason, _) => tracing::info!(%reason, "issued a serving certificate"),
    }
}
