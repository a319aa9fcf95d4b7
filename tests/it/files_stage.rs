//! What is served can be written: the judgement of a config is that of Ignition's own files stage.
//!
//! The real stages of two Ignitions, the packaged 2.14 and the one of `tests/ignition/install`, write configs with something
//! added or changed at random, the same in every run. A config is refused if one of them cannot write it, and no other. The
//! configs are those of the sample cluster, and of the data beside the repository if it is there. `FILES_STAGE_CASES` is
//! the number of changed ones.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use ignition::{Config, SpecVersion};
use serde_json::{Value, json};

use crate::conformance;
use crate::support::command::Said;
use crate::support::in_repository;
use crate::support::machine::{IGNITION, Machine};
use crate::support::manifests::{self, yaml_documents};
use crate::support::random::Random;
use crate::support::server::binary;

const CASES: usize = 100;
/// What is asked at a time.
const WORKERS: usize = 2;

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

/// Reason why an Ignition does not write a config, the end of its log.
fn unwritten(ignition: &Path, config: &str) -> Option<String> {
    let machine = Machine::with(ignition);
    let mut fetch = machine.start("fetch", config);
    assert!(fetch.ended().success(), "{}: {}\n{config}", ignition.display(), fetch.log());
    let mut files = machine.start("files", config);
    (!files.ended().success()).then(|| {
        let log = files.log();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(4)..].join("\n")
    })
}

fn is_written(config: &str) -> bool {
    unwritten(Path::new(IGNITION), config).is_none()
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

/// The Ignitions that are asked: the packaged one, and the current one.
fn ignitions() -> [PathBuf; 2] {
    let current = std::env::var_os("IGNITION")
        .expect("IGNITION: run tests/run, or set it to what tests/ignition/install prints");
    [IGNITION.into(), current.into()]
}

/// Configs that both Ignitions read, by their places.
fn configs() -> Vec<(String, Value)> {
    let fixtures = in_repository("ignition-fixtures");
    let all = Said::by(binary().args(["validate", "--json"]).arg(&fixtures)).done().json();
    let pools = all["pools"].as_array().expect("pools").iter();
    let pools = pools.map(|pool| pool["name"].as_str().expect("a name").to_owned());
    let served = |pool: String| {
        let mut command = binary();
        command.args(["render", &pool]).arg(&fixtures).args(["--spec", "3.3"]);
        (pool, Said::by(&mut command).done().json())
    };
    let data = conformance::data();
    let beside = data.iter().flat_map(|data| {
        ["rendered", "corpus"].into_iter().flat_map(move |folder| {
            let folder = data.join(folder);
            manifests::files(&folder).into_iter().map(move |file| folder.join(file))
        })
    });
    let read = |file: PathBuf| {
        let text = fs::read_to_string(&file).expect("text");
        let document = yaml_documents(&text).remove(0);
        let config = document.pointer("/spec/config").unwrap_or(&document);
        let lowered = Config::parse(&config.to_string()).ok()?.lower(SpecVersion::V3_3).ok()?;
        let config = serde_json::to_value(lowered).expect("JSON");
        Some((file.display().to_string(), config))
    };
    let all = pools.map(served).chain(beside.filter_map(read));
    all.map(|(place, config)| (place, of_files(config))).collect()
}

/// A config with only what the judgement is about: no accounts, disks and labels of a real machine, and nothing that is
/// fetched from elsewhere.
fn of_files(mut config: Value) -> Value {
    for (section, member) in [("ignition", "config"), ("ignition", "security")] {
        if let Some(section) = config[section].as_object_mut() {
            section.remove(member);
        }
    }
    let sections = config.as_object_mut().expect("an object");
    sections.remove("passwd");
    sections.remove("kernelArguments");
    if let Some(storage) = sections.get_mut("storage").and_then(Value::as_object_mut) {
        storage
            .retain(|list, _| !["disks", "raid", "filesystems", "luks"].contains(&list.as_str()));
    }
    for unit in list_of(&mut config, "systemd", "units").filter(|unit| is_instance(unit)) {
        unit.as_object_mut().expect("a unit").remove("enabled");
    }
    for list in ["files", "directories", "links"] {
        for node in list_of(&mut config, "storage", list) {
            let node = node.as_object_mut().expect("a node");
            node.remove("user");
            node.remove("group");
            // The image's own files are not there to be appended to or linked.
            let is_elsewhere = |resource: &Value| {
                resource["source"]
                    .as_str()
                    .is_some_and(|it| !it.is_empty() && !it.starts_with("data:"))
            };
            let resources = node
                .get("contents")
                .into_iter()
                .chain(node.get("append").and_then(Value::as_array).into_iter().flatten());
            if resources.clone().any(is_elsewhere) {
                node.insert("contents".to_owned(), json!({"source": "data:,x"}));
                node.remove("append");
            }
            if list == "links" {
                node.remove("hard");
            }
        }
    }
    config
}

/// True for an instance of a template. Ignition asks the systemd of the machine how such a unit is enabled, and none runs.
fn is_instance(unit: &Value) -> bool {
    unit["name"].as_str().is_some_and(|name| name.contains('@'))
}

/// A list of a section of a config, empty without it.
fn list_of<'a>(
    config: &'a mut Value,
    section: &str,
    list: &str,
) -> impl Iterator<Item = &'a mut Value> {
    let list = config.get_mut(section).and_then(|it| it.get_mut(list));
    list.and_then(Value::as_array_mut).into_iter().flatten()
}

/// One of a list at random.
fn one_of<'a>(
    config: &'a mut Value,
    (section, list): (&str, &str),
    random: &mut Random,
) -> Option<&'a mut Value> {
    let length = list_of(config, section, list).count();
    let at = random.index(length.max(1));
    list_of(config, section, list).nth(at)
}

fn push(config: &mut Value, section: &str, list: &str, it: Value) {
    let list = &mut config[section][list];
    if list.is_null() {
        *list = json!([]);
    }
    list.as_array_mut().expect("a list").push(it);
}

/// Adds a node, unit or fault of contents at a path near those that are there.
fn add(config: &mut Value, random: &mut Random) {
    let path = near(config, random);
    let name = format!("new-{}.service", random.index(3));
    let plain = json!({"source": "data:,abc"});
    let node = match random.index(7) {
        0 => return push(config, "storage", "directories", json!({"path": path})),
        1 => return push(config, "storage", "links", json!({"path": path, "target": "/opt/x"})),
        2 => {
            let contents = json!({"source": "data:,abc", "verification": hash(random)});
            json!({"path": path, "overwrite": true, "contents": contents})
        }
        3 => {
            let contents = json!({"source": "data:,abc", "compression": "gzip"});
            json!({"path": path, "append": [contents]})
        }
        4 => {
            let unit = json!({"name": name, "contents": "[Service]\nExecStart=/x\n"});
            return push(config, "systemd", "units", unit);
        }
        5 => {
            let dropins = json!([{"name": "x.conf", "contents": "[Service]\n"}]);
            let unit = json!({"name": name, "dropins": dropins, "enabled": true});
            return push(config, "systemd", "units", unit);
        }
        _ => json!({"path": path, "overwrite": true, "contents": plain}),
    };
    push(config, "storage", "files", node);
}

/// Changes one of the nodes and units that are there.
fn change(config: &mut Value, random: &mut Random) {
    let path = near(config, random);
    let kind = random.index(6);
    let place = match kind {
        0 | 1 => ("systemd", "units"),
        2 => ("storage", "directories"),
        _ => ("storage", "files"),
    };
    let sum = hash(random);
    let flag = random.index(2) == 0;
    let Some(changed) = one_of(config, place, random) else { return };
    match kind {
        0 => changed["mask"] = flag.into(),
        1 if !is_instance(changed) => changed["enabled"] = flag.into(),
        1 => {}
        2 | 3 => changed["path"] = path.into(),
        4 => changed["contents"]["verification"] = sum,
        _ => changed["contents"]["compression"] = if flag { "gzip" } else { "" }.into(),
    }
}

/// The hash of `abc`, or one of nothing.
fn hash(random: &mut Random) -> Value {
    const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    let sum = if random.index(2) == 0 { ABC.to_owned() } else { "0".repeat(64) };
    json!({"hash": format!("sha256-{sum}")})
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

/// A valid config that is changed, with its place. Ignition refuses an invalid one when it is read.
fn mutated(configs: &[(String, Value)], case: usize) -> (String, String) {
    let mut random = Random(0x5851_f42d_4c95_7f2d ^ ((case as u64 + 1) << 20));
    loop {
        let (place, config) = &configs[random.index(configs.len())];
        let mut config = config.clone();
        for _ in 0..=random.index(3) {
            let step = if random.index(3) == 0 { change } else { add };
            step(&mut config, &mut random);
        }
        let text = config.to_string();
        if Config::parse(&text).is_ok() {
            return (place.clone(), text);
        }
    }
}

/// Asks the Ignitions about cases, and returns how many are written and how many refused: those that one of them cannot
/// write.
fn agree(count: usize, case: impl Fn(usize) -> (String, String) + Sync) -> [usize; 2] {
    let ignitions = ignitions();
    let next = AtomicUsize::new(0);
    let counts = [AtomicUsize::new(0), AtomicUsize::new(0)];
    let wrong = Mutex::new(Vec::new());
    let judge = |number: usize| {
        let (place, text) = case(number);
        let judged = Config::parse(&text).expect("a valid config").check_writable();
        counts[usize::from(judged.is_err())].fetch_add(1, Ordering::Relaxed);
        let failed = ignitions.iter().find_map(|it| Some((it.display(), unwritten(it, &text)?)));
        if failed.is_some() != judged.is_err() {
            let line = format!("## case {number} of {place}\nours: {judged:?}\n{failed:?}\n{text}");
            wrong.lock().expect("no panic").push(line);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        return;
                    }
                    judge(number);
                }
            });
        }
    });
    let wrong = wrong.into_inner().expect("no panic");
    assert!(wrong.is_empty(), "{} of {count}:\n{}", wrong.len(), wrong.join("\n"));
    counts.map(AtomicUsize::into_inner)
}

#[test]
fn configs_at_hand_are_judged_as_the_real_stages_judge_them() {
    let configs = configs();
    let case = |number: usize| (configs[number].0.clone(), configs[number].1.to_string());
    let [written, _] = agree(configs.len(), case);
    assert!(written > 3, "{written} written");
}

#[test]
fn mutated_configs_are_judged_as_the_real_stages_judge_them() {
    let cases = std::env::var("FILES_STAGE_CASES").ok();
    let cases = cases.map_or(CASES, |cases| cases.parse().expect("a number"));
    let configs = configs();
    let [written, refused] = agree(cases, |case| mutated(&configs, case));
    assert!(written > cases / 10 && refused > cases / 10, "{written} written, {refused} refused");
}
