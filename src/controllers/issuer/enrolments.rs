//! Requests that a CA beyond the cluster is asked for, each in a task of its own: answers may take days.
//!
//! Whatever may heal by itself or by an administrator is tried again, for as long as the request is there. A task ends
//! with its request, and begins anew when its issuer or the secrets of that have changed. Nothing of it outlives the
//! process: whoever comes after it asks anew.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cmp::{EnrolError, Pause, Request};
use pki::Issued;
use time::OffsetDateTime;
use tokio::sync::Notify;
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

use super::issuer_spec::IssuerName;
use super::policy::Grant;
use super::upstream::Upstream;
use crate::cmp_http::{Server, tries};

/// How far a request has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Progress {
    /// The CA is asked, or takes its time.
    Waits(String),
    /// It is asked again later.
    InTrouble(String),
    /// It is not asked again.
    Failed(String),
    /// It is there; with what the CA has changed.
    Issued(Box<Issued>, Option<String>),
}

/// All requests that are asked for.
pub(super) struct Enrolments {
    wake: Arc<Notify>,
    /// By the unique id of the request's object.
    under_way: BTreeMap<String, Enrolment>,
    /// Those that were there in this round.
    seen: BTreeSet<String>,
}

struct Enrolment {
    issuer: IssuerName,
    upstream: Arc<Upstream<Server>>,
    progress: Shared,
    /// Ends with this value.
    _task: AbortOnDropHandle<()>,
}

impl Enrolments {
    /// None yet. `wake` is told of whatever comes.
    pub(super) fn new(wake: Arc<Notify>) -> Self {
        Self { wake, under_way: BTreeMap::new(), seen: BTreeSet::new() }
    }

    /// How far the request of this id has come, which begins if it has not.
    pub(super) fn follow(
        &mut self,
        id: &str,
        issuer: &IssuerName,
        upstream: &Arc<Upstream<Server>>,
        grant: Grant,
    ) -> Progress {
        self.seen.insert(id.to_owned());
        let enrolment = self.under_way.get(id);
        if let Some(known) = enrolment.filter(|known| Arc::ptr_eq(&known.upstream, upstream)) {
            return known.progress.get();
        }
        let progress = Shared::new(Arc::clone(&self.wake));
        let (upstream, grant) = (Arc::clone(upstream), Arc::new(grant));
        let asking = Asking { upstream: Arc::clone(&upstream), grant, progress: progress.clone() };
        let task = until_answered(move || asking.clone().ask(), progress.clone());
        let enrolment = Enrolment {
            issuer: issuer.clone(),
            upstream,
            progress: progress.clone(),
            _task: AbortOnDropHandle::new(tokio::spawn(task)),
        };
        self.under_way.insert(id.to_owned(), enrolment);
        progress.get()
    }

    /// Ends what nobody has asked for since the last call. Returns whose CA is in trouble, and which, each once.
    pub(super) fn end_round(&mut self) -> Vec<String> {
        let seen = std::mem::take(&mut self.seen);
        self.under_way.retain(|id, _| seen.contains(id));
        let troubles = self.under_way.values().filter_map(|enrolment| {
            let Progress::InTrouble(trouble) = enrolment.progress.get() else { return None };
            Some(format!("{}: {trouble}", enrolment.issuer))
        });
        troubles.collect::<BTreeSet<_>>().into_iter().collect()
    }
}

/// How far a request has come, by its task for everybody else.
#[derive(Clone)]
struct Shared {
    progress: Arc<Mutex<Progress>>,
    wake: Arc<Notify>,
}

impl Shared {
    fn new(wake: Arc<Notify>) -> Self {
        let asked = Progress::Waits("the CA is asked".to_owned());
        Self { progress: Arc::new(Mutex::new(asked)), wake }
    }

    fn get(&self) -> Progress {
        self.lock().clone()
    }

    fn set(&self, progress: Progress) {
        *self.lock() = progress;
        self.wake.notify_one();
    }

    /// Nothing panics while it is locked.
    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What one request takes to be asked for.
#[derive(Clone)]
struct Asking {
    upstream: Arc<Upstream<Server>>,
    grant: Arc<Grant>,
    progress: Shared,
}

impl Asking {
    /// Asks once.
    async fn ask(self) -> Result<Progress, EnrolError> {
        let Self { upstream, grant, progress } = self;
        let settings = match upstream.settings() {
            Ok(settings) => settings,
            Err(fault) => return Ok(Progress::Failed(fault)),
        };
        let request = Request::Signing(&grant.request.der);
        let waits = |_, pause: Pause<'_>| {
            progress.set(match pause {
                Pause::Asked(reason) => Progress::Waits(waiting(reason)),
                Pause::Away(error) => Progress::InTrouble(error.to_string()),
            });
        };
        let enrolled = upstream.server.client().enrol(settings, request, waits).await?;
        let changed = enrolled.modified.as_ref().map(ToString::to_string);
        Ok(match upstream.issued(enrolled, &grant, OffsetDateTime::now_utc()) {
            Ok(issued) => Progress::Issued(Box::new(issued), changed),
            Err(fault) => Progress::Failed(fault),
        })
    }
}

/// Asks until there is an answer that is one.
async fn until_answered<F>(mut ask: impl FnMut() -> F, progress: Shared)
where
    F: Future<Output = Result<Progress, EnrolError>>,
{
    let mut waits = tries();
    loop {
        match ask().await {
            Ok(answer) => return progress.set(answer),
            Err(error) if error.is_final() => {
                return progress.set(Progress::Failed(error.to_string()));
            }
            Err(error) => progress.set(Progress::InTrouble(error.to_string())),
        }
        sleep(waits.next()).await;
    }
}

fn waiting(reason: &str) -> String {
    let because = if reason.is_empty() { String::new() } else { format!(": {reason}") };
    format!("the CA asks to wait{because}")
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::ready;
    use std::time::Duration;

    use cmp::CmpError;
    use tokio::time::Instant;

    use super::*;

    const DAY: Duration = Duration::from_secs(24 * 3600);

    fn shared() -> Shared {
        Shared::new(Arc::new(Notify::new()))
    }

    #[tokio::test(start_paused = true)]
    async fn a_ca_that_is_away_for_a_month_is_asked_on_and_answers_soon_after() {
        let (started, asked) = (Instant::now(), Cell::new(0));
        let progress = shared();
        let ask = || {
            asked.set(asked.get() + 1);
            // What a CA answers that is being restored.
            let away = started.elapsed() < 30 * DAY;
            let answer = Progress::Failed("an answer".to_owned());
            ready(if away { Err(EnrolError::Cmp(CmpError::WrongNonce)) } else { Ok(answer) })
        };
        until_answered(ask, progress.clone()).await;
        assert_eq!(progress.get(), Progress::Failed("an answer".to_owned()));
        let ten_minutes = Duration::from_secs(600);
        assert!(started.elapsed() <= 30 * DAY + ten_minutes, "{:?}", started.elapsed());
        // Each ten minutes at least, and no more than twice as often.
        assert!((30 * 144..=30 * 288 + 20).contains(&asked.get()), "{}", asked.get());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_refused_for_itself_is_not_asked_for_again() {
        let (asked, progress) = (Cell::new(0), shared());
        let ask = || {
            asked.set(asked.get() + 1);
            ready(Err(EnrolError::Cmp(CmpError::WrongKey)))
        };
        until_answered(ask, progress.clone()).await;
        assert_eq!(asked.get(), 1);
        let reported = "the certificate that came is for another key".to_owned();
        assert_eq!(progress.get(), Progress::Failed(reported));
    }

    #[tokio::test]
    async fn whoever_waits_for_it_is_woken_and_told_what_the_trouble_is() {
        let progress = shared();
        progress.set(Progress::InTrouble(EnrolError::NoRandomness.to_string()));
        progress.wake.notified().await;
        assert_eq!(progress.get(), Progress::InTrouble("there is no randomness".to_owned()));
        assert_eq!(waiting(""), "the CA asks to wait");
        assert_eq!(waiting("ask Mary"), "the CA asks to wait: ask Mary");
    }
}
