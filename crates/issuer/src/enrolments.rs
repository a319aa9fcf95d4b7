//! Enrolments at external CAs, each in a separate task, because answers can take days.
//!
//! Temporary failures are retried while the request exists. A task ends with its request, and restarts when its issuer
//! or the issuer's Secrets change. No state is stored: after a restart of the process, enrolments start again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use cmp::{EnrolError, Pause, Request};
use cmp_http::{Server, tries};
use common::sync::lock;
use kubernetes::ObjectName;
use time::OffsetDateTime;
use tokio::sync::Notify;
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

use super::decide::Outcome;
use super::policy::Grant;
use super::upstream::Upstream;

pub(super) struct Enrolments {
    wake: Arc<Notify>,
    /// Enrolments by the UID of the request's object.
    under_way: BTreeMap<String, Enrolment>,
    /// UIDs that were followed in this round.
    seen: BTreeSet<String>,
}

struct Enrolment {
    issuer: ObjectName,
    upstream: Arc<Upstream<Server>>,
    progress: SharedProgress,
    /// Aborts the task on drop.
    _task: AbortOnDropHandle<()>,
}

impl Enrolments {
    /// Creates an empty set. `wake` is notified of all progress.
    pub(super) fn new(wake: Arc<Notify>) -> Self {
        Self { wake, under_way: BTreeMap::new(), seen: BTreeSet::new() }
    }

    /// The progress of the request with this UID, which is started if necessary.
    pub(super) fn follow(
        &mut self,
        id: &str,
        issuer: &ObjectName,
        upstream: &Arc<Upstream<Server>>,
        grant: Grant,
    ) -> Outcome {
        self.seen.insert(id.to_owned());
        let enrolment = self.under_way.get(id);
        if let Some(known) = enrolment.filter(|known| Arc::ptr_eq(&known.upstream, upstream)) {
            return known.progress.get();
        }
        let progress = SharedProgress::new(Arc::clone(&self.wake));
        let (of_task, grant) = (Arc::clone(upstream), Arc::new(grant));
        let reported = progress.clone();
        let ask = move || enrol(Arc::clone(&of_task), Arc::clone(&grant), reported.clone());
        let task = until_answered(ask, progress.clone());
        let enrolment = Enrolment {
            issuer: issuer.clone(),
            upstream: Arc::clone(upstream),
            progress: progress.clone(),
            _task: AbortOnDropHandle::new(tokio::spawn(task)),
        };
        self.under_way.insert(id.to_owned(), enrolment);
        progress.get()
    }

    /// Ends enrolments that were not followed since the last call. Returns each CA in trouble once, with its problem.
    pub(super) fn end_round(&mut self) -> Vec<String> {
        let seen = std::mem::take(&mut self.seen);
        self.under_way.retain(|id, _| seen.contains(id));
        let troubles = self.under_way.values().filter_map(|enrolment| {
            let Outcome::InTrouble(trouble) = enrolment.progress.get() else { return None };
            Some(format!("{}: {trouble}", enrolment.issuer))
        });
        troubles.collect::<BTreeSet<_>>().into_iter().collect()
    }
}

/// Progress shared between the task and its readers.
#[derive(Clone)]
struct SharedProgress {
    progress: Arc<Mutex<Outcome>>,
    wake: Arc<Notify>,
}

impl SharedProgress {
    fn new(wake: Arc<Notify>) -> Self {
        let asked = Outcome::Pending("sending the request to the CA".to_owned());
        Self { progress: Arc::new(Mutex::new(asked)), wake }
    }

    fn get(&self) -> Outcome {
        lock(&self.progress).clone()
    }

    fn set(&self, progress: Outcome) {
        *lock(&self.progress) = progress;
        self.wake.notify_one();
    }
}

async fn enrol(
    upstream: Arc<Upstream<Server>>,
    grant: Arc<Grant>,
    progress: SharedProgress,
) -> Result<Outcome, EnrolError> {
    let settings = match upstream.settings() {
        Ok(settings) => settings,
        Err(fault) => return Ok(Outcome::Failed(fault)),
    };
    let request = Request::Signing(&grant.request.der);
    let waits = |_, pause: Pause<'_>| {
        progress.set(match pause {
            Pause::Requested(reason) => Outcome::Pending(waiting(reason)),
            Pause::Unreachable(error) => Outcome::InTrouble(error.to_string()),
        });
    };
    let enrolled = upstream.server.client().enrol(settings, request, waits).await?;
    let changed = enrolled.modified.as_ref().map(ToString::to_string);
    Ok(match upstream.issued(enrolled, &grant, OffsetDateTime::now_utc()) {
        Ok(issued) => Outcome::Issued(Box::new(issued), changed),
        Err(fault) => Outcome::Failed(fault),
    })
}

/// Retries until there is a final answer.
async fn until_answered<F>(mut ask: impl FnMut() -> F, progress: SharedProgress)
where
    F: Future<Output = Result<Outcome, EnrolError>>,
{
    let mut waits = tries();
    loop {
        match ask().await {
            Ok(answer) => return progress.set(answer),
            Err(error) if error.is_final() => {
                return progress.set(Outcome::Failed(error.to_string()));
            }
            Err(error) => progress.set(Outcome::InTrouble(error.to_string())),
        }
        sleep(waits.next()).await;
    }
}

fn waiting(reason: &str) -> String {
    let because = if reason.is_empty() { String::new() } else { format!(": {reason}") };
    format!("the CA has not decided yet{because}")
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

    fn shared() -> SharedProgress {
        SharedProgress::new(Arc::new(Notify::new()))
    }

    #[tokio::test(start_paused = true)]
    async fn a_ca_that_is_away_for_a_month_is_asked_on_and_answers_soon_after() {
        let (started, asked) = (Instant::now(), Cell::new(0));
        let progress = shared();
        let ask = || {
            asked.set(asked.get() + 1);
            // Answers of a CA that is being restored.
            let away = started.elapsed() < 30 * DAY;
            let answer = Outcome::Failed("an answer".to_owned());
            ready(if away { Err(EnrolError::Cmp(CmpError::WrongNonce)) } else { Ok(answer) })
        };
        until_answered(ask, progress.clone()).await;
        assert_eq!(progress.get(), Outcome::Failed("an answer".to_owned()));
        let ten_minutes = Duration::from_secs(600);
        assert!(started.elapsed() <= 30 * DAY + ten_minutes, "{:?}", started.elapsed());
        // At least once in ten minutes, and at most twice as often.
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
        let reported = "the issued certificate is for another key".to_owned();
        assert_eq!(progress.get(), Outcome::Failed(reported));
    }

    #[tokio::test]
    async fn a_waiting_task_is_woken_with_the_reason_of_the_fault() {
        let progress = shared();
        progress.set(Outcome::InTrouble(EnrolError::NoRandomness.to_string()));
        progress.wake.notified().await;
        assert_eq!(progress.get(), Outcome::InTrouble("the system has no randomness".to_owned()));
        assert_eq!(waiting(""), "the CA has not decided yet");
        assert_eq!(waiting("ask Mary"), "the CA has not decided yet: ask Mary");
    }
}
