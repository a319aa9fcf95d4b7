//! The API server is away, and containers end meanwhile: kubelet starts them again with what it knows
//! itself, and they serve what an earlier container kept in the pod's cache.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::site::{BALANCER, HOST, NodeWithFolders};
use crate::support::http::{Client, Response};
use crate::support::wait_for;

/// How long the API server is away at least; `NODE_AWAY_SECONDS` for longer.
const AWAY: Duration = Duration::from_secs(10);

#[test]
fn containers_that_start_without_the_api_server_serve_from_the_cache() {
    let site = NodeWithFolders::kubernetes();
    let node = &site.node;
    let seconds = std::env::var("NODE_AWAY_SECONDS").ok();
    let away = seconds.map_or(AWAY, |text| Duration::from_secs(text.parse().expect("a number")));

    let pods = site.addresses();
    let cas = site.cas();
    let ask = |address: &str| -> Option<Response> {
        let address = format!("{address}:22623").parse().expect("an address");
        let client = Client::tls(address, cas.as_bytes()).named(HOST);
        let answer = node.inside(|| client.try_request("GET", "/config/worker", &[]));
        answer.ok().filter(|answer| answer.status == 200)
    };
    let served = ask(BALANCER).expect("a config").body;

    node.hold("kube-apiserver");
    node.try_run(&["kubectl", "get", "--raw", "/livez"]).expect_err("no API server");
    let started = Instant::now();
    let before = containers(&site);
    for container in &before {
        node.run(&["ctr", "tasks", "kill", "--signal", "SIGKILL", container]);
    }
    for address in pods.iter().map(String::as_str).chain([BALANCER]) {
        let answer = wait_for("a container that serves again", || {
            let others = containers(&site);
            (others.is_disjoint(&before) && others.len() == before.len()).then_some(())?;
            ask(address)
        });
        assert_eq!(answer.body, served, "another config");
    }
    while started.elapsed() < away {
        for address in &pods {
            assert_eq!(ask(address).expect("a config").body, served, "another config");
        }
        std::thread::sleep(Duration::from_millis(200));
    }

    node.release("kube-apiserver");
    wait_for("the API server", || node.try_run(&["kubectl", "get", "--raw", "/readyz"]).ok());
    site.rolled_out("deployment/machine-config-server");
    assert_eq!(site.addresses(), pods, "other pods");
}

/// The running containers of the server.
fn containers(site: &NodeWithFolders) -> BTreeSet<String> {
    let name = "labels.\"io.kubernetes.container.name\"==machine-config-server";
    let all = site.node.run(&["ctr", "containers", "ls", "--quiet", name]);
    let running = site.node.run(&["ctr", "tasks", "ls"]);
    let is_running = |id: &&str| {
        running.lines().any(|line| line.starts_with(*id) && line.trim_end().ends_with("RUNNING"))
    };
    all.lines().filter(is_running).map(str::to_owned).collect()
}
