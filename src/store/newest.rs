//! Saves a changing value to disk, always in its newest state.

use std::sync::Arc;
use std::time::Duration;

use common::backoff::Backoff;
use files::error::FileError;
use telemetry::Metrics;
use telemetry::conditions::Status;
use telemetry::faults::Fault;
use tokio::sync::watch;

/// Minimum time between two writes.
const PAUSE: Duration = Duration::from_secs(1);
/// Maximum wait after a failed write: a full disk may have room later.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// Saves each value that is newest when the last write has ended, until the sender is gone. A failed write is reported
/// as this fault, and retried.
pub(crate) async fn flush<T>(
    fault: Fault<'static>,
    mut changes: watch::Receiver<Arc<T>>,
    metrics: &Metrics,
    status: &Status,
    mut save: impl FnMut(&T) -> Result<(), FileError>,
) {
    let mut backoff = Backoff::new(PAUSE, LONGEST_WAIT);
    while changes.changed().await.is_ok() {
        loop {
            // Not borrowed meanwhile: a disk can hang, and its sender would wait for it.
            let newest = Arc::clone(&changes.borrow_and_update());
            let saved = tokio::task::block_in_place(|| save(&newest));
            let is_saved = saved.is_ok();
            let reason = saved.err().map(|error| error.to_string());
            fault.counted_by(&metrics.cache_failures).report(status, reason.as_deref());
            if is_saved {
                break;
            }
            tokio::time::sleep(backoff.next()).await;
        }
        backoff.reset();
        tokio::time::sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use files::owners::Reader;
    use files::replace::{self, PRIVATE};
    use telemetry::faults;

    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_value_can_be_sent_while_the_one_before_is_written() {
        let (metrics, status) = (Metrics::default(), Status::default());
        let (changes, seen) = watch::channel(Arc::new(0));
        changes.send_replace(Arc::new(1));
        let mut changes = Some(changes);
        let mut saved = Vec::new();
        let save = |state: &i32| {
            saved.push(*state);
            if let Some(changes) = changes.take() {
                // By another thread: a sender that waits would wait for ever.
                let (sent, until_sent) = std::sync::mpsc::channel();
                std::thread::spawn(move || {
                    changes.send_replace(Arc::new(2));
                    let _ = sent.send(());
                });
                until_sent.recv_timeout(Duration::from_secs(60)).expect("it is sent");
            }
            Ok(())
        };
        flush(faults::CACHE, seen, &metrics, &status, save).await;
        assert_eq!(saved, [1, 2]);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_could_not_be_written_is_reported_and_written_once_it_can_be() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("taken/state");
        let (metrics, status) = (Metrics::default(), Status::default());
        let (changes, seen) = watch::channel(Arc::new(0));
        let save = |state: &i32| {
            replace::create_directory(path.parent().unwrap_or(Path::new("/")), Reader::Itself)?;
            replace::replace(&path, state.to_string().as_bytes(), PRIVATE, Reader::Itself)
        };
        std::fs::write(directory.path().join("taken"), "a file where the folder should be")
            .unwrap();
        changes.send_replace(Arc::new(1));
        let follow = async {
            while status.degraded.lines().is_empty() {
                tokio::task::yield_now().await;
            }
            let reported = status.degraded.lines();
            assert!(reported[0].starts_with("cache: "), "{reported:?}");
            assert_eq!(metrics.cache_failures.get(), 1);
            std::fs::remove_file(directory.path().join("taken")).unwrap();
            changes.send_replace(Arc::new(2));
            while !std::fs::read(&path).is_ok_and(|state| state == b"2") {
                tokio::task::yield_now().await;
            }
            drop(changes);
        };
        tokio::join!(flush(faults::CACHE, seen, &metrics, &status, save), follow);
        assert!(status.degraded.lines().is_empty());
    }
}
