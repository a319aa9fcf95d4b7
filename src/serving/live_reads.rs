//! Reads from the API server before an answer, if what is served was confirmed too long ago.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::sync::lock;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::pipeline::publish::{Published, Subscription};
use crate::source::cluster::LiveRequest;

/// Maximum wait of a machine. Then it gets what was read last.
const TIMEOUT: Duration = Duration::from_secs(3);

/// Bound for the age of what is served.
#[derive(Debug)]
pub struct LiveReads {
    /// Age after which the objects are read again.
    after: Duration,
    requests: mpsc::Sender<LiveRequest>,
    published: Subscription,
    /// Held during a read: one is enough for all that wait.
    reading: tokio::sync::Mutex<()>,
    /// Start of the last successful read, or end of a later one that failed.
    last: Mutex<Option<Instant>>,
}

impl LiveReads {
    /// Creates a bound, and the requests for its reads.
    pub(crate) fn new(
        after: Duration,
        published: Subscription,
    ) -> (Self, mpsc::Receiver<LiveRequest>) {
        let (requests, receiver) = mpsc::channel(1);
        let (reading, last) = Default::default();
        (Self { after, requests, published, reading, last }, receiver)
    }

    /// Waits until what is served was confirmed recently, or cannot be confirmed now.
    pub(crate) async fn confirm(&self) {
        let requested_at = Instant::now();
        if self.is_recent(requested_at) {
            return;
        }
        let _reading = self.reading.lock().await;
        if self.is_recent(requested_at) {
            return;
        }
        let started = Instant::now();
        let is_read = tokio::time::timeout(TIMEOUT, self.read()).await == Ok(Some(()));
        // After a failure nobody waits for the next one until the time has passed again.
        let last = if is_read { started } else { Instant::now() };
        *lock(&self.last) = Some(last);
    }

    fn is_recent(&self, requested_at: Instant) -> bool {
        let last = *lock(&self.last);
        last.is_some_and(|last| last + self.after >= requested_at)
    }

    /// Reads, and waits until the result is served. Returns `None` if it cannot be read.
    async fn read(&self) -> Option<()> {
        let (request, answer) = oneshot::channel();
        self.requests.send(request).await.ok()?;
        let number = answer.await.ok()?;
        let has_it = |now: &Arc<Published>| {
            now.inputs.as_ref().is_some_and(|inputs| inputs.live_reads >= number)
        };
        self.published.clone().wait_for(has_it).await.ok()?;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use model::inputs::Inputs;
    use tokio::sync::watch;

    use super::*;

    const AFTER: Duration = Duration::from_secs(5);

    async fn time_of(reads: &LiveReads) -> Duration {
        let started = Instant::now();
        reads.confirm().await;
        started.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn one_read_confirms_all_that_ask_within_its_time() {
        let (publish, published) = watch::channel(Arc::default());
        let (reads, mut requests) = LiveReads::new(AFTER, published);
        let answer = async {
            for number in 1..=2_u64 {
                let request: LiveRequest = requests.recv().await.unwrap();
                request.send(number).unwrap();
                tokio::time::sleep(Duration::from_millis(100)).await;
                let inputs = Inputs { live_reads: number, ..Inputs::default() };
                publish.send_replace(Arc::new(Published::of(inputs)));
            }
            assert!(requests.recv().await.is_none(), "a third read");
        };
        let ask = async {
            let (one, other) = tokio::join!(time_of(&reads), time_of(&reads));
            assert!(one >= Duration::from_millis(100) && other >= Duration::from_millis(100));
            assert_eq!(time_of(&reads).await, Duration::ZERO);
            tokio::time::advance(AFTER).await;
            assert!(time_of(&reads).await >= Duration::from_millis(100), "it is old");
            drop(reads);
        };
        tokio::join!(answer, ask);
    }

    #[tokio::test(start_paused = true)]
    async fn what_cannot_be_read_delays_one_machine_and_those_that_ask_meanwhile() {
        let (_publish, published) = watch::channel(Arc::default());
        let (reads, mut requests) = LiveReads::new(AFTER, published);
        let (one, other) = tokio::join!(time_of(&reads), time_of(&reads));
        assert_eq!((one, other), (TIMEOUT, TIMEOUT));
        assert_eq!(time_of(&reads).await, Duration::ZERO);
        tokio::time::advance(AFTER + Duration::from_millis(1)).await;
        // It is refused at once.
        let refuse = async {
            while let Some(request) = requests.recv().await {
                drop(request);
            }
        };
        tokio::select! {
            () = refuse => {}
            waited = time_of(&reads) => assert!(waited < TIMEOUT),
        }
    }
}
