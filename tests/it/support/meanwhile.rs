//! Work of clients beside what a test does.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::stop::Stop;
use super::wait_until;

/// Repeated work in other threads.
pub(crate) struct Meanwhile<'a> {
    stop: &'a AtomicBool,
    rounds: &'a AtomicU64,
}

/// Repeats `work` in so many threads, each with its number, until `body` ends. A failure of either fails the test.
pub(crate) fn meanwhile(threads: u8, work: impl Fn(u8) + Sync, body: impl FnOnce(&Meanwhile<'_>)) {
    let (stop, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let _stop = Stop(&stop);
        for number in 0..threads {
            let (stop, rounds, work) = (&stop, &rounds, &work);
            scope.spawn(move || {
                let _stop = Stop(stop);
                while !stop.load(Ordering::SeqCst) {
                    work(number);
                    rounds.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        body(&Meanwhile { stop: &stop, rounds: &rounds });
    });
}

impl Meanwhile<'_> {
    /// Waits until the work was done so many times more.
    pub(crate) fn continues(&self, times: u64) {
        let enough = self.rounds.load(Ordering::SeqCst) + times;
        wait_until("the work in parallel to continue", || {
            assert!(!self.stop.load(Ordering::SeqCst), "it has failed");
            self.rounds.load(Ordering::SeqCst) >= enough
        });
    }
}
