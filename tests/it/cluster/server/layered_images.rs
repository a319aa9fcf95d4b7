//! Images that are built for a pool, once a machine can boot into them.

use serde_json::{Value, json};

use super::{GROUP, ServedCluster, healthy, write_definition};
use crate::support::cluster::NAMESPACE;
use crate::support::contract::{SOON, served};
use crate::support::server::Server;
use crate::support::stopwatch::Stopwatch;
use crate::support::wait_until;

/// A wish for an image of a pool's own, and a build of it.
pub(super) fn layer(site: &ServedCluster, pool: &str, image: &str, configuration: &str) {
    let secret = json!({"name": "push"});
    let spec = format!("quay.io/example/{pool}:latest");
    site.cluster.create(
        &format!("{GROUP}/machineosconfigs"),
        &json!({
            "apiVersion": "machineconfiguration.openshift.io/v1",
            "kind": "MachineOSConfig",
            "metadata": {"name": pool},
            "spec": {
                "machineConfigPool": {"name": pool},
                "imageBuilder": {"imageBuilderType": "Job"},
                "renderedImagePushSecret": secret,
                "renderedImagePushSpec": spec,
            },
        }),
    );
    site.cluster.create(
        &format!("{GROUP}/machineosbuilds"),
        &json!({
            "apiVersion": "machineconfiguration.openshift.io/v1",
            "kind": "MachineOSBuild",
            "metadata": {"name": format!("{pool}-build")},
            "spec": {
                "machineConfig": {"name": configuration},
                "machineOSConfig": {"name": pool},
                "renderedImagePushSpec": spec,
            },
        }),
    );
    set_image(site, pool, image);
    let now = "2026-01-01T00:00:00Z";
    let job =
        json!({"group": "batch", "resource": "jobs", "namespace": NAMESPACE, "name": "build"});
    let condition = |kind: &str, status: &str| {
        json!({
            "type": kind, "status": status, "reason": kind, "message": kind,
            "lastTransitionTime": now,
        })
    };
    site.cluster.patch(
        &format!("{GROUP}/machineosbuilds/{pool}-build/status"),
        &json!({"status": {
            "builder": {"imageBuilderType": "Job", "job": job},
            "conditions": [condition("Building", "False"), condition("Succeeded", "True")],
        }}),
    );
}

fn set_image(site: &ServedCluster, pool: &str, image: &str) {
    site.cluster.patch(
        &format!("{GROUP}/machineosconfigs/{pool}/status"),
        &json!({"status": {"currentImagePullSpec": image}}),
    );
}

pub(super) const IMAGE: &str = "quay.io/example/worker@sha256:\
                     0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const INTERNAL: &str = "image-registry.openshift-image-registry.svc:5000/mco/worker@sha256:\
                        0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
const ROUTED: &str = "registry.apps.example.com/mco/worker@sha256:\
                      0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// The image that a machine of the pool changes over to at its first boot.
pub(super) fn image(server: &Server, pool: &str) -> String {
    let text = served(server, pool, "/etc/ignition-machine-config-encapsulated.json");
    let config: Value = serde_json::from_str(&text.expect("the file")).expect("JSON");
    config["spec"]["osImageURL"].as_str().expect("an image").to_owned()
}

fn image_soon(server: &Server, pool: &str, expected: &str) {
    let changed = Stopwatch::start();
    let what = format!("image {expected}");
    wait_until(&what, || image(server, pool) == expected);
    changed.within(SOON, what);
}

#[test]
fn a_layered_image_is_served_when_a_machine_can_boot_into_it() {
    const BASE: &str = "quay.io/example/os@sha256:base";
    let site = ServedCluster::with_worker();
    let server = site.start(&[]).until_ready();
    assert_eq!(image(&server, "worker"), BASE);

    layer(&site, "worker", IMAGE, "rendered-1");
    assert_eq!(image(&server, "worker"), BASE, "no machine of the pool runs it");
    site.status("worker", "rendered-1", 1);
    image_soon(&server, "worker", IMAGE);
    let annotations = served(&server, "worker", "/etc/machine-config-daemon/node-annotations.json");
    let annotations: Value = serde_json::from_str(&annotations.expect("the file")).expect("JSON");
    for key in ["currentImage", "desiredImage"] {
        assert_eq!(annotations[format!("machineconfiguration.openshift.io/{key}")], IMAGE);
    }

    // A service of the cluster's own registry appears after the image that it has.
    set_image(&site, "worker", INTERNAL);
    image_soon(&server, "worker", INTERNAL);
    let service = json!({
        "metadata": {"name": "image-registry"},
        "spec": {"ports": [{"port": 5000}], "selector": {"app": "registry"}},
    });
    site.cluster.create("/api/v1/namespaces/openshift-image-registry/services", &service);
    image_soon(&server, "worker", BASE);

    // The kind of the other name's object is not there at first, and appears.
    set_image(&site, "worker", ROUTED);
    image_soon(&server, "worker", ROUTED);
    site.cluster.apply(&["-f", write_definition(&site, "Route", "route.openshift.io").as_str()]);
    site.cluster.kubectl(&["wait", "--for=condition=Established", "crd/routes.route.openshift.io"]);
    let routes = "/apis/route.openshift.io/v1/namespaces/openshift-image-registry/routes";
    site.cluster.create(
        routes,
        &json!({
            "apiVersion": "route.openshift.io/v1", "kind": "Route",
            "metadata": {"name": "default-route"}, "spec": {"host": "registry.apps.example.com"},
        }),
    );
    wait_until("the new kind to be noticed", || image(&server, "worker") == BASE);

    // A kind that goes takes its objects along.
    site.cluster.delete(
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/routes.route.openshift.io",
    );
    wait_until("the kind's end to be noticed", || image(&server, "worker") == ROUTED);
    healthy(&server);
}
