//! Threads that follow files: the manifests, and the serving pair.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::SystemTime;

use arc_swap::ArcSwapOption;
use time::format_description::well_known::Rfc3339;
use tokio::sync::oneshot;

use super::flags::PairFiles;
use super::publish::Publisher;
use crate::conditions::Status;
use crate::server::tls::Pair;
use crate::server::tls_policy::TlsPolicy;
use crate::source::directory::Directory;
use crate::source::watch::{Follower, Look, Stop, Waker};
use crate::telemetry::Metrics;

/// A thread that follows files until it is told to stop.
pub(super) struct Following {
    thread: JoinHandle<()>,
    stop: Stop,
}

impl Following {
    /// Starts `work`. The second value resolves when the thread has ended for whatever reason.
    pub(super) fn start(
        name: &str,
        folders: Vec<PathBuf>,
        work: impl FnOnce(Follower) + Send + 'static,
    ) -> io::Result<(Self, oneshot::Receiver<()>)> {
        let (alive, ended) = oneshot::channel();
        let (follower, stop) = Follower::new(folders);
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            work(follower);
            drop::<oneshot::Sender<()>>(alive);
        })?;
        Ok((Self { thread, stop }, ended))
    }

    /// What makes it look at the files, changed or not.
    pub(super) fn waker(&self) -> Waker {
        self.stop.waker()
    }

    pub(super) fn stop(self) {
        drop(self.stop);
        // A thread that panicked has been reported where its end was awaited.
        let _ = self.thread.join();
    }
}

/// Publishes each change of the manifests.
pub(super) struct FollowDirectory {
    pub(super) directory: Directory,
    pub(super) publisher: Publisher,
    pub(super) status: Status,
}

impl FollowDirectory {
    pub(super) fn run(mut self, follower: Follower) {
        follower.follow(|being_written| self.look(being_written));
    }

    fn look(&mut self, being_written: &dyn Fn(&Path) -> bool) -> Look {
        let scan = match self.directory.scan(SystemTime::now(), being_written) {
            Ok(scan) => scan,
            Err(error) => {
                if self.status.not_ready.set("inputs", Some(error.to_string())) {
                    tracing::error!(%error, "cannot read the inputs; what was read before stays");
                }
                return Look::Settled;
            }
        };
        self.status.not_ready.set("inputs", None);
        if let Some(inputs) = scan.inputs {
            self.publisher.publish(&inputs);
        }
        if scan.unsettled { Look::Unsettled } else { Look::Settled }
    }
}

/// Takes over the serving pair when its files change.
pub(super) struct FollowPair {
    pub(super) files: PairFiles,
    pub(super) policy: TlsPolicy,
    pub(super) pair: Pair,
    pub(super) tls: Arc<ArcSwapOption<rustls::ServerConfig>>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) status: Status,
}

impl FollowPair {
    pub(super) fn run(mut self, follower: Follower) {
        follower.follow(|being_written| {
            if being_written(&self.files.cert) || being_written(&self.files.key) {
                return Look::Unsettled;
            }
            let reason = self.look().err().map(|error| error.to_string());
            if self.status.not_ready.set("serving pair", reason.clone())
                && let Some(reason) = reason
            {
                self.metrics.certificate_failures.inc();
                tracing::error!(
                    reason,
                    "the serving pair was not taken over; the one before stays"
                );
            }
            Look::Settled
        });
    }

    fn look(&mut self) -> anyhow::Result<()> {
        let pair = Pair::read(&self.files.cert, &self.files.key, &self.policy)?;
        if !pair.same(&self.pair) {
            self.tls.store(Some(Arc::new(pair.config(&self.policy)?)));
            note_pair(&pair, &self.metrics);
            self.pair = pair;
        }
        Ok(())
    }
}

/// Tells the log and the metrics until when the serving pair is good.
pub(super) fn note_pair(pair: &Pair, metrics: &Metrics) {
    metrics.certificate_expires(pair.expires.unix_timestamp());
    let expires = pair.expires.format(&Rfc3339).unwrap_or_default();
    if pair.expires < SystemTime::now() {
        tracing::error!(expires, "serving a certificate that has expired");
    } else {
        tracing::info!(expires, "serving pair read");
    }
}
