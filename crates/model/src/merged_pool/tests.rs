mod beside_reference;
mod kernel_arguments;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::objects::{ControllerConfig, MachineConfig, MachineConfigPool};

const OVERRIDDEN: &str = "machineconfiguration.openshift.io/os-image-url-overridden";

fn machine_config(name: &str, role: &str, spec: &Value) -> Arc<MachineConfig> {
    let config = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfig",
        "metadata": {"name": name, "labels": {"machineconfiguration.openshift.io/role": role}},
        "spec": spec,
    });
    // Parsed from text, like a manifest or an answer of the API.
    Arc::new(serde_json::from_str(&config.to_string()).unwrap())
}

/// A MachineConfig of workers with one section in its Ignition config.
fn with(name: &str, section: &str, value: Value) -> Arc<MachineConfig> {
    let mut config = json!({"ignition": {"version": "3.4.0"}});
    config[section] = value;
    machine_config(name, "worker", &json!({"config": config}))
}

fn file(name: &str, file: Value) -> Arc<MachineConfig> {
    let files = Value::Array(vec![file]);
    with(name, "storage", [("files".to_owned(), files)].into_iter().collect())
}

fn merged(configs: &[Arc<MachineConfig>]) -> Result<MachineConfig, Unmergeable> {
    let base =
        json!({"spec": {"baseOSContainerImage": "os", "baseOSExtensionsContainerImage": "ext"}});
    let base: ControllerConfig = serde_json::from_value(base).unwrap();
    let parsed: Vec<_> = configs.iter().map(ParsedMachineConfig::new).collect();
    merge("pool", &parsed.iter().collect::<Vec<_>>(), Some(&base), ArgumentSetter::Daemon)
}

fn files(merged: &MachineConfig) -> Value {
    let config: Value = serde_json::from_str(&merged.ignition().unwrap()).unwrap();
    config["storage"]["files"].clone()
}

fn refused(configs: &[Arc<MachineConfig>]) -> String {
    merged(configs).unwrap_err().to_string()
}

#[test]
fn what_a_custom_pool_has_of_its_own_is_over_what_all_workers_have() {
    let source = |source: &str| json!({"path": "/a", "contents": {"source": source}});
    let of = |name: &str, role: &str, from: &str| {
        let config =
            json!({"ignition": {"version": "3.4.0"}, "storage": {"files": [source(from)]}});
        machine_config(name, role, &json!({"config": config, "kernelArguments": [from]}))
    };
    let all = merged(&[
        of("99-worker", "worker", "data:,worker"),
        of("00-infra", "infra", "data:,infra"),
        of("01-worker", "worker", "data:,first"),
    ]);
    let all = all.unwrap();
    assert_eq!(files(&all)[0]["contents"]["source"], "data:,infra");
    assert_eq!(all.spec.kernel_arguments.unwrap(), ["data:,first", "data:,worker", "data:,infra"]);
}

#[test]
fn contents_bring_their_compression_and_files_overwrite_unless_they_say_otherwise() {
    let all = merged(&[
        file(
            "1",
            json!({"path": "/a", "mode": 384, "contents": {"source": "data:,1", "compression": "gzip"}}),
        ),
        file("2", json!({"path": "/a", "contents": {"source": "data:,2"}})),
        file("3", json!({"path": "/b", "overwrite": false, "contents": {"source": "data:,3"}})),
    ]);
    assert_eq!(
        files(&all.unwrap()),
        json!([
            {"path": "/a", "overwrite": true, "contents": {"source": "data:,2"}, "mode": 384},
            {"path": "/b", "overwrite": false, "contents": {"source": "data:,3"}},
        ])
    );
}

#[test]
fn images_are_those_of_the_last_that_an_administrator_made() {
    let image = |name: &str, image: &str, generated: bool| {
        let mut config = json!(*machine_config(name, "worker", &json!({"osImageURL": image})));
        if generated {
            config["metadata"]["annotations"] =
                json!({"machineconfiguration.openshift.io/generated-by-controller-version": "v"});
        }
        Arc::new(serde_json::from_str(&config.to_string()).unwrap())
    };
    for (configs, os, is_overridden) in [
        (vec![image("1", "a", false), image("2", "b", false), image("3", "", false)], "b", true),
        (vec![image("1", "a", true)], "os", false),
        (vec![image("1", "os", false)], "os", false),
    ] {
        let merged = merged(&configs).unwrap();
        assert_eq!(merged.spec.os_image_url, os);
        assert_eq!(merged.spec.base_os_extensions_container_image, "ext");
        assert_eq!(merged.annotation(OVERRIDDEN).is_some(), is_overridden);
    }
}

#[test]
fn values_that_conflict_by_their_paths_or_hashes_name_both_machine_configs() {
    let hashed = |source: &str| {
        // Of "one".
        let hash = "sha256-7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed";
        json!({"path": "/f", "contents": {"source": source, "verification": {"hash": hash}}})
    };
    let same = [file("a", hashed("data:,one")), file("b", json!({"path": "/f", "mode": 384}))];
    assert!(merged(&same).is_ok());
    for (configs, message) in [
        (
            vec![
                with("a", "storage", json!({"links": [{"path": "/l", "target": "/b"}]})),
                file("b", json!({"path": "/l/f", "contents": {"source": "data:,"}})),
                file("c", json!({"path": "/other", "contents": {"source": "data:,"}})),
            ],
            "MachineConfigs a, b: merged into one, storage.files[0].path: /l/f is behind the link /l",
        ),
        (
            vec![
                with(
                    "a",
                    "systemd",
                    json!({"units": [{"name": "u.service", "contents": "[Unit]"}]}),
                ),
                file("b", json!({"path": "/other", "contents": {"source": "data:,"}})),
                file(
                    "c",
                    json!({"path": "/etc/systemd/system/u.service", "contents": {"source": "data:,"}}),
                ),
            ],
            "MachineConfigs a, c: merged into one, storage.files[0].path: /etc/systemd/system/u.service is written for \
             a systemd unit or drop-in",
        ),
        (
            vec![
                file("a", json!({"path": "/d", "contents": {"source": "data:,"}})),
                file("b", json!({"path": "/other", "contents": {"source": "data:,"}})),
                file("c", json!({"path": "/d/f", "contents": {"source": "data:,"}})),
            ],
            "MachineConfigs a, c: /d/f: it is below /d, which is not a directory",
        ),
        (
            vec![
                file("a", hashed("data:,one")),
                file("b", json!({"path": "/f", "contents": {"source": "data:,two"}})),
            ],
            "MachineConfigs a, b: /f: its contents do not have the hash in verification.hash: set or remove the hash \
             where the contents are set",
        ),
    ] {
        assert_eq!(refused(&configs), message);
    }
}

#[test]
fn a_config_that_fetches_its_own_pools_is_refused() {
    let fetching = |url: &str| {
        let config = json!({"version": "3.4.0", "config": {"merge": [{"source": url}]}});
        [
            file("a", json!({"path": "/f", "contents": {"source": "data:,"}})),
            with("b", "ignition", config),
        ]
    };
    assert!(merged(&fetching("https://mcs.example.com:22623/config/other")).is_ok());
    let encoded = refused(&fetching("https://mcs.example.com:22623/config/%70ool/"));
    assert!(encoded.contains("which is this pool's own"), "{encoded}");
    assert_eq!(
        refused(&fetching("https://mcs.example.com:22623/config/pool?token=secret")),
        "MachineConfigs b: the config fetches https://mcs.example.com:22623/config/pool, which is this pool's own: it \
         is a pointer config"
    );
}

#[test]
fn of_many_partitions_those_that_overlap_are_named() {
    let partition = |name: &str, number: u8, start: u8| {
        let partition = json!({"number": number, "startMiB": start, "sizeMiB": 9});
        with(name, "storage", json!({"disks": [{"device": "/dev/a", "partitions": [partition]}]}))
    };
    let conflict = [("a", 1, 1), ("b", 2, 20), ("c", 3, 40), ("d", 4, 25), ("e", 5, 60)];
    assert_eq!(
        refused(&conflict.map(|(name, number, start)| partition(name, number, start))),
        "MachineConfigs b, d: merged into one, storage.disks[0].partitions[0]: overlaps with another partition"
    );
}

#[test]
fn what_is_wrong_names_the_machine_configs_and_the_place() {
    let spec = |name: &str, spec: Value| machine_config(name, "worker", &spec);
    let empty = json!({"ignition": {"version": "3.4.0"}});
    for (configs, message) in [
        (
            vec![file("a", json!({"path": "a"}))],
            "MachineConfig a: spec.config: storage.files[0].path: is not absolute",
        ),
        (
            vec![spec("a", json!({"config": {}}))],
            "MachineConfig a: spec.config: ignition.version: is missing; it says the Ignition spec, such as \"3.4.0\"",
        ),
        (
            vec![file(
                "a",
                json!({"path": "/a", "mode": 0o4755, "contents": {"source": "data:,"}}),
            )],
            "MachineConfig a: spec.config: storage.files[0].mode: special bits have no effect before Ignition spec 3.6.0",
        ),
        (
            vec![spec("a", json!({"kernelType": "fast"}))],
            "MachineConfig a: spec.kernelType: \"fast\" is not default, realtime or 64k-pages",
        ),
        (
            vec![spec("a", json!({"config": empty, "extensions": ["usbguard", "emacs"]}))],
            "MachineConfig a: spec.extensions: \"emacs\" is not an extension of the operating system",
        ),
        (
            vec![
                spec("a", json!({"extensions": ["kernel-devel"]})),
                spec("b", json!({"kernelType": "64k-pages"})),
                spec("c", json!({"kernelType": "realtime"})),
            ],
            "MachineConfigs a, c: extension kernel-devel needs kernelType default, not realtime",
        ),
        (
            vec![
                file("a", json!({"path": "/a", "mode": 420})),
                file("b", json!({"path": "/b", "mode": 420, "overwrite": false})),
            ],
            "MachineConfigs a: file /a has no contents.source to overwrite with: give it one, or set overwrite to false",
        ),
    ] {
        assert_eq!(refused(&configs), message);
    }
    let unlabelled = json!({"metadata": {"name": "a"}});
    let unlabelled = Arc::new(serde_json::from_str(&unlabelled.to_string()).unwrap());
    assert_eq!(refused(&[unlabelled]), "MachineConfig a has no labels, so its role is not known");
}

#[test]
fn the_name_is_by_pool_and_contents() {
    let name = |pool: &str, configs: &[Arc<MachineConfig>]| {
        let parsed: Vec<_> = configs.iter().map(ParsedMachineConfig::new).collect();
        let merged =
            merge(pool, &parsed.iter().collect::<Vec<_>>(), None, ArgumentSetter::Daemon).unwrap();
        merged.name().to_owned()
    };
    let a = file("a", json!({"path": "/a", "contents": {"source": "data:,a"}}));
    let b = file("b", json!({"path": "/b", "contents": {"source": "data:,b"}}));
    let both = name("p", &[a.clone(), b.clone()]);
    assert_eq!(both, name("p", &[b.clone(), a.clone()]));
    assert_eq!(both, "rendered-p-6c4ae96c400ed5387074a322672530a3");
    let other = file("b", json!({"path": "/b", "contents": {"source": "data:,c"}}));
    assert_ne!(both, name("p", &[a.clone(), other]));
    assert_eq!(both.strip_prefix("rendered-p"), name("q", &[a, b]).strip_prefix("rendered-q"));
}

#[test]
fn a_name_tells_whether_the_contents_were_changed_but_for_the_order_of_fields() {
    let a = file("a", json!({"path": "/a", "mode": 420, "contents": {"source": "data:,a"}}));
    let a = ParsedMachineConfig::new(&a);
    let merged =
        serde_json::to_value(merge("p", &[&a], None, ArgumentSetter::Daemon).unwrap()).unwrap();
    let is_intact = |config: Value| has_contents_of_name(&serde_json::from_value(config).unwrap());
    let mut sorted = merged.clone();
    sorted.sort_all_objects();
    assert_ne!(sorted.to_string(), merged.to_string());
    assert!(is_intact(merged.clone()) && is_intact(sorted));
    for (place, value) in [
        ("/spec/config/storage/files/0/mode", json!(384)),
        ("/spec/config/storage/files/0/unknown", json!(1)),
        ("/spec/kernelArguments", json!(["quiet"])),
        ("/spec/fips", json!(true)),
        ("/spec", json!(null)),
        ("/metadata/name", json!("rendered")),
    ] {
        let mut changed = merged.clone();
        let (parent, key) = place.rsplit_once('/').unwrap();
        changed.pointer_mut(parent).unwrap()[key] = value;
        assert!(!is_intact(changed), "{place}");
    }
}

#[test]
fn everything_is_reported_with_the_machine_configs_that_it_is_of() {
    let own = json!({
        "config": {"ignition": {"version": "3.4.0"}, "storage": {"files": [{"path": "/a", "contents": {"source": "data:,2"}}]}},
        "kernelArguments": ["quiet"], "extensions": ["usbguard"], "fips": true, "kernelType": "realtime",
        "osImageURL": "own",
    });
    let configs = [
        machine_config("own", "infra", &own),
        file("base", json!({"path": "/a", "mode": 420, "contents": {"source": "data:,1"}})),
        machine_config(
            "other",
            "worker",
            &json!({"kernelType": "64k-pages", "osImageURL": "other"}),
        ),
    ];
    let parsed: Vec<_> = configs.iter().map(ParsedMachineConfig::new).collect();
    let origins = origins(&parsed.iter().collect::<Vec<_>>(), ArgumentSetter::Daemon).unwrap();
    let reported: Vec<_> = origins
        .iter()
        .map(|origin| {
            let members =
                origin.members.iter().map(|it| format!("{}@{}", it.name, it.machine_config));
            let members: Vec<_> = members.collect();
            let (keys, covered) = (origin.keys.join(" "), origin.covered.join(" "));
            format!("{} [{keys}] {} over [{covered}]", origin.place, members.join(" "))
        })
        .collect();
    assert_eq!(
        reported,
        [
            "storage.files [/a] contents.source@own mode@base over [base]",
            "spec.kernelArguments [quiet] @own over []",
            "spec.extensions [usbguard] @own over []",
            "spec.fips [] @own over []",
            "spec.kernelType [] @own over [other]",
            "spec.osImageURL [] @own over [other]",
            "spec.baseOSExtensionsContainerImage []  over []",
        ]
    );
}

fn pool(name: &str, roles: &[&str]) -> MachineConfigPool {
    let expression =
        json!({"key": "machineconfiguration.openshift.io/role", "operator": "In", "values": roles});
    let pool = json!({
        "metadata": {"name": name},
        "spec": {"machineConfigSelector": {"matchExpressions": [expression]}},
    });
    serde_json::from_value(pool).unwrap()
}

/// Updates the pools, and merges those that are due.
fn update(
    merged: &mut MergedPools,
    pools: &[MachineConfigPool],
    configs: &BTreeMap<String, Arc<MachineConfig>>,
    controller_config: Option<&ControllerConfig>,
) {
    let due = merged.update(pools, &ByLabels::new(configs.values()), controller_config);
    let shared = shared_sources(&due).into_iter();
    let shared = shared.map(|it| (it.name(), ParsedMachineConfig::new(it))).collect();
    let results: Vec<_> = due.iter().map(|due| due.merge(&shared, controller_config)).collect();
    drop(shared);
    merged.insert(due.into_iter().zip(results));
}

#[test]
fn only_the_pools_that_select_what_changed_are_merged_again() {
    let of = |name: &str, role: &str, argument: &str| {
        machine_config(name, role, &json!({"kernelArguments": [argument]}))
    };
    let pools =
        [pool("worker", &["worker"]), pool("infra", &["worker", "infra"]), pool("gpu", &["gpu"])];
    let mut configs: BTreeMap<_, _> =
        [of("00-worker", "worker", "a"), of("50-infra", "infra", "b")]
            .map(|config| (config.name().to_owned(), config))
            .into();
    let mut merged = MergedPools::default();
    update(&mut merged, &pools, &configs, None);
    let arguments = |merged: &MergedPools, pool: &str| {
        let merged = merged.get(pool).unwrap().unwrap();
        merged.spec.kernel_arguments.clone().unwrap()
    };
    assert_eq!(arguments(&merged, "worker"), ["a"]);
    assert_eq!(arguments(&merged, "infra"), ["a", "b"]);
    let reason = merged.get("gpu").unwrap().unwrap_err().to_string();
    assert_eq!(reason, "no MachineConfig has the labels that spec.machineConfigSelector selects");
    assert!(merged.get("other").is_none());

    let before = ["worker", "infra"].map(|pool| Arc::clone(merged.get(pool).unwrap().unwrap()));
    let is_same = |merged: &MergedPools| {
        let now = ["worker", "infra"].map(|pool| Arc::clone(merged.get(pool).unwrap().unwrap()));
        [Arc::ptr_eq(&before[0], &now[0]), Arc::ptr_eq(&before[1], &now[1])]
    };
    // The same contents under another pointer.
    configs.insert("00-worker".to_owned(), of("00-worker", "worker", "a"));
    update(&mut merged, &pools, &configs, None);
    assert_eq!(is_same(&merged), [true, true]);
    configs.insert("50-infra".to_owned(), of("50-infra", "infra", "c"));
    configs.insert("50-gpu".to_owned(), of("50-gpu", "gpu", "d"));
    update(&mut merged, &pools, &configs, None);
    assert_eq!(is_same(&merged), [true, false]);
    assert_eq!(arguments(&merged, "infra"), ["a", "c"]);
    assert_eq!(arguments(&merged, "gpu"), ["d"]);
    let base: ControllerConfig =
        serde_json::from_value(json!({"spec": {"baseOSContainerImage": "os"}})).unwrap();
    update(&mut merged, &pools[..1], &configs, Some(&base));
    assert_eq!(merged.get("worker").unwrap().unwrap().spec.os_image_url, "os");
    assert!(merged.get("infra").is_none());
}

#[test]
fn a_pool_that_is_not_merged_again_still_selects_what_came_back() {
    let config = machine_config("00-worker", "worker", &json!({"kernelArguments": ["a"]}));
    let configs = [("00-worker".to_owned(), config)].into();
    let pools = [pool("worker", &["worker"])];
    let mut merged = MergedPools::default();
    update(&mut merged, &pools, &configs, None);
    // The same MachineConfig in another group.
    let sources = ByLabels::new(configs.values());
    assert_eq!(merged.update(&pools, &sources, None).len(), 0);
    assert_eq!(sources.unselected(merged.selected(), []), [""; 0]);
    assert_eq!(sources.unselected([], []), ["00-worker"]);
}

#[test]
fn of_a_hundred_pools_only_the_one_that_changed_is_merged() {
    let names: Vec<String> = (0..100).map(|number| format!("pool-{number}")).collect();
    let pools: Vec<_> = names.iter().map(|name| pool(name, &[name])).collect();
    let config = |pool: &str, number: u32, argument: &str| {
        let spec = json!({"kernelArguments": [argument]});
        machine_config(&format!("{pool}-{number}"), pool, &spec)
    };
    let all = names.iter().flat_map(|pool| (0..30).map(move |number| config(pool, number, "a")));
    let mut configs: BTreeMap<_, _> =
        all.map(|config| (config.name().to_owned(), config)).collect();
    let mut merged = MergedPools::default();
    update(&mut merged, &pools, &configs, None);
    assert_eq!(merged.merges(), 100);
    assert_eq!(merged.sources("pool-7").len(), 30);
    let changed = config("pool-7", 12, "b");
    configs.insert(changed.name().to_owned(), changed);
    update(&mut merged, &pools, &configs, None);
    assert_eq!(merged.merges(), 101);
    update(&mut merged, &pools, &configs, None);
    assert_eq!(merged.merges(), 101);
}

#[test]
fn a_pool_without_a_selector_selects_nothing() {
    let config = machine_config("a", "worker", &json!({}));
    let pool: MachineConfigPool =
        serde_json::from_value(json!({"metadata": {"name": "p"}})).unwrap();
    let reason = ByLabels::new([&config]).select(&pool).unwrap_err().to_string();
    assert_eq!(reason, "spec.machineConfigSelector: has no requirement");
}

/// A selector by labels, by an expression, or both.
fn any_selector() -> impl Strategy<Value = Value> {
    let labels = prop::collection::btree_map("[ab]", "[xy]", 0..3);
    let operator = prop::sample::select(vec!["In", "NotIn", "Exists", "DoesNotExist"]);
    let expression = ("[ab]", operator, prop::collection::vec("[xyz]", 1..3));
    let expressions = prop::collection::vec(expression, 0..2);
    (labels, expressions).prop_map(|(labels, expressions)| {
        let expression = |(key, operator, values): &(String, &str, Vec<String>)| {
            let values = if operator.ends_with("In") { json!(values) } else { json!([]) };
            json!({"key": key, "operator": operator, "values": values})
        };
        let expressions: Vec<_> = expressions.iter().map(expression).collect();
        json!({"matchLabels": labels, "matchExpressions": expressions})
    })
}

proptest! {
    #[test]
    fn machine_configs_that_are_grouped_by_labels_are_selected_as_each_alone(
        selector in any_selector(),
        labels in prop::collection::vec(
            prop::option::of(prop::collection::btree_map("[ab]", "[xyz]", 0..3)),
            0..8,
        ),
    ) {
        let config = |(number, labels)| -> Arc<MachineConfig> {
            let metadata = json!({"name": format!("{number}"), "labels": labels});
            Arc::new(serde_json::from_value(json!({"metadata": metadata})).unwrap())
        };
        let configs: Vec<_> = labels.iter().enumerate().map(config).collect();
        let spec = json!({"machineConfigSelector": selector});
        let pool = json!({"metadata": {"name": "p"}, "spec": spec});
        let pool: MachineConfigPool = serde_json::from_value(pool).unwrap();
        let names = |it: Vec<&Arc<MachineConfig>>| {
            it.into_iter().map(|config| config.name().to_owned()).collect::<BTreeSet<_>>()
        };
        let selector = &pool.spec.machine_config_selector;
        let is_valid = selector.check().is_ok();
        let (alone, others): (Vec<_>, Vec<_>) =
            configs.iter().partition(|it| is_valid && selector.matches(it.labels().as_ref()));
        let others = names(others);
        let mut grouped = ByLabels::new(&configs);
        // What comes and goes again leaves nothing.
        let more = (configs.len()..).zip(labels.iter().rev().chain([&None])).map(config);
        let more: Vec<_> = more.collect();
        for config in &more {
            grouped.insert(config);
        }
        for config in &more {
            grouped.remove(config);
        }
        let selected = grouped.select(&pool).unwrap_or_default();
        let selected = selected.iter().flat_map(|group| group.machine_configs()).collect();
        prop_assert_eq!(names(selected), names(alone));
        prop_assert_eq!(grouped.unselected([], [&pool]), others.iter().collect::<Vec<_>>());
        for config in &configs {
            grouped.remove(config);
        }
        prop_assert_eq!(format!("{grouped:?}"), format!("{:?}", ByLabels::default()));
    }
}

/// MachineConfigs with names in common.
fn any_machine_config() -> impl Strategy<Value = Value> {
    let paths = prop::collection::btree_map("/[abc]", prop::option::of("[xy]"), 0..3);
    let lists = prop::collection::vec("[abc]", 0..3);
    let kernel = prop::sample::select(vec!["", "default", "realtime", "64k-pages"]);
    (paths, lists, any::<bool>(), kernel, prop::option::of("[ab]"), any::<bool>()).prop_map(
        |(paths, arguments, fips, kernel, image, has_config)| {
            let files = paths.iter().map(|(path, source)| {
                let source = format!("data:,{}", source.as_deref().unwrap_or_default());
                json!({"path": path, "contents": {"source": source}})
            });
            let files: Vec<_> = files.collect();
            let config = json!({"ignition": {"version": "3.2.0"}, "storage": {"files": files}});
            json!({
                "config": has_config.then_some(config), "kernelArguments": arguments, "fips": fips,
                "kernelType": kernel, "osImageURL": image,
            })
        },
    )
}

proptest! {
    #[test]
    fn the_order_of_the_list_does_not_matter_and_what_says_nothing_changes_nothing(
        specs in prop::collection::vec((any_machine_config(), "worker|infra"), 1..5),
        turn in 0..5_usize,
    ) {
        let mut configs: Vec<_> = specs
            .iter()
            .enumerate()
            .map(|(i, (spec, role))| machine_config(&format!("{}-{i}", i * 7 % 5), role, spec))
            .collect();
        let all = merged(&configs).unwrap();
        let places = configs.len();
        configs.rotate_left(turn % places);
        configs.push(machine_config("zz", "infra", &json!({"config": {"ignition": {"version": "3.0.0"}}})));
        configs.push(machine_config("aa", "worker", &json!({})));
        let again = merged(&configs).unwrap();
        prop_assert_eq!(all.name(), again.name());
        prop_assert_eq!(json!(all), json!(again));
        prop_assert!(ignition::Config::parse(&all.ignition().unwrap()).is_ok());
    }
}
