//! The alerts come when they should and at no other time: promtool, which `tests/monitoring/install`
//! brings, plays the series in `tests/monitoring` against them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::monitoring::COMPONENTS;
use crate::support::{book, in_repository};

/// A PrometheusRule's rules as Prometheus reads them without the operator, as the book has it.
const PLAIN_RULES: &str = "sed '1,/^spec:/d; s/^  //'";

fn promtool() -> PathBuf {
    let path = std::env::var_os("PROMTOOL");
    path.expect("PROMTOOL: run tests/run, or set it to what tests/monitoring/install prints").into()
}

fn plain_rules(directory: &str) -> Vec<u8> {
    let page = book::page("how-to/monitor.md");
    assert!(page.contains(PLAIN_RULES), "the book no longer has {PLAIN_RULES}");
    let file = in_repository(&format!("deploy/components/{directory}/alerts.yaml"));
    let command = format!("{PLAIN_RULES} '{}'", file.display());
    let output = Command::new("sh").args(["-c", &command]).output().expect("a shell");
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn judge(directory: &Path, arguments: &[&str]) {
    let output = Command::new(promtool()).args(arguments).current_dir(directory).output();
    let output = output.expect("promtool");
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{arguments:?}:\n{}", String::from_utf8_lossy(&said));
}

#[test]
fn alerts_come_when_they_should_and_at_no_other_time() {
    for component in &COMPONENTS {
        let directory = tempfile::tempdir().expect("a temporary folder");
        let rules = format!("{}.yaml", component.name);
        fs::write(directory.path().join(&rules), plain_rules(component.directory)).expect("a file");
        let tests = in_repository("tests/monitoring").join(&rules);
        fs::copy(tests, directory.path().join("tests.yaml")).expect("the tests");
        judge(directory.path(), &["check", "rules", &rules]);
        judge(directory.path(), &["test", "rules", "tests.yaml"]);
    }
}
