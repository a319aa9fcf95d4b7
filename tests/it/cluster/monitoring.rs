//! The components for monitoring, put together as an administrator does.

use serde_json::Value;

use crate::support::cluster::kustomized;

fn one<'a>(objects: &'a [Value], kind: &str) -> &'a Value {
    let mut found = objects.iter().filter(|object| object["kind"] == kind);
    let object = found.next().unwrap_or_else(|| panic!("no {kind}"));
    assert!(found.next().is_none(), "more than one {kind}");
    object
}

/// The metrics' port of a workload's only container.
fn metrics_port(workload: &Value) -> &Value {
    let container = &workload["spec"]["template"]["spec"]["containers"][0];
    let mut ports = container["ports"].as_array().expect("ports").iter();
    let port = ports.find(|port| port["name"] == "metrics").expect("a port for metrics");
    &port["containerPort"]
}

#[test]
fn each_component_has_prometheus_find_the_pods_that_it_fits() {
    for (base, components, workload, monitor, port) in [
        ("openshift", &["monitoring"][..], "machine-config-server", "ServiceMonitor", 9623),
        ("kubernetes", &["monitoring"], "machine-config-server", "ServiceMonitor", 9623),
        (
            "controller",
            &["controller-monitoring"],
            "machine-config-server-controller",
            "ServiceMonitor",
            9624,
        ),
        (
            "controller",
            &["issuer", "issuer-monitoring"],
            "machine-config-server-issuer",
            "ServiceMonitor",
            9626,
        ),
        ("node-ca", &["node-ca-monitoring"], "node-ca", "PodMonitor", 9625),
    ] {
        let components: Vec<_> =
            components.iter().map(|it| format!("deploy/components/{it}")).collect();
        let components: Vec<_> = components.iter().map(String::as_str).collect();
        let objects = kustomized(&format!("deploy/{base}"), &components);
        let is_workload = |it: &&Value| it["kind"] == "DaemonSet" || it["kind"] == "Deployment";
        let mut workloads = objects.iter().filter(is_workload);
        let workload = workloads.find(|it| it["metadata"]["name"] == workload).expect("a workload");
        assert_eq!(*metrics_port(workload), port, "{base}");
        let pod = &workload["spec"]["template"]["metadata"]["labels"];
        let monitor = one(&objects, monitor);
        assert_eq!(monitor["metadata"]["namespace"], workload["metadata"]["namespace"], "{base}");
        // The pods, or the Service that names the pods; and the label that becomes the job's name.
        let services = objects.iter().filter(|object| object["kind"] == "Service");
        let service = services.into_iter().find(|it| it["spec"]["clusterIP"] == "None");
        let labels = service.map_or(pod, |service| &service["metadata"]["labels"]);
        for (label, value) in
            monitor["spec"]["selector"]["matchLabels"].as_object().expect("labels")
        {
            assert_eq!(labels[label], *value, "{base}");
        }
        if let Some(service) = service {
            for (label, value) in service["spec"]["selector"].as_object().expect("labels") {
                assert_eq!(pod[label], *value, "{base}");
            }
        }
        let job = &labels[monitor["spec"]["jobLabel"].as_str().expect("a label")];
        let rules = one(&objects, "PrometheusRule");
        assert!(
            rules.to_string().contains(&format!("job=\\\"{}\\\"", job.as_str().expect("a job")))
        );
    }
}

#[test]
fn servers_with_one_ledger_find_each_other_by_a_name() {
    for (base, workload, dns) in [
        // On the host's network nobody else knows that name.
        ("openshift", "DaemonSet", Some("ClusterFirstWithHostNet")),
        ("kubernetes", "Deployment", None),
    ] {
        let alone = kustomized(&format!("deploy/{base}"), &["deploy/components/monitoring"]);
        let pod = |workload: &Value| workload["spec"]["template"]["spec"].clone();
        assert!(pod(one(&alone, workload))["dnsPolicy"].is_null(), "{base}");
        let components = ["deploy/components/monitoring", "deploy/components/one-ledger"];
        let objects = kustomized(&format!("deploy/{base}"), &components);
        let is_peers = |it: &&Value| it["metadata"]["name"] == "machine-config-server-peers";
        let service = objects.iter().find(is_peers).expect("a name");
        assert_eq!(service["spec"]["clusterIP"], "None", "each server has an address of its own");
        let workload = one(&objects, workload);
        assert_eq!(pod(workload)["dnsPolicy"].as_str(), dns, "{base}");
        let container = &workload["spec"]["template"]["spec"]["containers"][0];
        let port = metrics_port(workload);
        assert_eq!(service["spec"]["ports"][0]["port"], *port);
        let namespace = service["metadata"]["namespace"].as_str().expect("a namespace");
        let flag = format!("--peers=machine-config-server-peers.{namespace}.svc:{port}");
        let arguments = container["args"].as_array().expect("arguments");
        assert!(arguments.contains(&flag.as_str().into()), "{arguments:?}");
        let labels = &workload["spec"]["template"]["metadata"]["labels"];
        for (label, value) in service["spec"]["selector"].as_object().expect("labels") {
            assert_eq!(labels[label], *value, "{base}");
        }
    }
}
