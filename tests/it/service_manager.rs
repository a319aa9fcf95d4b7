//! What a service manager and a collector of logs get of a server: its state as sd_notify(3) has it, and JSON.

use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::support::command::Said;
use crate::support::server::{Server, binary, serving};
use crate::support::{DEADLINE, in_repository, wait_until};

/// A service manager's end of the socket.
struct Manager(UnixDatagram);

impl Manager {
    fn listen(address: io::Result<SocketAddr>) -> Self {
        let socket = UnixDatagram::bind_addr(&address.expect("an address")).expect("a new socket");
        socket.set_read_timeout(Some(DEADLINE)).expect("a timeout");
        Self(socket)
    }

    fn next(&self) -> String {
        let mut report = [0; 256];
        let length = self.0.recv(&mut report).expect("a report");
        String::from_utf8_lossy(&report[..length]).into_owned()
    }

    /// The next report that is not of the watchdog.
    fn next_state(&self) -> String {
        let mut reports = std::iter::repeat_with(|| self.next());
        reports.find(|report| report != "WATCHDOG=1").expect("a report")
    }
}

fn serve(state: &Path, socket: &str) -> Command {
    let mut command = serving(&in_repository("ignition-fixtures"), state);
    command.env("NOTIFY_SOCKET", socket);
    command
}

fn reports_its_states(manager: &Manager, socket: &str) {
    let directory = tempfile::tempdir().expect("a temporary folder");
    let mut server = Server::prepared(serve(&directory.path().join("state"), socket));
    assert_eq!(manager.next_state(), "READY=1");
    // What it reports is so: nothing is waited for.
    assert_eq!(server.plain().get("/config/worker").status, 200);
    server.terminate();
    assert_eq!(manager.next_state(), "STOPPING=1");
    assert!(server.ended().success());
}

#[test]
fn a_manager_hears_that_the_server_is_ready_and_that_it_stops() {
    let directory = tempfile::tempdir().expect("a temporary folder");
    let path = directory.path().join("notify");
    let manager = Manager::listen(SocketAddr::from_pathname(&path));
    reports_its_states(&manager, path.to_str().expect("a path in UTF-8"));
}

#[test]
fn an_abstract_socket_is_as_good() {
    let name = format!("machine-config-server-test-{}", std::process::id());
    let manager = Manager::listen(SocketAddr::from_abstract_name(&name));
    reports_its_states(&manager, &format!("@{name}"));
}

#[test]
fn a_watchdog_is_fed_again_and_again_and_that_of_another_process_is_not() {
    let directory = tempfile::tempdir().expect("a temporary folder");
    let path = directory.path().join("notify");
    let manager = Manager::listen(SocketAddr::from_pathname(&path));
    let socket = path.to_str().expect("a path in UTF-8");
    let mut fed = serve(&directory.path().join("fed"), socket);
    fed.env("WATCHDOG_USEC", "20000");
    let server = Server::prepared(fed);
    let reports: Vec<_> = std::iter::repeat_with(|| manager.next()).take(10).collect();
    assert!(reports.iter().filter(|it| *it == "WATCHDOG=1").count() >= 9, "{reports:?}");
    drop(server);
    manager.0.set_nonblocking(true).expect("a mode");
    while manager.0.recv(&mut [0; 256]).is_ok() {}
    manager.0.set_nonblocking(false).expect("a mode");

    let mut other = serve(&directory.path().join("other"), socket);
    other.envs([("WATCHDOG_USEC", "20000"), ("WATCHDOG_PID", "1")]);
    let mut server = Server::prepared(other);
    assert_eq!(manager.next(), "READY=1");
    server.terminate();
    assert_eq!(manager.next(), "STOPPING=1");
    assert!(server.ended().success());
}

#[test]
fn a_server_serves_although_its_manager_is_gone() {
    let directory = tempfile::tempdir().expect("a temporary folder");
    let server = Server::prepared(serve(&directory.path().join("state"), "/no/such/socket"));
    let server = server.until_ready();
    let line = "cannot report to the service manager";
    wait_until("the reason in the log", || server.log().contains(line));
}

/// The objects of a log, each with the fields that all have.
fn objects(log: &str) -> Vec<Value> {
    let object = |line: &str| -> Value {
        let object: Value = serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"));
        for field in ["timestamp", "level", "message"] {
            assert!(object[field].is_string(), "{field}: {line}");
        }
        object
    };
    log.lines().map(object).collect()
}

#[test]
fn every_log_line_is_an_object_with_the_fields_of_the_ordinary_one() {
    let directory = tempfile::tempdir().expect("a temporary folder");
    let mut command = Command::new("sh");
    // The next steps, on standard output, are for people.
    command.args(["-c", "exec \"$0\" \"$@\" >/dev/null"]).arg(binary().get_program());
    command.arg("serve").arg(in_repository("ignition-fixtures"));
    command.arg("--state-dir").arg(directory.path().join("state"));
    command.args(["--host", "localhost", "--log-format", "json"]);
    let mut server = Server::prepared(command).until_ready();
    assert_eq!(server.plain().get("/config/wor%22ker").status, 503);
    server.terminate();
    assert!(server.ended().success());
    let log = server.log();
    let objects = objects(&log);
    let with = |text: &str| {
        let has = |object: &&Value| object["message"].as_str().is_some_and(|it| it.contains(text));
        objects.iter().find(has).unwrap_or_else(|| panic!("no {text:?} in {log}"))
    };
    assert_eq!(with("Pool ").get("status"), Some(&503.into()), "{log}");
    assert_eq!(with("shutting down")["level"], "INFO");
}

#[test]
fn the_reason_why_a_server_ends_is_an_object_too() {
    let ended = Said::by(binary().args(["--log-format=json", "serve", "/nowhere/at/all"]));
    assert_eq!(ended.status, 1);
    let objects = objects(&ended.error);
    let last = objects.last().expect("a line");
    assert_eq!(last["level"], "ERROR");
    assert!(last["error"].as_str().is_some_and(|it| it.contains("/nowhere/at/all")), "{last}");
}
