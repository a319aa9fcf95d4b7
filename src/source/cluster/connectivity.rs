//! Whether the API server answers, and since when it has not.
//!
//! A watch that is silent looks the same as one that is cut off, so a small question of its own is
//! asked every few seconds, on the path that everything else depends on.

use std::time::{Duration, SystemTime};

use kube::Client;
use kube::api::ListParams;
use kube::core::PartialObjectMeta;
use tokio::sync::mpsc;

use super::kind::{Kind, Raw};
use super::report::Report;
use crate::kubernetes::client::reason;

/// How often to ask.
const PERIOD: Duration = Duration::from_secs(2);
/// How long an answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Reports each answer, or that there was none, until nobody receives reports any more.
pub(super) async fn ask(client: Client, reports: mpsc::Sender<Report>) {
    let pools = Kind::MachineConfigPool.api::<PartialObjectMeta<Raw>>(&client);
    let one = ListParams::default().limit(1);
    loop {
        let answer = match tokio::time::timeout(ANSWER_TIMEOUT, pools.list(&one)).await {
            Ok(Ok(_)) => Ok(()),
            // It has been reached, whatever it says: what it says is for the watches to tell.
            Ok(Err(kube::Error::Api(status))) if status.code < 500 && status.code != 401 => Ok(()),
            Ok(Err(error)) => Err(reason(&error)),
            Err(_) => Err(format!("no answer within {} s", ANSWER_TIMEOUT.as_secs())),
        };
        if reports.send(Report::Connectivity(answer)).await.is_err() {
            return;
        }
        tokio::time::sleep(PERIOD).await;
    }
}

/// How many answers may fail to come before the API server counts as away.
const FAILURES: u32 = 2;

/// Whether the API server answers.
#[derive(Debug)]
pub(super) struct Connectivity {
    last: SystemTime,
    failures: u32,
}

/// What an answer, or its absence, changes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Transition {
    /// The API server counts as away from now on; it answered last at this time.
    Lost(SystemTime),
    /// It is back.
    Restored,
}

impl Connectivity {
    /// Connected at first; `now` is the start.
    pub(super) fn new(now: SystemTime) -> Self {
        Self { last: now, failures: 0 }
    }

    pub(super) fn answered(&mut self, now: SystemTime) -> Option<Transition> {
        let was_away = self.failures >= FAILURES;
        self.last = now;
        self.failures = 0;
        was_away.then_some(Transition::Restored)
    }

    pub(super) fn failed(&mut self) -> Option<Transition> {
        self.failures = self.failures.saturating_add(1);
        (self.failures == FAILURES).then_some(Transition::Lost(self.last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_api_server_is_away_since_its_last_answer() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let mut connectivity = Connectivity::new(at(0));
        assert_eq!(connectivity.answered(at(1)), None);
        assert_eq!(connectivity.failed(), None, "once may happen");
        assert_eq!(connectivity.answered(at(2)), None);
        assert_eq!(connectivity.failed(), None);
        assert_eq!(connectivity.failed(), Some(Transition::Lost(at(2))));
        assert_eq!(connectivity.failed(), None, "it is told once");
        assert_eq!(connectivity.answered(at(9)), Some(Transition::Restored));
    }
}
