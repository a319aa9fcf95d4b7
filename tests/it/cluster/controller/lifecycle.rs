//! A controller from its first start in a cluster without certificates: what it makes, that it becomes idle, and
//! who takes over when it ends.

use std::time::Duration;

use serde_json::{Value, json};

use super::{ControlledCluster, ROTATE, ca, pointer, server, serving, user_data, value};
use crate::support::machine::Machine;
use crate::support::rendered::POOLS;
use crate::support::rest::becomes_idle;
use crate::support::stopwatch::Stopwatch;
use crate::support::wait_until;
use rustix::process::Signal;

#[test]
fn a_cluster_without_certificates_gets_all_that_a_machine_needs() {
    let site = ControlledCluster::new();
    let controller = site.start(&[]);
    let managed = site.object(&user_data("worker-user-data-managed"));
    site.settled();
    for (path, kind) in [(ca(), "authority"), (serving(), "serving certificate")] {
        let secret = site.object(&path);
        assert_eq!(secret["type"], "kubernetes.io/tls", "{kind}");
        let annotations = &secret["metadata"]["annotations"];
        for key in ["not-before", "not-after", "issuer"] {
            let key = format!("auth.openshift.io/certificate-{key}");
            assert!(annotations[&key].is_string(), "{kind}: {key} in {annotations}");
        }
        assert_eq!(annotations["certificates.openshift.io/refresh-period"], "70080h0m0s");
    }
    let hosts = site.object(&serving())["metadata"]["annotations"]
        ["auth.openshift.io/certificate-hostnames"]
        .clone();
    assert_eq!(hosts, "localhost");
    let pool = site.object(&format!("{POOLS}/worker"));
    assert_eq!(managed["metadata"]["ownerReferences"][0]["uid"], pool["metadata"]["uid"]);
    let label = "machineconfiguration.openshift.io/managed-ca-bundle-derived-from-configmap";
    assert_eq!(managed["metadata"]["labels"][label], "");
    assert_eq!(value(&managed, "disableTemplating"), b"true\n");
    let text: Value = serde_json::from_slice(&value(&managed, "userData")).expect("JSON");
    assert_eq!(text["ignition"]["version"], "3.1.0");

    let (server, _) = server(&site);
    Machine::new().boot(&pointer(&site, &server));

    // Metrics tell the same.
    let page = controller.metrics();
    for wanted in [
        "mcs_rotations_total{what=\"authority\",reason=\"missing\"} 1",
        "mcs_rotations_total{what=\"serving\",reason=\"missing\"} 1",
        "mcs_managed_certificate_expiry_timestamp_seconds{what=\"serving\"}",
        "mcs_pointers{authority=\"machine-config-server-ca@",
        "mcs_leading 1",
    ] {
        assert!(page.contains(wanted), "{wanted} in {page}");
    }

    // A pool that comes gets its own, and events tell what was done.
    site.pool("infra");
    site.object(&user_data("infra-user-data-managed"));
    wait_until("an event", || site.cluster.events().contains("made a signing CA"));
}

#[test]
fn a_controller_without_changes_is_idle() {
    let site = ControlledCluster::new();
    for number in 0..20 {
        site.pool(&format!("pool-{number}"));
    }
    let controller = site.start(&[]);
    site.object(&user_data("pool-19-user-data-managed"));
    site.settled();
    becomes_idle(controller.pid());
}

#[test]
fn one_controller_is_active_and_another_takes_over() {
    let site = ControlledCluster::new();
    let mut first = site.start(&[]);
    wait_until("the first one", || first.is_active());
    let second = site.start(&[]);
    site.settled();
    assert!(!second.is_active());

    // In order: at once.
    first.terminate();
    let ended = Stopwatch::start();
    wait_until("the second one", || second.is_active());
    ended.within(Duration::from_secs(5), "to take over from one that ended");

    // By a crash in the middle of a rotation: within the Lease, and the next one ends the work.
    let third = site.start(&[]);
    let before = site.serial(&ca());
    site.cluster.patch(&ca(), &json!({"metadata": {"annotations": {ROTATE: "now"}}}));
    wait_until("a new authority", || site.serial(&ca()) != before);
    second.signal(Signal::KILL);
    let killed = Stopwatch::start();
    wait_until("the third one", || third.is_active());
    killed.within(Duration::from_secs(20), "to take over from one that was killed");
    site.settled();
    assert_eq!(site.bundle().matches("BEGIN").count(), 2);
}
