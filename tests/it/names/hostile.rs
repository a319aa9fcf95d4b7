//! What manifests and files of others can do to machines with names.

use std::fs;

use serde_json::{Value, json};

use super::{MachinesDirectory, get_known};
use crate::support::access::{assert_refused, get};
use crate::support::command::Said;
use crate::support::http::loopback;
use crate::support::manifests::first_boot_machine;
use crate::support::server::binary;
use crate::support::wait_until;

#[test]
fn a_manifest_that_is_no_machine_is_named_and_the_last_good_one_counts() {
    let site = MachinesDirectory::new();
    site.put_machine("n", &json!({"pool": "worker", "addresses": ["127.0.0.0/8"]}));
    let server = site.serve(&[]);
    let credential = site.credential("n");
    assert_eq!(get_known(&site.tls(&server), "worker", &credential).status, 200);
    let readiness = || server.page("/readyz");
    for (spec, reason) in [
        (json!({"pool": "worker", "adresses": []}), "unknown field `adresses`"),
        (json!({"pool": "../worker"}), "spec.pool: not a valid name"),
        (json!({"pool": "worker", "addresses": ["x"]}), "spec.addresses: [0]: expected an address"),
    ] {
        site.put_machine("n", &spec);
        wait_until("the fault to be told", || {
            let told = readiness();
            told.contains("FirstBootMachine \"n\"") && told.contains(reason)
        });
        assert_eq!(get(&site.tls(&server), "worker", Some(&credential)).status, 200);
    }
    site.put_machine("n", &json!({"pool": "worker"}));
    wait_until("it to be in order", || server.plain().get("/readyz").status == 200);
}

/// Gives a machine that has a network a spec with a restriction that says nothing: it is an error for `reason`, and the
/// machine stays restricted as it was.
fn opens_nothing(spec: &Value, reason: &str) {
    let site = MachinesDirectory::new();
    site.put_machine("n", &json!({"pool": "worker", "addresses": ["127.0.0.9"]}));
    let server = site.serve(&[]);
    let credential = site.credential("n");
    assert_eq!(get_known(&site.tls(&server).from(loopback(9)), "worker", &credential).status, 200);
    let expected = format!("FirstBootMachine \"n\": {reason}");
    site.put_machine("n", spec);
    site.put_machine("later", &json!({"pool": "worker"}));
    wait_until("the later manifest to be read", || {
        server.named_machine("later")["token"] == "armed"
    });
    assert_refused(&get(&site.tls(&server).from(loopback(16)), "worker", Some(&credential)));
    server.reported(&expected);
    Said::by(binary().arg("validate").arg(site.manifests())).refused(&[&expected]);
}

/// `addresses:` in YAML is null.
#[test]
fn networks_without_a_value_are_an_error_that_names_the_field_and_open_nothing() {
    let spec = json!({"pool": "worker", "addresses": null});
    opens_nothing(&spec, "spec.addresses: names no network");
}

#[test]
fn an_empty_list_of_networks_is_an_error_that_names_the_field_and_opens_nothing() {
    let spec = json!({"pool": "worker", "addresses": []});
    opens_nothing(&spec, "spec.addresses: names no network");
}

#[test]
fn an_approval_without_a_value_is_an_error_that_names_the_field_and_opens_nothing() {
    let spec = json!({"pool": "worker", "approval": null});
    opens_nothing(&spec, "spec.approval: has no value");
}

#[test]
fn a_machine_of_another_namespace_with_the_same_name_gets_nothing() {
    let site = MachinesDirectory::new();
    site.put_machine("n", &json!({"pool": "worker"}));
    let server = site.serve(&[]);
    let credential = site.credential("n");
    let mut other = first_boot_machine("n", &json!({"pool": "infra"}));
    other["metadata"]["namespace"] = "elsewhere".into();
    site.put("z-other", &other);
    server.reported("FirstBootMachine n is also in");
    assert_eq!(get(&site.tls(&server), "worker", Some(&credential)).status, 200);
    assert_eq!(site.credential("n"), credential);
}

#[test]
fn a_file_of_another_program_is_not_changed() {
    let site = MachinesDirectory::new();
    let directory = site.state().join("user-data/machines");
    fs::create_dir_all(&directory).expect("folders");
    fs::write(directory.join("n.ign"), "#cloud-config\n").expect("a file");
    fs::create_dir_all(site.state().join("machines")).expect("a folder");
    fs::write(site.state().join("machines/broken.json"), "{").expect("a file");
    for name in ["n", "broken", "good"] {
        site.put_machine(name, &json!({"pool": "worker"}));
    }
    let server = site.serve(&[]);
    assert_eq!(get_known(&site.tls(&server), "worker", &site.credential("good")).status, 200);
    let told = server.page("/readyz");
    assert!(told.contains("n.ign is not changed"), "{told}");
    assert!(told.contains("machine broken: "), "{told}");
    assert_eq!(site.pointer("n"), "#cloud-config\n");
    let kept = fs::read_to_string(site.state().join("machines/broken.json")).expect("a file");
    assert_eq!(kept, "{");
}
