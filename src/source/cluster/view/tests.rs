//! Tests of the view, by sequences of reports.

use super::*;
use serde_json::value::to_raw_value;
use serde_json::{Value, json};

fn item(object: &Value) -> WatchedObject {
    let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
    WatchedObject {
        name: text("/metadata/name").to_owned(),
        version: text("/metadata/resourceVersion").to_owned(),
        json: to_raw_value(object).ok(),
    }
}

fn pool(name: &str, configuration: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "status": {"configuration": {"name": configuration}},
    })
}

fn config(name: &str, version: &str) -> Value {
    json!({
        "metadata": {"name": name, "resourceVersion": version},
        "spec": {"config": {"ignition": {"version": "3.4.0"}}},
    })
}

fn list(view: &mut ClusterView, kind: Kind, objects: &[Value]) {
    view.apply(kind, Change::ListBegins);
    for object in objects {
        view.apply(kind, Change::Listed(item(object)));
    }
    view.apply(kind, Change::ListEnds);
}

/// A view in which everything was read, with one pool `worker` at config `one`.
fn read() -> ClusterView {
    let mut view = ClusterView::default();
    for &kind in Kind::ALL {
        let pools = [pool("worker", "one")];
        let objects = if kind == Kind::MachineConfigPool { &pools[..] } else { &[] };
        list(&mut view, kind, objects);
    }
    fetch(&mut view, "one", Some(&config("one", "1")));
    view
}

/// Applies the fetch of a pool's MachineConfig.
fn fetch(view: &mut ClusterView, name: &str, object: Option<&Value>) {
    assert!(view.needed_configs().contains(&name.to_owned()), "{name} is not needed");
    view.configs.fetched(name, object.map(item));
}

/// Pools with the config of their machines, if there is one.
fn served(view: &mut ClusterView) -> Vec<(String, Option<String>)> {
    let inputs = view.inputs(None).unwrap();
    let served = inputs.pools.values().map(|pool| {
        let configuration = served_configuration(ServingMode::Cluster, pool);
        let config = inputs.machine_configs.get(configuration);
        (pool.name().to_owned(), config.map(|config| config.name().to_owned()))
    });
    served.collect()
}

fn worker(config: &str) -> Vec<(String, Option<String>)> {
    vec![("worker".to_owned(), Some(config.to_owned()))]
}

#[test]
fn there_are_no_inputs_before_every_kind_and_every_config_was_read() {
    for &missing in Kind::ALL {
        let mut view = ClusterView::default();
        for &kind in Kind::ALL.iter().filter(|kind| **kind != missing) {
            list(&mut view, kind, &[]);
        }
        assert_eq!(view.missing(), [missing.name()]);
        assert!(view.inputs(None).is_none(), "{missing:?}");
        if missing.may_be_absent() {
            view.absent(missing);
            assert!(view.inputs(None).is_some(), "{missing:?}");
        }
    }
    let mut view = ClusterView::default();
    for &kind in Kind::ALL {
        let pools = [pool("worker", "one")];
        let objects = if kind == Kind::MachineConfigPool { &pools[..] } else { &[] };
        list(&mut view, kind, objects);
    }
    assert_eq!(view.needed_configs(), ["one"]);
    assert_eq!(view.missing(), ["contents of machineconfigs"]);
    assert!(view.inputs(None).is_none());
    // A missing object is an answer, too.
    view.configs.fetched("one", None);
    assert_eq!(served(&mut view), [("worker".to_owned(), None)]);
}

#[test]
fn a_pool_stays_as_it_was_until_its_new_config_is_there() {
    let mut view = read();
    assert_eq!(served(&mut view), worker("one"));
    let kind = Kind::MachineConfigPool;
    view.apply(kind, Change::Applied(item(&pool("worker", "two"))));
    view.apply(kind, Change::Applied(item(&pool("new", "three"))));
    assert_eq!(served(&mut view), worker("one"), "both are under way");
    fetch(&mut view, "two", Some(&config("two", "2")));
    assert_eq!(served(&mut view), worker("two"));
    view.apply(kind, Change::Deleted("worker".to_owned()));
    assert_eq!(served(&mut view), []);
}

#[test]
fn what_does_not_decode_leaves_the_last_good_one_and_is_named() {
    let bad = json!({"metadata": {"name": "worker"}, "status": {"configuration": "one"}});
    let mut view = read();
    view.apply(Kind::MachineConfigPool, Change::Applied(item(&bad)));
    assert_eq!(served(&mut view), worker("one"));
    let problems = view.inputs(None).unwrap().problems;
    assert_eq!(problems.len(), 1);
    assert_eq!(problems[0].place, "MachineConfigPool worker");
    assert!(!problems[0].is_partial);
    view.apply(Kind::MachineConfigPool, Change::Applied(item(&pool("worker", "one"))));
    assert!(view.inputs(None).unwrap().problems.is_empty());
}

#[test]
fn what_a_list_does_not_hold_is_gone_but_for_the_registries_cas() {
    let ca = include_str!("../../../../certs/registry-main.crt");
    let map = json!({
        "metadata": {"name": "merged-trusted-image-registry-ca", "namespace": "ns"},
        "data": {"registry.example.com": ca},
    });
    let controller_config = json!({"metadata": {"name": "machine-config-controller"}});
    let service = json!({
        "metadata": {"name": "registry", "namespace": "openshift-image-registry"},
        "spec": {"ports": [{"port": 5000}]},
    });
    for (kind, object, stays) in [
        (Kind::RegistryCas, map, true),
        (Kind::ControllerConfig, controller_config, false),
        (Kind::Service, service, false),
    ] {
        let mut view = read();
        list(&mut view, kind, &[object]);
        let is_there = |view: &mut ClusterView| {
            let Inputs { shared, layering, .. } = view.inputs(None).unwrap();
            match kind {
                Kind::RegistryCas => !shared.registry_cas.is_empty(),
                Kind::ControllerConfig => shared.controller_config.is_some(),
                _ => !layering.registry_hosts.is_empty(),
            }
        };
        assert!(is_there(&mut view), "{kind:?}");
        list(&mut view, kind, &[]);
        assert_eq!(is_there(&mut view), stays, "{kind:?}");
        assert_eq!(view.inputs(None).unwrap().problems.len(), usize::from(stays), "{kind:?}");
    }
}

#[test]
fn what_was_kept_is_what_is_served_after_a_restart() {
    let mut view = read();
    let before = served(&mut view);
    let mut restarted = ClusterView::default();
    restarted.restore(view.snapshot());
    assert!(restarted.missing().is_empty());
    assert_eq!(served(&mut restarted), before);
    // The first lists find changes of the meantime.
    list(&mut restarted, Kind::MachineConfigPool, &[pool("worker", "two")]);
    assert_eq!(served(&mut restarted), before);
    fetch(&mut restarted, "two", Some(&config("two", "2")));
    assert_eq!(served(&mut restarted), worker("two"));
}

#[test]
fn a_machine_stays_the_same_while_its_status_changes() {
    let mut view = read();
    let machine = |version: &str, status: &Value| {
        json!({
            "metadata": {"name": "n", "uid": "u", "resourceVersion": version},
            "spec": {"pool": "worker"}, "status": status,
        })
    };
    list(&mut view, Kind::FirstBootMachine, &[machine("1", &json!({}))]);
    let before = view.inputs(None).unwrap();
    let used = machine("2", &json!({"armings": 1}));
    view.apply(Kind::FirstBootMachine, Change::Applied(item(&used)));
    let now = view.inputs(None).unwrap();
    assert!(Arc::ptr_eq(&before.machines["n"], &now.machines["n"]));
    assert_eq!(now.machine_states["n"].resource_version, "2");
    // One that cannot be read any longer keeps its last good machine, and is a problem.
    let mut broken = machine("3", &json!({}));
    broken["spec"] = json!({});
    view.apply(Kind::FirstBootMachine, Change::Applied(item(&broken)));
    let now = view.inputs(None).unwrap();
    assert!(Arc::ptr_eq(&before.machines["n"], &now.machines["n"]));
    let place = "FirstBootMachine openshift-machine-config-operator/n";
    assert!(now.problems.iter().any(|problem| problem.place == place), "{:?}", now.problems);
    view.apply(Kind::FirstBootMachine, Change::Deleted("n".to_owned()));
    let now = view.inputs(None).unwrap();
    assert!(now.machines.is_empty() && now.machine_states.is_empty());
}

#[test]
fn a_cache_of_a_server_without_machines_is_enough() {
    let mut snapshot = read().snapshot();
    snapshot.objects.remove(&Kind::FirstBootMachine);
    let mut view = ClusterView::default();
    view.restore(snapshot);
    assert!(view.inputs(None).is_some());
}

#[test]
fn a_read_on_request_and_a_watch_can_each_be_behind_the_other() {
    let kind = Kind::MachineConfigPool;
    let at = |version: &str, name: &str, configuration: &str| {
        let mut pool = pool(name, configuration);
        pool["metadata"]["resourceVersion"] = json!(version);
        item(&pool)
    };
    let mut view = read();
    let live = |view: &mut ClusterView, version: &str, items: Vec<WatchedObject>| {
        view.read_live(vec![LiveList { kind, version: version.to_owned(), items }])
    };
    assert_eq!(served(&mut view), worker("one"));
    // The read is ahead: its inputs count once its config is there.
    assert!(live(&mut view, "20", vec![at("20", "worker", "two")]));
    assert_eq!(view.inputs(None).unwrap().live_reads, 0);
    assert_eq!(served(&mut view), worker("one"));
    fetch(&mut view, "two", Some(&config("two", "2")));
    assert_eq!(served(&mut view), worker("two"));
    assert_eq!(view.inputs(None).unwrap().live_reads, 1);
    // The watch comes later with what was before.
    view.apply(kind, Change::Applied(at("10", "worker", "one")));
    assert_eq!(served(&mut view), worker("two"));
    assert!(!live(&mut view, "25", vec![at("20", "worker", "two")]), "nothing is new");
    // The watch is ahead: the answer of a read that was under way changes nothing.
    view.apply(kind, Change::Applied(at("30", "worker", "three")));
    view.apply(kind, Change::Applied(at("31", "infra", "three")));
    fetch(&mut view, "three", Some(&config("three", "3")));
    let now = served(&mut view);
    assert_eq!(now.len(), 2);
    assert!(!live(&mut view, "25", vec![at("20", "worker", "two")]));
    assert_eq!(served(&mut view), now);
    // What a later list does not have is gone.
    assert!(live(&mut view, "40", vec![at("30", "worker", "three")]));
    assert_eq!(served(&mut view), worker("three"));
}

#[test]
fn a_pool_that_a_machine_asks_for_is_read_ahead_of_the_others() {
    let mut view = ClusterView::default();
    let pools = Kind::MachineConfigPool;
    assert!(view.await_pool("edge"), "its pool is not known");
    assert!(!view.await_pool("edge"), "it is under way");
    view.apply(pools, Change::ListBegins);
    view.apply(pools, Change::Listed(item(&pool("worker", "one"))));
    assert!(!view.await_pool("worker"), "the list has it already");
    view.pool_fetched(Some(item(&pool("edge", "two"))));
    assert_eq!(view.needed_configs(), ["one", "two"]);
    assert_eq!(view.hurried_configs(), ["two", "one"], "by the names of their pools");
    assert_eq!(view.hurried_configs(), [""; 0], "each once");
    view.configs.fetched("two", Some(item(&config("two", "1"))));
    assert!(view.inputs(None).is_none(), "what all pools share is not read");

    let shared = |kind: &&Kind| ![pools, Kind::MachineConfig].contains(kind);
    let mut requests = ["edge", "two"].len();
    for kind in Kind::ALL.iter().filter(shared) {
        list(&mut view, *kind, &[]);
        requests += 1;
    }
    assert_eq!(requests, Kind::ALL.len(), "one of each kind, however many objects there are");
    assert_eq!(served(&mut view), [("edge".to_owned(), Some("two".to_owned()))]);
    assert!(view.inputs(None).is_none(), "nothing that a machine waits for is new");
    view.configs.fetched("one", Some(item(&config("one", "1"))));
    let inputs = view.inputs(None).unwrap();
    assert!(inputs.is_partial && inputs.pools.len() == 2);

    view.apply(pools, Change::Listed(item(&pool("edge", "two"))));
    view.apply(pools, Change::ListEnds);
    list(&mut view, Kind::MachineConfig, &[]);
    let inputs = view.inputs(None).unwrap();
    assert!(!inputs.is_partial && inputs.pools.len() == 2);
    assert!(!view.await_pool("new"), "all are read");
}
