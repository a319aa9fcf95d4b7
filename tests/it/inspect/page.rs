//! The page: as recorded, from wherever the machine comes, of one file, of two machines, and of what is hostile.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Duration;

use serde_json::{Value, json};

use super::{Said, assert_cause, empty, fixtures, inspect, pointer, prepared, url};
use crate::support::server::{Server, binary};
use crate::support::stopwatch::Stopwatch;

#[test]
fn the_page_is_as_recorded_at_two_widths_and_in_a_pipe() {
    // Each is made by `[COLUMNS=N] machine-config-server inspect ignition-fixtures POOL --as 3.4`.
    for (pool, width, recorded) in [
        ("worker", Some("80"), include_str!("../recorded/worker-80.txt")),
        ("worker", Some("120"), include_str!("../recorded/worker-120.txt")),
        ("worker", None, include_str!("../recorded/worker.txt")),
        ("master", Some("80"), include_str!("../recorded/master-80.txt")),
        ("master", Some("120"), include_str!("../recorded/master-120.txt")),
    ] {
        let mut command = prepared(&[&fixtures(), pool, "--as", "3.4"]);
        command.envs(width.map(|width| ("COLUMNS", width)));
        let said = Said::by(&mut command);
        assert_eq!((said.status, &said.error[..]), (0, ""));
        assert_eq!(said.output, recorded, "{pool} {width:?}");
        let most = width.map_or(usize::MAX, |width| width.parse().expect("a number"));
        assert!(said.output.lines().all(|line| line.chars().count() <= most), "{width:?}");
    }
    // The same, with colours.
    let mut command = prepared(&[&fixtures(), "worker", "--as", "3.4"]);
    let coloured = Said::by(command.env("CLICOLOR_FORCE", "1"));
    assert!(coloured.output.starts_with("\u{1b}[1mMachineConfig"), "{}", coloured.output);
    let plain = coloured.output.replace("\u{1b}[1m", "").replace("\u{1b}[0m", "");
    assert_eq!(plain, include_str!("../recorded/worker.txt"));
    command.env("NO_COLOR", "1").env_remove("CLICOLOR_FORCE");
    assert_eq!(Said::by(&mut command).output, plain);
}

#[test]
fn a_machine_gets_by_a_server_what_the_manifests_make_of_it() {
    let server = Server::sample_cluster(&[]);
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
        said.status == 0 && said.output.contains("verified by \"machine-config-server-ca@"),
        "{said:?}"
    );
    // Without, nobody is said to vouch for it.
    let said = inspect(&[&url(server.secure()), "worker"]);
    assert!(
        said.status == 0 && said.output.contains("the CAs that the machine trusts are not known"),
        "{said:?}"
    );
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
    assert_eq!((missing.status, &missing.output[..]), (1, ""));
    assert_eq!(
        missing.error,
        "/etc/nothing: the config has no such file; run inspect without --file to list its files\n"
    );
}

#[test]
fn two_machines_from_any_sources_are_compared() {
    let server = Server::sample_cluster(&[]);
    let (file, fixtures) = (pointer(&server, "worker"), fixtures());
    let directory = tempfile::tempdir().expect("a temporary folder");
    let saved = directory.path().join("worker.ign");
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
            said.status == 0 && said.output.contains("make the same machine"),
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
            said.status == 1 && said.output.lines().any(|it| it == line),
            "{line}: {}",
            said.output
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
        said.output.contains("~ file /etc/chrony.conf")
            && said.output.contains("    +pool ntp.example.com"),
        "{}",
        said.output
    );
    // Neither differs nor is the same: one of them is not to be had.
    let said = inspect(&[&plain, "worker", "--diff", "nobody"]);
    assert!(said.status == 1 && said.output.ends_with("come up\": pool-unknown\n"), "{said:?}");
}

#[test]
fn a_hostile_config_cannot_harm_its_reader() {
    let directory = tempfile::tempdir().expect("a temporary folder");
    let file = |name: &str, text: &str| -> PathBuf {
        let path = directory.path().join(name);
        fs::write(&path, text).expect("a file");
        path
    };
    // Each unpacks to 100 MiB, all to 3 GiB.
    let bomb = {
        let zeros = directory.path().join("zeros");
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
    let since = Stopwatch::start();
    let said = inspect(&[path.to_str().expect("text")]);
    assert!(
        said.status == 0 && said.output.contains("unpacks to more than the limit"),
        "{}",
        said.error
    );
    since.within(Duration::from_secs(30), "thirty files that unpack to too much");

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
        assert!(!said.output.is_empty() && said.output.chars().all(is_harmless), "{said:?}");
        assert!(!said.output.lines().any(|line| line.starts_with("/fake")), "{said:?}");
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
        assert_eq!((said.status, &said.output[..]), (2, ""), "{arguments:?}: {said:?}");
        assert_eq!(said.error.lines().count(), 1, "{arguments:?}: {said:?}");
    }
}
