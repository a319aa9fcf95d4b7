//! What is refused because it would lock out machines, no matter who asks for it.

use std::fs;

use serde_json::{Value, json};

use super::super::{ControlledCluster, NOT_AFTER, ROTATE, ca, read, server, serving};
use super::to_server;
use crate::support::machine::Machine;
use crate::support::pair::Pair;
use crate::support::wait_until;

#[test]
fn an_old_leaf_that_lacks_a_new_address_stays_and_so_does_one_whose_rotation_is_asked_for() {
    let site = ControlledCluster::new();
    site.set_addresses(&["192.0.2.5"]);
    let old = site.old_installation("DNS:localhost,DNS:api-int.example.com,IP:192.0.2.5");
    let pair = site.serial(&serving());
    let controller = site.start_healthy();
    assert_eq!(site.serial(&serving()), pair);
    assert_eq!(
        site.trusted()[0].common_name,
        "root-ca",
        "the first one vouches for what is served"
    );

    site.set_addresses(&["192.0.2.5", "2001:db8::5"]);
    site.reported(&controller, "refused", "(does not name [2001:db8::5]): afterwards ");
    site.set_addresses(&["192.0.2.6"]);
    site.looked_at("infra");
    let managed = site.user_data("worker-user-data-managed");
    assert!(String::from_utf8_lossy(&managed).contains("//192.0.2.5:"), "it boots, and stays");
    site.set_addresses(&["192.0.2.5"]);
    site.healthy(&controller);

    // Asked by the command, which tells at once; and by the annotation.
    site.certs(&["rotate", "--ca"]).refused(&["a new signing CA is refused"]);
    site.annotate(&ca(), &json!({ROTATE: "now"}));
    site.reported(&controller, "refused", "a new signing CA is refused (requested)");
    // A pair alone; one that is asked for beside a CA waits for that.
    site.annotate(&ca(), &json!({ROTATE: null}));
    site.annotate(&serving(), &json!({ROTATE: "now"}));
    site.reported(&controller, "refused", "a new serving certificate is refused (requested)");
    assert_eq!(site.serial(&serving()), pair);
    let (server, _) = server(&site);
    Machine::new().boot(&to_server(&old, &server));

    // Who takes the request back is left in peace; who insists gets it.
    for path in [ca(), serving()] {
        site.annotate(&path, &json!({ROTATE: null}));
    }
    site.healthy(&controller);
    site.set_addresses(&["192.0.2.6"]);
    site.annotate(&serving(), &json!({ROTATE: "now --force"}));
    wait_until("a new pair", || site.serial(&serving()) != pair);
    site.healthy(&controller);
    assert!(site.boots(&site.user_data("worker-user-data")));
    assert!(!site.boots(old.as_bytes()), "that is what was insisted on");
    let managed = site.user_data("worker-user-data-managed");
    assert!(String::from_utf8_lossy(&managed).contains("//192.0.2.6:"));
}

#[test]
fn a_tool_that_strips_annotations_makes_one_ca_an_hour_at_most() {
    let site = ControlledCluster::new();
    let controller = site.start_healthy();
    let strip = |times: u32| {
        for _ in 0..times {
            site.annotate(&ca(), &json!({NOT_AFTER: null}));
            wait_until("the date to be back", || {
                let annotations = site.object(&ca())["metadata"]["annotations"].clone();
                annotations[NOT_AFTER].is_string()
            });
            site.settled();
        }
    };
    strip(6);
    assert_eq!(site.trusted().len(), 2);
    assert_eq!(site.chain(&serving()).len(), 2);
    // All of them: that asks for nothing.
    for path in [ca(), serving()] {
        site.annotate(&path, &Value::Null);
    }
    site.looked_at("infra");
    assert_eq!(site.trusted().len(), 2);

    // Force is for one request, not for whatever comes after it.
    site.rotate("now");
    assert_eq!(site.trusted().len(), 3);
    strip(3);
    assert_eq!(site.trusted().len(), 3);
    assert_eq!(site.chain(&serving()).len(), 3);
    let directory = site.directory.path().join("own");
    fs::create_dir(&directory).expect("a new folder");
    let own = Pair::make(&directory, "another");
    site.put_pair(&serving(), own.pem.as_bytes(), read(&own.key).as_bytes());
    site.reported(&controller, "locked-out", "the trust bundle cannot boot a machine");
    site.looked_at("arbiter");
    assert_eq!(site.serial(&serving()), own.pem.as_bytes(), "the administrator's own pair");
}
