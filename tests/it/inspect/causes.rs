//! The cause that keeps a machine from coming up, each made to happen.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc;
use std::time::Instant;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{SOON, Said, assert_cause, empty, fixtures, inspect, pointer, url};
use crate::support::book;
use crate::support::clock::set_clock;
use crate::support::command::Store;
use crate::support::http::answering;
use crate::support::in_repository;
use crate::support::manifests::machine_config;
use crate::support::pair::Pair;
use crate::support::server::{Server, binary, free_ports, serving};
use crate::support::stopwatch::Stopwatch;
use crate::support::wait_for;

/// A folder of manifests with these pools: name, the text of its Ignition config.
fn manifests(pools: &[(&str, Option<Value>)]) -> TempDir {
    let directory = tempfile::tempdir().expect("a temporary folder");
    for (name, config) in pools {
        let rendered = format!("rendered-{name}");
        let configuration = if config.is_some() { json!({"name": rendered}) } else { json!({}) };
        let pool = json!({
            "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
            "metadata": {"name": name},
            "spec": {"configuration": configuration}, "status": {"configuration": configuration},
        });
        let machine_config = config.as_ref().map(|config| {
            let mut object = machine_config(&rendered, config);
            object["spec"]["osImageURL"] = "registry.example.com/os@sha256:0".into();
            object
        });
        let text =
            format!("{pool}\n{}", machine_config.map(|it| it.to_string()).unwrap_or_default());
        fs::write(directory.path().join(format!("{name}.json")), text).expect("a file");
    }
    directory
}

#[test]
fn a_request_is_the_one_that_ignition_makes() {
    for (spec, accept, user_agent) in [
        (
            "2.2",
            "application/vnd.coreos.ignition+json; version=2.2.0, application/vnd.coreos.ignition+json; version=1; q=0.5, */*; q=0.1",
            "Ignition/0.22.0",
        ),
        ("3.4", "application/vnd.coreos.ignition+json;version=3.4.0, */*;q=0.1", "Ignition/2.15.0"),
    ] {
        let (sender, heads) = mpsc::channel();
        let address = answering(move |head| {
            let _ = sender.send(head.to_owned());
            b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_vec()
        });
        assert_cause(&[&format!("http://{address}"), "worker", "--as", spec], "given-up", "404");
        let head = heads.recv().expect("a request").to_lowercase();
        assert!(head.starts_with("get /config/worker http/1.1\r\n"), "{head}");
        assert!(head.contains(&format!("\r\naccept: {accept}\r\n").to_lowercase()), "{head}");
        assert!(
            head.contains(&format!("\r\nuser-agent: {user_agent}\r\n").to_lowercase()),
            "{head}"
        );
        assert!(head.contains("\r\naccept-encoding: identity\r\n"), "{head}");
    }
}

#[test]
fn a_pool_that_is_unknown_is_named() {
    let server = Server::sample_cluster(&[]);
    let words = "no pool has the name nobody";
    assert_cause(&["--pointer", &pointer(&server, "worker"), "nobody"], "pool-unknown", words);
    assert_cause(&[&fixtures(), "nobody"], "pool-unknown", words);
}

#[test]
fn a_pool_without_a_config_is_named() {
    let directory = manifests(&[("new", None), ("old", Some(empty()))]);
    let server = Server::serve_when_up(directory.path(), &[]);
    let words = "the pool has no config yet";
    assert_cause(&[&url(server.secure()), "new"], "no-config-yet", words);
    assert_cause(&[&directory.path().display().to_string(), "new"], "no-config-yet", words);
}

#[test]
fn what_the_machines_spec_cannot_express_is_named() {
    let mut config = empty();
    config["kernelArguments"] = json!({"shouldNotExist": ["quiet"]});
    let directory = manifests(&[("worker", Some(config))]);
    let server = Server::serve_when_up(directory.path(), &[]);
    let words = "the config cannot be expressed in the machine's spec 3.2.0";
    let specs = "served in 3.3.0 to 3.6.0";
    for place in [url(server.secure()), directory.path().display().to_string()] {
        assert_cause(&[&place, "worker", "--as", "3.2"], "not-in-spec", words);
        assert_cause(&[&place, "worker", "--as", "3.2"], "not-in-spec", specs);
        assert_eq!(inspect(&[&place, "worker", "--as", "3.3"]).status, 0);
    }
    // One that was kept, for a machine that is too old for it, by any other server.
    let kept =
        b"HTTP/1.1 200 OK\r\nContent-Length: 33\r\n\r\n{\"ignition\":{\"version\":\"3.4.0\"}}\n\n";
    let address = answering(move |_| kept.to_vec());
    let arguments = [&format!("http://{address}")[..], "p", "--as", "3.2"];
    assert_cause(&arguments, "not-in-spec", "spec 3.2.0; it is served in 3.4.0");
    assert!(
        inspect(&arguments)
            .output
            .contains("does not recover by itself: boot it again when this is done.")
    );
}

#[test]
fn an_invalid_config_is_named() {
    let invalid = json!({
        "ignition": {"version": "3.4.0"},
        "storage": {"files": [{"path": "no/slash", "contents": {"source": "data:,"}}]},
    });
    let directory = manifests(&[("bad", Some(invalid)), ("good", Some(empty()))]);
    let server = Server::serve_when_up(directory.path(), &[]);
    let words = "the config is invalid";
    let arguments = [&url(server.secure())[..], "bad"];
    assert_cause(&arguments, "invalid-config", words);
    assert!(
        inspect(&arguments).output.contains("The machine retries, and boots when this is done.")
    );
    // Who has the manifests is told where it is.
    let path = directory.path().display().to_string();
    assert_cause(&[&path, "bad"], "invalid-config", "storage.files[0].path");
    assert_eq!(inspect(&[&path, "good"]).status, 0);
}

#[test]
fn a_pointer_that_trusts_an_old_ca_is_named() {
    let [old, new] = [(); 2].map(|()| Server::sample_cluster(&[]));
    let address = format!("localhost:{}", new.secure().port());
    let arguments = ["--pointer", &pointer(&old, "worker"), "--connect", &address];
    assert_cause(&arguments, "unknown-authority", "certificate signed by unknown authority");
    let ca = old.state().join("ca.crt").display().to_string();
    let arguments = [&url(new.secure()), "worker", "--ca", &ca];
    assert_cause(&arguments, "unknown-authority", "certificate signed by unknown authority");
}

#[test]
fn a_name_that_is_not_in_the_certificate_is_named() {
    let server = Server::sample_cluster(&[]);
    let ca = server.state().join("ca.crt").display().to_string();
    let address = format!("localhost:{}", server.secure().port());
    let arguments = ["https://mcs.example.com:22623", "worker", "--connect", &address, "--ca", &ca];
    let words = "is not in the serving certificate, which is for localhost";
    assert_cause(&arguments, "wrong-name", words);
    assert_cause(&arguments, "wrong-name", "the name mcs.example.com");
    assert_cause(&arguments[..4], "wrong-name", words);
}

#[test]
fn a_serving_pair_that_has_expired_is_named() {
    let directory = tempfile::tempdir().expect("a temporary folder");
    let old = Pair::expired(directory.path(), "old");
    let base = directory.path().join("base");
    for name in ["machine-pools", "machine-configs", "controller-config"] {
        fs::create_dir_all(base.join(name)).expect("a folder");
    }
    let kubeconfig = in_repository("ignition-fixtures/kubeconfig.yaml");
    let flags = ["--bootstrap-kubeconfig", kubeconfig.to_str().expect("text")];
    let server = Server::bootstrap(&base, &old.certificate, &old.key, &flags);
    let ca = old.certificate.display().to_string();
    let words = "the serving certificate \"old\" expired at 2021-01-01T00:00:";
    let arguments = [&url(server.secure())[..], "master", "--ca", &ca];
    assert_cause(&arguments, "serving-pair-expired", words);
    assert_cause(&arguments[..2], "serving-pair-expired", words);
}

#[test]
fn the_way_from_a_server_whose_clock_is_ahead_ends_at_its_clock() {
    let directory = tempfile::tempdir().expect("a temporary folder");
    let (pools, state) = (directory.path().join("pools"), directory.path().join("state"));
    fs::create_dir(&pools).expect("a folder");
    fs::write(pools.join("edge.ign"), r#"{"ignition": {"version": "3.4.0"}}"#).expect("it");
    let mut command = serving(&pools, &state);
    set_clock(&mut command, "+48h");
    let server = Server::prepared(command).until_ready();
    // Of two clocks alone, nobody can say which is wrong.
    let ca = state.join("ca.crt").display().to_string();
    let said = inspect(&[&url(server.secure()), "edge", "--ca", &ca]).output;
    let step =
        "compare the machine's clock and the server's with a third one, and set the wrong one";
    assert!(said.contains("the machine's clock is wrong") && said.contains(step), "{said}");
    let checked = state.run(&["certs", "check"]);
    let quoted = ["is not valid before", ": check the clock"];
    assert!(checked.status == 1 && quoted.iter().all(|it| checked.output.contains(it)));
    // The page that it leads to quotes what is printed, and what it says to do helps.
    let page = book::page("runbook/machines.md");
    assert!(page.contains("is not valid before …: check the clock"));
    let behind = checked.output.split_once("the clock is behind: \"").expect("the CA").1;
    let name = behind.split_once('"').expect("its name").0;
    drop(server);
    state.run(&["certs", "distrust", name, "--yes"]).done();
    state.run(&["certs", "check"]).done();
}

#[test]
fn a_machine_whose_clock_is_wrong_is_named() {
    let server = Server::sample_cluster(&[]);
    let file = pointer(&server, "worker");
    for at in ["2020-01-01", "2060-01-01T00:00:00Z"] {
        let words = format!("the machine's clock is wrong: it shows {}", &at[..10]);
        assert_cause(&["--pointer", &file, "--at", at], "wrong-clock", &words);
    }
    // Run by the machine itself, it goes by the server's clock.
    let mut command = binary();
    set_clock(&mut command, "@2020-01-01 00:00:00");
    command.args(["inspect", "--pointer", &file]);
    let said = Said::by(&mut command);
    assert_eq!(said.status, 1);
    assert!(
        said.output.contains("the machine's clock is wrong: it shows 2020-01-01"),
        "{}",
        said.output
    );
}

#[test]
fn a_server_that_is_down_is_named() {
    let [nobody] = free_ports::<1>();
    let words = "the server is down";
    assert_cause(&[&url(nobody), "worker"], "server-down", words);
    assert_cause(
        &["https://nobody.invalid", "worker"],
        "name-unknown",
        "the host name does not resolve",
    );
    // A listener that takes no connection: its queue is full, so that packets are dropped.
    let address = {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)
            .expect("a socket");
        socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).expect("a free port");
        socket.listen(0).expect("a listener");
        let address = socket.local_addr().expect("an address").as_socket().expect("an address");
        let waiting: Vec<_> = (0..8)
            .map(|_| {
                let client =
                    socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)
                        .expect("a socket");
                client.set_nonblocking(true).expect("a socket");
                let _ = client.connect(&address.into());
                client
            })
            .collect();
        (address, socket, waiting)
    };
    let since = Stopwatch::start();
    let said = inspect(&[&format!("https://{}", address.0), "worker"]);
    since.within(SOON, "a server that does not accept");
    assert!(said.status == 1 && said.output.contains("come up\": server-down"), "{said:?}");
}

#[test]
fn access_that_is_refused_is_named() {
    let address = answering(|_| b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n".to_vec());
    let words = "the server's access rules refuse the machine: status 401";
    assert_cause(&[&format!("http://{address}"), "worker"], "access-refused", words);

    let server = Server::sample_cluster(&["--access", "enforce"]);
    let ca = server.state().join("ca.crt").display().to_string();
    assert_cause(&[&url(server.secure()), "worker", "--ca", &ca], "access-refused", words);
    // The page says so too.
    let page = server.page("/");
    assert!(page.contains("401: no token"), "{page}");
    // By the pointer config that a machine has, it is not.
    let pointer = server.state().join("user-data/worker.ign").display().to_string();
    let said = wait_for("a token in the pointer config", || {
        let said = inspect(&["--pointer", &pointer]);
        (said.status == 0).then_some(said)
    });
    assert!(!said.output.contains("Bearer"), "{}", said.output);
}

#[test]
fn what_is_no_server_of_configs_is_reported() {
    let garbage = [
        (&b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n\xff\xfe\0\0"[..], "invalid-config"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]", "invalid-config"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 40\r\n\r\n{", "no-answer"),
        (
            b"HTTP/1.1 302 Found\r\nLocation: https://other/\x1b[2J\r\nContent-Length: 0\r\n\r\n",
            "no-answer",
        ),
        (
            b"HTTP/1.1 302 Found\r\nLocation: https://other/\r\nContent-Length: 0\r\n\r\n",
            "redirected",
        ),
        (b"220 mail.example.com ESMTP\r\n", "no-answer"),
        (b"", "no-answer"),
    ];
    for (bytes, label) in garbage {
        let address = answering(move |_| bytes.to_vec());
        assert_cause(&[&format!("http://{address}"), "worker"], label, "");
    }
    let address = answering(|_| b"no TLS here\r\n".to_vec());
    assert_cause(
        &[&format!("https://{address}"), "worker"],
        "no-tls",
        "the port answers without TLS",
    );
}

#[test]
fn a_server_is_judged_by_status_and_code_and_not_by_its_words() {
    // A server that sends no code may choose these words for anything.
    let texts = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 43\r\n\r\npool worker: there is no pool of this name\n";
    let address = answering(move |_| texts.to_vec());
    assert_cause(&[&format!("http://{address}"), "worker"], "not-now", "503: there is no pool");
    let coded = b"HTTP/1.1 503 Service Unavailable\r\nMachine-Config-Server-Refusal: no-config-yet\r\nContent-Length: 4\r\n\r\nwait";
    let address = answering(move |_| coded.to_vec());
    assert_cause(&[&format!("http://{address}"), "worker"], "no-config-yet", "config yet: wait");
    // One that serves a config which leads back to itself.
    let own = json!({"source": "https://mcs.example.com:22623/config/worker"});
    let own = json!({"ignition": {"version": "3.4.0", "config": {"merge": [own]}}}).to_string();
    let served = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{own}", own.len());
    let address = answering(move |_| served.clone().into_bytes());
    let words = "worker fetches worker";
    assert_cause(&[&format!("http://{address}"), "worker"], "fetches-forever", words);
    // What the reference server answers for a pool that it does not know.
    let reference = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n";
    let address = answering(move |_| reference.to_vec());
    assert_cause(&[&format!("http://{address}"), "worker"], "not-now", "500");
    // TLS, and an alert in it.
    let address = answering(|_| b"\x15\x03\x03\x00\x02\x02\x28".to_vec());
    assert_cause(&[&format!("https://{address}"), "worker"], "no-answer", "received fatal alert");
}

#[test]
fn a_server_that_never_answers_is_given_up_when_ignition_would() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    for scheme in ["http", "https"] {
        let since = Instant::now();
        let said = inspect(&[&format!("{scheme}://{address}"), "worker"]);
        assert!(since.elapsed().as_secs() >= 10, "{:?}", since.elapsed());
        assert!(said.status == 1 && said.output.contains("within 10 s"), "{said:?}");
    }
}
