//! What the values say: each reaches the objects, and a slip is refused.

use std::fs;

use serde_json::{Value, json};

use super::{Helm, chart, of_kind, rendered};
use crate::support::in_repository;
use crate::support::manifests::yaml_documents;
use crate::support::server::binary;

pub(super) fn defaults() -> Value {
    let text = fs::read_to_string(chart().join("values.yaml")).expect("the values");
    yaml_documents(&text).remove(0)
}

/// `{"a": {"b": value}}` for `a.b`.
fn at(path: &str, value: &Value) -> Value {
    path.rsplit('.').fold(value.clone(), |value, key| json!({key: value}))
}

fn workload<'a>(objects: &'a [Value], name: &str) -> &'a Value {
    let is_workload = |it: &&Value| it["kind"] == "DaemonSet" || it["kind"] == "Deployment";
    let mut workloads = objects.iter().filter(is_workload);
    workloads.find(|it| it["metadata"]["name"] == name).expect("a workload")
}

fn container(workload: &Value) -> &Value {
    &workload["spec"]["template"]["spec"]["containers"][0]
}

#[test]
#[expect(clippy::too_many_lines, reason = "it is a table")]
fn a_misspelt_value_is_refused_in_one_line() {
    for (path, value, said) in [
        ("platfrom", json!("kubernetes"), "at '': additional properties 'platfrom' not allowed"),
        (
            "platform",
            json!("OpenShift"),
            "at '/platform': value must be one of 'kubernetes', 'openshift'",
        ),
        (
            "server.apiServerURL",
            json!("https://api:6443"),
            "at '/server': additional properties 'apiServerURL' not allowed",
        ),
        ("server.apiServerUrl", json!("api.example.com:6443"), "at '/server/apiServerUrl'"),
        ("server.replicas", json!("2"), "at '/server/replicas': got string, want integer"),
        ("server.replicas", json!(0), "at '/server/replicas'"),
        ("server.extraArgs", json!("--a=b"), "at '/server/extraArgs': got string, want array"),
        ("server.extraArgs", json!(["a=b"]), "at '/server/extraArgs/0'"),
        ("server.service.type", json!("Loadbalancer"), "at '/server/service/type'"),
        ("server.registryAuth", json!("pull-secret"), "at '/server/registryAuth'"),
        ("nodeCa.layout", json!("docker"), "at '/nodeCa/layout'"),
        ("nodeCA.enabled", json!(true), "additional properties 'nodeCA' not allowed"),
        ("access.server", json!("enforced"), "at '/access/server'"),
        ("access.server", json!(true), "at '/access/server'"),
        ("networkPolicy.podNetworks.ipv4", json!([]), "at '/networkPolicy/podNetworks/ipv4'"),
        ("networkPolicy.podNetworks.ipv4", json!(["10.0.0.0/33"]), "/podNetworks/ipv4/0'"),
        ("networkPolicy.podNetworks.ipv4", json!(["10.0.0.0/0"]), "/podNetworks/ipv4/0'"),
        ("networkPolicy.podNetworks.ipv4", json!(["10.256.0.0/16"]), "/podNetworks/ipv4/0'"),
        ("networkPolicy.podNetworks.ipv6", json!(["fd00::/129"]), "/podNetworks/ipv6/0'"),
        ("networkPolicy.podNetworks.ipv6", json!(["fd00::/0"]), "/podNetworks/ipv6/0'"),
        ("image.digest", json!("sha256:abc"), "at '/image/digest'"),
        (
            "image.pullSecrets",
            json!([{"name": "mine"}]),
            "at '/image/pullSecrets/0': got object, want string",
        ),
        ("monitoring", json!(true), "at '/monitoring': got boolean, want object"),
        ("manifests.secret_registry", json!("yes"), "at '/manifests/secret_registry'"),
        (
            "endpoints.oci_image_registry.auth.enabled",
            json!("true"),
            "at '/endpoints/oci_image_registry/auth/enabled'",
        ),
        (
            "endpoints.oci_image_registry.auth.machine-config-server",
            json!({"user": "u"}),
            "additional properties 'user' not allowed",
        ),
        ("endpoints.oci_image_registry.port.registry.default", json!("5000"), "got string, want"),
        (
            "endpoints.oci_image_registry.hosts.defualt",
            json!("r"),
            "'/endpoints/oci_image_registry/hosts'",
        ),
    ] {
        let error = rendered(&at(path, &value)).expect_err("a slip");
        let lines: Vec<&str> = error.lines().filter(|line| line.starts_with("- at ")).collect();
        let [line] = lines[..] else { panic!("{path}: {error}") };
        assert!(line.contains(said), "{path}: {line}");
    }
    // Of a password no more is told than its type.
    let path = "endpoints.oci_image_registry.auth.machine-config-server.password";
    let error = rendered(&at(path, &json!(987_654))).expect_err("a slip");
    assert!(
        error.contains("got number, want null or string") && !error.contains("987654"),
        "{error}"
    );
}

/// The paths of everything that is set by default.
fn paths(values: &Value, path: &str, found: &mut Vec<(String, Value)>) {
    for (key, value) in values.as_object().expect("a mapping") {
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        if value.as_object().is_some_and(|it| !it.is_empty()) {
            paths(value, &path, found);
        }
        found.push((path, value.clone()));
    }
}

#[test]
fn no_mapping_takes_a_key_that_means_nothing() {
    let mut all = Vec::new();
    paths(&defaults(), "", &mut all);
    // What an administrator names there is free.
    let free =
        ["labels", "annotations", "nodeSelector", "podAnnotations", "oci_image_registry.auth"];
    let free = |path: &str| {
        path == "secrets.oci_image_registry" || free.iter().any(|end| path.ends_with(end))
    };
    for (path, value) in all {
        if value.is_object() && !free(&path) {
            let error = rendered(&at(&format!("{path}.misspelt"), &json!("x"))).expect_err(&path);
            assert!(error.contains("'misspelt' not allowed"), "{path}: {error}");
        }
    }
}

#[test]
fn images_are_by_tag_or_by_digest() {
    let everything = json!({"controller": {"enabled": true}, "nodeCa": {"enabled": true}});
    let digest = format!("sha256:{}", "0a".repeat(32));
    let repository = "r.example.com:5000/mcs";
    for (image, expected) in [
        (
            json!({}),
            format!("registry.example.com/machine-config-server:{}", env!("CARGO_PKG_VERSION")),
        ),
        (json!({"repository": repository, "tag": "1.2"}), format!("{repository}:1.2")),
        (
            json!({"repository": repository, "tag": "1.2", "digest": digest}),
            format!("{repository}@{digest}"),
        ),
    ] {
        let mut values = everything.clone();
        values["image"] = image;
        values["image"]["pullPolicy"] = json!("Always");
        let objects = rendered(&values).expect("objects");
        for name in ["machine-config-server", "machine-config-server-controller", "node-ca"] {
            let container = container(workload(&objects, name));
            assert_eq!(container["image"], expected.as_str(), "{name}");
            assert_eq!(container["imagePullPolicy"], "Always", "{name}");
        }
    }
}

#[test]
fn each_workload_is_set_apart_from_the_others() {
    let of = |name: &str| {
        json!({
            "enabled": true, "extraArgs": [format!("--log-level={name}")],
            "resources": {"requests": {"memory": "1Gi"}}, "nodeSelector": {"for": name},
            "tolerations": [{"key": name}], "podAnnotations": {"example.com/for": name},
        })
    };
    let values =
        json!({"server": of("server"), "controller": of("controller"), "nodeCa": of("nodeCa")});
    let plain = json!({"controller": {"enabled": true}, "nodeCa": {"enabled": true}});
    let plain = rendered(&plain).expect("objects");
    let objects = rendered(&values).expect("objects");
    for (name, value) in [
        ("machine-config-server", "server"),
        ("machine-config-server-controller", "controller"),
        ("node-ca", "nodeCa"),
    ] {
        let (before, after) = (workload(&plain, name), workload(&objects, name));
        let mut expected = before.clone();
        let pod = &mut expected["spec"]["template"];
        pod["metadata"]["annotations"]["example.com/for"] = json!(value);
        pod["spec"]["nodeSelector"] = json!({"for": value});
        pod["spec"]["tolerations"] = json!([{"key": value}]);
        let container = &mut pod["spec"]["containers"][0];
        container["resources"] = json!({"requests": {"memory": "1Gi"}});
        let arguments = container["args"].as_array_mut().expect("arguments");
        arguments.push(json!(format!("--log-level={value}")));
        assert_eq!(*after, expected);
    }
    let replicas =
        json!({"server": {"replicas": 3}, "controller": {"enabled": true, "replicas": 1}});
    let objects = rendered(&replicas).expect("objects");
    assert_eq!(workload(&objects, "machine-config-server")["spec"]["replicas"], 3);
    assert_eq!(workload(&objects, "machine-config-server-controller")["spec"]["replicas"], 1);
    let objects = rendered(&json!({"platform": "openshift", "server": {"replicas": 3}}));
    let objects = objects.expect("objects");
    assert!(workload(&objects, "machine-config-server")["spec"]["replicas"].is_null());
}

#[test]
fn namespaces_are_made_where_that_is_asked_for_and_stay() {
    for (platform, count) in [("kubernetes", 6), ("openshift", 1)] {
        let mut values = json!({"platform": platform, "nodeCa": {"enabled": true}});
        let objects = rendered(&values).expect("objects");
        let namespaces = of_kind(&objects, "Namespace");
        assert_eq!(namespaces.len(), count, "{platform}");
        for namespace in namespaces {
            let annotations = &namespace["metadata"]["annotations"];
            assert_eq!(annotations["helm.sh/resource-policy"], "keep", "{namespace}");
        }
        values["namespaces"] = json!({"create": false});
        let objects = rendered(&values).expect("objects");
        assert!(of_kind(&objects, "Namespace").is_empty(), "{platform}");
    }
}

/// The arguments of a workload's container.
fn arguments(objects: &[Value], name: &str) -> String {
    container(workload(objects, name))["args"].to_string()
}

#[test]
fn what_has_one_place_is_set_there() {
    let values = json!({
        "server": {
            "registryAuth": "images/login", "metricsHost": "[::]", "oneLedger": true,
            "service": {"type": "LoadBalancer", "nodePort": 32_623, "annotations": {"a": "b"},
                        "loadBalancerSourceRanges": ["192.0.2.0/24"]},
        },
        "controller": {"enabled": true, "host": "mcs.example.com",
                       "secretTypes": {"restrict": true, "allowed": ["Opaque", "example.com/data"]}},
        "networkPolicy": {"enabled": true, "prometheusNamespaces": ["scrapes"],
                          "podNetworks": {"ipv4": ["10.9.0.0/16"], "ipv6": ["fd09::/64"]}},
        "monitoring": {"server": true, "labels": {"release": "prometheus"},
                       "runbookUrl": "https://books.example.org/mcs/",
                       "dashboard": {"enabled": true, "namespace": "grafana"}},
    });
    let objects = rendered(&values).expect("objects");
    let one = |kind: &str, name: &str| {
        let mut found =
            objects.iter().filter(|it| it["kind"] == kind && it["metadata"]["name"] == name);
        found.next().unwrap_or_else(|| panic!("{kind} {name}"))
    };

    let server = arguments(&objects, "machine-config-server");
    assert!(server.contains("--registry-auth=images/login"), "{server}");
    let role = one("Role", "machine-config-server-registry-auth");
    assert_eq!(role["metadata"]["namespace"], "images");
    assert_eq!(role["rules"][0]["resourceNames"], json!(["login"]));
    let binding = one("RoleBinding", "machine-config-server-registry-auth");
    assert_eq!(binding["metadata"]["namespace"], "images");
    let environment = container(workload(&objects, "machine-config-server"))["env"].to_string();
    assert!(environment.contains("[::]:9623"), "{environment}");
    assert!(environment.contains(super::API_SERVER), "{environment}");

    let service = one("Service", "machine-config-server");
    assert_eq!(service["spec"]["type"], "LoadBalancer");
    assert_eq!(service["spec"]["ports"][0]["nodePort"], 32_623);
    assert_eq!(service["spec"]["loadBalancerSourceRanges"], json!(["192.0.2.0/24"]));
    assert_eq!(service["metadata"]["annotations"], json!({"a": "b"}));

    let controller = arguments(&objects, "machine-config-server-controller");
    assert!(controller.contains("--host=mcs.example.com"), "{controller}");
    let policy = one("ValidatingAdmissionPolicy", "machine-config-server-controller-secret-types");
    let validation = &policy["spec"]["validations"][0];
    assert_eq!(validation["expression"], r#"object.type in ["Opaque", "example.com/data"]"#);
    let message = validation["messageExpression"].as_str().expect("a message");
    assert!(message.contains("Opaque and example.com/data alone"), "{message}");

    let policy = one("NetworkPolicy", "machine-config-server").to_string();
    assert!(
        policy.contains(r#""except":["10.9.0.0/16"]"#) && policy.contains(r#"["fd09::/64"]"#),
        "{policy}"
    );
    for policy in of_kind(&objects, "NetworkPolicy") {
        assert!(policy.to_string().contains(r#""values":["scrapes"]"#), "{policy}");
    }
    let on_openshift = json!({
        "platform": "openshift", "networkPolicy": {"prometheusNamespaces": ["scrapes"]},
    });
    let on_openshift = rendered(&on_openshift).expect("objects");
    let through = of_kind(&on_openshift, "NetworkPolicy");
    assert_eq!(through.len(), 2);
    for policy in through {
        assert!(policy.to_string().contains(r#""values":["scrapes"]"#), "{policy}");
    }

    monitoring_is_set(&one);
}

/// `one` finds an object by kind and name.
fn monitoring_is_set<'a>(one: &dyn Fn(&str, &str) -> &'a Value) {
    let rules = one("PrometheusRule", "machine-config-server");
    assert_eq!(rules["metadata"]["labels"]["release"], "prometheus");
    let text = rules.to_string();
    assert!(text.contains("https://books.example.org/mcs/runbook/alerts.html#"), "{text}");
    assert!(!text.contains("docs.example.com"), "{text}");
    assert_eq!(
        one("ServiceMonitor", "machine-config-server")["metadata"]["labels"]["release"],
        "prometheus"
    );
    let dashboard = one("ConfigMap", "machine-config-server-dashboard");
    assert_eq!(dashboard["metadata"]["namespace"], "grafana");
    assert_eq!(dashboard["metadata"]["labels"]["grafana_dashboard"], "1");
    let text = fs::read_to_string(in_repository("deploy/monitoring/dashboard.json"));
    assert_eq!(dashboard["data"]["machine-config-server.json"], text.expect("a file"));
}

#[test]
fn a_further_flag_takes_the_place_of_the_one_of_its_name() {
    let mut values = json!({
        "access": {"server": "audit", "controller": "audit"},
        "monitoring": {"server": true, "nodeCa": true},
        "server": {"oneLedger": true, "registryAuth": "images/login"},
        "controller": {"enabled": true, "host": "a.example.com",
                       "externalPair": {"trustBundle": "images/bundle"}},
        "issuer": {"enabled": true},
        "nodeCa": {"enabled": true, "registryAuth": "images/login"},
    });
    let parts = [
        ("server", "machine-config-server"),
        ("controller", "machine-config-server-controller"),
        ("issuer", "machine-config-server-issuer"),
        ("nodeCa", "node-ca"),
    ];
    let presets = rendered(&values).expect("objects");
    for (part, name) in parts {
        let presets = container(workload(&presets, name))["args"].as_array().expect("arguments");
        let flags = presets.iter().filter(|it| it.as_str().is_some_and(|it| it.starts_with("--")));
        values[part]["extraArgs"] = flags.cloned().collect();
    }
    let more = ["--allow-from=192.0.2.0/24", "--allow-from=2001:db8::/32", "--shutdown-delay=20s"];
    let server = values["server"]["extraArgs"].as_array_mut().expect("flags");
    server.retain(|it| *it != "--shutdown-delay=5s");
    server.extend(more.map(Value::from));

    let objects = rendered(&values).expect("objects");
    for (part, name) in parts {
        let presets = container(workload(&presets, name))["args"].as_array().expect("arguments");
        let mut expected = vec![presets[0].clone()];
        // A list, to which more is added.
        let host = Value::from("--host=a.example.com");
        expected.extend(presets.contains(&host).then_some(host));
        expected.extend(values[part]["extraArgs"].as_array().expect("flags").iter().cloned());
        let arguments = container(workload(&objects, name))["args"].as_array().expect("arguments");
        assert_eq!(*arguments, expected, "{part}");
        // The command takes all of them: it goes on to what comes after.
        let arguments = arguments.iter().filter_map(Value::as_str).map(|it| {
            it.replace("$(APISERVER_URL)", super::API_SERVER).replace("$(METRICS_ADDRESS)", "off")
        });
        let output = binary().args(arguments).arg("--no-such-flag").output();
        let said = output.expect("the built binary").stderr;
        let said = String::from_utf8_lossy(&said);
        assert!(said.contains("unknown flag --no-such-flag"), "{part}: {said}");
    }
}

#[test]
fn access_is_off_by_every_spelling_of_off() {
    for off in [json!("off"), json!(false)] {
        let values =
            json!({"access": {"server": off, "controller": off}, "controller": {"enabled": true}});
        let objects = rendered(&values).expect("objects");
        for name in ["machine-config-server", "machine-config-server-controller"] {
            assert!(!arguments(&objects, name).contains("--access"), "{name}");
        }
    }
}

#[test]
fn what_would_not_work_is_refused() {
    let service = |service: Value| json!({"server": {"service": service}});
    let pair = |pair: Value| json!({"controller": {"enabled": true, "externalPair": pair}});
    for (values, said) in [
        (
            json!({"server": {"oneLedger": true}}),
            "server.oneLedger: servers do not reach each other at a loopback address",
        ),
        (
            json!({"server": {"metricsHost": "127.0.0.1"}, "monitoring": {"server": true}}),
            "monitoring.server: Prometheus does not reach a loopback address",
        ),
        (
            service(json!({"type": "ClusterIP", "nodePort": 32_623})),
            "server.service.nodePort: a Service of type ClusterIP has no port on nodes",
        ),
        (
            service(json!({"type": "NodePort", "loadBalancerSourceRanges": ["192.0.2.0/24"]})),
            "server.service.loadBalancerSourceRanges goes with",
        ),
        (
            pair(json!({"secret": "namespace/secret"})),
            "controller.externalPair.secret: machines have to be told",
        ),
        (
            json!({"controller": {"enabled": true, "caFromIssuer": "ClusterIssuer/corporate",
                                  "externalPair": {"trustBundle": "namespace/bundle"}}}),
            "controller.caFromIssuer and controller.externalPair.trustBundle exclude each other",
        ),
    ] {
        let error = rendered(&values).expect_err("a fault");
        assert!(error.contains(said), "{values}: {error}");
    }
    let error = Helm::new().template(&chart(), &json!({}), &[]).expect_err("a fault");
    assert!(error.contains("server.apiServerUrl is missing"), "{error}");
    let no_server = json!({"server": {"enabled": false}});
    Helm::new().template(&chart(), &no_server, &[]).expect("nothing needs a URL");
}
