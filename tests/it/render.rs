//! `render`: the config of a machine that has no way to a server, and its pointer config.

use std::fs;
use std::path::Path;
use std::process::Output;

use serde_json::Value;

use crate::support::in_repository;
use crate::support::server::{Server, binary};
use crate::support::wait_for;

fn render(arguments: &[&str]) -> Output {
    binary().arg("render").args(arguments).output().expect("the built binary")
}

fn error(output: &Output) -> String {
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(1), &b""[..]));
    let text = String::from_utf8(output.stderr.clone()).expect("text");
    assert_eq!(text.lines().count(), 1, "{text}");
    text
}

fn fixtures() -> String {
    in_repository("ignition-fixtures").display().to_string()
}

#[test]
fn a_config_is_the_one_that_a_server_serves() {
    let server = Server::serve(Path::new(&fixtures()), &[]);
    for pool in ["master", "worker", "edge"] {
        for spec in ["2.2", "3.0", "3.4", "3.6"] {
            let rendered = render(&[pool, &fixtures(), "--spec", spec]);
            assert!(rendered.status.success() || pool == "master" && spec == "2.2", "{rendered:?}");
            if !rendered.status.success() {
                continue;
            }
            let accept = format!("application/vnd.coreos.ignition+json;version={spec}.0");
            let path = format!("/config/{pool}");
            let answer = server.plain().request("GET", &path, &[("Accept", &accept)]);
            assert_eq!(answer.status, 200);
            let text = rendered.stdout.strip_suffix(b"\n").expect("a line end");
            assert_eq!(text, answer.body, "{pool} {spec}");
        }
    }
}

#[test]
fn what_cannot_be_rendered_is_told_and_nothing_is_printed() {
    let told = error(&render(&["nobody", &fixtures()]));
    assert!(told.contains("there is no pool nobody, only edge, master, worker"), "{told}");
    let told = error(&render(&["worker", "/no/such/folder"]));
    assert!(told.contains("/no/such/folder"), "{told}");
    let told = error(&render(&["worker"]));
    assert!(told.contains("missing DIR, --kubeconfig or --in-cluster"), "{told}");
    let told = error(&render(&["worker", &fixtures(), "--spec", "3.7"]));
    assert!(told.contains("expected 2.2 or one of 3.0 to 3.6"), "{told}");
    let told = error(&render(&["worker", "--kubeconfig", "/no/such/file"]));
    assert!(told.contains("missing --apiserver-url"), "{told}");
}

#[test]
fn a_pointer_config_is_the_one_that_serve_makes() {
    let server = Server::serve(Path::new(&fixtures()), &[]);
    let made = server.state().join("user-data/worker.ign");
    let made = wait_for("the pointer config", || fs::read(&made).ok());
    let state = server.state().display().to_string();
    let json = |bytes: &[u8]| -> Value { serde_json::from_slice(bytes).expect("JSON") };
    let rendered = render(&["worker", "--pointer", "--state-dir", &state]);
    assert_eq!(json(&rendered.stdout), json(&made));

    let address = ["--server", "mcs.example.com:1234", "--spec", "3.4"];
    let rendered = render(&[&["other", "--pointer", "--state-dir", &state], &address[..]].concat());
    let config = json(&rendered.stdout);
    let merged = &config["ignition"]["config"]["merge"][0]["source"];
    assert_eq!(merged, "https://mcs.example.com:1234/config/other");
    assert_eq!(config["ignition"]["version"], "3.4.0");

    let told = error(&render(&["a/b", "--pointer", "--state-dir", &state]));
    assert!(told.contains("is no pool's name"), "{told}");
    let told = error(&render(&["worker", "--pointer", "--state-dir", "/no/such/folder"]));
    assert!(told.contains("there is no such directory"), "{told}");
}
