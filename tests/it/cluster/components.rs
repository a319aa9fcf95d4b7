//! The components, put together as an administrator does: whose their objects are, and who gets configs.

use std::ffi::OsStr;
use std::fs;

use serde_json::{Value, json};

use crate::support::cluster::{Cluster, NAMESPACE, kustomized};
use crate::support::in_repository;
use crate::support::manifests::{files, yaml_documents};
use crate::support::server::binary;

const ACCESS: &str = "deploy/components/access";
const ENFORCED: &str = "deploy/components/access-enforced";
const NETWORK_POLICY: &str = "deploy/components/network-policy";
const INSECURE_PORT: &str = "deploy/components/insecure-port";
const MONITORING: &str = "deploy/components/monitoring";

fn workload(objects: &[Value]) -> &Value {
    let is_workload = |it: &&Value| it["kind"] == "DaemonSet" || it["kind"] == "Deployment";
    objects.iter().find(is_workload).expect("a workload")
}

fn container(objects: &[Value]) -> &Value {
    &workload(objects)["spec"]["template"]["spec"]["containers"][0]
}

/// Whose a component's objects are: what they have as `app.kubernetes.io/name`, by which they are deleted.
fn owner(component: &str, object: &Value) -> String {
    let of = match component {
        "approval"
        | "failure-reports"
        | "first-boot-machines"
        | "monitoring"
        | "one-ledger"
        | "registry-auth" => "",
        "ca-from-issuer"
        | "controller-monitoring"
        | "external-pair"
        | "first-boot-machines-controller"
        | "render-pools"
        | "secret-types" => "-controller",
        "node-ca-monitoring" | "node-registry-auth" => "-node-ca",
        // One for each.
        "network-policy" => return object["metadata"]["name"].as_str().expect("a name").to_owned(),
        issuer if issuer.starts_with("issuer") => "-issuer",
        other => panic!("whose are the objects of {other}?"),
    };
    format!("machine-config-server{of}")
}

#[test]
fn every_object_of_a_component_says_whose_it_is() {
    let directory = in_repository("deploy/components");
    let manifests = files(&directory).into_iter().filter(|it| !it.ends_with("kustomization.yaml"));
    let mut seen = 0;
    for file in manifests {
        let component = file.iter().next().and_then(OsStr::to_str).expect("a folder");
        let text = fs::read_to_string(directory.join(&file)).expect("a manifest");
        for object in yaml_documents(&text) {
            let labels = &object["metadata"]["labels"];
            let (kind, file) = (&object["kind"], file.display());
            let owner = owner(component, &object);
            assert_eq!(labels["app.kubernetes.io/name"], owner.as_str(), "{kind} of {file}");
            let part_of = &labels["app.kubernetes.io/part-of"];
            assert_eq!(*part_of, "machine-config-server", "{kind} of {file}");
            seen += 1;
        }
    }
    assert!(seen > 30, "{seen}");
}

#[test]
fn access_is_restricted_by_servers_and_controller_alike() {
    for base in ["openshift", "kubernetes", "controller"] {
        for (component, flag) in [(ACCESS, "--access=audit"), (ENFORCED, "--access=enforce")] {
            let objects = kustomized(&format!("deploy/{base}"), &[component]);
            let arguments = container(&objects)["args"].as_array().expect("arguments");
            let arguments: Vec<&str> = arguments.iter().filter_map(Value::as_str).collect();
            assert!(arguments.contains(&flag), "{base}: {arguments:?}");
            // The command has such a flag, and takes this value: it goes on to what comes after.
            let arguments = arguments.iter().map(|it| {
                it.replace("$(APISERVER_URL)", "https://api:6443")
                    .replace("$(METRICS_ADDRESS)", "off")
            });
            let output = binary().args(arguments).arg("--no-such-flag").output();
            let said = output.expect("the built binary").stderr;
            let said = String::from_utf8_lossy(&said);
            assert!(said.contains("unknown flag --no-such-flag"), "{base}: {said}");
        }
    }
}

#[test]
fn no_budget_holds_up_a_drain_for_ever() {
    for (base, components) in
        [("kubernetes", &[][..]), ("controller", &["deploy/components/issuer"][..])]
    {
        let objects = kustomized(&format!("deploy/{base}"), components);
        let of_kind = |kind: &'static str| objects.iter().filter(move |it| it["kind"] == kind);
        for deployment in of_kind("Deployment") {
            let name = &deployment["metadata"]["name"];
            let budget = of_kind("PodDisruptionBudget").find(|it| it["metadata"]["name"] == *name);
            let expected = json!({
                "maxUnavailable": 1, "unhealthyPodEvictionPolicy": "AlwaysAllow",
                "selector": deployment["spec"]["selector"],
            });
            assert_eq!(budget.expect("a budget")["spec"], expected, "{name}");
        }
    }
}

#[test]
fn the_port_without_tls_is_opened_in_pods_and_service() {
    let objects = kustomized("deploy/kubernetes", &[INSECURE_PORT]);
    let arguments = container(&objects)["args"].as_array().expect("arguments");
    assert!(arguments.contains(&json!("--insecure-port=22624")), "{arguments:?}");
    assert!(!arguments.contains(&json!("--insecure-port=0")), "{arguments:?}");
    let opened = json!({"name": "http", "containerPort": 22624});
    assert!(container(&objects)["ports"].as_array().expect("ports").contains(&opened));
    let service = objects.iter().find(|it| it["kind"] == "Service").expect("the service");
    let opened = json!({"name": "http", "port": 22624, "targetPort": "http"});
    assert!(service["spec"]["ports"].as_array().expect("ports").contains(&opened));
}

#[test]
fn the_policies_cover_each_port_of_the_pods() {
    let mut servers = kustomized("deploy/kubernetes", &[MONITORING, NETWORK_POLICY, INSECURE_PORT]);
    let service = |objects: &[Value]| {
        let is_it = |it: &&Value| it["kind"] == "Service" && it["spec"]["type"] == "LoadBalancer";
        objects.iter().find(is_it).expect("the service")["spec"].clone()
    };
    assert_eq!(service(&servers)["externalTrafficPolicy"], "Local");
    let mut controllers = kustomized("deploy/controller", &["deploy/components/issuer"]);
    let is_issuer = |it: &mut Value| it["metadata"]["name"] == "machine-config-server-issuer";
    let issuers: Vec<Value> = controllers.extract_if(.., is_issuer).collect();
    let policies: Vec<Value> = servers.extract_if(.., |it| it["kind"] == "NetworkPolicy").collect();
    assert_eq!(policies.len(), 3);
    for objects in [&servers, &controllers, &issuers] {
        let labels = &workload(objects)["spec"]["template"]["metadata"]["labels"];
        let selects = |policy: &&Value| {
            let selector =
                policy["spec"]["podSelector"]["matchLabels"].as_object().expect("labels");
            selector.iter().all(|(label, value)| labels[label] == *value)
        };
        let policies: Vec<&Value> = policies.iter().filter(selects).collect();
        let [policy] = policies[..] else { panic!("{policies:?}") };
        assert_eq!(policy["metadata"]["namespace"], workload(objects)["metadata"]["namespace"]);
        let ports = container(objects)["ports"].as_array().expect("ports").iter();
        let mut ports: Vec<&Value> = ports.map(|port| &port["containerPort"]).collect();
        let rules = policy["spec"]["ingress"].as_array().expect("rules");
        for rule in rules {
            let of_rule = rule["ports"].as_array().expect("ports").iter();
            let of_rule: Vec<&Value> = of_rule.map(|it| &it["port"]).collect();
            ports.retain(|it| !of_rule.contains(it));
            let for_machines = of_rule == [&json!(22623), &json!(22624)];
            // Nobody's port is for everybody.
            let from = rule["from"].as_array().expect("a source");
            assert!(!from.is_empty());
            for from in from {
                let has_exception = from["ipBlock"]["except"].is_array();
                assert!(has_exception || from["ipBlock"].is_null(), "{of_rule:?}: {from}");
                assert_eq!(from["ipBlock"].is_object(), for_machines, "{of_rule:?}: {from}");
            }
        }
        assert!(ports.is_empty(), "nothing is said of {ports:?}");
    }
}

/// The machine config operator denies all pods of its namespace all connections, in both directions.
#[test]
fn pods_on_openshift_are_let_through_a_policy_that_denies_everything() {
    let servers = kustomized("deploy/openshift", &[]);
    let pod = |objects: &[Value]| workload(objects)["spec"]["template"].clone();
    assert_eq!(pod(&servers)["spec"]["hostNetwork"], true, "no policy applies to the servers");
    let is_policy = |it: &&Value| it["kind"] == "NetworkPolicy";
    let policies: Vec<&Value> = servers.iter().filter(is_policy).collect();
    let mut controllers = kustomized("deploy/controller", &["deploy/components/issuer"]);
    let is_issuer = |it: &mut Value| it["metadata"]["name"] == "machine-config-server-issuer";
    let issuers: Vec<Value> = controllers.extract_if(.., is_issuer).collect();
    assert_eq!(policies.len(), 2);
    for objects in [&controllers, &issuers] {
        let labels = &pod(objects)["metadata"]["labels"];
        let selects = |policy: &&&Value| {
            let selector = policy["spec"]["podSelector"]["matchLabels"].as_object();
            selector.expect("labels").iter().all(|(label, value)| labels[label] == *value)
        };
        let found: Vec<_> = policies.iter().filter(selects).collect();
        let [policy] = found[..] else { panic!("{found:?}") };
        let spec = &policy["spec"];
        assert_eq!(spec["policyTypes"], json!(["Ingress", "Egress"]));
        assert_eq!(spec["egress"], json!([{}]), "the API server can be anywhere");
        let ports = container(objects)["ports"].as_array().expect("ports").iter();
        let ports: Vec<Value> = ports.map(|port| json!({"port": port["containerPort"]})).collect();
        assert_eq!(spec["ingress"][0]["ports"], json!(ports));
        assert!(spec["ingress"][0]["from"].is_array() && spec["ingress"][1].is_null(), "{spec}");
        assert_eq!(policy["metadata"]["namespace"], workload(objects)["metadata"]["namespace"]);
    }
}

#[test]
fn the_api_server_takes_the_policies() {
    let cluster = Cluster::openshift();
    cluster.apply_overlay("deploy/openshift", &[NETWORK_POLICY, ACCESS]);
    let ours = ["", "-controller", "-issuer"].map(|part| format!("machine-config-server{part}"));
    let through = ["controller", "issuer"].map(|it| format!("allow-machine-config-server-{it}"));
    for name in ours.into_iter().chain(through) {
        let path =
            format!("/apis/networking.k8s.io/v1/namespaces/{NAMESPACE}/networkpolicies/{name}");
        assert!(cluster.get(&path).is_some(), "{name}");
    }
}
