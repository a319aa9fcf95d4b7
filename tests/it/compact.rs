//! Compact answers: who gets them, and that a machine is the same whichever form it booted from. The
//! machines are the real Ignition, which asks for spec 3.3.

use std::fs;
use std::io::Write as _;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256, Sha512};

use crate::support::contract::{VERSIONS, accept, config, config_for_ignition};
use crate::support::http::Response;
use crate::support::ignition_equal::differences;
use crate::support::in_repository;
use crate::support::machine::Machine;
use crate::support::manifests::{machine_config, pool, write};
use crate::support::pair::Pair;
use crate::support::proxy::Proxy;
use crate::support::server::Server;
use crate::support::tree::{self, Node, Tree, What};

/// How much a config says is compressed.
fn compressed(answer: &Response) -> usize {
    String::from_utf8_lossy(&answer.body).matches(r#""compression":"gzip""#).count()
}

#[test]
fn only_ignition_gets_a_config_compact_and_only_in_specs_that_have_it() {
    let cluster = cluster(&[text_file("/etc/long", &long_text())]);
    let server = Server::serve(cluster.path(), &[]);
    let client = server.plain();
    for version in VERSIONS {
        let plain = config(&client, "worker", version);
        let answer = config_for_ignition(&client, "worker", version);
        if ["2.2.0", "3.0.0"].contains(&version) {
            // Ignition took no compressed data URLs before it knew 3.1.
            assert!(answer.body == plain.body, "{version}: {answer:?}");
            assert_eq!(answer.comparable_headers(), plain.comparable_headers(), "{version}");
            continue;
        }
        assert!(compressed(&answer) >= 2 && compressed(&plain) == 0, "{version}: {answer:?}");
        assert!(2 * answer.body.len() < plain.body.len(), "{version}: {answer:?}");
        assert_eq!(differences(&answer.json(), &plain.json()), [""; 0], "{version}");
        assert_eq!(answer.header("content-type"), plain.header("content-type"));
        for answer in [&answer, &plain] {
            let digest = format!("\"{:x}\"", Sha256::digest(&answer.body));
            assert_eq!(answer.header("etag"), Some(&digest[..]), "{version}");
        }
    }
    let accept = accept("3.4.0");
    let plain = config(&client, "worker", "3.4.0");
    for user_agent in ["curl/8.14.1", "Go-http-client/1.1", "", "My Ignition/2.14.0"] {
        let headers = [("User-Agent", user_agent), ("Accept", &accept)];
        let answer = client.request("GET", "/config/worker", &headers);
        assert!(answer.body == plain.body, "{user_agent}: {answer:?}");
    }
}

#[test]
fn head_and_the_count_of_bytes_are_those_of_the_form_that_is_sent() {
    let cluster = cluster(&[text_file("/etc/long", &long_text())]);
    let server = Server::serve(cluster.path(), &[]);
    let client = server.plain();
    let counted = || server.metric("mcs_response_bytes_total");
    for user_agent in ["Ignition/2.14.0", "curl/8.14.1"] {
        let before = counted();
        let headers = [("User-Agent", user_agent), ("Accept", &accept("3.3.0"))];
        let get = client.request("GET", "/config/worker", &headers);
        let length = get.body.len();
        #[expect(clippy::cast_precision_loss, reason = "a few KB")]
        let sent = length as f64;
        assert!((counted() - before - sent).abs() < 0.5, "{user_agent}: {length} bytes");
        let head = client.request("HEAD", "/config/worker", &headers);
        assert_eq!(head.comparable_headers(), get.comparable_headers(), "{user_agent}");
        assert_eq!(head.header("content-length"), Some(&length.to_string()[..]));
    }
}

#[test]
fn it_can_be_turned_off() {
    let cluster = cluster(&[text_file("/etc/long", &long_text())]);
    let plain = |server: &Server, pool: &str| {
        let client = server.plain();
        let answer = config_for_ignition(&client, pool, "3.3.0");
        assert_eq!((answer.status, compressed(&answer)), (200, 0), "{answer:?}");
        assert!(answer.body == config(&client, pool, "3.3.0").body, "{answer:?}");
    };
    plain(&Server::serve(cluster.path(), &["--compact", "off"]), "worker");

    let base = tempfile::tempdir().expect("a temporary folder");
    for (file, directory, name) in [
        ("pool.json", "machine-pools", "master.yaml"),
        ("config.json", "machine-configs", "rendered.yaml"),
    ] {
        let directory = base.path().join(directory);
        fs::create_dir(&directory).expect("a new folder");
        let text = fs::read_to_string(cluster.path().join(file)).expect("a manifest");
        let text = text.replace("\"worker\"", "\"master\"");
        fs::write(directory.join(name), text).expect("a writable folder");
    }
    let controller = base.path().join("controller-config");
    fs::create_dir(&controller).expect("a new folder");
    let fixture = in_repository("ignition-fixtures/controller-config.yaml");
    fs::copy(fixture, controller.join("machine-config-controller.yaml")).expect("a copy");
    let kubeconfig = in_repository("ignition-fixtures/kubeconfig.yaml");
    let kubeconfig = kubeconfig.to_str().expect("UTF-8");
    let pair = Pair::make(base.path(), "localhost");
    let flags = ["--bootstrap-kubeconfig", kubeconfig, "--compact", "off"];
    plain(&Server::bootstrap(base.path(), &pair.certificate, &pair.key, &flags), "master");
    let server = Server::bootstrap(base.path(), &pair.certificate, &pair.key, &flags[..2]);
    assert!(compressed(&config_for_ignition(&server.plain(), "master", "3.3.0")) > 0);
}

#[test]
fn a_machine_is_the_same_from_either_form() {
    let cluster = cluster(&every_kind_of_file());
    for (directory, pools) in [
        (in_repository("ignition-fixtures"), &["master", "worker", "edge"][..]),
        (cluster.path().to_owned(), &["worker"]),
    ] {
        let compact = Server::serve(&directory, &[]);
        let plain = Server::serve(&directory, &["--compact", "off"]);
        for pool in pools {
            let sent = config_for_ignition(&compact.plain(), pool, "3.3.0");
            assert!(compressed(&sent) > 0, "{pool}");
            let [compact, plain] = [&compact, &plain].map(|server| boot(&server.pointer(pool)));
            assert!(plain.len() > 20, "{pool}: a machine with nothing on it");
            let differences = tree::differences(&compact, &plain);
            assert!(differences.is_empty(), "{pool}:\n{}", differences.join("\n"));
        }
    }
}

/// Ignition merges field by field: what a later config gives a file would be taken for compressed.
#[test]
fn a_config_that_merges_others_is_left_plain_and_boots() {
    let later = text_file("/etc/long", "short, by the later config\n");
    let cluster = cluster_of(&json!({
        "ignition": {"version": "3.3.0", "config": {"merge": [merged(&later)]}},
        "storage": {"files": [text_file("/etc/long", &long_text())]},
    }));
    let server = Server::serve(cluster.path(), &[]);
    let disk = boot(&server.pointer("worker"));
    assert!(is_file(&disk, "etc/long", b"short, by the later config\n"));
}

/// What no server can see is written in README.
#[test]
fn a_pointer_that_merges_more_has_to_say_what_is_not_compressed() {
    let cluster = cluster(&[text_file("/etc/long", &long_text())]);
    let mut later = text_file("/etc/long", "short, by the later config\n");
    let with = |server: &Server, later: &Value| {
        let mut pointer: Value = serde_json::from_str(&server.pointer("worker")).expect("JSON");
        let configs = pointer["ignition"]["config"]["merge"].as_array_mut().expect("a config");
        configs.push(merged(later));
        pointer.to_string()
    };
    let server = Server::serve(cluster.path(), &[]);
    let machine = Machine::new();
    let pointer = with(&server, &later);
    assert!(machine.start("fetch", &pointer).ended().success());
    let mut files = machine.start("files", &pointer);
    assert!(!files.ended().success() && files.log().contains("gzip: invalid header"));

    let plain = Server::serve(cluster.path(), &["--compact", "off"]);
    let without_a_word = boot(&with(&plain, &later));
    later["contents"]["compression"] = json!("");
    for disk in [without_a_word, boot(&with(&server, &later))] {
        assert!(is_file(&disk, "etc/long", b"short, by the later config\n"));
    }
}

/// A reference to a config with this file.
fn merged(file: &Value) -> Value {
    let config = json!({"ignition": {"version": "3.3.0"}, "storage": {"files": [file]}});
    json!({"source": format!("data:;base64,{}", STANDARD.encode(config.to_string()))})
}

fn is_file(disk: &Tree, path: &str, contents: &[u8]) -> bool {
    matches!(disk.get(path), Some(Node { what: What::File(bytes), .. }) if bytes == contents)
}

/// What machines at the end of a thin line gain: a first boot fetches its config through 1 Mbit/s.
#[test]
fn a_config_arrives_over_a_slow_line_in_a_fraction_of_the_time() {
    /// 1 Mbit/s.
    const RATE: u32 = 125_000;
    // More than most configs are, so that what a busy machine adds to both counts for less.
    let mut files = Vec::new();
    for entry in fs::read_dir(in_repository("crates/pki/src")).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_file() {
            let name = path.file_name().and_then(|name| name.to_str()).expect("a name");
            let text = fs::read_to_string(&path).expect("a source file");
            files.push(text_file(&format!("/opt/{}/{name}", files.len()), &text));
        }
    }
    let cluster = cluster(&files);
    let took = |flags: &[&str]| {
        let server = Server::serve(cluster.path(), flags);
        let length = config_for_ignition(&server.plain(), "worker", "3.3.0").body.len();
        let proxy = Proxy::slow(server.secure(), RATE);
        let (port, slow) = (server.secure().port(), proxy.address().port());
        let pointer = server.pointer("worker").replace(&format!(":{port}/"), &format!(":{slow}/"));
        let machine = Machine::new();
        let started = Instant::now();
        let mut fetch = machine.start("fetch", &pointer);
        assert!(fetch.ended().success(), "{}", fetch.log());
        let took = started.elapsed();
        println!("{flags:?}: {length} bytes took {took:?}");
        let least = Duration::from_secs(1) * u32::try_from(length).expect("bytes") / RATE;
        assert!(took > least, "the line is not slow");
        (length, took)
    };
    // What both take of a busy machine's time can be more than what the line takes.
    let is_quicker = (0..5).any(|_| {
        let (compact, plain) = (took(&[]), took(&["--compact", "off"]));
        assert!(10 * compact.0 < 4 * plain.0, "{compact:?} where the plain form takes {plain:?}");
        compact.1 < plain.1
    });
    assert!(is_quicker, "the plain form was as quick five times");
}

/// A machine's disk after its first boot, without what differs from one boot to the next.
fn boot(pointer: &str) -> Tree {
    let machine = Machine::new();
    machine.boot(pointer);
    let mut disk = tree::read(&machine.root());
    assert!(disk.remove("etc/.ignition-result.json").is_some(), "Ignition's own record");
    // Ignition writes its presets in no order.
    if let Some(Node { what: What::File(bytes), .. }) =
        disk.get_mut("etc/systemd/system-preset/20-ignition.preset")
    {
        bytes.sort_unstable();
    }
    disk
}

/// A pool `worker` whose config has these files.
fn cluster(files: &[Value]) -> tempfile::TempDir {
    cluster_of(&json!({"ignition": {"version": "3.3.0"}, "storage": {"files": files}}))
}

/// A pool `worker` with this Ignition config.
fn cluster_of(config: &Value) -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a temporary folder");
    write(directory.path(), "pool.json", pool("worker", "rendered"));
    write(directory.path(), "config.json", machine_config("rendered", config));
    directory
}

fn long_text() -> String {
    let lines: Vec<String> =
        (0..200).map(|line| format!("line {line}: some text, 100 %\n")).collect();
    lines.concat()
}

fn text_file(path: &str, text: &str) -> Value {
    let source =
        percent_encoding::percent_encode(text.as_bytes(), percent_encoding::NON_ALPHANUMERIC);
    json!({
        "path": path, "mode": 0o644, "overwrite": true,
        "contents": {"source": format!("data:,{source}")},
    })
}

/// Whatever a file can be said to be, as far as it is not fetched from elsewhere.
fn every_kind_of_file() -> Vec<Value> {
    let text = long_text();
    let percent = |bytes: &[u8]| {
        let encoded = percent_encoding::percent_encode(bytes, percent_encoding::NON_ALPHANUMERIC);
        format!("data:text/plain;charset=utf-8,{encoded}")
    };
    let base64 = |bytes: &[u8]| format!("data:;base64,{}", STANDARD.encode(bytes));
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(text.as_bytes()).expect("a vector");
    let gzipped = encoder.finish().expect("a vector");
    let every_byte: Vec<u8> = (0..=255).cycle().take(4_000).collect();
    let sha512 = json!({"hash": format!("sha512-{:x}", Sha512::digest(&text))});
    let sha256 = json!({"hash": format!("sha256-{:x}", Sha256::digest(&text))});
    [
        ("percent", json!({"contents": {"source": percent(text.as_bytes())}, "mode": 0o600})),
        ("base64", json!({"contents": {"source": base64(text.as_bytes())}, "mode": 0o755})),
        ("binary", json!({"contents": {"source": percent(&every_byte)}})),
        (
            "sha512",
            json!({"contents": {"source": percent(text.as_bytes()), "verification": sha512}}),
        ),
        (
            "sha256",
            json!({"contents": {"source": base64(text.as_bytes()), "verification": sha256}}),
        ),
        ("none-yet", json!({"contents": {"source": percent(text.as_bytes()), "compression": ""}})),
        (
            "gzip",
            json!({"contents": {
                "source": base64(&gzipped), "compression": "gzip", "verification": sha512,
            }}),
        ),
        // Not to be unpacked on the machine, though it could be.
        ("archive.gz", json!({"contents": {"source": percent(&gzipped)}})),
        ("empty", json!({"contents": {"source": "data:,"}})),
        ("no-source", json!({"contents": {"source": ""}})),
        ("nothing", json!({"mode": 0o640})),
        (
            "appended",
            json!({
                "contents": {"source": percent(b"first\n")},
                "append": [
                    {"source": percent(text.as_bytes()), "verification": sha256},
                    {"source": base64(&gzipped), "compression": "gzip"},
                    {"source": percent(text.as_bytes())},
                    {"source": "data:,last"},
                ],
            }),
        ),
        (
            "owned",
            json!({
                "contents": {"source": percent(text.as_bytes())},
                "user": {"name": "core"}, "group": {"id": 1000}, "overwrite": true, "mode": 0o400,
            }),
        ),
    ]
    .map(|(name, mut file)| {
        file["path"] = json!(format!("/opt/{name}"));
        file
    })
    .into()
}
