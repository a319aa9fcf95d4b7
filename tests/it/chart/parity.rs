//! Chart and kustomize give the same objects for the same choices.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde_json::{Value, json};

use super::{API_SERVER, Helm, chart, with_url};
use crate::support::cluster::kustomized;
use crate::support::in_repository;

/// What helm puts onto objects for itself, and kustomize does not.
const HELMS_LABELS: [&str; 2] = ["app.kubernetes.io/managed-by", "helm.sh/chart"];
const HELMS_ANNOTATION: &str = "helm.sh/resource-policy";

/// Values, and the overlays that say the same: a folder of `deploy/` with components.
struct Choice {
    values: Value,
    overlays: &'static [(&'static str, &'static [&'static str])],
}

fn choice(values: Value, overlays: &'static [(&'static str, &'static [&'static str])]) -> Choice {
    Choice { values, overlays }
}

fn without_server(mut values: Value) -> Value {
    values["platform"] = json!("openshift");
    values["server"] = json!({"enabled": false});
    values
}

/// The controller alone, with what is put on top of it.
fn choices_of_the_controller() -> [Choice; 6] {
    let trust = "openshift-machine-config-operator/machine-config-server-trust";
    [
        choice(
            without_server(json!({
                "controller": {"enabled": true, "externalPair": {"trustBundle": trust}},
            })),
            &[("controller", &["external-pair"])],
        ),
        choice(
            without_server(json!({
                "controller": {"enabled": true, "secretTypes": {"restrict": true}},
            })),
            &[("controller", &["secret-types"])],
        ),
        choice(
            without_server(json!({
                "controller": {"enabled": true, "caFromIssuer": "ClusterIssuer/corporate"},
            })),
            &[("controller", &["ca-from-issuer"])],
        ),
        choice(
            without_server(json!({"controller": {"enabled": true, "renderPools": true}})),
            &[("controller", &["render-pools"])],
        ),
        choice(
            without_server(json!({"controller": {"enabled": true}, "issuer": {"enabled": true}})),
            &[("controller", &["issuer"])],
        ),
        choice(
            without_server(json!({"controller": {"enabled": true}, "issuer": {"enabled": true},
                                  "monitoring": {"issuer": true}})),
            &[("controller", &["issuer", "issuer-monitoring"])],
        ),
    ]
}

/// The port without TLS, which the DaemonSet has always.
fn choices_of_the_insecure_port() -> [Choice; 2] {
    let credential = "openshift-config/pull-secret";
    [
        choice(
            json!({"server": {"insecurePort": true, "registryAuth": credential},
                   "monitoring": {"server": true}}),
            &[("kubernetes", &["registry-auth", "monitoring", "insecure-port"])],
        ),
        choice(
            json!({"platform": "openshift", "server": {"insecurePort": true}}),
            &[("openshift", &["insecure-port"])],
        ),
    ]
}

fn all_choices() -> impl Iterator<Item = Choice> {
    choices()
        .into_iter()
        .chain(choices_of_many_parts())
        .chain(choices_of_the_controller())
        .chain(choices_of_the_insecure_port())
}

const CREDENTIAL: &str = "openshift-config/pull-secret";

fn choices() -> Vec<Choice> {
    vec![
        choice(json!({}), &[("kubernetes", &[])]),
        choice(json!({"platform": "openshift"}), &[("openshift", &[])]),
        choice(
            json!({"controller": {"enabled": true}}),
            &[("kubernetes", &[]), ("controller", &[])],
        ),
        choice(without_server(json!({"controller": {"enabled": true}})), &[("controller", &[])]),
        choice(without_server(json!({"nodeCa": {"enabled": true}})), &[("node-ca", &[])]),
        choice(
            without_server(json!({"nodeCa": {"enabled": true, "layout": "containerd"}})),
            &[("node-ca", &["containerd"])],
        ),
        choice(
            without_server(json!({
                "nodeCa": {"enabled": true, "layout": "containerd", "registryAuth": CREDENTIAL},
                "monitoring": {"nodeCa": true},
            })),
            &[("node-ca", &["containerd", "node-registry-auth", "node-ca-monitoring"])],
        ),
        choice(
            json!({"server": {"failureReports": true}}),
            &[("kubernetes", &["failure-reports"])],
        ),
        choice(
            json!({"controller": {"enabled": true}, "machines": {"enabled": true}}),
            &[
                ("kubernetes", &["first-boot-machines"]),
                ("controller", &["first-boot-machines-controller"]),
            ],
        ),
        choice(json!({"approval": {"restrict": true}}), &[("kubernetes", &["approval"])]),
        choice(json!({"monitoring": {"server": true}}), &[("kubernetes", &["monitoring"])]),
        choice(
            json!({"platform": "openshift", "monitoring": {"server": true},
                   "server": {"oneLedger": true}}),
            &[("openshift", &["monitoring", "one-ledger"])],
        ),
        choice(
            without_server(json!({
                "controller": {"enabled": true}, "monitoring": {"controller": true},
            })),
            &[("controller", &["controller-monitoring"])],
        ),
        choice(
            json!({"access": {"server": "audit", "controller": "audit"},
                   "controller": {"enabled": true}}),
            &[("kubernetes", &["access"]), ("controller", &["access"])],
        ),
        choice(
            json!({"platform": "openshift", "access": {"server": "enforce", "controller": "audit"},
                   "controller": {"enabled": true}}),
            &[("openshift", &["access-enforced"]), ("controller", &["access"])],
        ),
        choice(
            json!({"server": {"registryAuth": CREDENTIAL}}),
            &[("kubernetes", &["registry-auth"])],
        ),
    ]
}

fn choices_of_many_parts() -> Vec<Choice> {
    let pull = "machine-config-server-oci-image-registry";
    vec![
        choice(
            json!({"networkPolicy": {"enabled": true}, "controller": {"enabled": true},
                   "issuer": {"enabled": true}}),
            &[("kubernetes", &["network-policy"]), ("controller", &["issuer"])],
        ),
        choice(
            json!({"image": {"pullSecrets": [pull]}, "controller": {"enabled": true},
                   "nodeCa": {"enabled": true}}),
            &[
                ("kubernetes", &["image-pull-secret"]),
                ("controller", &["image-pull-secret"]),
                ("node-ca", &["image-pull-secret"]),
            ],
        ),
        choice(
            json!({
                "access": {"server": "enforce", "controller": "enforce"},
                "networkPolicy": {"enabled": true},
                "monitoring": {"server": true, "controller": true, "issuer": true, "nodeCa": true},
                "server": {"registryAuth": CREDENTIAL, "oneLedger": true},
                "controller": {"enabled": true, "secretTypes": {"restrict": true}},
                "issuer": {"enabled": true},
                "nodeCa": {"enabled": true, "registryAuth": CREDENTIAL},
            }),
            &[
                (
                    "kubernetes",
                    &[
                        "registry-auth",
                        "access-enforced",
                        "monitoring",
                        "one-ledger",
                        "network-policy",
                    ],
                ),
                (
                    "controller",
                    &[
                        "access-enforced",
                        "controller-monitoring",
                        "secret-types",
                        "issuer",
                        "issuer-monitoring",
                    ],
                ),
                ("node-ca", &["node-registry-auth", "node-ca-monitoring"]),
            ],
        ),
    ]
}

/// Kind, namespace and name.
type Key = [String; 3];

fn by_key(objects: Vec<Value>) -> BTreeMap<Key, Value> {
    let mut keyed = BTreeMap::new();
    for object in objects {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let metadata = &object["metadata"];
        let key = [&object["kind"], &metadata["namespace"], &metadata["name"]].map(text);
        let twice = keyed.insert(key.clone(), object);
        assert!(twice.is_none(), "{key:?} is there twice");
    }
    keyed
}

/// The containers of an object's pods.
fn containers(object: &mut Value) -> impl Iterator<Item = &mut Value> {
    let containers = object.pointer_mut("/spec/template/spec/containers");
    containers.and_then(Value::as_array_mut).into_iter().flatten()
}

/// Kustomize's object with what an administrator patches, and the chart has a value for.
fn patched(mut object: Value) -> Value {
    for container in containers(&mut object) {
        let variables = container.get_mut("env").and_then(Value::as_array_mut);
        for variable in variables.into_iter().flatten() {
            if variable["name"] == "APISERVER_URL" {
                variable["value"] = json!(API_SERVER);
            }
        }
    }
    object
}

/// Variables and ports are known by their names, and a patch moves them.
fn with_sorted_names(mut object: Value) -> Value {
    for container in containers(&mut object) {
        for field in ["env", "ports"] {
            if let Some(named) = container.get_mut(field).and_then(Value::as_array_mut) {
                named.sort_by_key(|one| one["name"].to_string());
            }
        }
    }
    object
}

/// The chart's object without what helm alone puts there.
fn without_helms_own(mut object: Value) -> Value {
    let drop_empty = |object: &mut Value, field: &str| {
        let metadata = object["metadata"].as_object_mut().expect("metadata");
        if metadata
            .get(field)
            .is_some_and(|it| it.as_object().is_none_or(serde_json::Map::is_empty))
        {
            metadata.remove(field);
        }
    };
    if let Some(labels) = object["metadata"]["labels"].as_object_mut() {
        for label in HELMS_LABELS {
            assert!(labels.remove(label).is_some(), "no {label}");
        }
    }
    if let Some(annotations) = object["metadata"]["annotations"].as_object_mut() {
        annotations.remove(HELMS_ANNOTATION);
    }
    drop_empty(&mut object, "labels");
    drop_empty(&mut object, "annotations");
    object
}

#[test]
fn chart_and_kustomize_give_the_same_objects_for_the_same_choices() {
    let helm = Helm::new();
    for Choice { values, overlays } in all_choices() {
        let ours = helm.template(&chart(), &with_url(&values), &[]);
        let ours = by_key(ours.unwrap_or_else(|error| panic!("{values}: {error}")));
        let theirs = overlays.iter().flat_map(|(base, components)| {
            let components: Vec<_> =
                components.iter().map(|it| format!("deploy/components/{it}")).collect();
            let components: Vec<_> = components.iter().map(String::as_str).collect();
            kustomized(&format!("deploy/{base}"), &components)
        });
        let mut theirs: Vec<Value> = theirs.collect();
        let has_policies = theirs.iter().any(|it| it["kind"] == "NetworkPolicy");
        // Without the servers, their file is applied.
        if values["platform"] == "openshift" && !has_policies {
            let servers = kustomized("deploy/openshift", &[]).into_iter();
            theirs.extend(servers.filter(|it| it["kind"] == "NetworkPolicy"));
        }
        let theirs = by_key(theirs.into_iter().map(patched).map(with_sorted_names).collect());
        assert_eq!(
            ours.keys().collect::<BTreeSet<_>>(),
            theirs.keys().collect::<BTreeSet<_>>(),
            "{values}"
        );
        for (key, object) in ours {
            let theirs = theirs.get(&key).expect("a key of both");
            let object = with_sorted_names(without_helms_own(object));
            assert_eq!(object, *theirs, "{key:?} with {values}");
        }
    }
}

#[test]
fn every_component_is_a_choice_of_the_chart() {
    let there = fs::read_dir(in_repository("deploy/components")).expect("the components");
    let there: BTreeSet<String> = there
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("text"))
        .collect();
    let choices: Vec<_> = all_choices().collect();
    let compared = choices.iter().flat_map(|choice| choice.overlays);
    let compared = compared.flat_map(|(_, components)| *components).map(|it| (*it).to_owned());
    assert_eq!(there, compared.collect::<BTreeSet<_>>());
}
