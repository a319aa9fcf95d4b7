//! `render`: the config of a machine that has no way to a server, and its pointer config.

use std::fs;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::Value;

use crate::support::access::{credential, enforcing, unknown};
use crate::support::command::Said;
use crate::support::in_repository;
use crate::support::pair::Pair;
use crate::support::server::{Server, binary};
use crate::support::wait_for;

fn render(arguments: &[&str]) -> Said {
    Said::by(binary().arg("render").args(arguments))
}

fn error(said: Said) -> String {
    assert_eq!((said.status, &*said.output), (1, ""));
    assert_eq!(said.error.lines().count(), 1, "{}", said.error);
    said.error
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
            assert!(rendered.status == 0 || pool == "master" && spec == "2.2", "{rendered:?}");
            if rendered.status != 0 {
                continue;
            }
            let accept = format!("application/vnd.coreos.ignition+json;version={spec}.0");
            let path = format!("/config/{pool}");
            let answer = server.plain().request("GET", &path, &[("Accept", &accept)]);
            assert_eq!(answer.status, 200);
            let text = rendered.output.strip_suffix("\n").expect("a line end");
            assert_eq!(text, answer.text(), "{pool} {spec}");
        }
    }
}

#[test]
fn what_cannot_be_rendered_is_reported_and_nothing_is_printed() {
    let reported = error(render(&["nobody", &fixtures()]));
    assert!(
        reported.contains("no pool has the name nobody; known pools: edge, master, rack, worker"),
        "{reported}"
    );
    let reported = error(render(&["worker", "/no/such/folder"]));
    assert!(reported.contains("/no/such/folder"), "{reported}");
    let reported = error(render(&["worker"]));
    assert!(reported.contains("missing DIR, --kubeconfig or --in-cluster"), "{reported}");
    let reported = error(render(&["worker", &fixtures(), "--spec", "3.7"]));
    assert!(reported.contains("expected 2.2 or one of 3.0 to 3.6"), "{reported}");
    let reported = error(render(&["worker", "--kubeconfig", "/no/such/file"]));
    assert!(reported.contains("missing --apiserver-url"), "{reported}");
}

#[test]
fn a_pointer_config_is_the_one_that_serve_makes() {
    let server = Server::serve(Path::new(&fixtures()), &[]);
    let made = server.state().join("user-data/worker.ign");
    let made = wait_for("the pointer config", || fs::read(&made).ok());
    let state = server.state().display().to_string();
    let json = |bytes: &[u8]| -> Value { serde_json::from_slice(bytes).expect("JSON") };
    let rendered = render(&["worker", "--pointer", "--state-dir", &state]);
    assert_eq!(rendered.json(), json(&made));

    let address = ["--server", "mcs.example.com:1234", "--spec", "3.4"];
    let rendered = render(&[&["other", "--pointer", "--state-dir", &state], &address[..]].concat());
    let config = rendered.json();
    let merged = &config["ignition"]["config"]["merge"][0]["source"];
    assert_eq!(merged, "https://mcs.example.com:1234/config/other");
    assert_eq!(config["ignition"]["version"], "3.4.0");

    let reported = error(render(&["a/b", "--pointer", "--state-dir", &state]));
    assert!(reported.contains("is not the name of a pool"), "{reported}");
    let reported = error(render(&["worker", "--pointer", "--state-dir", "/no/such/folder"]));
    assert!(reported.contains("directory not found"), "{reported}");
    let of_both = ["worker", "--pointer", "--state-dir", &state, "--kubeconfig", "/no/such/file"];
    let reported = error(render(&of_both));
    assert!(reported.contains("--kubeconfig") && reported.contains("--state-dir"), "{reported}");
}

#[test]
fn a_token_is_one_that_our_own_pointer_configs_carry_and_that_is_good() {
    let mut server = enforcing(&[]);
    let good = credential(&server, "worker");
    let directory = server.state().join("user-data");
    let own = fs::read_to_string(directory.join("worker.ign")).expect("a pointer config");
    // Another server's comes first by its name, and so does one of ours with a token that is not known.
    let host = format!("localhost:{}", server.secure().port());
    let mut other: Value =
        serde_json::from_str(&own.replace(&host, "other.example.com")).expect("JSON");
    let unrelated = tempfile::tempdir().expect("a temporary folder");
    let pair = Pair::make(unrelated.path(), "other");
    let ca = fs::read(&pair.certificate).expect("a certificate");
    let trusts = &mut other["ignition"]["security"]["tls"]["certificateAuthorities"][0]["source"];
    *trusts = format!("data:;base64,{}", BASE64.encode(ca)).into();
    let add = ["tokens", "add", "rack-7", "--pool", "worker", "--until", "never", "--state-dir"];
    let added = binary().args(add).arg(server.state()).output().expect("the built binary");
    let named = String::from_utf8(added.stdout).expect("text");
    let named = format!("Bearer {}", named.trim_end());
    server.terminate();
    server.ended();
    fs::write(directory.join("a-other.ign"), other.to_string().replace(&good, &named))
        .expect("a file");
    fs::write(directory.join("b-old.ign"), own.replace(&good, &unknown())).expect("a file");

    let state = server.state().display().to_string();
    let render = |pool: &str| {
        let output = render(&[pool, "--pointer", "--state-dir", &state]);
        let Said { output, error, .. } = output.done();
        (output, error)
    };
    let (text, reported) = render("worker");
    assert_eq!((text.contains(&good), reported.as_str()), (true, ""), "{text}");
    assert!(text.contains(&host), "{text}");

    // Without ours there is none.
    fs::remove_file(directory.join("worker.ign")).expect("a file");
    let (text, reported) = render("worker");
    assert!(!text.contains("Bearer") && text.contains(&host), "{text}");
    assert_eq!(
        reported,
        format!(
            "machine-config-server: {state}: pool worker is enforced, and no pointer config has a \
                token for it: this one has none\n"
        )
    );
    // Nobody asks for one there.
    assert_eq!(render("infra").1, "");
}
