//! The administrators' page in a real browser.

mod live;
mod looks;
mod machines;
mod pools;

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::faults::bootstrap_directory;
use crate::support::browser::Browser;
use crate::support::clock::follow_clock;
use crate::support::http::{IGNITION, loopback};
use crate::support::logged::Logged;
use crate::support::manifests::{machine_config, pool, write};
use crate::support::pair::Pair;
use crate::support::server::{Server, binary, serving};
use crate::support::stopwatch::{HURRY, Stopwatch, once_within};
use crate::support::{in_repository, wait_for, wait_until};

/// The sample cluster, with machines of which one gets nothing.
fn sample_cluster() -> Server {
    let server = Server::sample_cluster(&[]);
    let from = |last: u8| server.plain().from(loopback(last));
    assert_eq!(from(2).request("GET", "/config/worker", &[IGNITION]).status, 200);
    assert_eq!(from(3).request("GET", "/config/gpu", &[IGNITION]).status, 503);
    server
}

fn open(server: &Server) -> Browser {
    let mut browser = Browser::start();
    browser.open(&format!("http://{}/", server.metrics().address()));
    browser
}

#[test]
fn ten_thousand_machines_and_a_hundred_pools_are_shown_in_50_ms() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for number in 0..100 {
        let name = format!("pool-{number}");
        write(folder.path(), &format!("{name}.json"), pool(&name, "rendered"));
    }
    write_config(folder.path(), "3.4.0");
    let machines: Vec<Value> = (0..10_000_u32).map(machine).collect();
    let state = tempfile::tempdir().expect("a temporary folder");
    fs::write(state.path().join("ledger.json"), json!(machines).to_string()).expect("a write");
    let server = Server::serve_with_state(folder.path(), state.path());
    let before = server.resident_bytes();

    let mut page = String::new();
    once_within(std::time::Duration::from_millis(50) * HURRY, "the page", |_| {
        let looked = Stopwatch::start();
        let answer = server.metrics().get("/");
        let took = looked.took();
        page = String::from_utf8(answer.body).expect("text");
        took
    });
    assert!(page.contains("10000 stuck") && page.contains("pool-99"), "{page}");
    assert!(page.len() < 256 << 10, "{} bytes", page.len());
    for query in ["?text=10.0.39.15&sort=address", "?state=stuck&pool=worker&page=100&sort=last"] {
        once_within(std::time::Duration::from_millis(50) * HURRY, query, |_| {
            let looked = Stopwatch::start();
            let answer = server.metrics().get(&format!("/{query}"));
            let took = looked.took();
            let page = String::from_utf8(answer.body).expect("text");
            assert!(page.contains("href=\"/machines/10.0."), "{page}");
            took
        });
    }
    let all = server.metrics().get("/api/v1/machines").json();
    assert_eq!(all.as_array().expect("a list").len(), 10_000);
    println!("{} bytes more after a look", server.resident_bytes().saturating_sub(before));
}

fn machine(number: u32) -> Value {
    let at = "2026-11-21T12:00:00Z";
    json!({
        "address": std::net::Ipv4Addr::from_bits(0x0a00_0000 + number), "first": at, "last": at,
        "requests": {
            "pool": "worker", "user_agent": "Ignition/2.14.0", "spec": "3.4.0", "times": 7,
            "refused": {"status": 503, "reason": "no pool has this name"},
            "since": at, "last": at,
        },
    })
}

#[test]
fn a_pair_that_expires_while_it_is_served_is_reported_and_takes_no_server_out_of_service() {
    let base = bootstrap_directory();
    let clock = base.path().join("clock");
    // In one step: the server reads it each time that it looks at the clock.
    let set = |ahead: &str| {
        let next = base.path().join("clock.next");
        fs::write(&next, ahead).expect("a writable folder");
        fs::rename(&next, &clock).expect("a rename in one folder");
    };
    set("+0");
    let Pair { certificate, key, .. } = Pair::make(base.path(), "localhost");
    let kubeconfig = in_repository("ignition-fixtures/kubeconfig.yaml");
    let mut command = binary();
    command.arg("bootstrap").arg("--server-basedir").arg(base.path());
    command.arg("--bootstrap-kubeconfig").arg(kubeconfig);
    command.arg("--cert").arg(certificate).arg("--key").arg(key);
    follow_clock(&mut command, &clock);
    let server = Server::prepared(command).until_ready();
    let readiness = || {
        let answer = server.metrics().get("/readyz");
        assert_eq!(answer.status, 200);
        String::from_utf8(answer.body).expect("text")
    };
    let line = "serving certificate: expired at 2119-12-31T00:00:00Z\n";
    assert!(!readiness().contains(line), "{}", readiness());
    set("+100y");
    wait_until("the line", || readiness().contains(line));
    assert!(server.page("/").contains("Ready, with warnings"), "{}", server.page("/"));
    set("+0");
    wait_until("the clock to be right", || !readiness().contains(line));
    let logged =
        || server.log().matches("no machine can boot with the serving certificate").count();
    wait_until("the line in the log, once", || logged() == 1);
}

#[test]
fn a_pointer_config_that_boots_nobody_is_in_the_headline_at_once() {
    let directory = manifests("3.4.0");
    let server = Server::serve(directory.path(), &["--access", "off"]);
    assert!(server.page("/").contains("Everything is OK"), "{}", server.page("/"));
    let pointers = server.state().join("user-data");
    let pointer = fs::read_to_string(pointers.join("worker.ign")).expect("a pointer config");
    let unknown = pointer.replace("/config/worker", "/config/wroker");
    fs::write(pointers.join("unknown.ign"), unknown).expect("a write");
    let page = server.page("/");
    assert!(page.contains("locked out") && page.contains("pool wroker not found"), "{page}");
    assert!(page.contains("Ready, with warnings"), "{page}");
}

/// One pool, whose config is of this spec.
fn manifests(spec: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a temporary folder");
    write_config(directory.path(), spec);
    write(directory.path(), "pool.json", pool("worker", "rendered"));
    directory
}

fn write_config(directory: &Path, spec: &str) {
    let image = format!("os.example.com:5000/os@sha256:{}", "0".repeat(64));
    let mut config = machine_config("rendered", &json!({"ignition": {"version": spec}}));
    config["spec"]["osImageURL"] = image.into();
    write(directory, "config.json", config);
}

#[test]
fn a_server_tells_of_an_empty_directory_a_broken_pool_and_what_comes_next() {
    let directory = tempfile::tempdir().expect("a temporary folder");
    let server = Server::serve_when_up(directory.path(), &[]);
    let logged = |text: &str| {
        wait_until(text, || server.log().contains(text));
    };
    logged("no MachineConfigPool found");
    let address = server.metrics().address();
    logged("which has no pool yet");
    logged(&format!("Status page  http://{address}/\n"));

    // The config comes first: its pool is never read without it.
    write_config(directory.path(), "9.9.9");
    write(directory.path(), "pool.json", pool("worker", "rendered"));
    let reads = || {
        let log = server.log();
        let lines = log.lines().filter(|line| line.contains("read the inputs"));
        lines.filter(|line| line.contains(" pools=1 ")).map(str::to_owned).collect::<Vec<_>>()
    };
    let broken = wait_for("the broken pool", || Some(reads()).filter(|lines| !lines.is_empty()));
    assert!(broken.iter().all(|line| line.contains(" problems=1")), "{broken:?}");
    logged("pool has no valid config");

    write_config(directory.path(), "3.4.0");
    logged("pool has a valid config again");
    wait_for("the mended pool", || {
        reads().iter().find(|line| line.contains(" problems=0")).cloned()
    });
    let overview = server.overview();
    let registry = json!([{"host": "os.example.com:5000", "pools": ["worker"]}]);
    assert_eq!(overview["registries_without_ca"], registry, "{overview}");

    // Another one finds the port in use, and serves without.
    let mut second = serving(directory.path(), &directory.path().join(".state"));
    second.args(["--listen-address=127.0.0.1", "--secure-port=0", "--insecure-port=0"]);
    second.arg(format!("--metrics-address={address}"));
    let second = Logged::start("the second server", &mut second);
    let reported = format!("cannot listen for metrics and the status page object={address}");
    wait_until("the port", || {
        let log = second.log();
        let mut lines = log.lines().filter(|line| line.contains(&reported));
        lines.any(|line| line.contains("with --metrics-address"))
    });
    for command in ["controller", "node-ca"] {
        let output = binary()
            .args([command, "--kubeconfig=/no/such", &format!("--metrics-address={address}")])
            .output()
            .expect("the built binary");
        let error = String::from_utf8(output.stderr).expect("text");
        let reported = format!("cannot listen on {address} (metrics); use --metrics-address");
        assert!(output.status.code() == Some(1) && error.contains(&reported), "{error}");
    }
}
