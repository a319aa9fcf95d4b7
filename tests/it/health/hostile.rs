//! Places and servers that hang, send garbage, or are of another version or another user.

use std::fs;
use std::net::TcpListener;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::json;

use super::{assert_named, health, sound};
use crate::support::command::Said;
use crate::support::http::{IGNITION, answering, loopback};
use crate::support::in_repository;
use crate::support::server::{Server, binary};
use crate::support::stopwatch::Stopwatch;

pub(super) fn http(status: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

#[test]
fn garbage_is_one_finding_whatever_it_is() {
    for (bytes, words) in [
        (&b"\x15\x03\x03\x00\x02\x02\x28"[..], "invalid HTTP version"),
        (b"", "connection closed"),
        (&http("200 OK", "<html>\u{1b}[2J")[..], "not JSON"),
        (&http("200 OK", "{}"), "missing field"),
        (&http("200 OK", "[[[["), ""),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n", "too large, or cut short"),
    ] {
        let bytes = bytes.to_vec();
        let from = answering(move |_| bytes.clone()).to_string();
        let said = health(&["--from", &from]);
        assert_eq!((said.status, &*said.error), (1, ""), "{said:?}");
        assert_eq!(said.output.lines().count(), 3, "{words}: {}", said.output);
        assert!(said.output.starts_with(&format!("error    server {from}: ")), "{}", said.output);
        assert!(!said.output.contains('\u{1b}'), "{}", said.output);
    }
}

#[test]
fn a_server_without_an_overview_is_judged_by_its_readiness() {
    let ready = |body: &'static str, status: &'static str| {
        answering(move |head| {
            let is_ready = head.starts_with("GET /readyz ");
            if is_ready { http(status, body) } else { http("404 Not Found", "") }
        })
        .to_string()
    };
    let from = ready("pool worker: MachineConfig a not found\n", "503 Service Unavailable");
    let said = health(&["--from", &from, "--json"]);
    assert_named(&said, "warning", "has no /api/v1/overview", "update the server");
    assert_named(&said, "error", "MachineConfig a not found", "correct the MachineConfig");
    assert_eq!(said.status, 1);
    let said = health(&["--from", &ready("", "200 OK"), "--json"]);
    assert_named(&said, "warning", "has no /api/v1/overview", "update the server");
    assert_eq!(said.status, 0, "{said:?}");
    let from = answering(|_| http("404 Not Found", "")).to_string();
    let said = health(&["--from", &from, "--json"]);
    assert_named(&said, "error", "is not a server of this program", "check which program listens");
    // The port for machines has the same lines without reasons.
    let manifests = sound();
    let server = Server::serve(manifests.path(), &[]);
    let said = health(&["--from", &server.plain().address().to_string(), "--json"]);
    assert_named(&said, "warning", "a port for machines", "--metrics-address");
}

#[test]
fn a_server_that_never_answers_is_given_up_within_the_limit() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let hanging = listener.local_addr().expect("an address");
    let since = Stopwatch::start();
    let said = health(&["--from", &hanging.to_string(), "--json"]);
    assert_named(&said, "error", "no answer in time", "check which program listens there");
    since.within(Duration::from_secs(10), "the command");

    // Where machines are sent, too.
    let manifests = sound();
    let server = Server::serve(manifests.path(), &[]);
    let pointer = server.pointer("worker");
    let secure = server.secure().port().to_string();
    let state = super::copied_state(&server);
    let path = state.path().join("state/user-data/worker.ign");
    fs::write(&path, pointer.replace(&secure, &hanging.port().to_string())).expect("a file");
    let since = Stopwatch::start();
    let (manifests, state) =
        (manifests.path().display().to_string(), state.path().join("state").display().to_string());
    let from = server.metrics().address().to_string();
    let said = health(&[&manifests, "--state-dir", &state, "--from", &from, "--json"]);
    let place = format!("server localhost:{}", hanging.port());
    assert_named(&said, "error", &place, "check which program listens on that port");
    since.within(Duration::from_secs(30), "the command");
}

#[test]
fn an_api_server_that_never_answers_is_given_up_at_the_limit() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let server = format!("http://{}", listener.local_addr().expect("an address"));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("kubeconfig");
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "a",
        "clusters": [{"name": "a", "cluster": {"server": server}}],
        "users": [{"name": "a", "user": {"token": "a"}}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
    });
    fs::write(&path, kubeconfig.to_string()).expect("a file");
    let since = Stopwatch::start();
    let said = health(&["--kubeconfig", path.to_str().expect("text"), "--json"]);
    assert_named(
        &said,
        "error",
        "cluster: does not answer within 30 s",
        "find out what it waits for",
    );
    since.within(Duration::from_secs(35), "the command");
}

#[test]
fn a_pipe_in_place_of_a_file_is_named_and_not_waited_for() {
    let manifests = sound();
    let state = tempfile::tempdir().expect("a temporary folder");
    let pipe = |path: &Path| {
        assert!(Command::new("mkfifo").arg(path).status().expect("mkfifo").success());
    };
    pipe(&manifests.path().join("pipe.yaml"));
    pipe(&state.path().join("tls.key"));
    let since = Stopwatch::start();
    let (manifests, path) =
        (manifests.path().display().to_string(), state.path().display().to_string());
    let said = health(&[&manifests, "--state-dir", &path, "--json"]);
    assert_named(
        &said,
        "error",
        "tls.key: is not a regular file",
        "restore the serving certificate",
    );
    pipe(&state.path().join("ca.crt"));
    let said = health(&[&manifests, "--state-dir", &path, "--json"]);
    assert_named(&said, "error", "ca.crt: is not a regular file", "readable for this user");
    since.within(Duration::from_secs(10), "the command");
}

#[test]
fn what_is_missing_or_empty_is_named_and_no_crash() {
    let manifests = sound();
    let empty = tempfile::tempdir().expect("a temporary folder");
    let [sound, empty] = [&manifests, &empty].map(|it| it.path().display().to_string());
    let said = health(&[&empty, "--state-dir", &empty, "--json"]);
    assert_named(&said, "error", "no MachineConfigPool found", "add the MachineConfigPools");
    assert_named(&said, "error", "the signing CA", "start the server");
    let said = health(&["/nowhere", "--state-dir", "/nowhere/state", "--json"]);
    assert_named(&said, "error", "--state-dir /nowhere/state", "--state-dir");
    assert_named(&said, "error", "/nowhere: No such file", "name the directory of manifests");
    let said = health(&[&sound, "--state-dir", "/dev/null", "--json"]);
    assert_named(&said, "error", "directory not found", "--state-dir");
    let said = health(&["--kubeconfig", "/nowhere", "--json"]);
    assert_named(&said, "error", "--kubeconfig /nowhere", "check the kubeconfig");
}

#[test]
fn a_state_directory_of_another_user_is_named_with_the_path() {
    let manifests = sound();
    let server = Server::serve(manifests.path(), &[]);
    server.pointer("worker");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let program = folder.path().join("program");
    fs::copy(binary().get_program(), &program).expect("a copy");
    for path in [folder.path(), manifests.path()] {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(path, mode).expect("chmod");
    }
    let mut command = Command::new(&program);
    command.arg("health").arg(manifests.path()).arg("--state-dir").arg(server.state());
    command.args(["--json", "--from", &server.metrics().address().to_string()]);
    command.current_dir("/").uid(47_110).gid(47_111);
    let said = Said::by(&mut command);
    assert_eq!(said.status, 1, "{said:?}");
    let findings = said.json()["findings"].to_string();
    assert!(findings.contains("ermission denied") || findings.contains("not found"), "{findings}");
    // What can be read is judged all the same.
    assert_eq!(said.json()["checked"]["pools"], 1, "{findings}");
}

#[test]
fn a_pipe_that_is_closed_ends_the_command_with_its_code() {
    let server = Server::sample_cluster(&[]);
    server.plain().from(loopback(2)).request("GET", "/config/gpu", &[IGNITION]);
    let fixtures = in_repository("ignition-fixtures");
    let mut command = binary();
    command.arg("health").arg(fixtures).arg("--state-dir").arg(server.state());
    command.args(["--from", &server.metrics().address().to_string()]);
    let mut child =
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the built binary");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("a child");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}
