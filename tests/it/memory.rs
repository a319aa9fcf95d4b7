//! What many pools hold in memory: a pool's config in several specs is nearly the same, and most of a directory's text
//! is read seldom.

use std::collections::BTreeSet;

use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::changes::large_machine_config;
use crate::support::contract::{VERSIONS, config, config_for_ignition};
use crate::support::manifests::{machine_config_of, pool, selecting_pool, with_files, write};
use crate::support::server::Server;
use crate::support::wait_for;

/// All pools in all specs, plain and as Ignition gets them.
#[test]
fn pools_that_are_asked_for_in_all_specs_hold_little_more_than_those_asked_for_in_one() {
    const POOLS: usize = 33;
    // Of 60 MiB in all, of which 20 are pages of the program's file as it ships.
    const LIMIT: u64 = 40 << 20;
    let directory = tempfile::tempdir().expect("a temporary folder");
    let names: Vec<String> = (0..POOLS).map(|number| format!("pool-{number}")).collect();
    for name in &names {
        let text = large_machine_config(name).replace("CONFIG", name);
        write(directory.path(), &format!("{name}.yaml"), text);
        write(directory.path(), &format!("{name}.json"), pool(name, name));
    }
    let server = Server::serve(directory.path(), &[]);
    let client = server.plain();
    let before = server.anonymous_bytes();
    let (mut bytes, mut different) = (0, BTreeSet::new());
    for version in VERSIONS {
        for name in &names {
            for answer in
                [config(&client, name, version), config_for_ignition(&client, name, version)]
            {
                assert_eq!(answer.status, 200, "{answer:?}");
                let digest = format!("\"{:x}\"", Sha256::digest(&answer.body));
                assert_eq!(answer.header("etag"), Some(&digest[..]), "{name} {version}");
                assert_eq!(answer.json()["ignition"], json!({"version": version}), "{name}");
                if different.insert(digest) {
                    bytes += answer.body.len();
                }
            }
        }
    }
    // What rendering took for a moment goes back to the system within seconds.
    let used =
        wait_for("memory to be freed", || Some(server.anonymous_bytes()).filter(|it| *it <= LIMIT));
    println!("{bytes} bytes of answers in {} KiB, of {} before", used >> 10, before >> 10);
}

/// A pool's manifest with twenty MachineConfigs of 1 KB.
pub(crate) fn pool_of_twenty(pool: &str) -> String {
    let mut objects = vec![selecting_pool(pool)];
    objects.extend((0..20).map(|number| {
        let path = format!("/etc/{pool}-{number}");
        let text = format!("{path}%20has%20a%20line%0A").repeat(40);
        machine_config_of(pool, &format!("{number:02}-{pool}"), &with_files(&[(&path, &text)]))
    }));
    json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string()
}

/// The texts of manifests are not held, and those of MachineConfigs and of what is merged of them are packed.
#[test]
fn a_directory_of_many_pools_holds_its_texts_packed() {
    const POOLS: usize = 200;
    // With texts as they are written, 32 MiB and more.
    const LIMIT: u64 = 26 << 20;
    let directory = tempfile::tempdir().expect("a temporary folder");
    let mut bytes = 0;
    for number in 0..POOLS {
        let text = pool_of_twenty(&format!("pool-{number}"));
        bytes += text.len() as u64;
        write(directory.path(), &format!("pool-{number}.json"), text);
    }
    let server = Server::serve(directory.path(), &[]).until_ready();
    // What reading took for a moment goes back to the system within seconds.
    let held =
        wait_for("memory to be freed", || Some(server.anonymous_bytes()).filter(|it| *it <= LIMIT));
    println!("{bytes} bytes of manifests in {} KiB", held >> 10);
}
