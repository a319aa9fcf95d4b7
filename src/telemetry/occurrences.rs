//! Log lines that clients cause: as many as somebody can read or collect, and how many were left
//! out. Whoever may ask for a config may ask for it a hundred thousand times a second.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How long lines are counted together.
const WINDOW: Duration = Duration::from_secs(10);
/// Lines in that time. A storm of ten thousand machines is logged whole.
const MOST: u64 = 10_000;

/// What happens because clients do something, each time worth a line.
#[derive(Debug)]
pub struct Occurrences {
    what: &'static str,
    window: Mutex<Window>,
}

#[derive(Debug)]
struct Window {
    began: Instant,
    logged: u64,
    left_out: u64,
}

#[derive(Debug, PartialEq, Eq)]
enum Admission {
    Log,
    /// It is the first that is left out: somebody has to tell, when the window ends.
    LeaveOutFirst,
    LeaveOut,
}

impl Occurrences {
    /// None yet. `what` they are, in the plural.
    #[must_use]
    pub fn new(what: &'static str) -> Self {
        let window = Window { began: Instant::now(), logged: 0, left_out: 0 };
        Self { what, window: Mutex::new(window) }
    }

    /// Whether there is room for one more line now. Must be called within a runtime.
    pub fn may_log(self: &Arc<Self>) -> bool {
        let admission = self.window().admit(Instant::now());
        if admission == Admission::LeaveOutFirst {
            let occurrences = Arc::clone(self);
            tokio::spawn(async move {
                let end = occurrences.window().began + WINDOW;
                tokio::time::sleep_until(end).await;
                let left_out = std::mem::take(&mut occurrences.window().left_out);
                let (what, seconds) = (occurrences.what, WINDOW.as_secs());
                tracing::warn!(
                    left_out,
                    "left out lines on {what}: more than {MOST} within {seconds} s"
                );
            });
        }
        admission == Admission::Log
    }

    fn window(&self) -> std::sync::MutexGuard<'_, Window> {
        self.window.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Window {
    fn admit(&mut self, now: Instant) -> Admission {
        // What was left out is told before the next window begins.
        if self.left_out == 0 && now.saturating_duration_since(self.began) >= WINDOW {
            (self.began, self.logged) = (now, 0);
        }
        if self.left_out == 0 && self.logged < MOST {
            self.logged += 1;
            return Admission::Log;
        }
        self.left_out += 1;
        if self.left_out == 1 { Admission::LeaveOutFirst } else { Admission::LeaveOut }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use tracing_subscriber::fmt::MakeWriter;

    use super::*;

    /// What is logged.
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
    async fn how_many_were_left_out_is_told_when_the_window_ends() {
        let log = Log::default();
        let subscriber = tracing_subscriber::fmt().with_writer(log.clone()).finish();
        let _guard = tracing::subscriber::set_default(subscriber);
        let occurrences = Arc::new(Occurrences::new("things"));
        let logged = (0..MOST + 7).filter(|_| occurrences.may_log()).count();
        assert_eq!(u64::try_from(logged).unwrap(), MOST);
        tokio::time::sleep(WINDOW * 9 / 10).await;
        assert!(log.0.lock().unwrap().is_empty());
        tokio::time::sleep(Duration::from_secs(2)).await;
        let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        assert!(text.contains("left out lines on things") && text.contains("left_out"), "{text}");
        assert!(text.contains('7') && text.lines().count() == 1, "{text}");
        assert!(occurrences.may_log());
    }

    #[test]
    fn a_window_has_room_for_so_many_lines_and_the_next_one_again() {
        let began = Instant::now();
        let mut window = Window { began, logged: 0, left_out: 0 };
        for _ in 0..MOST {
            assert_eq!(window.admit(began), Admission::Log);
        }
        assert_eq!(window.admit(began), Admission::LeaveOutFirst);
        assert_eq!(window.admit(began + WINDOW), Admission::LeaveOut);
        // It has been told.
        assert_eq!(std::mem::take(&mut window.left_out), 2);
        assert_eq!(window.admit(began + WINDOW), Admission::Log);
        assert_eq!((window.began, window.logged), (began + WINDOW, 1));
    }
}
