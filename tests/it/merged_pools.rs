//! Pools of a directory that name no rendered config: made of the MachineConfigs that they select, or of
//! plain Ignition configs.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::command::run_in;
use crate::support::contract::{SOON, config, served, served_soon};
use crate::support::machine::Machine;
use crate::support::manifests::{self, ROLE, machine_config_of, with_files, write};
use crate::support::server::Server;
use crate::support::stopwatch::Stopwatch;
use crate::support::{wait_for, wait_until};

const POOL: &str = "
apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfigPool
metadata:
  name: worker
spec:
  machineConfigSelector:
    matchLabels:
      machineconfiguration.openshift.io/role: worker
";

/// A MachineConfig of the role `worker`, with these files.
fn machine_config(name: &str, files: &[(&str, &str)]) -> String {
    machine_config_of("worker", name, &with_files(files)).to_string()
}

/// A pool of two MachineConfigs, which agree on one file and not on another.
fn directory() -> TempDir {
    let directory = tempfile::tempdir().expect("a temporary folder");
    write(directory.path(), "pool.yaml", POOL);
    let base = machine_config("50-base", &[("/etc/motd", "Welcome"), ("/etc/rack", "12")]);
    write(directory.path(), "base.json", base);
    write(directory.path(), "site.json", machine_config("99-site", &[("/etc/motd", "Hello")]));
    directory
}

#[test]
fn a_machine_boots_into_what_two_machine_configs_say() {
    let directory = directory();
    let server = Server::serve(directory.path(), &[]);
    let pointer = server.pointer("worker");
    let machine = Machine::new();
    machine.boot(&pointer);
    let read = |path: &str| fs::read_to_string(machine.root().join(path)).expect("a file");
    assert_eq!((&*read("etc/motd"), &*read("etc/rack")), ("Hello", "12"));
    let content: Value =
        serde_json::from_str(&read("etc/mcs-machine-config-content.json")).expect("JSON");
    let name = content["metadata"]["name"].as_str().expect("a name");
    assert!(name.starts_with("rendered-worker-"), "{name}");

    drop(server);
    let again = Server::serve(directory.path(), &[]);
    let response = config(&again.plain(), "worker", "3.4.0");
    let body = String::from_utf8(response.body).expect("text");
    assert!(body.contains(name), "the name stays over a restart");
}

#[test]
fn a_change_is_served_and_what_cannot_be_merged_leaves_the_last() {
    let directory = directory();
    let server = Server::serve(directory.path(), &[]);
    write(directory.path(), "site.json", machine_config("99-site", &[("/etc/motd", "Bye")]));
    served_soon(&server, "worker", "/etc/motd", Ok("Bye"));
    fs::remove_file(directory.path().join("site.json")).expect("a file");
    served_soon(&server, "worker", "/etc/motd", Ok("Welcome"));

    // Files overwrite what is there, and this one has nothing to do that with.
    let conflict = machine_config("99-site", &[("/etc/motd/today", "")]);
    write(directory.path(), "site.json", conflict);
    wait_for("the conflict to be told", || {
        let ready = server.plain().request("GET", "/readyz", &[]);
        let log = server.log();
        let reported = log.lines().find(|line| line.contains("MachineConfigPool worker"))?;
        assert!(reported.contains("99-site") && reported.contains("/etc/motd/today"), "{reported}");
        (ready.status != 200).then_some(())
    });
    assert_eq!(served(&server, "worker", "/etc/motd").as_deref(), Ok("Welcome"));
    let problem = server.overview()["pools"][0]["problem"].clone();
    assert!(problem.as_str().is_some_and(|it| it.contains("99-site")), "{problem}");

    write(directory.path(), "site.json", machine_config("99-site", &[("/etc/motd", "Good")]));
    served_soon(&server, "worker", "/etc/motd", Ok("Good"));
}

#[test]
fn a_file_that_is_removed_and_written_again_is_served_all_the_time() {
    let directory = directory();
    let server = Server::serve(directory.path(), &[]);
    let site = directory.path().join("site.json");
    let text = fs::read_to_string(&site).expect("a file");
    // A busy machine can make a gap too long, which says nothing.
    let gap = Duration::from_millis(200);
    let is_told = (0..60).any(|_| {
        let removed = Instant::now();
        fs::remove_file(&site).expect("a file");
        let mut seen = BTreeSet::new();
        while removed.elapsed() < gap {
            seen.insert(served(&server, "worker", "/etc/motd"));
        }
        fs::write(&site, &text).expect("a writable folder");
        let is_short = removed.elapsed() < gap * 3 / 2;
        assert!(!is_short || seen == BTreeSet::from([Ok("Hello".to_owned())]), "{seen:?}");
        served_soon(&server, "worker", "/etc/motd", Ok("Hello"));
        is_short
    });
    assert!(is_told, "no gap was short");
}

#[test]
fn a_selector_that_selects_nothing_any_more_leaves_the_last_config() {
    let directory = directory();
    let server = Server::serve(directory.path(), &[]);
    assert_eq!(served(&server, "worker", "/etc/motd").as_deref(), Ok("Hello"));
    write(directory.path(), "pool.yaml", POOL.replace("role: worker", "role: wroker"));
    wait_until("the selector to be reported", || {
        server.log().contains("no MachineConfig has the labels")
    });
    assert_eq!(served(&server, "worker", "/etc/motd").as_deref(), Ok("Hello"));
}

#[test]
fn plain_configs_are_pools_without_any_object() {
    let directory = tempfile::tempdir().expect("a temporary folder");
    write(directory.path(), "edge.ign", with_files(&[("/etc/edge", "one")]));
    write(directory.path(), "rack/10-base.ign", with_files(&[("/etc/base", "two")]));
    write(directory.path(), "rack/20-site.ign", with_files(&[("/etc/site", "three")]));
    let server = Server::serve(directory.path(), &[]);
    assert_eq!(served(&server, "edge", "/etc/edge").as_deref(), Ok("one"));
    assert_eq!(served(&server, "rack", "/etc/base").as_deref(), Ok("two"));
    assert_eq!(served(&server, "rack", "/etc/site").as_deref(), Ok("three"));

    write(directory.path(), "rack/20-site.ign", with_files(&[("/etc/site", "four")]));
    served_soon(&server, "rack", "/etc/site", Ok("four"));
    fs::remove_file(directory.path().join("edge.ign")).expect("a file");
    served_soon(&server, "edge", "/etc/edge", Err(503));
    // A pointer config would have machines ask for ever.
    let pointer = fs::read_to_string(server.state().join("user-data/rack.ign")).expect("a file");
    write(directory.path(), "rack/20-site.ign", pointer);
    wait_until("the pointer config to be refused", || {
        server.log().contains("it is a pointer config")
    });
    assert_eq!(served(&server, "rack", "/etc/site").as_deref(), Ok("four"));
    write(directory.path(), "rack/20-site.ign", "null");
    wait_until("a file without a config to be refused", || {
        server.log().contains("is not a JSON object")
    });
    assert_eq!(served(&server, "rack", "/etc/site").as_deref(), Ok("four"));

    drop(server);
    write(directory.path(), "good.ign", with_files(&[("/etc/good", "five")]));
    let again = Server::serve_when_up(directory.path(), &[]);
    // It starts all the same.
    served_soon(&again, "good", "/etc/good", Ok("five"));
    // A machine does not get a half of its pool.
    assert_eq!(served(&again, "rack", "/etc/base"), Err(503));
    write(directory.path(), "rack/20-site.ign", with_files(&[("/etc/site", "six")]));
    served_soon(&again, "rack", "/etc/site", Ok("six"));
}

#[test]
fn a_change_of_one_of_three_thousand_machine_configs_is_served_within_a_second() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let of_pool = |pool: usize, text: &str| {
        let role = |it: String| it.replace("\"worker\"", &format!("\"p{pool}\""));
        let config = |number| {
            let name = format!("p{pool}-{number}");
            let large = "x".repeat(10_000);
            let files =
                [(&*format!("/etc/{number}"), text), (&*format!("/etc/l{number}"), &*large)];
            format!("---\n{}\n", role(machine_config(&name, &files)))
        };
        let configs: String = (0..30).map(config).collect();
        format!("{}{configs}", POOL.replace("worker", &format!("p{pool}")))
    };
    for pool in 0..100 {
        write(folder.path(), &format!("p{pool}.yaml"), of_pool(pool, "one"));
    }
    let server = Server::serve(folder.path(), &[]);
    assert_eq!(served(&server, "p7", "/etc/12").as_deref(), Ok("one"));
    write(folder.path(), "p7.yaml", of_pool(7, "two"));
    let changed = Stopwatch::start();
    wait_until("the change", || served(&server, "p7", "/etc/12").as_deref() == Ok("two"));
    changed.within(SOON, "a change of one of 100 pools");
}

/// A MachineConfig with these labels and its name as a kernel argument.
fn labels(name: &str, labels: Value) -> Value {
    let mut config = manifests::machine_config(name, &with_files(&[]));
    config["metadata"]["labels"] = labels;
    config["spec"]["kernelArguments"] = json!([name]);
    config
}

#[test]
fn machine_configs_are_selected_by_their_labels_also_when_they_are_named_as_rendered_ones() {
    let directory = directory();
    let pool = POOL.replace("role: worker", "role: worker\n      site: a");
    write(directory.path(), "edge.yaml", pool.replace("name: worker", "name: edge"));
    let extra = labels("rendered-worker-extra", json!({ROLE: "worker", "site": "a"}));
    write(directory.path(), "extra.json", extra);
    let by_site = POOL.replace("machineconfiguration.openshift.io/role: worker", "site: b");
    write(directory.path(), "site-pool.yaml", by_site.replace("name: worker", "name: site"));
    write(directory.path(), "b.json", labels("rendered-site", json!({"site": "b"})));
    let server = Server::serve_when_up(directory.path(), &[]);
    let arguments = |pool: &str| {
        let content = served(&server, pool, "/etc/mcs-machine-config-content.json")?;
        let content: Value = serde_json::from_str(&content).expect("JSON");
        Ok::<_, u16>(content["spec"]["kernelArguments"].clone())
    };
    assert_eq!(
        ["worker", "edge", "site"].map(arguments),
        ["rendered-worker-extra", "rendered-worker-extra", "rendered-site"]
            .map(|name| Ok(json!([name])))
    );
}

/// What `validate --strict` says of a MachineConfig `rendered-lost` with these labels.
fn said_of_lost(config: &Value) -> Vec<String> {
    let directory = directory();
    write(directory.path(), "lost.json", config);
    let said = run_in(&["validate", ".", "--strict"], directory.path());
    let lines = said.output.lines().filter(|line| line.contains("rendered-lost"));
    lines.map(str::to_owned).collect()
}

#[test]
fn a_machine_config_with_labels_that_no_pool_selects_is_reported_also_if_named_as_a_rendered_one() {
    let said = said_of_lost(&labels("rendered-lost", json!({"site": "c"})));
    assert!(said.len() == 1 && said[0].contains("no pool selects its labels; "), "{said:?}");
}

#[test]
fn a_machine_config_that_is_named_as_a_rendered_one_and_that_no_pool_uses_is_reported() {
    let said = [json!({}), Value::Null].map(|it| said_of_lost(&labels("rendered-lost", it)));
    let is_reported = |it: &Vec<String>| it.len() == 1 && it[0].contains("no pool uses it: ");
    assert!(said.iter().all(is_reported), "{said:?}");
}

/// It is part of no pool on purpose.
#[test]
fn a_machine_config_that_a_render_controller_signed_is_not_reported() {
    let mut signed = labels("rendered-lost", Value::Null);
    let by = "machineconfiguration.openshift.io/generated-by-controller-version";
    signed["metadata"]["annotations"] = json!({by: "1"});
    assert_eq!(said_of_lost(&signed), Vec::<String>::new());
}

#[test]
fn a_directory_is_judged_before_it_is_served() {
    let directory = directory();
    let good = run_in(&["validate", "."], directory.path());
    assert!(good.status == 0, "{good:?}");
    assert!(good.output.starts_with("pool worker: OK, serves rendered-worker-"), "{good:?}");

    write(directory.path(), "edge.bu", "variant: fcos\nversion: 1.5.0\n");
    let bad = run_in(&["validate", ".", "--json", "--butane", "off"], directory.path());
    assert_eq!(bad.status, 1);
    let report = bad.json();
    assert_eq!(report["isValid"], false);
    assert_eq!(report["problems"][0]["place"], "./edge.bu");
    fs::remove_file(directory.path().join("edge.bu")).expect("a file");

    let unknown = machine_config("99-site", &[]).replace("\"storage\"", "\"stoarge\"");
    write(directory.path(), "site.json", unknown);
    assert!(run_in(&["validate", "."], directory.path()).status == 0, "it has no effect");
    let strict = run_in(&["validate", ".", "--strict"], directory.path());
    assert_eq!(strict.status, 1);
    assert!(strict.output.contains("warning: ./site.json: "), "{strict:?}");

    fs::remove_file(directory.path().join("site.json")).expect("a file");
    let other = machine_config("99-site", &[]).replace("\"worker\"", "\"wroker\"");
    let plain = with_files(&[("/etc/site", "one")]);
    for (file, contents, warning) in [
        ("site.json", other, "warning: MachineConfig 99-site: no pool selects its labels"),
        ("Rack.ign", plain.to_string(), "warning: ./Rack.ign: is not read"),
        ("worker.ign", plain.to_string().replace("path", "paht"), "warning: ./worker.ign: "),
    ] {
        write(directory.path(), file, contents);
        let strict = run_in(&["validate", ".", "--strict"], directory.path());
        assert!(strict.status != 0 && strict.output.contains(warning), "{strict:?}");
        fs::remove_file(directory.path().join(file)).expect("a file");
    }
    write(directory.path(), "edge.bu", "variant: fcos\nversion: 1.5.0\n");
    write(directory.path(), "edge.ign", with_files(&[("/etc/site", "one")]));
    assert!(run_in(&["validate", ".", "--strict"], directory.path()).status == 0, "converted");
    write(directory.path(), "worker.ign", with_files(&[("/etc/site", "one")]));
    assert!(run_in(&["validate", ".", "--strict"], directory.path()).status == 0, "it is merged");
    let mut named = manifests::pool("edge", "50-motd");
    write(directory.path(), "edge.yaml", &named);
    write(directory.path(), "edge.ign", with_files(&[("/etc/site", "one")]));
    let unused = run_in(&["validate", ".", "--strict"], directory.path());
    let warning =
        "warning: ./edge.ign: is not in any config: MachineConfigPool edge names a configuration";
    assert!(unused.output.contains(warning), "{unused:?}");
    assert_eq!(unused.status, 1);

    named["metadata"]["annotations"] =
        json!({"machine-config-server.io/approval": "x".repeat(2000)});
    write(directory.path(), "edge.yaml", named);
    let misspelt = run_in(&["validate", "."], directory.path());
    assert!(misspelt.output.contains("x\": expected off or required"), "{misspelt:?}");

    let empty = tempfile::tempdir().expect("a temporary folder");
    let nothing = run_in(&["validate", "."], empty.path());
    assert_eq!(nothing.status, 1);
    assert!(nothing.output.contains("no MachineConfigPool found"), "{nothing:?}");
}

#[test]
fn a_name_with_capitals_is_merged_in_the_render_controllers_order_and_reported() {
    let directory = directory();
    write(directory.path(), "a.json", machine_config("A-a", &[("/etc/motd", "Capital")]));
    let printed = run_in(&["render", "worker", ".", "--machine-config"], directory.path());
    let merged = printed.json();
    let files = merged["spec"]["config"]["storage"]["files"].as_array().expect("files");
    let motd = files.iter().find(|file| file["path"] == "/etc/motd").expect("a file");
    assert_eq!(motd["contents"]["source"], "data:,Capital");
    let judged = run_in(&["validate", "."], directory.path());
    assert!(judged.status == 0 && judged.output.contains("has capitals"), "{judged:?}");
}

#[test]
fn a_merged_machine_config_is_printed_and_explained() {
    let directory = directory();
    let printed = run_in(&["render", "worker", ".", "--machine-config"], directory.path());
    let config = printed.json();
    assert_eq!(config["kind"], "MachineConfig");
    assert_eq!(config["spec"]["config"]["storage"]["files"].as_array().map(Vec::len), Some(2));

    let explained =
        run_in(&["render", "worker", ".", "--machine-config", "--explain"], directory.path());
    let lines = explained.output;
    let line = |path: &str| {
        let found = lines.lines().find(|line| line.contains(path));
        found.expect("a line").split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(line("/etc/motd"), ["storage.files", "/etc/motd", "99-site", "50-base"]);
    assert_eq!(line("/etc/rack"), ["storage.files", "/etc/rack", "50-base"]);
    // What no machine boots from is printed too, and told.
    let conflict = machine_config("99-site", &[("/etc/motd/today", "x")]);
    write(directory.path(), "site.json", conflict.replace("\"contents\":", "\"unknown\":"));
    let conflict = run_in(&["render", "worker", ".", "--machine-config"], directory.path());
    assert!(conflict.status == 0 && conflict.error.contains("99-site"), "{conflict:?}");
    assert!(conflict.output.contains("/etc/motd/today"), "{conflict:?}");
    let refused = run_in(&["render", "worker", "."], directory.path());
    assert!(refused.status != 0 && refused.error.contains("99-site"), "{refused:?}");

    let nobody = run_in(&["render", "nobody", ".", "--machine-config"], directory.path());
    assert_eq!(nobody.status, 1);
}

#[test]
fn two_directories_are_compared_pool_by_pool() {
    let (before, after) = (directory(), directory());
    let (before, after) = (before.path(), after.path());
    let inspect = |after: &Path| {
        let after = after.display().to_string();
        run_in(&["inspect", ".", "--diff", &after], before)
    };
    let same = inspect(after);
    assert!(same.status == 0 && same.output.contains("make the same machine"), "{same:?}");
    write(after, "site.json", machine_config("99-site", &[("/etc/motd", "Bye")]));
    write(after, "edge.ign", with_files(&[("/etc/edge", "one")]));
    let changed = inspect(after);
    assert_eq!(changed.status, 1);
    let reported = changed.output;
    assert!(reported.contains("~ file /etc/motd"), "{reported}");
    // A new pool is all that its machines get.
    assert!(reported.contains("without pool edge"), "{reported}");
    assert!(reported.contains("+ file /etc/edge"), "{reported}");
}
