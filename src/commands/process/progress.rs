//! A line on the terminal for work that takes longer than a second, so that a wait does not look like a hang.

use std::convert::Infallible;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use model::escape::escaped;

/// Time that work can take before the line appears.
const QUIET: Duration = Duration::from_secs(1);
/// Interval between two drawings of the line.
const REDRAW: Duration = Duration::from_millis(200);

/// Work in progress. Its line on standard error is erased when the value is dropped. If standard error is no terminal,
/// nothing is written.
#[derive(Debug)]
pub(in crate::commands) struct Progress {
    bar: ProgressBar,
    drawing: Option<(Sender<Infallible>, JoinHandle<()>)>,
}

impl Progress {
    /// Begins work; `what` is like "reading the manifests".
    pub(in crate::commands) fn start(what: &str) -> Self {
        let style = ProgressStyle::with_template("{spinner} {wide_msg} {elapsed}");
        let style = style.unwrap_or_else(|_| ProgressStyle::default_spinner());
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        bar.set_style(style);
        bar.set_message(escaped(what).into_owned());
        let (stop, stopped) = mpsc::channel();
        let drawn = bar.clone();
        let draw = move || {
            let mut wait = QUIET;
            while stopped.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
                if wait == QUIET {
                    drawn.set_draw_target(ProgressDrawTarget::stderr());
                }
                wait = REDRAW;
                drawn.tick();
            }
            drawn.finish_and_clear();
        };
        // Without a thread, the work is done without a line.
        let thread = std::thread::Builder::new().name("progress".to_owned()).spawn(draw);
        Self { bar, drawing: thread.ok().map(|thread| (stop, thread)) }
    }

    /// Says how far the work is.
    pub(in crate::commands) fn at(&self, what: &str) {
        self.bar.set_message(escaped(what).into_owned());
    }

    /// Prints lines without the one of the progress in between.
    pub(in crate::commands) fn pause<T>(&self, print: impl FnOnce() -> T) -> T {
        self.bar.suspend(print)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.drawing.take() {
            drop(stop);
            let _ = thread.join();
        }
    }
}
