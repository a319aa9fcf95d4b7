//! `inspect`: what a machine becomes, and the cause that keeps it from coming up, each made to happen.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use ignition::Config;
use ignition::contents::Room;
use ignition::secrets::{SecretKind, secrets};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::clock::set_clock;
use crate::support::in_repository;
use crate::support::server::{Server, binary, free_ports};
use crate::support::wait_for;

/// By when a cause has to be named.
const SOON: Duration = Duration::from_secs(5);

/// What a command said, and how it ended.
#[derive(Debug)]
struct Said {
    status: i32,
    text: String,
    error: String,
}

impl From<Output> for Said {
    fn from(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
        let status = output.status.code().expect("an exit code");
        Self { status, text: text(output.stdout), error: text(output.stderr) }
    }
}

impl Said {
    fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("{self:?}"))
    }
}

fn prepared(arguments: &[&str]) -> Command {
    let mut command = binary();
    for name in ["COLUMNS", "NO_COLOR", "CLICOLOR_FORCE"] {
        command.env_remove(name);
    }
    // No authorities lie there.
    command.current_dir(std::env::temp_dir()).arg("inspect").args(arguments);
    command
}

fn inspect(arguments: &[&str]) -> Said {
    prepared(arguments).output().expect("the built binary").into()
}

fn fixtures() -> String {
    in_repository("ignition-fixtures").display().to_string()
}

/// The cause that is named, in words and for a script, within the time that there is.
fn assert_cause(arguments: &[&str], label: &str, words: &str) {
    let since = Instant::now();
    let said = inspect(arguments);
    assert!(since.elapsed() < SOON, "{label} took {:?}", since.elapsed());
    assert_eq!((said.status, &said.error[..]), (1, ""), "{label}: {said:?}");
    let line = said.text.lines().find(|line| line.starts_with("A machine does not come up: "));
    assert!(line.is_some_and(|line| line.contains(words)), "{label}: {words}: {}", said.text);
    assert!(said.text.ends_with(&format!("\nIn the runbook: {label}\n")), "{label}: {}", said.text);
    assert!(!said.text.contains("Files: "), "{}", said.text);

    let page = inspect(&[arguments, &["--json"]].concat()).json();
    assert_eq!(page["way"]["cause"]["label"], label, "{page}");
    assert_eq!(page["machine"], Value::Null);
    let steps = page["way"]["steps"].as_array().expect("steps");
    if let Some((last, before)) = steps.split_last() {
        assert_eq!(last["outcome"], "failed", "{page}");
        assert!(before.iter().all(|step| step["outcome"] != "failed"), "{page}");
    }
}

/// A folder of manifests with these pools: name, the text of its Ignition config.
fn manifests(pools: &[(&str, Option<Value>)]) -> TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (name, config) in pools {
        let kind = "machineconfiguration.openshift.io/v1";
        let rendered = format!("rendered-{name}");
        let configuration = if config.is_some() { json!({"name": rendered}) } else { json!({}) };
        let pool = json!({
            "apiVersion": kind, "kind": "MachineConfigPool", "metadata": {"name": name},
            "spec": {"configuration": configuration}, "status": {"configuration": configuration},
        });
        let machine_config = config.as_ref().map(|config| {
            json!({
                "apiVersion": kind, "kind": "MachineConfig", "metadata": {"name": rendered},
                "spec": {"config": config, "osImageURL": "registry.example.com/os@sha256:0"},
            })
        });
        let text =
            format!("{pool}\n{}", machine_config.map(|it| it.to_string()).unwrap_or_default());
        fs::write(folder.path().join(format!("{name}.json")), text).expect("a file");
    }
    folder
}

fn empty() -> Value {
    json!({"ignition": {"version": "3.4.0"}})
}

fn url(address: SocketAddr) -> String {
    format!("https://localhost:{}", address.port())
}

/// The pointer config that a server has made.
fn pointer(server: &Server, pool: &str) -> String {
    server.state().join(format!("user-data/{pool}.ign")).display().to_string()
}

#[test]
fn the_page_is_as_recorded_at_two_widths_and_in_a_pipe() {
    // Each is made by `[COLUMNS=N] machine-config-server inspect ignition-fixtures POOL --as 3.4`.
    for (pool, width, recorded) in [
        ("worker", Some("80"), include_str!("recorded/worker-80.txt")),
        ("worker", Some("120"), include_str!("recorded/worker-120.txt")),
        ("worker", None, include_str!("recorded/worker.txt")),
        ("master", Some("80"), include_str!("recorded/master-80.txt")),
        ("master", Some("120"), include_str!("recorded/master-120.txt")),
    ] {
        let mut command = prepared(&[&fixtures(), pool, "--as", "3.4"]);
        command.envs(width.map(|width| ("COLUMNS", width)));
        let said = Said::from(command.output().expect("the built binary"));
        assert_eq!((said.status, &said.error[..]), (0, ""));
        assert_eq!(said.text, recorded, "{pool} {width:?}");
        let most = width.map_or(usize::MAX, |width| width.parse().expect("a number"));
        assert!(said.text.lines().all(|line| line.chars().count() <= most), "{width:?}");
    }
    // The same, with colours.
    let mut command = prepared(&[&fixtures(), "worker", "--as", "3.4"]);
    let coloured =
        Said::from(command.env("CLICOLOR_FORCE", "1").output().expect("the built binary"));
    assert!(coloured.text.starts_with("\u{1b}[1mMachine config"), "{}", coloured.text);
    let plain = coloured.text.replace("\u{1b}[1m", "").replace("\u{1b}[0m", "");
    assert_eq!(plain, include_str!("recorded/worker.txt"));
    command.env("NO_COLOR", "1").env_remove("CLICOLOR_FORCE");
    assert_eq!(Said::from(command.output().expect("the built binary")).text, plain);
}

#[test]
fn a_machine_gets_by_a_server_what_the_manifests_make_of_it() {
    let server = Server::serve(&in_repository("ignition-fixtures"), &[]);
    for pool in ["master", "worker", "edge"] {
        for spec in ["3.1", "3.4", "3.6"] {
            let local = inspect(&[&fixtures(), pool, "--as", spec, "--json"]).json();
            let got = inspect(&["--pointer", &pointer(&server, pool), "--as", spec, "--json"]);
            assert_eq!(got.status, 0, "{got:?}");
            let got = got.json();
            assert_eq!(got["way"]["cause"], Value::Null);
            let names: Vec<_> = got["way"]["steps"]
                .as_array()
                .expect("steps")
                .iter()
                .map(|step| &step["step"])
                .collect();
            assert_eq!(names, ["name", "connect", "TLS", "answer", "config"]);
            let mut machine = got["machine"].clone();
            // It is sent compact.
            let files = machine["files"].as_array_mut().expect("files");
            assert!(files.iter().any(|file| file["compression"] == "gzip"));
            let mut local = local["machine"].clone();
            for file in files.iter_mut().chain(local["files"].as_array_mut().expect("files")) {
                file["compression"] = Value::Null;
            }
            assert_eq!(machine, local, "{pool} {spec}");
        }
    }
    // Over the plain port, and with CAs that are named.
    let plain = format!("http://localhost:{}", server.insecure().port());
    assert_eq!(inspect(&[&plain, "worker"]).status, 0);
    let ca = server.state().join("ca.crt").display().to_string();
    let said = inspect(&[&url(server.secure()), "worker", "--ca", &ca]);
    assert!(
        said.status == 0 && said.text.contains("vouched for by \"machine-config-server-ca@"),
        "{said:?}"
    );
    // Without, nobody is said to vouch for it.
    let said = inspect(&[&url(server.secure()), "worker"]);
    assert!(
        said.status == 0 && said.text.contains("whom the machine trusts is not known"),
        "{said:?}"
    );
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
        let (address, heads) = answering(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
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

/// A server that answers each connection with these bytes, and tells what it was asked.
fn answering(bytes: &'static [u8]) -> (SocketAddr, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    let (sender, heads) = mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let sender = sender.clone();
            thread::spawn(move || {
                let mut head = [0; 4096];
                let read = stream.read(&mut head).unwrap_or_default();
                let _ = sender.send(String::from_utf8_lossy(&head[..read]).into_owned());
                let _ = stream.write_all(bytes);
            });
        }
    });
    (address, heads)
}

#[test]
fn a_pool_that_is_unknown_is_named() {
    let server = Server::serve(&in_repository("ignition-fixtures"), &[]);
    let words = "the pool is unknown: there is no pool nobody";
    assert_cause(&["--pointer", &pointer(&server, "worker"), "nobody"], "pool-unknown", words);
    assert_cause(&[&fixtures(), "nobody"], "pool-unknown", words);
}

#[test]
fn a_pool_without_a_config_is_named() {
    let folder = manifests(&[("new", None), ("old", Some(empty()))]);
    let server = Server::serve_when_up(folder.path(), &[]);
    let words = "the pool has no config yet";
    assert_cause(&[&url(server.secure()), "new"], "no-config-yet", words);
    assert_cause(&[&folder.path().display().to_string(), "new"], "no-config-yet", words);
}

#[test]
fn what_the_machines_spec_cannot_say_is_named() {
    let mut config = empty();
    config["kernelArguments"] = json!({"shouldNotExist": ["quiet"]});
    let folder = manifests(&[("worker", Some(config))]);
    let server = Server::serve_when_up(folder.path(), &[]);
    let words = "the config cannot be said in the machine's spec 3.2.0: ";
    let specs = "served in 3.3.0 to 3.6.0";
    for place in [url(server.secure()), folder.path().display().to_string()] {
        assert_cause(&[&place, "worker", "--as", "3.2"], "not-in-spec", words);
        assert_cause(&[&place, "worker", "--as", "3.2"], "not-in-spec", specs);
        assert_eq!(inspect(&[&place, "worker", "--as", "3.3"]).status, 0);
    }
    // One that was kept, for a machine that is too old for it, by any other server.
    let (address, _heads) = answering(
        b"HTTP/1.1 200 OK\r\nContent-Length: 33\r\n\r\n{\"ignition\":{\"version\":\"3.4.0\"}}\n\n",
    );
    let arguments = [&format!("http://{address}")[..], "p", "--as", "3.2"];
    assert_cause(&arguments, "not-in-spec", "spec 3.2.0");
    assert!(inspect(&arguments).text.contains("It does not ask again."));
}

#[test]
fn an_invalid_config_is_named() {
    let invalid = json!({
        "ignition": {"version": "3.4.0"},
        "storage": {"files": [{"path": "no/slash", "contents": {"source": "data:,"}}]},
    });
    let folder = manifests(&[("bad", Some(invalid)), ("good", Some(empty()))]);
    let server = Server::serve_when_up(folder.path(), &[]);
    let words = "the config is invalid";
    let arguments = [&url(server.secure())[..], "bad"];
    assert_cause(&arguments, "invalid-config", words);
    assert!(inspect(&arguments).text.contains("It asks again until this is mended."));
    // Who has the manifests is told where it is.
    let path = folder.path().display().to_string();
    assert_cause(&[&path, "bad"], "invalid-config", "storage.files[0].path");
    assert_eq!(inspect(&[&path, "good"]).status, 0);
}

#[test]
fn a_pointer_that_trusts_an_old_ca_is_named() {
    let [old, new] = [(); 2].map(|()| Server::serve(&in_repository("ignition-fixtures"), &[]));
    let address = format!("localhost:{}", new.secure().port());
    let arguments = ["--pointer", &pointer(&old, "worker"), "--connect", &address];
    assert_cause(&arguments, "unknown-authority", "certificate signed by unknown authority");
    let ca = old.state().join("ca.crt").display().to_string();
    let arguments = [&url(new.secure()), "worker", "--ca", &ca];
    assert_cause(&arguments, "unknown-authority", "certificate signed by unknown authority");
}

#[test]
fn a_name_that_is_not_in_the_certificate_is_named() {
    let server = Server::serve(&in_repository("ignition-fixtures"), &[]);
    let ca = server.state().join("ca.crt").display().to_string();
    let address = format!("localhost:{}", server.secure().port());
    let arguments = ["https://mcs.example.com:22623", "worker", "--connect", &address, "--ca", &ca];
    let words = "the name is not in the certificate: it is for localhost";
    assert_cause(&arguments, "wrong-name", words);
    assert_cause(&arguments, "wrong-name", "not mcs.example.com");
    assert_cause(&arguments[..4], "wrong-name", words);
}

#[test]
fn a_serving_pair_that_has_expired_is_named() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut made = Command::new("openssl");
    set_clock(&mut made, "@2020-01-01 00:00:00");
    made.args(["req", "-x509", "-newkey", "ec", "-nodes"]);
    made.args(["-pkeyopt", "ec_paramgen_curve:P-256", "-subj", "/CN=old", "-days", "366"]);
    made.args(["-addext", "subjectAltName=DNS:localhost", "-keyout", "tls.key", "-out", "tls.crt"]);
    let made = made.current_dir(folder.path()).output().expect("openssl");
    assert!(made.status.success(), "{made:?}");
    let (certificate, key) = (folder.path().join("tls.crt"), folder.path().join("tls.key"));
    let base = folder.path().join("base");
    for name in ["machine-pools", "machine-configs", "controller-config"] {
        fs::create_dir_all(base.join(name)).expect("a folder");
    }
    let kubeconfig = in_repository("ignition-fixtures/kubeconfig.yaml");
    let flags = ["--bootstrap-kubeconfig", kubeconfig.to_str().expect("text")];
    let server = Server::bootstrap(&base, &certificate, &key, &flags);
    let ca = certificate.display().to_string();
    let words = "the serving pair expired: \"old\" ended at 2021-01-01T00:00:";
    let arguments = [&url(server.secure())[..], "master", "--ca", &ca];
    assert_cause(&arguments, "serving-pair-expired", words);
    assert_cause(&arguments[..2], "serving-pair-expired", words);
}

#[test]
fn a_machine_whose_clock_is_wrong_is_named() {
    let server = Server::serve(&in_repository("ignition-fixtures"), &[]);
    let file = pointer(&server, "worker");
    for at in ["2020-01-01", "2060-01-01T00:00:00Z"] {
        let words = format!("the machine's clock is wrong: it says {}", &at[..10]);
        assert_cause(&["--pointer", &file, "--at", at], "wrong-clock", &words);
    }
    // Run by the machine itself, it goes by the server's clock.
    let mut command = binary();
    set_clock(&mut command, "@2020-01-01 00:00:00");
    command.args(["inspect", "--pointer", &file]);
    let said = Said::from(command.output().expect("the built binary"));
    assert_eq!(said.status, 1);
    assert!(
        said.text.contains("the machine's clock is wrong: it says 2020-01-01"),
        "{}",
        said.text
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
        "the name does not resolve",
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
    let since = Instant::now();
    let said = inspect(&[&format!("https://{}", address.0), "worker"]);
    assert!(since.elapsed() < SOON, "{:?}", since.elapsed());
    assert!(said.status == 1 && said.text.contains("In the runbook: server-down"), "{said:?}");
}

#[test]
fn access_that_is_refused_is_named() {
    let (address, _heads) = answering(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n");
    let words = "refused by access rules: 401";
    assert_cause(&[&format!("http://{address}"), "worker"], "access-refused", words);

    let server = Server::serve(&in_repository("ignition-fixtures"), &["--access", "enforce"]);
    let ca = server.state().join("ca.crt").display().to_string();
    assert_cause(&[&url(server.secure()), "worker", "--ca", &ca], "access-refused", words);
    // The page says so too.
    let page = String::from_utf8(server.metrics().get("/").body).expect("text");
    assert!(page.contains("401: it has no token"), "{page}");
    // By the pointer config that a machine has, it is not.
    let pointer = server.state().join("user-data/worker.ign").display().to_string();
    let said = wait_for("a token in the pointer config", || {
        let said = inspect(&["--pointer", &pointer]);
        (said.status == 0).then_some(said)
    });
    assert!(!said.text.contains("Bearer"), "{}", said.text);
}

#[test]
fn what_is_no_server_of_configs_is_told() {
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
        let (address, _heads) = answering(bytes);
        assert_cause(&[&format!("http://{address}"), "worker"], label, "");
    }
    let (address, _heads) = answering(b"no TLS here\r\n");
    assert_cause(&[&format!("https://{address}"), "worker"], "no-tls", "there is no TLS");
}

#[test]
fn a_server_is_judged_by_status_and_code_and_not_by_its_words() {
    // A server that sends no code may choose these words for anything.
    let texts = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 43\r\n\r\npool worker: there is no pool of this name\n";
    let (address, _heads) = answering(texts);
    assert_cause(&[&format!("http://{address}"), "worker"], "not-now", "503: there is no pool");
    let coded = b"HTTP/1.1 503 Service Unavailable\r\nMachine-Config-Server-Refusal: no-config-yet\r\nContent-Length: 4\r\n\r\nwait";
    let (address, _heads) = answering(coded);
    assert_cause(&[&format!("http://{address}"), "worker"], "no-config-yet", "config yet: wait");
    // What the reference server answers for a pool that it does not know.
    let reference = b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n";
    let (address, _heads) = answering(reference);
    assert_cause(&[&format!("http://{address}"), "worker"], "not-now", "500");
    // TLS, and an alert in it.
    let (address, _heads) = answering(b"\x15\x03\x03\x00\x02\x02\x28");
    assert_cause(&[&format!("https://{address}"), "worker"], "no-answer", "TLS");
}

#[test]
fn a_server_that_never_answers_is_given_up_when_ignition_would() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    for scheme in ["http", "https"] {
        let since = Instant::now();
        let said = inspect(&[&format!("{scheme}://{address}"), "worker"]);
        assert!((10..20).contains(&since.elapsed().as_secs()), "{:?}", since.elapsed());
        assert!(said.status == 1 && said.text.contains("within 10 s"), "{said:?}");
    }
}

/// Everything that is secret in the fixtures: the kubeconfig's token and a user's hash.
fn known_secrets() -> Vec<String> {
    let text =
        fs::read_to_string(in_repository("ignition-fixtures/kubeconfig.yaml")).expect("a file");
    let token = text.lines().find_map(|line| line.trim().strip_prefix("token: ")).expect("a token");
    let text = fs::read_to_string(in_repository("ignition-fixtures/machine-configs/master.yaml"));
    let text = text.expect("a file");
    let hash = text.lines().find_map(|line| line.split_once("passwordHash: ")).expect("a hash").1;
    [token, hash].map(|text| text.trim_matches(['"', '\'']).to_owned()).to_vec()
}

#[test]
fn secrets_are_named_and_printed_only_as_a_file() {
    let fixtures = fixtures();
    for arguments in [
        &[&fixtures[..], "master"][..],
        &[&fixtures, "master", "--json"],
        &[&fixtures, "master", "--diff", "worker"],
        &[&fixtures, "edge", "--diff", "master", "--json"],
    ] {
        let said = inspect(arguments);
        for secret in known_secrets() {
            assert!(secret.len() > 5 && !said.text.contains(&secret), "{arguments:?}");
        }
    }
    let page = inspect(&[&fixtures, "master", "--json"]).json();
    let named: BTreeSet<_> = page["machine"]["secrets"]
        .as_array()
        .expect("secrets")
        .iter()
        .map(|it| (it["place"].as_str().expect("a place"), it["kind"].as_str().expect("a kind")))
        .collect();
    assert_eq!(
        named,
        BTreeSet::from([
            ("/etc/kubernetes/kubeconfig", "kubeconfig"),
            ("/etc/mcs-machine-config-content.json", "password-hash"),
            ("user core", "password-hash"),
        ])
    );
    let said = inspect(&[&fixtures, "master", "--file", "/etc/kubernetes/kubeconfig"]);
    assert!(said.status == 0 && said.text.contains(&known_secrets()[0]), "{said:?}");
}

#[test]
fn nothing_secret_is_printed_wherever_in_a_config_it_is() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let saved = |name: &str, secret: &str| {
        let signed = format!("https://h/c?sv=2024&se=2030&sig={}", secret.repeat(4));
        let config = json!({
            "ignition": {
                "version": "3.4.0",
                "config": {"merge": [{"source": signed, "httpHeaders": [{"name": "Authorization", "value": secret}]}]},
                "proxy": {"httpProxy": format!("http://me:{secret}@proxy:3128")},
            },
            "kernelArguments": {
                "shouldExist": ["quiet", format!("rd.znet_passphrase={secret}"), format!("password=/{secret}"),
                    format!("\"db.password=a {secret}\""), format!("inst.sshpw={secret}"), format!("secret={secret}")],
                "shouldNotExist": [format!("inst.vncpassword={secret}")],
            },
            "passwd": {"users": [{
                "name": "core",
                "sshAuthorizedKeys": [format!("environment=\"API_TOKEN={secret}\" ssh-ed25519 AAAA")],
            }]},
            "storage": {
                "files": [
                    {"path": "/url", "contents": {"source": format!("https://me:{secret}@h/x?token={secret}")}},
                    {"path": "/env", "contents": {"source": format!("data:,TOKEN={secret}")}},
                ],
                "links": [{"path": "/l", "target": format!("https://me:{secret}@h/")}],
                "luks": [{"name": "l", "device": "/dev/l", "clevis": {"tang": [
                    {"url": format!("http://me:{secret}@tang"), "thumbprint": "x"}]}}],
            },
            "systemd": {"units": [{
                "name": "a.service", "enabled": true,
                "contents": format!("[Service]\nEnvironment=DB_PASSWORD={secret}\nExecStart=/bin/true\n"),
            }]},
        });
        let object = json!({
            "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
            "metadata": {"name": name},
            "spec": {"config": config, "kernelArguments": [
                format!("netroot=iscsi:me:{secret}@192.0.2.1::::iqn"), format!("systemd.set_credential=a:{secret}")]},
        });
        let path = folder.path().join(name);
        fs::write(&path, object.to_string()).expect("a file");
        path.display().to_string()
    };
    let (one, other) = (saved("one", "sesame-Zq1"), saved("two", "sesame-Zq2"));
    for arguments in [
        &[&one[..]][..],
        &[&one, "--json"],
        &[&one, "--diff", &other],
        &[&other, "--diff", &one, "--json"],
        &["https://me:sesame-Zq1@localhost:1"],
        &["https://me:sesame-Zq1@localhost:1", "worker"],
        &["https://me:sesame-Zq1@localhost:1", "worker", "--json"],
    ] {
        let said = inspect(arguments);
        let all = format!("{}{}", said.text, said.error);
        assert!(!all.contains("sesame"), "{arguments:?}: {all}");
        assert!(all.contains("(secret)"), "{arguments:?}: {all}");
    }
    // What differs in nothing but secrets differs.
    let said = inspect(&[&one, "--diff", &other]);
    let line = "value: differs in what is secret: quiet rd.znet_passphrase=(secret)";
    assert!(said.status == 1 && said.text.contains(line), "{}", said.text);
    // The place is named among the secrets.
    let page = inspect(&[&one, "--json"]).json();
    let named = page["machine"]["secrets"].as_array().expect("secrets");
    assert!(named.iter().any(|it| it["place"] == "kernelArguments"), "{page}");
    let said = inspect(&[&one, "--file", "/env"]);
    assert_eq!(said.text, "TOKEN=sesame-Zq1");
}

#[test]
fn no_conformance_input_raises_a_false_alarm() {
    let folder = in_repository("../shared/conformance");
    if !folder.exists() {
        // It lies beside the repository and belongs to others.
        return;
    }
    let mut looked_at = 0;
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(folder.join("corpus")).expect("the corpus") {
        let text = fs::read_to_string(entry.expect("an entry").path()).expect("a file");
        let Ok(config) = Config::parse(&text) else { continue };
        looked_at += 1;
        let secrets = secrets(&config, &mut Room::default());
        found.extend(secrets.into_iter().map(|it| (it.place.to_string(), it.kind)));
    }
    assert!(looked_at > 20, "{looked_at}");
    assert_eq!(found, BTreeSet::from([("user test".to_owned(), SecretKind::PasswordHash)]));
    for entry in fs::read_dir(folder.join("rendered")).expect("rendered configs") {
        let path = entry.expect("an entry").path();
        let page = inspect(&[path.to_str().expect("text"), "--json"]).json();
        // Each has a pull secret, and nothing else.
        let expected = json!([{"place": "/var/lib/kubelet/config.json", "kind": "registry-login"}]);
        assert_eq!(page["machine"]["secrets"], expected, "{}", path.display());
    }
}

#[test]
fn a_file_is_printed_byte_for_byte() {
    let file = |path: &str| -> Output {
        prepared(&[&fixtures(), "master", "--file", path]).output().expect("the built binary")
    };
    let every_byte: Vec<u8> = (0..=255).collect();
    assert_eq!(file("/etc/demo/every-byte.bin").stdout, every_byte);
    assert_eq!(file("/etc/demo/empty").stdout, b"");
    let script = file("/usr/local/bin/choose-node-address");
    assert!(script.status.success() && script.stdout.starts_with(b"#!"), "it is compressed");
    let unit = file("/etc/systemd/system/kubelet.service.d/10-cgroup.conf");
    assert!(unit.status.success() && unit.stdout.starts_with(b"[Service]"), "{unit:?}");
    let missing = Said::from(file("/etc/nothing"));
    assert_eq!((missing.status, &missing.text[..]), (1, ""));
    assert_eq!(missing.error, "/etc/nothing: there is no such file\n");
}

#[test]
fn two_machines_are_compared_whatever_they_come_from() {
    let server = Server::serve(&in_repository("ignition-fixtures"), &[]);
    let (file, fixtures) = (pointer(&server, "worker"), fixtures());
    let folder = tempfile::tempdir().expect("a temporary folder");
    let saved = folder.path().join("worker.ign");
    let render = binary().args(["render", "worker", &fixtures, "--spec", "3.4"]).output();
    fs::write(&saved, render.expect("the built binary").stdout).expect("a file");
    let saved = saved.to_str().expect("text");
    let plain = format!("http://localhost:{}", server.insecure().port());
    for other in [&fixtures, saved, "3.4"] {
        let arguments = ["--pointer", &file, "--as", "3.4", "--diff", other];
        // A folder has to be told the pool.
        let arguments = if other == fixtures {
            [&arguments[..], &["worker"]].concat()
        } else {
            arguments.to_vec()
        };
        let said = inspect(&arguments);
        assert!(
            said.status == 0 && said.text.contains("make the same machine"),
            "{other}: {said:?}"
        );
    }
    let said = inspect(&[&plain, "worker", "--as", "3.4", "--diff", &url(server.secure())]);
    assert_eq!(said.status, 0, "{said:?}");

    for (other, line) in
        [("master", "+ file /etc/demo/every-byte.bin"), ("3.1", "    value: 3.4.0 -> 3.1.0")]
    {
        let said = inspect(&[&plain, "worker", "--as", "3.4", "--diff", other]);
        assert!(
            said.status == 1 && said.text.lines().any(|it| it == line),
            "{line}: {}",
            said.text
        );
        let page = inspect(&[&plain, "worker", "--as", "3.4", "--diff", other, "--json"]).json();
        assert_eq!(page["differs"], true);
    }
    let changed = saved.replace("worker.ign", "changed.ign");
    let mut config: Value =
        serde_json::from_slice(&fs::read(saved).expect("a file")).expect("JSON");
    let files = config["storage"]["files"].as_array_mut().expect("files");
    let chrony = files.iter_mut().find(|file| file["path"] == "/etc/chrony.conf").expect("a file");
    chrony["contents"] = json!({"source": "data:,pool%20ntp.example.com%0A"});
    fs::write(&changed, config.to_string()).expect("a file");
    let said = inspect(&[saved, "--diff", &changed]);
    assert_eq!(said.status, 1);
    assert!(
        said.text.contains("~ file /etc/chrony.conf")
            && said.text.contains("    +pool ntp.example.com"),
        "{}",
        said.text
    );
    // Neither differs nor is the same: one of them is not to be had.
    let said = inspect(&[&plain, "worker", "--diff", "nobody"]);
    assert!(said.status == 1 && said.text.ends_with("In the runbook: pool-unknown\n"), "{said:?}");
}

#[test]
fn a_hostile_config_cannot_harm_who_looks_at_it() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = |name: &str, text: &str| -> PathBuf {
        let path = folder.path().join(name);
        fs::write(&path, text).expect("a file");
        path
    };
    // Each unpacks to 100 MiB, all to 3 GiB.
    let bomb = {
        let zeros = folder.path().join("zeros");
        fs::File::create(&zeros).and_then(|file| file.set_len(100 << 20)).expect("a file");
        let gzip = Command::new("gzip").arg("-c").arg(&zeros).output().expect("gzip").stdout;
        base64::Engine::encode(&base64::engine::general_purpose::STANDARD, gzip)
    };
    let files: Vec<_> = (0..30)
        .map(|number| {
            let source = format!("data:;base64,{bomb}");
            json!({"path": format!("/{number}"), "contents": {"source": source, "compression": "gzip"}})
        })
        .collect();
    let config = json!({"ignition": {"version": "3.4.0"}, "storage": {"files": files}});
    let path = file("bomb.ign", &config.to_string());
    let since = Instant::now();
    let said = inspect(&[path.to_str().expect("text")]);
    assert!(
        said.status == 0 && said.text.contains("it unpacks to more than is looked at"),
        "{}",
        said.error
    );
    assert!(since.elapsed() < Duration::from_secs(30), "{:?}", since.elapsed());

    let evil = "/etc/\u{1b}[2J\u{202e}x\n/fake  0644  root";
    let config = json!({
        "ignition": {"version": "3.4.0"},
        "storage": {"files": [{"path": evil, "contents": {"source": "data:,a"}}]},
        "systemd": {"units": [{"name": "a.service", "contents": "[Unit]\nDescription=\u{1b}]0;x\u{7}\n"}]},
    });
    let path = file("evil.ign", &config.to_string());
    let empty = file("empty.ign", &empty().to_string());
    let (path, empty) = (path.to_str().expect("text"), empty.to_str().expect("text"));
    for arguments in [
        &[path][..],
        &[path, "--json"],
        &[empty, "--diff", path],
        &[path, "--diff", empty, "--json"],
    ] {
        let said = inspect(arguments);
        let is_harmless = |c: char| c == '\n' || !(c.is_control() || c == '\u{202e}');
        assert!(!said.text.is_empty() && said.text.chars().all(is_harmless), "{said:?}");
        assert!(!said.text.lines().any(|line| line.starts_with("/fake")), "{said:?}");
        if arguments.contains(&"--json") {
            assert!(said.json().to_string().contains("/fake"), "{said:?}");
        }
    }

    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let path = file("deep.ign", &deep);
    assert_cause(&[path.to_str().expect("text")], "invalid-config", "the config is invalid");
}

#[test]
fn what_cannot_be_inspected_ends_with_2() {
    for arguments in [
        &["--bogus"][..],
        &[],
        &["https://localhost:1"],
        &["/no/such/file"],
        &[&fixtures()],
        &["https://localhost:1", "worker", "--ca", "/no/such/file"],
        &["--pointer", "/no/such/file"],
        &["worker", "--as", "3.9"],
        &["worker", "--at", "noon"],
        &["ftp://localhost", "worker"],
    ] {
        let said = inspect(arguments);
        assert_eq!((said.status, &said.text[..]), (2, ""), "{arguments:?}: {said:?}");
        assert_eq!(said.error.lines().count(), 1, "{arguments:?}: {said:?}");
    }
}
