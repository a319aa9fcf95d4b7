//! Objects of machines: what is refused, what they lead to, and their end.

use serde_json::{Value, json};

use super::*;

use crate::support::clock::set_clock;

#[test]
fn the_api_server_refuses_what_is_no_machine() {
    let (site, _controller) = ControlledCluster::with_machines();
    let long = "n".repeat(201);
    let overlay = json!({"ignition": {"version": "3.4.0"}});
    for (name, spec, reason) in [
        ("n", json!({}), "spec.pool: Required value"),
        ("n", json!({"pool": ""}), "spec.pool"),
        ("n", json!({"pool": "../master"}), "spec.pool"),
        ("n", json!({"pool": "worker", "addresses": ["rack-7"]}), "spec.addresses[0]"),
        ("n", json!({"pool": "worker", "addresses": vec!["192.0.2.7"; 65]}), "spec.addresses"),
        ("n", json!({"pool": "worker", "replaces": ["/etc/a"]}), "there is no overlay"),
        ("n", json!({"pool": "worker", "overlay": {}}), "spec.overlay.ignition"),
        (
            "n",
            json!({"pool": "worker", "overlay": overlay, "replaces": ["etc/a"]}),
            "spec.replaces[0]",
        ),
        (&long, json!({"pool": "worker"}), "at most 200 bytes"),
    ] {
        let object = first_boot_machine(name, &spec);
        let response = site.cluster.request("POST", &machines(), "application/json", &object);
        let said = String::from_utf8_lossy(&response.body).into_owned();
        assert!(response.status == 422 && said.contains(reason), "{spec}: {said}");
    }
    // Overlays are kept as they are.
    let overlay = json!({
        "ignition": {"version": "3.4.0"}, "x-unknown": {"kept": [1]},
        "kernelArguments": {"shouldExist": ["ip=dhcp"]},
    });
    site.make_machine("n", &json!({"pool": "worker", "overlay": overlay}));
    assert_eq!(site.machine("n")["spec"]["overlay"], overlay);
}

#[test]
fn what_keeps_a_machine_from_its_token_is_a_condition_until_it_is_corrected() {
    let (site, _controller) = ControlledCluster::with_machines();
    site.make_machine("lost", &json!({"pool": "infra"}));
    let reason = site.machine_is("lost", "PoolNotFound");
    assert_eq!(reason, "MachineConfigPool infra not found");
    assert_eq!(site.machine("lost")["status"]["tokenSHA256"], Value::Null);
    wait_until("the event", || site.cluster.events().contains("MachineNotReady"));
    site.pool("infra");
    site.machine_credential("lost");

    // User data of a pool has that name.
    site.make_machine("worker", &json!({"pool": "worker"}));
    let reason = site.machine_is("worker", "NameTaken");
    assert!(reason.starts_with("MachineConfigPool worker has this name"), "{reason}");
    // So has a Secret of another tool.
    let taken = json!({"metadata": {"name": "taken-user-data-managed"}, "data": {"a": "YQ=="}});
    site.cluster.create(&secrets(NAMESPACE), &taken);
    site.make_machine("taken", &json!({"pool": "worker"}));
    let reason = site.machine_is("taken", "NameTaken");
    assert!(reason.contains("taken-user-data-managed"), "{reason}");
    assert_eq!(site.machine_secret("taken").expect("it")["data"], taken["data"]);
    site.cluster.delete(&format!("{}/taken-user-data-managed", secrets(NAMESPACE)));
    site.machine_credential("taken");

    site.make_machine("misspelt", &json!({"pool": "worker", "adresses": ["192.0.2.7"]}));
    let reason = site.machine_is("misspelt", "Invalid");
    assert!(reason.contains("spec.adresses: unknown field"), "{reason}");
    let users = json!({"ignition": {"version": "3.4.0"}, "passwd": {"users": [{"name": "core"}]}});
    site.make_machine("invalid", &json!({"pool": "worker", "overlay": users}));
    let reason = site.machine_is("invalid", "Invalid");
    assert!(reason.contains("spec.overlay: passwd"), "{reason}");
    assert_eq!(site.machine_secret("invalid"), None);
}

#[test]
fn a_machine_that_moves_or_comes_back_gets_another_token_and_the_earlier_one_is_refused() {
    let (site, _controller) = ControlledCluster::with_machines();
    site.pool("infra");
    let servers = [(); 2].map(|()| site.serve(&[]));
    site.make_machine("rack-7", &json!({"pool": "infra"}));
    let of_infra = site.machine_credential("rack-7");
    site.patch_machine("rack-7", &json!({"spec": spec("/etc/a")}));
    let of_worker = wait_for("another token", || {
        Some(site.machine_credential("rack-7")).filter(|it| *it != of_infra)
    });
    for server in &servers {
        site.ask_known(server, &of_worker, "/etc/a");
        assert_eq!(site.ask(server, &of_infra, 1).status, 401);
    }
    site.remove_machine("rack-7");
    for server in &servers {
        wait_until("the token to be refused", || site.ask(server, &of_worker, 1).status == 401);
    }
    // The Secret is there still: nothing collects garbage here.
    site.make_machine("rack-7", &spec("/etc/b"));
    let again = wait_for("another token", || {
        Some(site.machine_credential("rack-7")).filter(|it| *it != of_worker)
    });
    for server in &servers {
        site.ask_known(server, &again, "/etc/b");
        assert_eq!(site.ask(server, &of_worker, 1).status, 401);
    }
    let owners =
        site.machine_secret("rack-7").expect("a Secret")["metadata"]["ownerReferences"].clone();
    assert_eq!(owners.as_array().map(Vec::len), Some(1));
    assert_eq!(owners[0]["uid"], site.machine("rack-7")["metadata"]["uid"]);
    // A Secret that is deleted takes the token with it.
    site.cluster.delete(&format!("{}/rack-7-user-data-managed", secrets(NAMESPACE)));
    wait_for("another token", || {
        site.machine_secret("rack-7")?;
        (site.machine_credential("rack-7") != again).then_some(())
    });
}

#[test]
fn an_object_of_another_namespace_has_no_effect() {
    let (site, _controller) = ControlledCluster::with_machines();
    let server = site.serve(&[]);
    let elsewhere = machines().replace(NAMESPACE, "default");
    let credential = {
        site.make_machine("rack-7", &spec("/etc/own"));
        site.machine_credential("rack-7")
    };
    site.ask_known(&server, &credential, "/etc/own");
    for name in ["rack-7", "stranger"] {
        site.cluster.create(&elsewhere, &first_boot_machine(name, &spec("/etc/foreign")));
        let status = json!({"status": {
            "pool": "worker", "armings": 9, "use": null,
            "tokenSHA256": site.machine("rack-7")["status"]["tokenSHA256"],
        }});
        site.cluster.patch(&format!("{elsewhere}/{name}/status"), &status);
    }
    // What comes after it is seen.
    site.make_machine("last", &spec("/etc/last"));
    let last = site.machine_credential("last");
    site.ask_known(&server, &last, "/etc/last");
    assert_eq!(site.machine_secret("stranger"), None);
    let in_default = format!("{}/stranger-user-data-managed", secrets("default"));
    assert_eq!(site.cluster.get(&in_default), None);
    assert_eq!(server.named_machine("stranger"), Value::Null);
    let answer = site.ask(&server, &credential, 1);
    let text = String::from_utf8_lossy(&answer.body).into_owned();
    assert!(text.contains("/etc/own") && !text.contains("/etc/foreign"), "{text}");
}

#[test]
fn two_controllers_make_one_token() {
    let (site, first) = ControlledCluster::with_machines();
    let second = site.start(&[FLAG]);
    site.make_machine("rack-7", &spec("/etc/a"));
    let credential = site.machine_credential("rack-7");
    let armings = site.machine("rack-7")["status"]["armings"].clone();
    assert_eq!(armings, 1);
    drop(first);
    wait_until("the other one to lead", || second.is_active());
    site.make_machine("rack-8", &spec("/etc/b"));
    site.machine_credential("rack-8");
    assert_eq!(site.machine_credential("rack-7"), credential);
    assert_eq!(site.machine("rack-7")["status"]["armings"], armings);
}

#[test]
fn a_pointer_config_follows_the_servers_cas() {
    let (site, _controller) = ControlledCluster::with_machines();
    site.make_machine("rack-7", &spec("/etc/a"));
    let credential = site.machine_credential("rack-7");
    site.rotate("new");
    let newest = site.newest();
    wait_for("the new CA", || {
        let secret = site.machine_secret("rack-7")?;
        let trusted = super::super::trusted(&value(&secret, "userData"));
        String::from_utf8_lossy(&trusted).contains(newest.trim()).then_some(())
    });
    assert_eq!(site.machine_credential("rack-7"), credential, "the token stays");
    let server = site.serve(&[]);
    site.ask_known(&server, &credential, "/etc/a");
}

#[test]
fn server_and_controller_may_do_their_part_in_their_namespace_and_nothing_else() {
    let (site, _controller) = ControlledCluster::with_machines();
    let kind = "machine-config-server.io/firstbootmachines";
    let server = "machine-config-server";
    let controller = "machine-config-server-controller";
    let reads = &["get", "list", "watch"][..];
    for (account, object, namespace, allowed) in [
        (server, kind, NAMESPACE, reads),
        (server, kind, "default", &[]),
        (server, "/secrets/n-user-data-managed", NAMESPACE, &[]),
        (server, "events.k8s.io/events", NAMESPACE, &["create", "patch"]),
        (controller, kind, NAMESPACE, reads),
        (controller, kind, "default", &[]),
        (
            controller,
            "/secrets/n-user-data-managed",
            NAMESPACE,
            &["get", "list", "watch", "create", "patch"],
        ),
        (controller, "/secrets", "default", &[]),
    ] {
        site.cluster.assert_may_only(account, object, namespace, allowed);
    }
}

#[test]
fn commands_make_a_machine_and_arm_its_token() {
    let (site, _controller) = ControlledCluster::with_machines();
    let server = site.serve(&[]);
    let run = |arguments: &[&str]| site.cluster.run(&[&["machines"], arguments].concat());
    let overlay = site.directory.path().join("overlay.ign");
    fs::write(&overlay, spec("/etc/a")["overlay"].to_string()).expect("a file");
    let overlay = overlay.to_str().expect("text");
    let add = ["add", "rack-7", "--pool", "worker", "--address", "127.0.0.1", "--overlay", overlay];
    let said = run(&add).done().text();
    let secret = site.machine_secret("rack-7").expect("a Secret");
    let hash = {
        use sha2::Digest as _;
        data_encoding::HEXLOWER.encode(&sha2::Sha512::digest(value(&secret, "userData")))
    };
    for part in ["created FirstBootMachine", "rack-7-user-data-managed", "--ignition-hash", &hash] {
        assert!(said.contains(part), "{said}");
    }
    let credential = site.machine_credential("rack-7");
    site.ask_known(&server, &credential, "/etc/a");
    assert_eq!(site.ask(&server, &credential, 2).status, 401, "another address");
    let said = run(&["rearm", "rack-7"]).done().text();
    assert!(said.contains("arms the token"), "{said}");
    wait_until("the token to be armed", || {
        let status = site.machine("rack-7")["status"].clone();
        status["armings"] == 2 && status["use"].is_null()
    });
    // An approval by a clock that is behind is not from before the object.
    let mut behind = site.cluster.command(&["machines", "approve", "rack-7"]);
    set_clock(&mut behind, "-10m");
    Said::by(&mut behind).done();
    let metadata = site.machine("rack-7")["metadata"].clone();
    assert_eq!(metadata["annotations"][APPROVED], metadata["creationTimestamp"]);
    for (arguments, reason) in [
        (&["add", "rack-7", "--pool", "worker"][..], "the machine exists already"),
        (&["add", "rack-8", "--pool", "nowhere"], "MachineConfigPool nowhere not found"),
        (&["rearm", "rack-9"], "machine rack-9 not found"),
    ] {
        run(arguments).refused(&[reason]);
    }
}
