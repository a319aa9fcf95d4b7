//! A registry with a CA of its own and a password: both come to the machine in its config, and its containerd pulls by them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::json;

use super::network::{HOST, apart};
use super::site::{Place, Site};
use crate::support::registry::Registry;
use crate::support::server::free_ports;
use crate::support::virtual_machine::{assets, program, push};

const CONFIG: &str = "/api/v1/namespaces/openshift-config";

#[test]
fn a_pod_runs_of_an_image_that_only_the_ca_and_the_credentials_of_the_config_let_the_machine_pull()
{
    apart(|| {
        let site = Site::start();
        let [at] = free_ports();
        let everywhere = ([0, 0, 0, 0], at.port()).into();
        let registry = Registry::start(program("docker-registry"), everywhere, &HOST.to_string());
        let image = format!("{}/pause:1", registry.name());
        let archive = assets().join("root/usr/share/pause.tar");
        push(&registry, &format!("oci-archive:{}", archive.display()), &image);
        add(&site, &registry);
        site.enforce();
        site.serves("/etc/docker/certs.d/");
        site.serves("/var/lib/kubelet/config.json");

        let place = Place(11);
        let mut machine = Site::boot(&site.user_data("worker"), &place);
        site.joined(&mut machine, &place.node());
        site.run_pod(&place.node(), &json!({"image": image, "imagePullPolicy": "Always"}));
    });
}

/// Tells the cluster the registry's CA and the credentials, as an administrator does.
fn add(site: &Site, registry: &Registry) {
    let cluster = &site.plane.cluster;
    cluster.create(
        &format!("{CONFIG}/configmaps"),
        &json!({
            "metadata": {"name": "registry-cas"},
            "data": {registry.name().replace(':', ".."): registry.ca()},
        }),
    );
    let cas = json!({"spec": {"additionalTrustedCA": {"name": "registry-cas"}}});
    cluster.patch("/apis/config.openshift.io/v1/images/cluster", &cas);
    let auths = json!({"auths": {registry.name(): {"auth": Registry::credential()}}});
    cluster.create(
        &format!("{CONFIG}/secrets"),
        &json!({
            "metadata": {"name": "pull-secret"}, "type": "kubernetes.io/dockerconfigjson",
            "data": {".dockerconfigjson": BASE64.encode(auths.to_string())},
        }),
    );
}
