//! Releases on a real API server: installed, upgraded, rolled back and removed.

use serde_json::{Value, json};

use super::{Helm, RELEASE_NAMESPACE, chart, of_kind, rendered, with_url};
use crate::support::cluster::{Cluster, NAMESPACE};

const PASSWORD: &str = "Pa$$w0rd of the registry";
const NODE_CA: &str = "machine-config-server-node-ca";
const SECRET: &str = "machine-config-server-oci-image-registry";
const DEPLOYMENT: &str =
    "/apis/apps/v1/namespaces/openshift-machine-config-operator/deployments/machine-config-server";

/// A release by the name of `mcs`.
struct Release<'a> {
    helm: Helm,
    cluster: &'a Cluster,
}

impl<'a> Release<'a> {
    fn new(cluster: &'a Cluster) -> Self {
        Self { helm: Helm::new(), cluster }
    }

    fn run(&self, arguments: &[&str]) -> Result<String, String> {
        let kubeconfig = self.cluster.admin();
        let target =
            ["--kubeconfig", kubeconfig.to_str().expect("text"), "--namespace", RELEASE_NAMESPACE];
        let output = self.helm.run(&[arguments, &target[..]].concat());
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }

    fn say(&self, arguments: &[&str]) -> String {
        self.run(arguments).unwrap_or_else(|error| panic!("helm {arguments:?}: {error}"))
    }

    /// Neither what helm prints nor what it keeps as notes has the password; the manifest has it in the secret
    /// alone.
    fn tells_no_password(&self, notes: &str) {
        let kept = self.say(&["get", "notes", "mcs"]);
        let status = self.say(&["status", "mcs"]);
        for said in [notes, &kept, &status] {
            assert!(said.contains(SECRET), "{said}");
            let encoded = {
                use base64::Engine as _;
                base64::engine::general_purpose::STANDARD.encode(format!("puller:{PASSWORD}"))
            };
            assert!(!said.contains(PASSWORD) && !said.contains(&encoded), "{said}");
        }
        let manifest = self.say(&["get", "manifest", "mcs"]);
        assert!(!manifest.contains(PASSWORD));
        for document in manifest.split("\n---\n").filter(|it| it.contains("dockerconfigjson")) {
            assert!(document.contains("\nkind: Secret\n"), "{document}");
        }
    }

    /// `helm install` or `helm upgrade`; what it says.
    fn bring(&self, verb: &str, values: &Value, flags: &[&str]) -> Result<String, String> {
        let values = self.helm.values("values.json", &with_url(values));
        let chart = chart();
        let base = [verb, "mcs", chart.to_str().expect("text"), "-f", &values];
        self.run(&[&base, flags].concat())
    }
}

/// What there is of the release's, of any kind, as `KIND/NAMESPACE/NAME`.
fn left(cluster: &Cluster) -> Vec<String> {
    let kinds = cluster.kubectl(&["api-resources", "--verbs=list,delete", "-o", "name"]);
    let kinds: Vec<&str> = kinds.lines().filter(|kind| !kind.starts_with("events")).collect();
    let selector = "app.kubernetes.io/part-of=machine-config-server";
    let objects = cluster.kubectl(&["get", &kinds.join(","), "-A", "-l", selector, "-o", "json"]);
    let objects: Value = serde_json::from_str(&objects).expect("JSON");
    let objects = objects["items"].as_array().expect("a list").iter();
    // Nobody finishes the removal of a namespace here.
    let objects = objects.filter(|it| it["metadata"]["deletionTimestamp"].is_null());
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let named = objects.map(|it| {
        let metadata = &it["metadata"];
        [&it["kind"], &metadata["namespace"], &metadata["name"]].map(text).join("/")
    });
    let mut named: Vec<String> = named.collect();
    named.sort();
    named
}

/// As kubelet would be given it: what the API server makes of a workload's pod.
fn admitted(cluster: &Cluster, workload: &str, namespace: &str) -> Value {
    let mut pod = cluster.get(workload).expect("the workload")["spec"]["template"].take();
    pod["metadata"]["name"] = json!("a-pod");
    let path = format!("/api/v1/namespaces/{namespace}/pods?dryRun=All");
    let response = cluster.request("POST", &path, "application/json", &pod);
    assert_eq!(response.status, 201, "{response:?}");
    response.whole_json()
}

fn with_credential() -> Value {
    json!({
        "controller": {"enabled": true}, "nodeCa": {"enabled": true},
        "endpoints": {"oci_image_registry": {
            "auth": {"enabled": true,
                     "machine-config-server": {"username": "puller", "password": PASSWORD}},
            "host_fqdn_override": {"default": "registry.example.com"},
        }},
    })
}

/// The pods are let in where they are to run.
fn pods_pull_with_the_credential(cluster: &Cluster) {
    let controller = format!("{DEPLOYMENT}-controller");
    let node_ca = format!("/apis/apps/v1/namespaces/{NODE_CA}/daemonsets/node-ca");
    for (workload, namespace) in
        [(DEPLOYMENT, NAMESPACE), (&controller, NAMESPACE), (&node_ca, NODE_CA)]
    {
        let pod = admitted(cluster, workload, namespace);
        assert_eq!(pod["spec"]["imagePullSecrets"], json!([{"name": SECRET}]), "{workload}");
    }
}

#[test]
fn a_release_comes_changes_goes_back_and_goes() {
    let cluster = Cluster::empty();
    let release = Release::new(&cluster);
    let path = |kind: &str, namespace: &str, name: &str| {
        format!("/api/v1/namespaces/{namespace}/{kind}/{name}")
    };

    release.bring("install", &json!({}), &["--create-namespace"]).expect("a release");
    assert!(cluster.get(DEPLOYMENT).is_some());
    assert!(cluster.get(&path("secrets", NAMESPACE, SECRET)).is_none());
    let pools = "/apis/machineconfiguration.openshift.io/v1/machineconfigpools";
    assert!(cluster.get(pools).is_some(), "the definitions are there");
    let first = left(&cluster);

    // What others make there, beginning with the controller.
    let mine = json!({"metadata": {"name": "machine-config-server-ca"}, "type": "Opaque",
                      "stringData": {"tls.key": "a key"}});
    cluster.create(&format!("/api/v1/namespaces/{NAMESPACE}/secrets"), &mine);

    let notes = release.bring("upgrade", &with_credential(), &[]).expect("an upgrade");
    let account = cluster.get(&path("serviceaccounts", NODE_CA, "node-ca")).expect("an account");
    assert_eq!(account["imagePullSecrets"], json!([{"name": SECRET}]));
    for namespace in [NAMESPACE, NODE_CA] {
        let secret = cluster.get(&path("secrets", namespace, SECRET)).expect("the login");
        assert_eq!(secret["type"], "kubernetes.io/dockerconfigjson");
    }
    pods_pull_with_the_credential(&cluster);
    release.tells_no_password(&notes);

    // Another URL is in the pods at once.
    let mut values = with_credential();
    values["server"]["apiServerUrl"] = json!("https://other.example.com:6443");
    release.bring("upgrade", &values, &[]).expect("an upgrade");
    let template = &cluster.get(DEPLOYMENT).expect("the servers")["spec"]["template"];
    assert!(template.to_string().contains("https://other.example.com:6443"));

    release.say(&["rollback", "mcs", "1"]);
    let mut expected = first;
    expected.push(format!("Namespace//{NODE_CA}"));
    expected.sort();
    assert_eq!(left(&cluster), expected, "namespaces stay");
    let template = &cluster.get(DEPLOYMENT).expect("the servers")["spec"]["template"];
    assert!(template.to_string().contains(super::API_SERVER));
    assert!(cluster.get(&path("secrets", NAMESPACE, SECRET)).is_none());

    release.say(&["uninstall", "mcs"]);
    let left = left(&cluster);
    let count = |kind: &str| left.iter().filter(|it| it.starts_with(kind)).count();
    assert_eq!((count("Namespace//"), count("CustomResourceDefinition//")), (6, 6), "{left:?}");
    assert_eq!(left.len(), 12, "{left:?}");
    assert!(cluster.get(&path("secrets", NAMESPACE, "machine-config-server-ca")).is_some());
    assert!(cluster.get(pools).is_some(), "the pools are not helm's to delete");
    let records = cluster.get(&format!("/api/v1/namespaces/{RELEASE_NAMESPACE}/secrets"));
    assert_eq!(records.expect("a list")["items"], json!([]));

    // And comes again, into what was left.
    release.bring("install", &json!({}), &[]).expect("a release");
    assert!(cluster.get(DEPLOYMENT).is_some());
}

#[test]
fn the_api_server_takes_each_type_of_service_and_every_pod_network() {
    let cluster = Cluster::empty();
    cluster.create("/api/v1/namespaces", &json!({"metadata": {"name": NAMESPACE}}));
    let dry_run = |object: &Value| {
        let group = match object["kind"].as_str() {
            Some("Service") => "/api/v1/namespaces/NAMESPACE/services",
            _ => "/apis/networking.k8s.io/v1/namespaces/NAMESPACE/networkpolicies",
        };
        let path = format!("{}?dryRun=All", group.replace("NAMESPACE", NAMESPACE));
        let response = cluster.request("POST", &path, "application/json", object);
        assert_eq!(response.status, 201, "{object}: {response:?}");
    };
    for service in [
        json!({"type": "ClusterIP"}),
        json!({"type": "NodePort", "nodePort": 32_623}),
        json!({"type": "LoadBalancer", "nodePort": 32_623,
               "loadBalancerSourceRanges": ["192.0.2.0/24"]}),
    ] {
        for enabled in [false, true] {
            let networks = json!({"ipv4": ["128.0.0.0/1", "10.244.255.255/32"],
                                  "ipv6": ["8000::/1", "fd00:10:244::1/128"]});
            let values = json!({
                "server": {"service": service},
                "networkPolicy": {"enabled": enabled, "podNetworks": networks},
            });
            let objects = rendered(&values).expect("objects");
            of_kind(&objects, "NetworkPolicy").into_iter().for_each(dry_run);
            of_kind(&objects, "Service").into_iter().for_each(dry_run);
        }
    }
}

#[test]
fn the_releases_own_namespace_may_be_the_servers() {
    let cluster = Cluster::empty();
    let helm = Helm::new();
    let values = helm.values("values.json", &with_url(&json!({})));
    let (chart, kubeconfig) = (chart(), cluster.admin());
    helm.say(&[
        "install",
        "mcs",
        chart.to_str().expect("text"),
        "-f",
        &values,
        "--kubeconfig",
        kubeconfig.to_str().expect("text"),
        "--namespace",
        NAMESPACE,
        "--create-namespace",
    ]);
    assert!(cluster.get(DEPLOYMENT).is_some());
}

#[test]
fn on_openshift_the_operators_objects_are_taken_over_and_left_behind() {
    let cluster = Cluster::empty();
    let definitions = crate::support::in_repository("deploy/kubernetes/crds");
    cluster.apply(&["-f", definitions.to_str().expect("text")]);
    // OpenShift's own say more than the chart's would.
    let definition = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/\
                      machineconfigpools.machineconfiguration.openshift.io";
    let names = json!({"spec": {"names": {"shortNames": ["mcp", "of-openshift"]}}});
    cluster.patch(definition, &names);
    let stored = |cluster: &Cluster| {
        let mut definition = cluster.get(definition).expect("a definition");
        definition["spec"].take()
    };
    let before = stored(&cluster);
    for namespace in
        [NAMESPACE, "openshift-image-registry", "openshift-config-managed", RELEASE_NAMESPACE]
    {
        cluster.create("/api/v1/namespaces", &json!({"metadata": {"name": namespace}}));
    }
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount",
                         "metadata": {"name": "machine-config-server"}});
    cluster.create(&format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts"), &account);
    let labels = json!({"k8s-app": "machine-config-server"});
    let theirs = json!({
        "metadata": {"name": "machine-config-server"},
        "spec": {"selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels},
            "spec": {"containers": [{"name": "machine-config-server", "image": "release"}]},
        }},
    });
    let daemon_sets = format!("/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets");
    cluster.create(&daemon_sets, &theirs);

    let release = Release::new(&cluster);
    let values = json!({"platform": "openshift"});
    let error = release.bring("install", &values, &[]).expect_err("they are another owner's");
    assert!(error.contains("machine-config-server"), "{error}");
    let flags = ["--take-ownership", "--force-conflicts"];
    release.bring("install", &values, &flags).expect("a release");
    let path = format!("{daemon_sets}/machine-config-server");
    let image = |cluster: &Cluster| {
        let daemon_set = cluster.get(&path).expect("the servers");
        daemon_set["spec"]["template"]["spec"]["containers"][0]["image"].clone()
    };
    assert_ne!(image(&cluster), "release");
    assert_eq!(stored(&cluster), before, "the definitions are OpenShift's");

    // The operator comes back, and then the release goes: what is the operator's stays as it is.
    let container = json!([{"name": "machine-config-server", "image": "release"}]);
    cluster.patch(&path, &json!({"spec": {"template": {"spec": {"containers": container}}}}));
    release.say(&["uninstall", "mcs"]);
    assert_eq!(image(&cluster), "release");
    let kinds = ["ClusterRole/", "ClusterRoleBinding/"].map(str::to_owned);
    let namespaced = ["DaemonSet", "ServiceAccount"].map(|kind| format!("{kind}/{NAMESPACE}"));
    let stays = kinds.into_iter().chain(namespaced).map(|it| it + "/machine-config-server");
    assert_eq!(left(&cluster), stays.collect::<Vec<_>>());
}
