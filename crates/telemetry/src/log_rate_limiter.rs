//! Limits log lines that clients cause, in all and by source, and counts the omitted ones. A client can send a hundred
//! thousand requests a second.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::sync::lock;
use tokio::time::Instant;

const WINDOW: Duration = Duration::from_secs(10);
/// Maximum number of lines in a window. A storm of ten thousand machines is logged completely.
const MAX_LINES: u64 = 10_000;
/// Maximum number of lines of one source in a window: those of a few hundred machines behind one address.
const MAX_PER_SOURCE: u64 = 1_000;

/// Limits lines about one kind of event, by source `S`.
#[derive(Debug)]
pub struct LogRateLimiter<S> {
    what: &'static str,
    window: Mutex<Window<S>>,
}

#[derive(Debug)]
struct Window<S> {
    began: Instant,
    logged: u64,
    /// Number of lines by source; there are at most as many sources as lines.
    by_source: HashMap<S, u64>,
    dropped: u64,
}

#[derive(Debug, PartialEq, Eq)]
enum Admission {
    Log,
    /// Omit the line, which is the first omitted one: the caller schedules the report.
    LeaveOutFirst,
    LeaveOut,
}

impl<S: Eq + Hash + Send + 'static> LogRateLimiter<S> {
    /// Creates a limiter for events with the plural name `what`.
    pub fn new(what: &'static str) -> Self {
        Self { what, window: Mutex::new(Window::new(Instant::now())) }
    }

    /// Returns `true` if a line about this source may be logged. Must be called within a runtime.
    pub fn may_log(self: &Arc<Self>, source: S) -> bool {
        let admission = lock(&self.window).admit(source, Instant::now());
        if admission == Admission::LeaveOutFirst {
            let occurrences = Arc::clone(self);
            tokio::spawn(async move {
                let end = lock(&occurrences.window).began + WINDOW;
                tokio::time::sleep_until(end).await;
                let dropped = std::mem::take(&mut lock(&occurrences.window).dropped);
                let (what, seconds) = (occurrences.what, WINDOW.as_secs());
                tracing::warn!(
                    what,
                    left_out = dropped,
                    most = MAX_LINES,
                    most_of_one_source = MAX_PER_SOURCE,
                    seconds,
                    fix = "count them by the metrics; find a client with many in the lines before",
                    "omitted log lines"
                );
            });
        }
        admission == Admission::Log
    }
}

impl<S: Eq + Hash> Window<S> {
    fn new(began: Instant) -> Self {
        Self { began, logged: 0, by_source: HashMap::new(), dropped: 0 }
    }

    fn admit(&mut self, source: S, now: Instant) -> Admission {
        // Omitted lines are reported before the next window begins.
        if self.dropped == 0 && now.saturating_duration_since(self.began) >= WINDOW {
            *self = Self::new(now);
        }
        if self.logged < MAX_LINES {
            let of_source = self.by_source.entry(source).or_default();
            if *of_source < MAX_PER_SOURCE {
                *of_source += 1;
                self.logged += 1;
                return Admission::Log;
            }
        }
        self.dropped += 1;
        if self.dropped == 1 { Admission::LeaveOutFirst } else { Admission::LeaveOut }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use tracing_subscriber::fmt::MakeWriter;

    use super::*;

    #[derive(Debug, Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl MakeWriter<'_> for Log {
        type Writer = Self;

        fn make_writer(&self) -> Self {
            self.clone()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn how_many_were_left_out_is_reported_when_the_window_ends() {
        let log = Log::default();
        let subscriber = tracing_subscriber::fmt().with_writer(log.clone()).finish();
        let _guard = tracing::subscriber::set_default(subscriber);
        let occurrences = Arc::new(LogRateLimiter::new("things"));
        let logged = (0..MAX_LINES + 7).filter(|number| occurrences.may_log(*number)).count();
        assert_eq!(u64::try_from(logged).unwrap(), MAX_LINES);
        tokio::time::sleep(WINDOW * 9 / 10).await;
        assert!(log.0.lock().unwrap().is_empty());
        tokio::time::sleep(Duration::from_secs(2)).await;
        let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        assert!(text.contains("omitted log lines") && text.contains("things"), "{text}");
        assert!(text.contains('7') && text.lines().count() == 1, "{text}");
        assert!(occurrences.may_log(0));
    }

    #[test]
    fn a_window_has_room_for_so_many_lines_and_the_next_one_again() {
        let began = Instant::now();
        let mut window = Window::new(began);
        for number in 0..MAX_LINES {
            assert_eq!(window.admit(number, began), Admission::Log);
        }
        assert_eq!(window.admit(MAX_LINES, began), Admission::LeaveOutFirst);
        assert_eq!(window.admit(MAX_LINES, began + WINDOW), Admission::LeaveOut);
        // It was reported.
        assert_eq!(std::mem::take(&mut window.dropped), 2);
        assert_eq!(window.admit(0, began + WINDOW), Admission::Log);
        assert_eq!((window.began, window.logged), (began + WINDOW, 1));
    }

    #[test]
    fn a_source_that_has_all_its_lines_keeps_no_other_from_the_log() {
        let began = Instant::now();
        let mut window = Window::new(began);
        for _ in 0..MAX_PER_SOURCE {
            assert_eq!(window.admit("loud", began), Admission::Log);
        }
        assert_eq!(window.admit("loud", began), Admission::LeaveOutFirst);
        assert_eq!(window.admit("other", began), Admission::Log);
        for _ in 0..MAX_LINES {
            assert_eq!(window.admit("loud", began), Admission::LeaveOut);
        }
        assert_eq!(window.admit("other", began), Admission::Log);
        assert_eq!(window.logged, MAX_PER_SOURCE + 2);
    }
}
