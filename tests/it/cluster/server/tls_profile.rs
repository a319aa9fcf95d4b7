//! The cluster's TLS profile.

use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::{ServedCluster, healthy, write_definition};
use crate::support::server::Server;
use crate::support::wait_until;

/// Whether the server speaks this version of TLS, by OpenSSL's flag for it.
fn speaks(server: &Server, version: &str) -> bool {
    let address = server.secure().to_string();
    let mut command = Command::new("openssl");
    command.args(["s_client", version, "-connect", &address]).stdin(Stdio::null());
    command.output().expect("openssl").status.success()
}

#[test]
fn the_clusters_tls_profile_is_followed_and_flags_go_before_it() {
    let site = ServedCluster::with_worker();
    let server = site.start(&[]).until_ready();
    let by_flag = site.start(&["--tls-min-version", "VersionTLS12"]).until_ready();
    assert!(speaks(&server, "-tls1_2") && speaks(&server, "-tls1_3"));
    // The definition comes later than the server.
    let definition = write_definition(&site, "APIServer", "config.openshift.io");
    site.cluster.apply(&["-f", &definition]);
    let name = "crd/apiservers.config.openshift.io";
    site.cluster.kubectl(&["wait", "--for=condition=Established", name]);
    let profile = |profile: Value| {
        json!({
            "apiVersion": "config.openshift.io/v1", "kind": "APIServer",
            "metadata": {"name": "cluster"}, "spec": {"tlsSecurityProfile": profile},
        })
    };
    let servers = "/apis/config.openshift.io/v1/apiservers";
    site.cluster.create(servers, &profile(json!({"type": "Modern", "modern": {}})));
    wait_until("TLS 1.2 to be refused", || !speaks(&server, "-tls1_2"));
    assert!(speaks(&server, "-tls1_3"));
    assert!(speaks(&by_flag, "-tls1_2"));

    // What cannot be spoken leaves what was before, and is told.
    let custom = json!({"type": "Custom", "modern": null, "custom": {
        "ciphers": ["AES128-SHA"], "minTLSVersion": "VersionTLS12"}});
    let cluster = format!("{servers}/cluster");
    site.cluster.patch(&cluster, &profile(custom));
    let line = server.reported("TLS profile");
    assert!(line.contains("AES128-SHA"), "{line}");
    assert!(!speaks(&server, "-tls1_2"));
    let intermediate =
        json!({"type": "Intermediate", "custom": null, "modern": null, "intermediate": {}});
    site.cluster.patch(&cluster, &profile(intermediate));
    wait_until("TLS 1.2", || speaks(&server, "-tls1_2"));
    healthy(&server);
}
