//! What a hundred pools, hundreds of configs and many boots cost.

use serde_json::json;

use super::{ServedCluster, machine_config};
use crate::support::contract::{SOON, config, marker};
use crate::support::http::Client;
use crate::support::manifests::{pool, write};
use crate::support::rendered::{CONFIGS, POOLS};
use crate::support::rest::becomes_idle;
use crate::support::server::Server;
use crate::support::stopwatch::{HURRY, Stopwatch, once_within};
use crate::support::wait_until;

#[test]
fn a_hundred_pools_that_change_at_once_are_served_within_a_second() {
    let site = ServedCluster::new();
    let names: Vec<String> = (0..100).map(|number| format!("pool-{number}")).collect();
    // As large as what a real cluster renders.
    let make = |marker: &str| {
        for name in &names {
            let config = machine_config(&format!("{name}-{marker}"), marker, 85);
            site.cluster.create(CONFIGS, &config);
        }
    };
    make("first");
    for name in &names {
        site.pool(name, &format!("{name}-first"));
    }
    let server = site.start(&[]).until_ready();
    let is_served = |name: &str, marker: &str| {
        let body = config(&server.plain(), name, "3.4.0").body;
        let wanted = format!("data:,{marker}\"");
        body.windows(wanted.len()).any(|window| window == wanted.as_bytes())
    };
    for name in &names {
        assert!(is_served(name, "first"), "{name}");
    }
    once_within(SOON * HURRY, "the last of 100 pools", |attempt| {
        let marker = format!("change-{attempt}");
        make(&marker);
        for name in &names {
            let configuration = json!({"name": format!("{name}-{marker}")});
            let status = json!({"status": {"configuration": configuration}});
            site.cluster.patch(&format!("{POOLS}/{name}/status"), &status);
        }
        let changed = Stopwatch::start();
        for name in &names {
            wait_until("the new config", || is_served(name, &marker));
        }
        changed.took()
    });
}

#[test]
fn a_server_of_a_hundred_pools_in_a_cluster_is_idle() {
    let site = ServedCluster::new();
    site.machine_config("rendered", "one");
    for number in 0..100 {
        site.pool(&format!("pool-{number}"), "rendered");
    }
    let cache = site.directory.path().join("cache");
    let flags = ["--cache-dir", cache.to_str().expect("text")];
    let server = site.start(&flags).until_ready();
    // Not after a request: while a machine that has its config does not join, its token is checked every 5 s.
    becomes_idle(server.pid());
    assert_eq!(config(&server.plain(), "pool-1", "3.4.0").status, 200);
}

#[test]
fn memory_does_not_grow_with_configs_that_no_pool_refers_to() {
    // They are 42 MiB. What is known of each is its name, and the allocator keeps a part of what
    // it gave out while they were listed.
    const LIMIT: u64 = 8 << 20;
    const REFERRED: [(&str, usize); 3] = [("master", 7), ("worker", 250), ("infra", 499)];
    let site = ServedCluster::new();
    let create = |number: usize| {
        let name = format!("rendered-{number}");
        site.cluster.create(CONFIGS, &machine_config(&name, &name, 85));
    };
    for (pool, number) in REFERRED {
        create(number);
        site.pool(pool, &format!("rendered-{number}"));
    }
    let resident = || {
        let server = site.start(&[]).until_ready();
        for (pool, number) in REFERRED {
            assert_eq!(marker(&server, pool), Ok(format!("rendered-{number}")));
        }
        server.resident_bytes()
    };
    let alone = resident();
    (0..500).filter(|number| REFERRED.iter().all(|(_, it)| it != number)).for_each(create);
    let among_others = resident();
    println!("{} KiB are resident, {} KiB among others", alone >> 10, among_others >> 10);
    assert!(among_others <= alone + LIMIT, "{} KiB more", (among_others - alone) >> 10);
}

#[test]
fn a_boot_costs_no_more_from_a_cluster_than_from_a_directory() {
    const BOOTS: u32 = 300;
    let site = ServedCluster::new();
    let config = machine_config("rendered-1", "one", 170);
    site.cluster.create(CONFIGS, &config);
    site.pool("worker", "rendered-1");
    let manifests = tempfile::tempdir().expect("a temporary folder");
    write(manifests.path(), "pool.json", pool("worker", "rendered-1"));
    write(manifests.path(), "config.json", &config);
    let from_cluster = site.start(&[]).until_ready();
    let from_directory = Server::serve(manifests.path(), &[]);
    let ca = from_directory.ca();
    let sides = [(&from_cluster, site.pair.pem.as_bytes()), (&from_directory, &ca[..])];
    let mut least = [u64::MAX; 2];
    // By turns, and the least of each: whatever else the machine does only adds. A tenth, and a
    // tick at either end, is what such a measurement is good for.
    let holds = |[cluster, directory]: [u64; 2]| cluster <= directory + directory / 10 + 2;
    for round in 0..20 {
        if round >= 5 && holds(least) {
            break;
        }
        for ((server, ca), least) in sides.iter().zip(&mut least) {
            let client = Client::tls(server.secure(), ca);
            let before = server.cpu_ticks();
            for _ in 0..BOOTS {
                assert_eq!(
                    crate::support::contract::config(&client, "worker", "3.4.0").status,
                    200
                );
            }
            *least = (*least).min(server.cpu_ticks() - before);
        }
    }
    let [cluster, directory] = least;
    println!("{cluster} ticks from the cluster, {directory} from the directory");
    assert!(holds(least), "{cluster} ticks against {directory}");
}
