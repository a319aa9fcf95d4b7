//! Log lines on standard error, as the reference server writes them there.

use tracing_appender::non_blocking::WorkerGuard;
use tracing_subscriber::filter::LevelFilter;

/// How much is logged, by klog's numbers: 0 to 3 what an administrator needs, 4 and above what
/// happens inside, 8 and above everything.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Verbosity(pub i32);

impl From<Verbosity> for LevelFilter {
    fn from(Verbosity(number): Verbosity) -> Self {
        match number {
            ..4 => Self::INFO,
            4..8 => Self::DEBUG,
            8.. => Self::TRACE,
        }
    }
}

/// Lines that wait for a slow reader of standard error; more are dropped.
const QUEUED_LINES: usize = 4096;

/// Sends log lines to standard error until the guard is dropped, which writes what is left.
///
/// A thread of its own writes them, and lines are dropped rather than waited for when nobody reads
/// standard error: a log must not keep machines from booting.
pub fn init(verbosity: Verbosity) -> WorkerGuard {
    let (writer, guard) = tracing_appender::non_blocking::NonBlockingBuilder::default()
        .thread_name("log")
        .buffered_lines_limit(QUEUED_LINES)
        .finish(std::io::stderr());
    tracing_subscriber::fmt()
        .with_max_level(LevelFilter::from(verbosity))
        .with_writer(writer)
        .with_ansi(false)
        .with_target(false)
        .init();
    guard
}
