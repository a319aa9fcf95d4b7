//! The workflows for a repository that is hosted where they are read: they run the repository's own scripts, and a
//! hosted check cannot differ from one that a person makes. What these scripts ask of tests reaches the tests.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::Value;

use crate::support::in_repository;
use crate::support::manifests::yaml_documents;

/// What a step may run beside the repository's scripts: what prepares the place, and what publishes.
const OTHER: [&str; 3] = ["git", "rustup", "gh"];

/// Variables of `.ci/full` that scripts read, or cargo-nextest.
const OF_SCRIPTS: [&str; 6] =
    ["CHECK_ALL", "CI", "NEXTEST_PROFILE", "NEXTEST_RETRIES", "VIRTUAL_MACHINES", "XDG_CACHE_HOME"];

#[test]
fn workflows_run_scripts_of_the_repository_within_the_time_of_a_check() {
    let mut scripts = Vec::new();
    for name in ["check.yml", "release.yml"] {
        let text =
            fs::read_to_string(in_repository(".github/workflows").join(name)).expect("a workflow");
        let [workflow] = <[Value; 1]>::try_from(yaml_documents(&text)).expect("one document");
        for (job, said) in workflow["jobs"].as_object().expect("jobs") {
            for step in said["steps"].as_array().expect("steps") {
                let Some(command) = step["run"].as_str() else { continue };
                let program = command.split(' ').next().unwrap_or(command);
                if OTHER.contains(&program) {
                    continue;
                }
                let script = fs::metadata(in_repository(program));
                let mode = script
                    .unwrap_or_else(|error| panic!("{name}: {program}: {error}"))
                    .permissions()
                    .mode();
                assert!(mode & 0o111 != 0, "{name}: {program} cannot be run");
                assert_eq!(said["timeout-minutes"], 90, "{name}: {job}");
                scripts.push(command.to_owned());
            }
        }
    }
    assert_eq!(scripts, [".ci/run", "tests/packages", ".ci/full package"]);
}

#[test]
fn tests_see_what_a_full_check_asks_of_them() {
    let [full, apart] = [".ci/full", "tests/apart"]
        .map(|name| fs::read_to_string(in_repository(name)).expect("a script"));
    let is_variable =
        |name: &&str| !name.is_empty() && name.bytes().all(|b| b.is_ascii_uppercase() || b == b'_');
    let asked: Vec<_> = full
        .split_whitespace()
        .filter_map(|word| Some(word.split_once('=')?.0))
        .filter(is_variable)
        .filter(|name| !OF_SCRIPTS.contains(name))
        .collect();
    assert!(asked.len() >= 6, "{asked:?}");
    for name in asked {
        let mut kept = apart.split(|c: char| !c.is_ascii_uppercase() && c != '_');
        assert!(kept.any(|kept| kept == name), "tests/apart does not name {name}");
    }
}
