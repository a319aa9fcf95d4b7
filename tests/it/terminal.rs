//! On a terminal, output has colours, and a line for work that takes longer than a second; in a pipe it has neither.

use std::fs::File;
use std::io::Read as _;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};

use crate::support::command::Said;
use crate::support::http::IGNITION;
use crate::support::server::{Server, binary, free_ports};
use crate::support::{in_repository, wait_until};

/// A command on a terminal, of 80 columns if nothing else is said, which ends when the value is dropped.
struct OnTerminal {
    script: Child,
    output: Receiver<Vec<u8>>,
    seen: String,
}

impl OnTerminal {
    fn run(arguments: &str) -> Self {
        Self::of_size("cols 80", arguments)
    }

    fn of_size(size: &str, arguments: &str) -> Self {
        let program = env!("CARGO_BIN_EXE_machine-config-server");
        let line = format!("stty {size}; exec {program} {arguments}");
        let mut script = Command::new("script")
            .args(["--quiet", "--return", "--command", &line, "/dev/null"])
            .env("TERM", "xterm-256color")
            .env_remove("NO_COLOR")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("script");
        let mut stdout = script.stdout.take().expect("a pipe");
        let (sender, output) = mpsc::channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(read @ 1..) = stdout.read(&mut buffer) {
                if sender.send(buffer[..read].to_vec()).is_err() {
                    return;
                }
            }
        });
        Self { script, output, seen: String::new() }
    }

    fn shows(&mut self, text: &str) {
        wait_until(text, || {
            let new = self.output.try_iter().collect::<Vec<_>>().concat();
            self.seen += &String::from_utf8_lossy(&new);
            self.seen.contains(text)
        });
    }
}

impl Drop for OnTerminal {
    /// The command ends with its terminal.
    fn drop(&mut self) {
        let _ = self.script.kill();
        let _ = self.script.wait();
    }
}

#[test]
fn a_terminal_shows_what_a_command_waits_for_and_a_pipe_does_not() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("https://{}/config/worker", silent.local_addr().expect("an address"));
    let mut piped = binary();
    piped.args(["inspect", &url]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut piped = piped.spawn().expect("the built binary");
    let mut terminal = OnTerminal::run(&format!("inspect {url}"));
    terminal.shows(&format!("fetching {url}"));
    piped.kill().expect("a process that waits");
    let piped = piped.wait_with_output().expect("its output");
    assert_eq!((piped.stdout, piped.stderr), (Vec::new(), Vec::new()));
}

#[test]
fn a_terminal_shows_that_first_tokens_take_time() {
    let (state, sample) =
        (tempfile::tempdir().expect("a folder"), in_repository("ignition-fixtures"));
    drop(Server::serve_with_state(&sample, state.path()).until_ready());
    // While another process changes the directory, tokens wait for longer than a second. By other rules than those of the last
    // start, all is read before the server answers.
    let lock = File::open(state.path().join(".lock")).expect("the lock");
    lock.lock().expect("nobody else has it");
    let [secure, metrics] = free_ports();
    let mut terminal = OnTerminal::run(&format!(
        "serve {} --strict --state-dir {} --listen-address 127.0.0.1 --secure-port {} --insecure-port 0 \
         --metrics-address {metrics}",
        sample.display(),
        state.path().display(),
        secure.port(),
    ));
    terminal.shows("rendering 4 pools, and writing tokens");
    drop(lock);
    terminal.shows("Serving 4 pools");
}

#[test]
fn a_server_on_a_terminal_starts_in_colours() {
    let state = tempfile::tempdir().expect("a temporary folder");
    let [secure, metrics] = free_ports();
    let mut terminal = OnTerminal::run(&format!(
        "serve {} --state-dir {}/certs --listen-address 127.0.0.1 --secure-port {} --insecure-port 0 \
         --metrics-address {metrics}",
        in_repository("ignition-fixtures").display(),
        state.path().display(),
        secure.port(),
    ));
    terminal.shows("\u{1b}[32m INFO\u{1b}[0m ");
    terminal.shows("\u{1b}[1mServing ");
    terminal.shows("\u{1b}[32mNext: ");
}

#[test]
fn the_next_steps_are_below_the_warnings_of_the_start_and_validate_has_colours() {
    let state = tempfile::tempdir().expect("a temporary folder");
    let [secure, metrics] = free_ports();
    let sample = in_repository("ignition-fixtures");
    let arguments = format!(
        "serve {} --state-dir {} --host localhost --secure-port {} --insecure-port 0 \
         --metrics-address {metrics}",
        sample.display(),
        state.path().display(),
        secure.port(),
    );
    let mut terminal = OnTerminal::run(&arguments);
    terminal.shows("The same with curl:");
    let at = |text: &str| terminal.seen.find(text).unwrap_or_else(|| panic!("{}", terminal.seen));
    assert!(at("served config contains secrets") < at("Serving 4 pools"), "{}", terminal.seen);
    let made: Vec<_> = terminal.seen.lines().filter(|line| line.contains("made tokens")).collect();
    assert!(matches!(made[..], [line] if line.contains("edge, master, rack, worker")), "{made:?}");
    let mut judged = OnTerminal::run(&format!("validate {}", sample.display()));
    judged.shows("\u{1b}[32mpool edge: OK");
}

#[test]
fn machines_on_a_wide_terminal_take_120_columns_and_a_stuck_one_is_red() {
    let server = Server::sample_cluster(&[]);
    server.plain().request("GET", "/config/no-such-pool", &[IGNITION]);
    let arguments = format!("machines --from {}", server.metrics().address());
    let mut terminal = OnTerminal::of_size("cols 200 rows 40", &arguments);
    terminal.shows("\u{1b}[31mstuck\u{1b}[0m");
    terminal.shows("a machine is stuck");
    let plain = terminal.seen.replace("\u{1b}[31m", "").replace("\u{1b}[1m", "");
    let plain = plain.replace("\u{1b}[0m", "");
    let widest = plain.lines().map(|line| line.trim_end().chars().count()).max();
    assert!(widest.is_some_and(|widest| (80..=120).contains(&widest)), "{plain}");
    let piped = Said::by(binary().args(arguments.split(' ')));
    assert!(!piped.output.contains('\u{1b}'), "{}", piped.output);
    assert!(
        piped.output.lines().any(|line| line.contains("stuck") && line.len() > 120),
        "{piped:?}"
    );
}
