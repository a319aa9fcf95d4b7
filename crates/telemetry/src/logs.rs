//! Writes log lines to standard error, as the reference server does.
//!
//! A separate thread writes them in batches: a log must neither keep machines from booting when standard error is not
//! read, nor cost each boot a system call and a wakeup.
//!
//! The crate tracing-appender is not used: it bounds the number of waiting lines and not their bytes, and clients
//! choose the length of lines.

use std::borrow::Cow;
use std::io::{self, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use anstream::{AutoStream, ColorChoice};
use clap::ValueEnum;
use common::sync::lock;
use model::escape::escaped;
use table::{Color, TerminalStyle};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

use super::json_lines::{self, JsonLines, MAX_LINE_BYTES};

/// Maximum number of bytes that wait for a slow reader of standard error; further lines are dropped.
const QUEUED_BYTES: usize = 1 << 20;
/// Time for which lines are collected before they are written.
const GATHER: Duration = Duration::from_millis(20);
/// Maximum wait for a reader of standard error at the end of the process.
const LAST_LINES: Duration = Duration::from_secs(1);

/// Crates whose log lines are for administrators.
const OWN: [&str; 8] = [
    "controllers",
    "files",
    "issuer",
    "kubernetes",
    "machine_config_server",
    "node_agent",
    "pool_controller",
    "telemetry",
];

/// Levels of these crates and of libraries. Log lines of libraries are about their internals; the server reports
/// relevant errors itself.
fn targets(verbosity: i32) -> Targets {
    let (own, libraries) = match verbosity {
        ..4 => (LevelFilter::INFO, LevelFilter::OFF),
        4..8 => (LevelFilter::DEBUG, LevelFilter::WARN),
        8.. => (LevelFilter::TRACE, LevelFilter::TRACE),
    };
    Targets::new().with_default(libraries).with_targets(OWN.map(|name| (name, own)))
}

/// Form of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum LogFormat {
    /// Lines for people, as the reference server's.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Form of the lines in a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Style {
    #[default]
    Plain,
    Coloured,
    Json,
}

/// Sends log lines to standard error, by klog's numbers: 0 to 3 for administrators, 4 and above for internals, 8 and
/// above for everything. It does so until the guard is dropped, which writes the remaining ones if standard error is
/// read.
pub fn init(verbosity: i32, format: LogFormat) -> io::Result<Logs> {
    let style = match (format, AutoStream::choice(&io::stderr())) {
        (LogFormat::Json, _) => Style::Json,
        (LogFormat::Text, ColorChoice::Never) => Style::Plain,
        (LogFormat::Text, _) => Style::Coloured,
    };
    let (logs, queue) = Logs::start(io::stderr(), style)?;
    // A process has one log.
    let _ = QUEUE.set(Arc::clone(&queue));
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(LevelFilter::TRACE)
        .with_writer(queue)
        // Lines are escaped whole, and coloured after that.
        .with_ansi(false)
        .with_target(false);
    match format {
        LogFormat::Text => subscriber.finish().with(targets(verbosity)).init(),
        LogFormat::Json => {
            subscriber.event_format(JsonLines).finish().with(targets(verbosity)).init();
        }
    }
    Ok(logs)
}

/// Guard of the thread. Dropping it writes the remaining lines, for a second at most.
#[derive(Debug)]
pub struct Logs(Arc<Queue>);

#[derive(Debug, Default)]
struct Queue {
    style: Style,
    waiting: Mutex<Waiting>,
    changed: Condvar,
    /// Notified when all lines are written.
    written: Condvar,
}

static QUEUE: OnceLock<Arc<Queue>> = OnceLock::new();

/// Waits until the lines so far are written, for a second at most, so that other output follows them.
pub fn wait_until_written() {
    if let Some(queue) = QUEUE.get() {
        queue.wait_until_written();
    }
}

#[derive(Debug, Default)]
struct Waiting {
    bytes: Vec<u8>,
    dropped: u64,
    /// True while the thread writes lines that it took.
    is_writing: bool,
    ended: bool,
}

impl Logs {
    fn start(
        mut writer: impl Write + Send + 'static,
        style: Style,
    ) -> io::Result<(Self, Arc<Queue>)> {
        let queue = Arc::new(Queue { style, ..Queue::default() });
        let shared = Arc::clone(&queue);
        std::thread::Builder::new().name("log".to_owned()).spawn(move || {
            while let Some(lines) = shared.next() {
                // A failed write to standard error cannot be reported.
                let _ = writer.write_all(&lines);
            }
        })?;
        Ok((Self(Arc::clone(&queue)), queue))
    }
}

impl Drop for Logs {
    fn drop(&mut self) {
        self.0.lock().ended = true;
        self.0.changed.notify_one();
        // If standard error is not read, the thread still writes, and ends with the process.
        self.0.wait_until_written();
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        lock(&self.waiting)
    }

    /// Waits until the lines so far are written, for a second at most.
    fn wait_until_written(&self) {
        let unwritten = |waiting: &mut Waiting| waiting.is_writing || !waiting.bytes.is_empty();
        // After the second, other output comes first.
        let _ = self.written.wait_timeout_while(self.lock(), LAST_LINES, unwritten);
    }

    /// Waits for lines and takes all of them; `None` after the end.
    fn next(&self) -> Option<Vec<u8>> {
        let idle = |waiting: &mut Waiting| waiting.bytes.is_empty() && !waiting.ended;
        let mut waiting = self.lock();
        waiting.is_writing = false;
        if waiting.bytes.is_empty() {
            self.written.notify_all();
        }
        let waiting =
            self.changed.wait_while(waiting, idle).unwrap_or_else(PoisonError::into_inner);
        let gathering = |waiting: &mut Waiting| !waiting.ended;
        let (mut waiting, _) = self
            .changed
            .wait_timeout_while(waiting, GATHER, gathering)
            .unwrap_or_else(PoisonError::into_inner);
        if waiting.bytes.is_empty() {
            return None;
        }
        let mut lines = std::mem::take(&mut waiting.bytes);
        waiting.is_writing = true;
        let dropped = std::mem::take(&mut waiting.dropped);
        drop(waiting);
        if dropped > 0 {
            let note = format!("{dropped} log lines dropped: standard error is not read");
            let note = match self.style {
                Style::Json => json_lines::warning(&note),
                Style::Plain | Style::Coloured => note,
            };
            lines.extend_from_slice(note.as_bytes());
            lines.push(b'\n');
        }
        Some(lines)
    }

    fn push(&self, line: &[u8]) {
        let mut waiting = self.lock();
        if waiting.bytes.len() + line.len() > QUEUED_BYTES {
            waiting.dropped += 1;
            return;
        }
        let first = waiting.bytes.is_empty();
        waiting.bytes.extend_from_slice(line);
        drop(waiting);
        if first {
            self.changed.notify_one();
        }
    }
}

/// Receives one line for each call from the subscriber, and escapes line ends in it.
impl Write for &Queue {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match self.style {
            Style::Plain => self.push(&one_line(line)),
            Style::Coloured => self.push(&painted(&one_line(line))),
            // Escaped and cut already.
            Style::Json => self.push(line),
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn one_line(line: &[u8]) -> Cow<'_, [u8]> {
    let end = line.strip_suffix(b"\n").unwrap_or(line);
    match std::str::from_utf8(end).map(escaped) {
        Ok(escaped) if escaped.len() > MAX_LINE_BYTES => {
            let is_boundary = |end: &usize| escaped.is_char_boundary(*end);
            let end = (0..=MAX_LINE_BYTES).rev().find(is_boundary).unwrap_or_default();
            format!("{}…\n", &escaped[..end]).into_bytes().into()
        }
        Ok(Cow::Owned(escaped)) => (escaped + "\n").into_bytes().into(),
        // A subscriber writes text.
        Ok(Cow::Borrowed(_)) | Err(_) => line.into(),
    }
}

/// An escaped line with its time and level coloured.
fn painted(line: &[u8]) -> Vec<u8> {
    let style = TerminalStyle { width: None, is_coloured: true };
    let line = String::from_utf8_lossy(line);
    let parts = line.split_once(' ').and_then(|(time, rest)| {
        let (level, rest) = rest.trim_start().split_once(' ')?;
        Some((time, level, rest))
    });
    let Some((time, level, rest)) = parts else { return line.into_owned().into_bytes() };
    let color = match level {
        "ERROR" => Color::Bad,
        "WARN" => Color::Notable,
        "INFO" => Color::Good,
        _ => Color::Faint,
    };
    let level = style.paint(color, &format!("{level:>5}"));
    format!("{} {level} {rest}", style.paint(Color::Faint, time)).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_crate_that_logs_has_its_levels() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let crates = std::fs::read_dir(root.join("crates")).unwrap().map(|it| it.unwrap().path());
        let logs = |path: &std::path::PathBuf| {
            let manifest = std::fs::read_to_string(path.join("Cargo.toml")).unwrap();
            manifest.contains("\ntracing = ")
        };
        let name = |path: std::path::PathBuf| {
            path.file_name().unwrap().to_str().unwrap().replace('-', "_")
        };
        let mut found: Vec<_> = crates.filter(logs).map(name).collect();
        found.push("machine_config_server".to_owned());
        found.sort();
        assert_eq!(found, OWN);
    }

    use std::sync::mpsc;

    /// A writer that passes on its input, and can be blocked.
    struct Reader(mpsc::SyncSender<Vec<u8>>);

    impl Write for Reader {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.send(bytes.to_vec()).map_err(io::Error::other)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_was_logged_is_written_before_the_guard_is_gone() {
        let (sender, lines) = mpsc::sync_channel(10);
        let (logs, queue) = Logs::start(Reader(sender), Style::Plain).unwrap();
        queue.push(b"one\n");
        queue.push(b"two\n");
        drop(logs);
        assert_eq!(lines.iter().collect::<Vec<_>>().concat(), b"one\ntwo\n");
    }

    #[test]
    fn a_line_stays_one_whatever_names_are_in_it() {
        let (sender, lines) = mpsc::sync_channel(10);
        let (logs, queue) = Logs::start(Reader(sender), Style::Plain).unwrap();
        let mut queue = &*queue;
        queue.write_all("INFO file=a\nINFO forged\u{1b}[2J\u{9b}\n".as_bytes()).unwrap();
        queue.write_all(b"INFO Gr\xc3\xb6\xc3\x9fe\n").unwrap();
        drop(logs);
        let written = String::from_utf8(lines.iter().collect::<Vec<_>>().concat()).unwrap();
        assert_eq!(written, "INFO file=a\\nINFO forged\\u{1b}[2J\\u{9b}\nINFO Größe\n");
    }

    #[test]
    fn on_a_terminal_the_level_is_coloured_and_names_still_write_no_colours() {
        let (sender, lines) = mpsc::sync_channel(10);
        let (logs, queue) = Logs::start(Reader(sender), Style::Coloured).unwrap();
        let mut queue = &*queue;
        queue.write_all(b"2026-11-24T12:00:00Z  WARN no pool name=\x1b[32mx\n").unwrap();
        queue.write_all(b"panicked\n").unwrap();
        drop(logs);
        let written = String::from_utf8(lines.iter().collect::<Vec<_>>().concat()).unwrap();
        let first = "\u{1b}[2m2026-11-24T12:00:00Z\u{1b}[0m \u{1b}[33m WARN\u{1b}[0m \
                     no pool name=\\u{1b}[32mx\n";
        assert_eq!(written, format!("{first}panicked\n"));
    }

    #[test]
    fn a_line_is_cut_after_it_was_escaped() {
        let long = |c: char| [c.to_string().repeat(20_000).as_bytes(), b"\n"].concat();
        for c in ['x', 'ü', '\u{1b}', '\u{2028}'] {
            let line = long(c);
            let line = one_line(&line);
            assert!(line.len() <= MAX_LINE_BYTES + "…\n".len() && line.ends_with("…\n".as_bytes()));
        }
        assert_eq!(one_line(b"short\n"), &b"short\n"[..]);
    }

    #[test]
    fn a_process_ends_although_nobody_reads() {
        let (sender, unread) = mpsc::sync_channel(0);
        let (logs, queue) = Logs::start(Reader(sender), Style::Plain).unwrap();
        queue.push(b"one\n");
        let (dropped, ended) = mpsc::channel();
        std::thread::spawn(move || {
            drop(logs);
            dropped.send(()).unwrap();
        });
        ended.recv_timeout(180 * LAST_LINES).unwrap();
        drop(unread);
    }

    #[test]
    fn lines_are_dropped_and_counted_when_nobody_reads() {
        let (sender, lines) = mpsc::sync_channel(0);
        let (logs, queue) = Logs::start(Reader(sender), Style::Plain).unwrap();
        let line = vec![b'x'; 1 << 16];
        for _ in 0..100 {
            queue.push(&line);
        }
        let reader = std::thread::spawn(move || lines.iter().collect::<Vec<_>>().concat());
        drop(logs);
        let written = reader.join().unwrap();
        let text = String::from_utf8_lossy(&written);
        assert!(text.contains("log lines dropped"));
        assert!(written.len() < 100 * line.len());
    }

    #[test]
    fn the_number_of_dropped_lines_is_an_object_among_objects() {
        let queue = Queue { style: Style::Json, ..Queue::default() };
        queue.push(b"{}\n");
        queue.push(&vec![b'x'; QUEUED_BYTES]);
        let lines = String::from_utf8(queue.next().unwrap()).unwrap();
        let last = lines.strip_prefix("{}\n").unwrap();
        let last: serde_json::Value = serde_json::from_str(last).unwrap();
        assert_eq!(last["level"], "WARN");
        assert_eq!(last["message"], "1 log lines dropped: standard error is not read");
        assert!(last["timestamp"].is_string());
    }
}
