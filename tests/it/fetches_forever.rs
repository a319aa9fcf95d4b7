//! Configs that lead back to themselves: Ignition would follow them forever, so that no machine gets one, and all who
//! are asked say so.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::command::run;
use crate::support::manifests::{machine_config, pool, write};
use crate::support::server::Server;
use crate::support::{wait_for, wait_until};

const FIX: &str = "remove one of these references from the Ignition configs of the pools";

/// A config that fetches another one.
fn fetching(path: &str) -> Value {
    let url = format!("https://mcs.example.com:22623{path}");
    json!({"ignition": {"version": "3.2.0", "config": {"merge": [{"source": url}]}}})
}

fn last() -> Value {
    json!({"ignition": {"version": "3.2.0"}})
}

fn directory(pools: &[(&str, Value)]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a temporary folder");
    for (pool, config) in pools {
        write_pool(directory.path(), pool, config);
    }
    directory
}

fn write_pool(directory: &Path, pool: &str, config: &Value) {
    fs::write(directory.join(format!("{pool}.ign")), config.to_string()).expect("a write");
}

/// Two pools of which the first fetches the second.
fn chain() -> tempfile::TempDir {
    directory(&[("a", fetching("/config/b")), ("b", last())])
}

fn path(directory: &tempfile::TempDir) -> &str {
    directory.path().to_str().expect("text")
}

/// Lines of `validate --strict` if it refuses a directory.
fn refused(pools: &[(&str, Value)]) -> Option<String> {
    let directory = directory(pools);
    let said = run(&["validate", "--strict", path(&directory)]);
    (said.status != 0).then(|| said.text())
}

#[test]
fn a_directory_with_such_configs_is_refused() {
    let own = refused(&[("rack", fetching("/config/%72ack"))]).expect("a refusal");
    assert!(own.contains("this pool's own"), "{own}");
    let to = |pool: &str| fetching(&format!("/config/{pool}"));
    let two = refused(&[("a", to("b")), ("b", to("a"))]).expect("a refusal");
    for line in ["pool a: a fetches b, which fetches a", "pool b: b fetches a, which fetches b"] {
        assert!(two.contains(&format!("{line}: machines would fetch forever")), "{two}");
    }
    assert_eq!(two.lines().count(), 2, "said once: {two}");
    let beside = refused(&[("a", to("b")), ("b", to("c")), ("c", to("b"))]).expect("a refusal");
    assert!(beside.contains("b fetches c, which fetches b"), "{beside}");
    assert!(!beside.contains("a fetches"), "{beside}");
    assert_eq!(refused(&[("a", to("b")), ("b", to("c")), ("c", last())]), None);
}

#[test]
fn a_server_keeps_the_last_good_configs_and_names_the_round_until_it_ends() {
    let directory = chain();
    let server = Server::serve(directory.path(), &[]);
    let config = |pool: &str| {
        let answer = server.plain().get(&format!("/config/{pool}"));
        (answer.status, String::from_utf8(answer.body).expect("text"))
    };
    assert!(config("a").1.contains("/config/b"));
    let before = config("b");
    write_pool(directory.path(), "b", &fetching("/config/a"));
    let line = "pool b: b fetches a, which fetches b: machines would fetch forever; serving ";
    wait_until("readiness to notice", || server.readiness().1.contains(line));
    let (status, lines) = server.readiness();
    assert_eq!(status, 503, "{lines}");
    assert!(lines.contains("pool a: a fetches b, which fetches a: machines would"), "{lines}");
    assert_eq!(config("b"), before, "machines of b end, and those of a with them");
    assert_eq!(config("a").0, 200);
    let logged = wait_for("a line in the log", || {
        let log = server.log();
        let line = log.lines().find(|line| line.contains("pool has no valid config pool=b"));
        line.map(str::to_owned)
    });
    assert!(logged.contains("b fetches a, which fetches b") && logged.contains(FIX), "{logged}");
    let overview = server.overview();
    assert!(overview["pools"].to_string().contains("b fetches a, which fetches b"), "{overview}");
    assert!(server.page("/").contains("b fetches a, which fetches b"), "{}", server.page("/"));
    let from = server.metrics().address().to_string();
    let health = run(&["health", "--from", &from]);
    assert_eq!(health.status, 1, "{}", health.text());
    assert!(health.text().contains("b fetches a") && health.text().contains(FIX), "{health:?}");
    write_pool(directory.path(), "b", &last());
    wait_until("readiness to come back", || server.readiness().0 == 200);
}

/// Its configuration is rendered elsewhere, so that nothing is merged here.
#[test]
fn a_machine_waits_for_a_config_that_never_ended_and_inspect_says_why() {
    let directory = tempfile::tempdir().expect("a temporary folder");
    write(directory.path(), "pool.json", pool("rack", "rendered"));
    let config = machine_config("rendered", &fetching("/config/%72ack"));
    write(directory.path(), "config.json", config);
    let words = "rack fetches rack: machines would fetch forever";
    run(&["validate", path(&directory)]).refused(&[words]);
    run(&["render", "rack", path(&directory)]).refused(&[words]);
    let server = Server::serve_when_up(directory.path(), &[]);
    wait_until("readiness", || server.readiness().1.contains(words));
    let answer = server.plain().get("/config/rack");
    assert_eq!(answer.status, 503);
    assert_eq!(answer.header("machine-config-server-refusal"), Some("fetches-forever"));
    let url = format!("http://{}", server.insecure());
    for subject in [url.as_str(), path(&directory)] {
        let said = run(&["inspect", subject, "rack"]);
        said.refused(&[words, FIX]);
        let page = run(&["inspect", subject, "rack", "--json"]).json();
        let cause = &page["way"]["cause"];
        assert_eq!(
            (&cause["label"], &cause["recovery"]),
            (&json!("fetches-forever"), &json!("retry"))
        );
    }
}
