//! A machine's own files, merged into its pool's config.

use std::fs;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{MachinesDirectory, get_known, refusal, text};
use crate::support::access::get;
use crate::support::command::Said;
use crate::support::daemon_check::drift;
use crate::support::machine::Machine;
use crate::support::manifests::{machine_config, pool};
use crate::support::server::binary;
use crate::support::{wait_for, wait_until};

/// The Ignition config of the pool, with a bit of everything that machine-config-daemon compares.
fn of_pool(contents: &str) -> Value {
    json!({
        "ignition": {"version": "3.2.0"},
        "storage": {"files": [
            {"path": "/etc/pool", "mode": 384, "contents": {"source": format!("data:,{contents}")}},
            {"path": "/etc/default-mode", "contents": {"source": "data:,x%0A"}},
        ]},
        "systemd": {"units": [
            {"name": "pool.service", "enabled": true,
                "contents": "[Unit]\n[Install]\nWantedBy=multi-user.target\n",
                "dropins": [{"name": "10-pool.conf", "contents": "[Unit]\n"}]},
            {"name": "masked.service", "mask": true},
        ]},
    })
}

/// What a machine has for itself: its name, its address, a unit, and a drop-in of a unit of the pool.
fn own() -> Value {
    json!({
        "ignition": {"version": "3.1.0"},
        "storage": {
            "files": [
                {"path": "/etc/hostname", "mode": 420, "contents": {"source": "data:,rack-7%0A"}},
                {"path": "/etc/NetworkManager/system-connections/eth0.nmconnection", "mode": 384,
                    "contents": {"source": "data:,%5Bipv4%5D%0Aaddress1=192.0.2.7/24%0A"}},
            ],
            "directories": [{"path": "/var/lib/own", "mode": 448}],
            "links": [{"path": "/etc/localtime", "target": "/usr/share/zoneinfo/UTC"}],
        },
        "systemd": {"units": [
            {"name": "own.service", "enabled": true,
                "contents": "[Unit]\n[Install]\nWantedBy=multi-user.target\n"},
            {"name": "pool.service", "dropins": [{"name": "50-own.conf", "contents": "[Unit]\n"}]},
        ]},
    })
}

fn put_pool(site: &MachinesDirectory, name: &str, config: &Value) {
    site.put("config-worker", &machine_config(name, config));
    site.put("pool-worker", &pool("worker", name));
}

#[test]
fn a_machine_gets_its_own_files_and_the_daemon_finds_those_of_the_pool_as_they_were() {
    let site = MachinesDirectory::new();
    put_pool(&site, "00-worker", &of_pool("pool"));
    site.put_machine("rack-7", &json!({"pool": "worker", "overlay": own()}));
    site.put_machine("plain", &json!({"pool": "worker"}));
    let changed = json!({"ignition": {"version": "3.1.0"}, "storage": {"files": [
        {"path": "/etc/pool", "mode": 384, "contents": {"source": "data:,own"}},
    ]}});
    let replacing = json!({"pool": "worker", "overlay": changed, "replaces": ["/etc/pool"]});
    site.put_machine("replaces", &replacing);
    let server = site.serve(&[]);
    let boot = |name: &str| {
        get_known(&site.tls(&server), "worker", &site.credential(name));
        let machine = Machine::new();
        machine.boot(&site.pointer(name));
        machine
    };
    let (named, plain) = (boot("rack-7"), boot("plain"));
    let read = |machine: &Machine, path: &str| {
        fs::read_to_string(machine.root().join(path))
            .unwrap_or_else(|error| panic!("{path}: {error}"))
    };
    assert_eq!(read(&named, "etc/hostname"), "rack-7\n");
    let connection = "etc/NetworkManager/system-connections/eth0.nmconnection";
    assert_eq!(read(&named, connection), "[ipv4]\naddress1=192.0.2.7/24\n");
    for path in ["etc/systemd/system/own.service", "etc/systemd/system/pool.service.d/50-own.conf"]
    {
        assert!(named.root().join(path).is_file(), "{path}");
    }
    assert!(named.root().join("var/lib/own").is_dir());
    assert!(fs::symlink_metadata(named.root().join("etc/localtime")).is_ok());
    assert!(!plain.root().join("etc/hostname").exists());
    for machine in [&named, &plain] {
        assert_eq!(drift(&machine.root(), &of_pool("pool")), None);
    }
    // What the daemon reads is the pool's MachineConfig.
    for path in
        ["etc/ignition-machine-config-encapsulated.json", "etc/mcs-machine-config-content.json"]
    {
        assert_eq!(read(&named, path), read(&plain, path), "{path}");
    }
    let replaces = boot("replaces");
    assert_eq!(read(&replaces, "etc/pool"), "own");
    let found = drift(&replaces.root(), &of_pool("pool"));
    assert_eq!(found.as_deref(), Some("/etc/pool: content mismatch"), "the daemon tells it");
}

#[test]
fn an_overlay_that_shadows_what_others_write_is_refused_by_path_until_it_is_changed() {
    let site = MachinesDirectory::new();
    put_pool(&site, "00-worker", &of_pool("pool"));
    let server = site.serve(&[]);
    let overlay = |path: &str| {
        json!({"ignition": {"version": "3.1.0"}, "storage": {"files": [
            {"path": path, "contents": {"source": "data:,SECRET"}},
        ]}})
    };
    let server_file = "/etc/ignition-machine-config-encapsulated.json";
    for (number, (path, replaces, reason)) in [
        ("/etc/pool", json!([]), "/etc/pool: the pool's config writes it"),
        (server_file, json!([]), "the server writes it for every machine"),
        (server_file, json!([server_file]), "the server writes it for every machine"),
        ("/etc/pool/x", json!([]), "it is below /etc/pool"),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("n{number}");
        let spec = json!({"pool": "worker", "overlay": overlay(path), "replaces": replaces});
        site.put_machine(&name, &spec);
        let credential = site.credential(&name);
        let answer = wait_for("the overlay to be refused", || {
            let answer = get(&site.tls(&server), "worker", Some(&credential));
            let code = answer.header("machine-config-server-refusal").map(str::to_owned);
            (code.as_deref() == Some("not-renderable")).then_some(answer)
        });
        assert_eq!(answer.status, 503);
        let body = String::from_utf8(answer.body).expect("text");
        assert!(
            body.contains("overlay") && !body.contains("/etc/") && !body.contains("SECRET"),
            "{body}"
        );
        let why = refusal(&server, 1)["reason"].as_str().expect("a reason").to_owned();
        assert!(why.contains(reason), "{why}");
        assert!(server.page("/readyz").contains(reason), "{}", server.page("/readyz"));
        assert_eq!(server.named_machine(&name)["token"], "armed", "nothing was sent");
        site.put_machine(&name, &json!({"pool": "worker", "overlay": overlay("/etc/own")}));
        wait_until("the machine to get its config", || {
            get(&site.tls(&server), "worker", Some(&credential)).status == 200
        });
        assert!(!server.page("/readyz").contains(reason));
    }
    assert!(!server.log().contains("SECRET"));
}

#[test]
fn a_change_of_the_pool_or_the_overlay_reaches_the_machine_and_the_pools_own_answer_stays() {
    let site = MachinesDirectory::new();
    put_pool(&site, "00-worker", &of_pool("first"));
    site.put_machine("n", &json!({"pool": "worker", "overlay": own()}));
    let server = site.serve(&["--access", "off"]);
    let credential = site.credential("n");
    let body = |credential: &str| {
        let answer = get_known(&site.tls(&server), "worker", credential);
        (answer.header("etag").expect("an ETag").to_owned(), answer.json().to_string())
    };
    let plain = body("Bearer nothing");
    assert!(!plain.1.contains("/etc/hostname"));
    let first = body(&credential);
    assert_eq!(body(&credential), first);
    assert_ne!(first.0, plain.0);
    assert!(first.1.contains("/etc/hostname") && first.1.contains("data:,first"), "{}", first.1);
    put_pool(&site, "01-worker", &of_pool("second"));
    wait_until("the pool's change", || body(&credential).1.contains("data:,second"));
    let mut changed = own();
    changed["storage"]["files"][0]["contents"]["source"] = "data:,rack-8".into();
    site.put_machine("n", &json!({"pool": "worker", "overlay": changed}));
    wait_until("the overlay's change", || body(&credential).1.contains("data:,rack-8"));
    assert!(!body("Bearer nothing").1.contains("/etc/hostname"));
}

#[test]
fn an_overlay_is_served_in_every_spec_that_can_express_it() {
    let site = MachinesDirectory::new();
    put_pool(&site, "00-worker", &json!({"ignition": {"version": "3.0.0"}}));
    let arguments =
        json!({"ignition": {"version": "3.3.0"}, "kernelArguments": {"shouldExist": ["a"]}});
    site.put_machine("n", &json!({"pool": "worker", "overlay": own()}));
    site.put_machine("k", &json!({"pool": "worker", "overlay": arguments}));
    let server = site.serve(&[]);
    for (name, old) in [("n", 200), ("k", 503)] {
        let credential = site.credential(name);
        get_known(&site.tls(&server), "worker", &credential);
        for (version, status) in [("2.2.0", old), ("3.0.0", old), ("3.3.0", 200), ("3.6.0", 200)] {
            let accept = format!("application/vnd.coreos.ignition+json;version={version}");
            let headers = [("Accept", &*accept), ("Authorization", &*credential)];
            let answer = site.tls(&server).request("GET", "/config/worker", &headers);
            assert_eq!(answer.status, status, "{name} in {version}");
            if status == 200 {
                assert_eq!(answer.json()["ignition"]["version"], version);
            }
        }
    }
}

#[test]
fn an_overlay_from_a_file_is_checked_before_it_is_written() {
    let site = MachinesDirectory::new();
    put_pool(&site, "00-worker", &of_pool("pool"));
    let server = site.serve(&[]);
    let file = site.state().join("own.ign");
    let add = |name: &str, overlay: &Value| {
        fs::write(&file, overlay.to_string()).expect("a writable folder");
        let manifests = text(&site.manifests());
        let (name, file) = (name.to_owned(), text(&file));
        site.machines(&[
            "add",
            &name,
            "--pool",
            "worker",
            "--manifests",
            &manifests,
            "--overlay",
            &file,
        ])
    };
    add("rack-7", &own()).done();
    let credential = site.credential("rack-7");
    wait_until("its own file", || {
        let answer = get(&site.tls(&server), "worker", Some(&credential));
        answer.status == 200 && answer.json().to_string().contains("/etc/hostname")
    });
    let users = json!({"ignition": {"version": "3.1.0"}, "passwd": {"users": [{"name": "core"}]}});
    let refused = add("rack-8", &users);
    refused.refused(&["own.ign: passwd: an overlay can only have files"]);
    assert!(!site.pointer_path("rack-8").exists());
    let shadowing = json!({"ignition": {"version": "3.1.0"}, "storage": {"files": [
        {"path": "/etc/pool", "contents": {"source": "data:,n"}},
    ]}});
    site.put_machine("rack-9", &json!({"pool": "worker", "overlay": shadowing}));
    Said::by(binary().arg("validate").arg(site.manifests()))
        .refused(&["FirstBootMachine rack-9: /etc/pool: "]);
}

/// Of a size that clusters have, with contents that do not compress to nothing.
fn large() -> Value {
    let file = |number: u32| {
        let contents = format!("data:,{}", format!("key-{number}%20%3D%20value%0A").repeat(120));
        json!({"path": format!("/etc/large/{number}"), "mode": 420, "contents": {"source": contents}})
    };
    let files: Vec<_> = (0..170).map(file).collect();
    json!({"ignition": {"version": "3.4.0"}, "storage": {"files": files}})
}

/// Time without work after which a server has nothing left to do.
const REST: Duration = Duration::from_millis(500);

/// Ticks of the server's processor time for answers to machines with an overlay, and to others: each machine asks `rounds`
/// times, after `skipped` machines of each kind.
fn costs(machines: u32, skipped: u32, rounds: u32) -> [u64; 2] {
    let site = MachinesDirectory::new();
    put_pool(&site, "00-worker", &large());
    for number in 0..machines {
        let mut own = own();
        own["storage"]["files"][0]["contents"]["source"] = json!(format!("data:,rack-{number}"));
        site.put_machine(&format!("own-{number}"), &json!({"pool": "worker", "overlay": own}));
        site.put_machine(&format!("plain-{number}"), &json!({"pool": "worker"}));
    }
    let server = site.serve(&[]);
    let client = site.tls(&server);
    let credentials = ["own", "plain"].map(|kind| -> Vec<_> {
        (0..machines).map(|number| site.credential(&format!("{kind}-{number}"))).collect()
    });
    // It stores the tokens of all machines, and tells its watches of them, before it rests.
    let mut rested = (server.cpu_ticks(), Instant::now());
    wait_until("the server to rest", || {
        let ticks = server.cpu_ticks();
        if ticks != rested.0 {
            rested = (ticks, Instant::now());
        }
        rested.1.elapsed() > REST
    });
    credentials.map(|credentials| {
        let ask = |credentials: &[String]| {
            for credential in credentials {
                assert_eq!(get_known(&client, "worker", credential).status, 200);
            }
        };
        let (first, others) = credentials.split_at(skipped.try_into().expect("few"));
        ask(first);
        let asking = if others.is_empty() { first } else { others };
        let before = server.cpu_ticks();
        (0..rounds).for_each(|_| ask(asking));
        server.cpu_ticks() - before
    })
}

/// Asserts that answers with an overlay cost at most so many times those without, in one of three measurements: other work on
/// the processors makes some of them slower and others not.
fn assert_costs_at_most(times: u64, costs: impl Fn() -> [u64; 2]) {
    let mut measured = Vec::new();
    let is_met = (0..3).any(|_| {
        let [own, plain] = costs();
        measured.push([own, plain]);
        own <= times * plain + 2
    });
    assert!(is_met, "ticks with an overlay and without: {measured:?}");
}

#[test]
fn an_answer_with_an_overlay_that_is_asked_for_again_costs_at_most_twice_one_without() {
    assert_costs_at_most(2, || costs(10, 10, 20));
}

#[test]
fn the_first_answer_of_a_machine_with_an_overlay_costs_at_most_three_times_one_without() {
    // Twice where the program is optimised: the tests' is not, but the libraries that are most of the other answer.
    assert_costs_at_most(3, || costs(150, 1, 1));
}
