//! What is served can be written: the judgement of a config is that of Ignition's own files stage.
//!
//! The real stage runs on configs of the sample cluster with something added or changed at random, the same in every
//! run, and agrees each time. `FILES_STAGE_CASES` is their number.

use std::fs;

use ignition::Config;
use serde_json::{Value, json};

use crate::support::command::Said;
use crate::support::in_repository;
use crate::support::machine::Machine;
use crate::support::random::Random;
use crate::support::server::binary;

/// Pools of the sample cluster whose configs are changed.
const POOLS: [&str; 3] = ["master", "worker", "edge"];
const CASES: usize = 100;

/// What `validate --strict` says of a directory with this config alone, if it refuses it.
fn refused(pools: &[(&str, &Value)]) -> Option<String> {
    let directory = tempfile::tempdir().expect("a temporary folder");
    // With it, the server adds a file below /etc/kubernetes.
    let controller_config = in_repository("ignition-fixtures/controller-config.yaml");
    fs::copy(controller_config, directory.path().join("controller-config.yaml")).expect("a copy");
    for (pool, config) in pools {
        let file = directory.path().join(format!("{pool}.ign"));
        fs::write(file, config.to_string()).expect("a writable folder");
    }
    let said = Said::by(binary().args(["validate", "--strict"]).arg(directory.path()));
    (said.status != 0).then(|| said.text())
}

fn is_written(config: &str) -> bool {
    let machine = Machine::new();
    let mut fetch = machine.start("fetch", config);
    assert!(fetch.ended().success(), "{}\n{config}", fetch.log());
    machine.start("files", config).ended().success()
}

fn config(section: &Value) -> Value {
    let mut config = json!({"ignition": {"version": "3.2.0"}});
    config.as_object_mut().expect("an object").extend(section.as_object().expect("one").clone());
    config
}

fn file(path: &str, contents: &Value) -> Value {
    json!({"path": path, "mode": 0o644, "contents": contents})
}

#[test]
fn what_the_real_stage_cannot_write_is_refused_before_it_is_served() {
    let text = json!({"source": "data:,x"});
    let files = |path: &str, contents: &Value| {
        config(&json!({"storage": {"files": [file(path, contents)]}}))
    };
    let beside_unit = |path: &str, unit: Value| {
        config(&json!({
            "storage": {"files": [file(path, &text)]}, "systemd": {"units": [unit]},
        }))
    };
    let unit = json!({"name": "a.service", "enabled": true, "contents": "[Service]\nExecStart=/x\n[Install]\nWantedBy=a.target\n"});
    let dropin =
        json!({"name": "a.service", "dropins": [{"name": "b.conf", "contents": "[Service]\n"}]});
    let hash = json!({"hash": format!("sha256-{}", "0".repeat(64))});
    for (config, said, is_of_config) in [
        (files("/etc/kubernetes", &text), "/etc/kubernetes", false),
        (files("/etc/machine-config-daemon", &text), "/etc/machine-config-daemon", false),
        (files("/etc/mcs-machine-config-content.json/x", &text), "the server writes", false),
        (beside_unit("/etc/systemd/system", unit.clone()), "below /etc/systemd/system", true),
        (
            beside_unit("/etc/systemd/system/a.service.d", dropin),
            "below /etc/systemd/system/a.service.d",
            true,
        ),
        (beside_unit("/etc/systemd/system-preset", unit), "below /etc/systemd/system-preset", true),
        (
            files("/etc/a", &json!({"source": "data:,x", "verification": hash})),
            "verification.hash",
            true,
        ),
        (files("/etc/a", &json!({"source": "data:,x", "compression": "gzip"})), "not gzip", true),
        (files("/etc/a\0b", &text), "NUL", true),
    ] {
        let lines = refused(&[("worker", &config)]).expect("a refusal");
        assert!(lines.contains(said), "{said:?}: {lines}");
        assert_eq!(lines.lines().count(), 1, "said once: {lines}");
        if is_of_config {
            assert!(!is_written(&config.to_string()), "the real stage writes {config}");
        }
    }
    assert_eq!(refused(&[("worker", &files("/etc/a", &text))]), None);
}

#[test]
fn a_node_at_the_path_of_a_file_of_the_server_is_named_with_its_machine_config() {
    let path = "/etc/machine-config-daemon/node-annotations.json";
    let taken = config(&json!({"storage": {"directories": [{"path": path}]}}));
    let lines = refused(&[("worker", &taken)]).expect("a refusal");
    assert!(lines.contains("MachineConfig rendered-worker-"), "{lines}");
    assert!(lines.contains(&format!("{path}: the server writes it for every machine")), "{lines}");
}

/// A config of the sample cluster, as a machine gets it.
fn served(pool: &str) -> Value {
    let fixtures = in_repository("ignition-fixtures");
    Said::by(binary().args(["render", pool]).arg(fixtures).args(["--spec", "3.3"])).done().json()
}

/// Adds a node, unit or fault of contents at a path near those that are there.
fn mutate(config: &mut Value, random: &mut Random) {
    let path = near(config, random);
    let push = |config: &mut Value, section: &str, list: &str, it: Value| {
        let list = &mut config[section][list];
        if list.is_null() {
            *list = json!([]);
        }
        list.as_array_mut().expect("a list").push(it);
    };
    let name = format!("new-{}.service", random.index(3));
    let right = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    let sum = if random.index(2) == 0 { right.to_owned() } else { "0".repeat(64) };
    match random.index(9) {
        0 => push(config, "storage", "directories", json!({"path": path})),
        1 => push(config, "storage", "links", json!({"path": path, "target": "/opt/x"})),
        2 => {
            let hash = json!({"hash": format!("sha256-{sum}")});
            let contents = json!({"source": "data:,abc", "verification": hash});
            push(
                config,
                "storage",
                "files",
                json!({"path": path, "overwrite": true, "contents": contents}),
            );
        }
        3 => {
            let contents = json!({"source": "data:,abc", "compression": "gzip"});
            push(config, "storage", "files", json!({"path": path, "append": [contents]}));
        }
        4 => {
            let unit = json!({"name": name, "contents": "[Service]\nExecStart=/x\n"});
            push(config, "systemd", "units", unit);
        }
        5 => {
            let dropins = json!([{"name": "x.conf", "contents": "[Service]\n"}]);
            push(
                config,
                "systemd",
                "units",
                json!({"name": name, "dropins": dropins, "enabled": true}),
            );
        }
        _ => {
            let contents = json!({"source": "data:,abc"});
            push(
                config,
                "storage",
                "files",
                json!({"path": path, "overwrite": true, "contents": contents}),
            );
        }
    }
}

/// A path above, below or beside one of the config's, or of a unit's.
fn near(config: &Value, random: &mut Random) -> String {
    const UNITS: &str = "/etc/systemd/system";
    let mut paths: Vec<String> = ["files", "directories", "links"]
        .iter()
        .flat_map(|list| config["storage"][list].as_array().into_iter().flatten())
        .filter_map(|node| Some(node["path"].as_str()?.to_owned()))
        .collect();
    let units = config["systemd"]["units"].as_array().into_iter().flatten();
    paths.extend(units.filter_map(|unit| Some(format!("{UNITS}/{}", unit["name"].as_str()?))));
    paths.extend(
        [UNITS, "/etc/systemd/system-preset", "/etc/systemd/system/new-0.service"]
            .map(str::to_owned),
    );
    let path = paths.swap_remove(random.index(paths.len()));
    match random.index(8) {
        0 | 1 => format!("{path}/below"),
        2 | 3 if path.matches('/').count() > 2 => {
            path[..path.rfind('/').expect("a slash")].to_owned()
        }
        4 => format!("{path}.d"),
        5 => format!("{path}-{}", "x".repeat(200 + random.index(120))),
        6 if random.index(4) == 0 => format!("{path}\0"),
        _ => format!("{path}-{}", random.index(1000)),
    }
}

#[test]
fn mutated_configs_are_judged_as_the_real_stage_judges_them() {
    let cases = std::env::var("FILES_STAGE_CASES").ok();
    let cases = cases.map_or(CASES, |cases| cases.parse().expect("a number"));
    let configs = POOLS.map(served);
    let mut random = Random(0x5851_f42d_4c95_7f2d);
    let (mut written, mut refused) = (0, 0);
    while written + refused < cases {
        let mut mutated = configs[random.index(configs.len())].clone();
        (0..=random.index(3)).for_each(|_| mutate(&mut mutated, &mut random));
        let text = mutated.to_string();
        // One that is invalid is refused by Ignition when it is read.
        let Ok(config) = Config::parse(&text) else { continue };
        let judged = config.check_writable();
        assert_eq!(is_written(&text), judged.is_ok(), "{judged:?}: {:#}", mutated["storage"]);
        *(if judged.is_ok() { &mut written } else { &mut refused }) += 1;
    }
    assert!(written > cases / 10 && refused > cases / 10, "{written} written, {refused} refused");
}
