//! Detects if and since when the API server does not answer.
//!
//! A silent watch looks like a broken one, so a small request is sent every few seconds.

use std::time::{Duration, SystemTime};

use kube::Client;
use kube::api::ListParams;
use kube::core::PartialObjectMeta;
use kubernetes::client::reason;
use tokio::sync::mpsc;

use super::kind::{Kind, RawObject};
use super::report::Report;

/// Interval between requests.
const PERIOD: Duration = Duration::from_secs(2);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Reports each answer, or its absence, until the receiver is gone.
pub(super) async fn ask(client: Client, reports: mpsc::Sender<Report>) {
    let pools = Kind::MachineConfigPool.api::<PartialObjectMeta<RawObject>>(&client);
    let one = ListParams::default().limit(1);
    loop {
        let answer = match tokio::time::timeout(ANSWER_TIMEOUT, pools.list(&one)).await {
            Ok(Ok(_)) => Ok(()),
            // The API server is reachable, even if it refuses; watches report refusals.
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

/// Number of missing answers after which the API server counts as unavailable.
const FAILURES: u32 = 2;

#[derive(Debug)]
pub(super) struct Connectivity {
    last: SystemTime,
    failures: u32,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Transition {
    /// The API server counts as unavailable; time of its last answer.
    Lost(SystemTime),
    Restored,
}

impl Connectivity {
    /// Creates a state that is connected at `now`.
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
