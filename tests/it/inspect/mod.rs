//! `inspect`: what a machine becomes, and the cause that keeps it from coming up, each made to happen.

mod causes;
mod page;
mod secrets;

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::command::Said;
use crate::support::in_repository;
use crate::support::server::{Server, binary};
use crate::support::stopwatch::Stopwatch;

/// By when a cause has to be named.
const SOON: Duration = Duration::from_secs(5);

fn prepared(arguments: &[&str]) -> Command {
    let mut command = binary();
    for name in ["COLUMNS", "NO_COLOR", "CLICOLOR_FORCE"] {
        command.env_remove(name);
    }
    // No CAs are there.
    command.current_dir(in_repository("tests")).arg("inspect").args(arguments);
    command
}

fn inspect(arguments: &[&str]) -> Said {
    Said::by(&mut prepared(arguments))
}

fn fixtures() -> String {
    in_repository("ignition-fixtures").display().to_string()
}

/// The cause that is named, in words and for a script, within the time that there is.
fn assert_cause(arguments: &[&str], label: &str, words: &str) {
    let since = Stopwatch::start();
    let said = inspect(arguments);
    since.within(SOON, label);
    assert_eq!((said.status, &said.error[..]), (1, ""), "{label}: {said:?}");
    let line = said.output.lines().find(|line| line.starts_with("A machine does not boot: "));
    assert!(line.is_some_and(|line| line.contains(words)), "{label}: {words}: {}", said.output);
    assert!(
        said.output.ends_with(&format!("\nRunbook, \"A machine does not come up\": {label}\n")),
        "{label}: {}",
        said.output
    );
    assert!(!said.output.contains("Files: "), "{}", said.output);

    let page = inspect(&[arguments, &["--json"]].concat()).json();
    assert_eq!(page["way"]["cause"]["label"], label, "{page}");
    assert_eq!(page["machine"], Value::Null);
    let steps = page["way"]["steps"].as_array().expect("steps");
    if let Some((last, before)) = steps.split_last() {
        assert_eq!(last["outcome"], "failed", "{page}");
        assert!(before.iter().all(|step| step["outcome"] != "failed"), "{page}");
    }
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
