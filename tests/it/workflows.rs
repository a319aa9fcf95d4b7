//! The workflows for a repository that is hosted where they are read: they run the repository's own scripts, and a
//! hosted check cannot differ from one that a person makes.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::Value;

use crate::support::in_repository;
use crate::support::manifests::yaml_documents;

/// What a step may run beside the repository's scripts: what prepares the place, and what publishes.
const OTHER: [&str; 3] = ["git", "rustup", "gh"];

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
