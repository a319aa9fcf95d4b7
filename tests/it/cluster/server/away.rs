//! An API server that is away or silent: machines boot, and changes arrive when it is back.

use std::fs;

use serde_json::json;

use super::{ServedCluster, healthy, machine_config, pointer, wait_for_readiness};
use crate::support::contract::{is_served, marker, marker_soon};
use crate::support::machine::Machine;
use crate::support::manifests::files;
use crate::support::proxy::{Proxy, Way};
use crate::support::rendered::CONFIGS;
use crate::support::server::Server;
use crate::support::wait_until;

#[test]
fn machines_boot_without_the_api_server_and_changes_arrive_when_it_is_back() {
    let mut site = ServedCluster::with_worker();
    let cache = site.directory.path().join("cache");
    let flags = ["--cache-dir", cache.to_str().expect("text")];
    let server = site.start(&flags).until_ready();
    assert_eq!(marker(&server, "worker"), Ok("one".to_owned()));
    // Written last: what it refers to is there.
    wait_until("the cache", || cache.join("objects.json").exists());
    wait_until("the API server to answer", || stale_since(&server) < 1.0);
    let lines =
        || server.log().matches("API server is unavailable, serving what was read last").count();
    let before = lines();
    let kubeconfig = site.cluster.account_kubeconfig(site.cluster.address());

    site.cluster.kill_api_server();
    // Ready all the same: it serves what is right.
    wait_for_readiness(&server, |status, text| {
        status == 200
            && text.lines().any(|line| line.starts_with("API server: unavailable since 20"))
    });
    assert!(stale_since(&server) > 1_700_000_000.0, "{}", stale_since(&server));
    assert_eq!(marker(&server, "worker"), Ok("one".to_owned()));
    wait_until("a line in the log", || lines() > before);
    assert_eq!(lines(), before + 1, "once is enough: {}", server.log());

    // One that is started now has the cache alone, and the token from its own files.
    let second = site.start_with(&kubeconfig, &flags).until_ready();
    assert_eq!(marker(&second, "worker"), Ok("one".to_owned()));
    let machine = Machine::new();
    machine.boot(&pointer(&second, &site.pair, "worker"));
    wait_for_readiness(&second, |status, text| {
        status == 200 && text.contains("API server: unavailable")
    });
    for file in files(&cache) {
        let text = fs::read_to_string(cache.join(&file)).expect("text");
        assert!(!text.contains("0123456789abcdef"), "the token is in {}", file.display());
    }
    // One without a cache has nothing to serve, and says that it will.
    let third = site.start_with(&kubeconfig, &[]);
    assert_eq!(marker(&third, "worker"), Err(503));
    third.reported("API server: unavailable");
    third.reported("not read yet: machineconfigpools");
    assert_eq!(third.readiness().0, 503);

    site.cluster.start_api_server();
    site.machine_config("rendered-2", "two");
    site.status("worker", "rendered-2", 0);
    for server in [&server, &second, &third] {
        is_served(server, "worker", "two");
        healthy(server);
        assert!(stale_since(server) < 1.0);
    }
    // Each is in step again, not only up to date once.
    let files = machine_config("rendered-2", "three", 0)["spec"].clone();
    site.cluster.patch(&format!("{CONFIGS}/rendered-2"), &json!({"spec": files}));
    for server in [&server, &second, &third] {
        marker_soon(server, "worker", Ok("three"));
    }
}

/// In seconds since 1970, 0 while what is served is in step with the cluster.
fn stale_since(server: &Server) -> f64 {
    server.metric("mcs_source_stale_since_timestamp_seconds")
}

#[test]
fn a_connection_that_goes_silent_or_breaks_is_survived() {
    let site = ServedCluster::with_worker();
    let proxy = Proxy::to(site.cluster.address());
    let server = site.start_through(proxy.address(), &[]).until_ready();
    assert_eq!(marker(&server, "worker"), Ok("one".to_owned()));
    for (way, change) in [(Way::Silent, "two"), (Way::Cut, "three")] {
        proxy.set(way);
        let away = |text: &str| text.contains("API server: unavailable");
        wait_for_readiness(&server, |status, text| status == 200 && away(text));
        let spec = machine_config("rendered-1", change, 0)["spec"].clone();
        site.cluster.patch(&format!("{CONFIGS}/rendered-1"), &json!({"spec": spec}));
        proxy.set(Way::Cut);
        proxy.set(Way::Open);
        is_served(&server, "worker", change);
        healthy(&server);
    }
}
