//! Renews the certificates of `serve` while the server runs.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use common::reconcile::{self, Requeue, Subject};
use files::shared_watch::SharedWatch;
use futures_util::future::OptionFuture;
use pki::{DROPPED_FIX, DROPPED_REASON, Host, Policy, Step, Warning};
use telemetry::{Reporting, faults, log_attention};
use time::OffsetDateTime;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::serving::pipeline::publish::Subscription;
use crate::store::state_directory::{Stamps, StateDirectory, StateError};

/// Waits between two looks: the shortest and the longest.
const SHORTEST_WAIT: Duration = Duration::from_secs(10);
const LONGEST_WAIT: Duration = Duration::from_secs(3600);
/// Wait after a change of the files before they are checked: each check reads all pointer configs.
const CHECK_AFTER: Duration = Duration::from_secs(2);

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
    /// Requests for rotations that cannot be read.
    unreadable: Vec<String>,
    /// Reason why one that was read waits.
    stuck: Option<String>,
    /// Files of the requests at the last look.
    requests: Stamps,
    /// Time of the next check of changed files.
    check_at: Option<Instant>,
    /// Reason why the last attempt failed.
    failure: Option<String>,
    /// Time in which nothing is due without a change; before the first look, none.
    settled: Option<Range<OffsetDateTime>>,
}

impl CertificateReconciler {
    /// Creates a reconciler that has not looked yet. The first of `hosts` is that of pointer configs.
    pub(crate) fn new(state: StateDirectory, hosts: Vec<Host>, policy: Policy) -> Self {
        Self {
            state,
            pools: None,
            hosts,
            policy,
            files: Arc::default(),
            attention: Vec::new(),
            open: Vec::new(),
            unreadable: Vec::new(),
            stuck: None,
            requests: Stamps::default(),
            check_at: None,
            failure: None,
            settled: None,
        }
    }

    /// Follows the files of certificates and pointer configs, and the requests of administrators.
    pub(crate) fn follow(&mut self, watch: &mut SharedWatch) {
        // Without the directory, requests are noticed once one is made.
        let _ = self.state.expect_rotations();
        let state = self.state.clone();
        self.files = watch.notify_of(move || state.stamps().ok());
    }

    /// Reads the requests of administrators, and applies due steps. It may block.
    pub(crate) fn reconcile(&mut self) {
        self.read_requests();
        self.apply_due(OffsetDateTime::now_utc());
    }

    fn apply_due(&mut self, now: OffsetDateTime) {
        // A file can be restored, so a wait never lasts for years.
        self.settled = Some(now..now + SHORTEST_WAIT);
        let wanted = || Ok::<_, StateError>((self.hosts.clone(), Vec::new()));
        let state = self.state.clone().with_pools(self.pools.clone());
        self.open = state.close_tokens().iter().map(ToString::to_string).collect();
        match state.reconcile(wanted, &self.policy, now) {
            Ok(done) => {
                done.steps.iter().for_each(log_step);
                log_dropped(&done.dropped);
                self.take(done.attention);
                self.stuck = done.stuck.map(|error| error.to_string());
                self.failure = None;
                let wait = Duration::try_from(done.requeue_at - now).unwrap_or_default();
                self.settled = Some(now..now + wait.clamp(SHORTEST_WAIT, LONGEST_WAIT));
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
            }
        }
    }

    /// Reads the requests of administrators. Returns `true` if there is one that was not there at the last look: what was
    /// refused then is not tried again with each change of a file.
    fn read_requests(&mut self) -> bool {
        let (requests, stamps) = (self.state.rotation_requests(), self.state.rotation_stamps());
        self.unreadable = requests.unreadable.iter().map(ToString::to_string).collect();
        if !requests.is_any() {
            self.stuck = None;
        }
        let is_new = self.requests != stamps;
        self.requests = stamps;
        is_new && requests.is_any()
    }

    /// Checks changed files without writing any: an administrator may be replacing them. Returns `false` if that was not
    /// possible, as during another command.
    fn check_files(&mut self, now: OffsetDateTime) -> bool {
        let state = self.state.clone().with_pools(self.pools.clone());
        let Ok(attention) = state.attention(&self.hosts, &self.policy, now) else { return false };
        if let Some(attention) = attention {
            self.take(attention);
        }
        true
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
        let waiting: Vec<_> = self.unreadable.iter().chain(&self.stuck).cloned().collect();
        faults::ROTATION_REQUESTS.report_all(&reporting.status, &waiting);
        reporting.metrics.certificates_attention(&Warning::counts(&self.attention));
    }

    /// Takes a look for the served pools, once they are known.
    fn look(&mut self, pools: Option<Arc<BTreeSet<String>>>) -> Requeue {
        let now = OffsetDateTime::now_utc();
        let are_pools_new = pools.is_some() && pools != self.pools;
        if are_pools_new {
            self.pools = pools;
        }
        // A clock can be set, also to before the last look.
        let is_due = !self.settled.as_ref().is_some_and(|settled| settled.contains(&now));
        let are_files_quiet = self.check_at.take_if(|at| *at <= Instant::now()).is_some();
        if are_pools_new || is_due {
            self.reconcile();
        } else if are_files_quiet && self.read_requests() {
            self.apply_due(now);
        } else if are_files_quiet && !self.check_files(now) {
            self.check_at = Some(Instant::now() + CHECK_AFTER);
        }
        self.settled.as_ref().map_or(Requeue::Resync, |settled| Requeue::at(settled.end, now))
    }

    /// Applies what becomes due, forever, for the served pools.
    pub(crate) async fn run(self, published: Subscription, reporting: Reporting) {
        match reconcile::run(Served { certificates: self, published, reporting }, LONGEST_WAIT)
            .await {}
    }
}

/// Certificates of a server that runs, with what changes them and what it reports to.
struct Served {
    certificates: CertificateReconciler,
    published: Subscription,
    reporting: Reporting,
}

impl Subject for Served {
    type Error = Infallible;

    async fn look(&mut self) -> Result<Requeue, Infallible> {
        let pools = self.published.borrow_and_update().pools();
        let requeue = tokio::task::block_in_place(|| self.certificates.look(pools));
        self.certificates.report(&self.reporting);
        Ok(requeue)
    }

    async fn changed(&mut self) {
        let Self { certificates: CertificateReconciler { files, check_at, .. }, published, .. } =
            self;
        loop {
            tokio::select! {
                () = files.notified() => {
                    check_at.get_or_insert_with(|| Instant::now() + CHECK_AFTER);
                }
                Some(()) = OptionFuture::from(check_at.map(tokio::time::sleep_until)) => return,
                Ok(()) = published.changed() => return,
            }
        }
    }
}

/// Logs keys and pairs that were removed from the store.
fn log_dropped(dropped: &[String]) {
    for what in dropped {
        tracing::warn!(
            what,
            reason = DROPPED_REASON,
            fix = DROPPED_FIX,
            "removed from the CA store"
        );
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
