//! Rotations: asked for, due, beside the edits of others, and ended by the next controller when one is killed.

use std::fs;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use super::{
    ControlledCluster, HANDLED, NOT_AFTER, ROTATE, bundle, ca, mount, pointer, secrets, server,
    serving, tls_secret, trusted, user_data, user_data_config,
};
use crate::support::cluster::NAMESPACE;
use crate::support::contract::config;
use crate::support::http::Client;
use crate::support::machine::Machine;
use crate::support::meanwhile::meanwhile;
use crate::support::openssl::openssl;
use crate::support::wait_until;

#[test]
fn rotations_that_are_asked_for_happen_once_while_machines_go_on_booting() {
    let site = ControlledCluster::new();
    let _controller = site.start_settled(&[]);
    let (server, pair) = server(&site);
    let oldest = pointer(&site, &server);
    let oldest_ca = trusted(oldest.as_bytes());

    let boot_by_old_and_new = |_| {
        let old = Client::tls(server.secure(), &oldest_ca);
        let now = trusted(&site.user_data("worker-user-data-managed"));
        for client in [old, Client::tls(server.secure(), &now)] {
            assert_eq!(config(&client, "worker", "3.4.0").status, 200);
        }
    };
    meanwhile(3, boot_by_old_and_new, |boots| {
        let asked = |path: &str, change: &Value, path_of_new: &str| {
            let before = site.serial(path_of_new);
            site.cluster.patch(path, change);
            wait_until("a rotation", || site.serial(path_of_new) != before);
            site.settled();
            let after = site.serial(path_of_new);
            mount(&site, &pair);
            boots.continues(10);
            assert_eq!(site.serial(path_of_new), after, "once is enough");
        };
        let value = |value: &str| json!({"metadata": {"annotations": {ROTATE: value}}});
        let without_date = json!({"metadata": {"annotations": {NOT_AFTER: null}}});
        asked(&serving(), &value("first"), &serving());
        asked(&ca(), &value("first"), &ca());
        asked(&serving(), &without_date, &serving());
        // Within an hour one CA is enough, however it is asked for, but for who insists.
        let newest = site.serial(&ca());
        for change in [&without_date, &value("second")] {
            site.cluster.patch(&ca(), change);
            wait_until("the request to be answered", || {
                let annotations = site.object(&ca())["metadata"]["annotations"].clone();
                let is_dated = annotations[NOT_AFTER].is_string();
                is_dated && annotations[HANDLED] == annotations[ROTATE]
            });
            site.settled();
            assert_eq!(site.serial(&ca()), newest);
        }
        asked(&ca(), &value("third --force"), &ca());
    });
    assert_eq!(site.bundle().matches("BEGIN CERTIFICATE").count(), 3);
    let machine = Machine::new();
    machine.boot(&oldest);

    the_command_asks_in_the_same_way(&site);
}

fn the_command_asks_in_the_same_way(site: &ControlledCluster) {
    let before = site.serial(&ca());
    site.certs(&["rotate", "--ca", "--force"]).done();
    wait_until("a rotation", || site.serial(&ca()) != before);
    site.settled();
    let shown = site.certs(&["show"]).output;
    assert!(shown.contains("older CA"), "{shown}");
    assert!(shown.contains("worker-user-data-managed: trusts the signing CA"), "{shown}");
}

#[test]
fn objects_that_others_edit_meanwhile_lose_nothing() {
    let site = ControlledCluster::new();
    let _controller = site.start_settled(&[]);
    let source = json!({"source": format!("data:;base64,{}", BASE64.encode(site.newest()))});
    site.make_user_data(
        "worker-user-data",
        user_data_config("3.1.0", &source).to_string().as_bytes(),
    );
    let path = user_data("worker-user-data");
    for round in 0..5 {
        let before = site.bundle();
        let value = format!("{round} --force");
        let asked = json!({"metadata": {"annotations": {ROTATE: value}}});
        site.cluster.patch(&ca(), &asked);
        for edit in 0..20 {
            let labels = json!({"metadata": {"labels": {format!("edit-{round}-{edit}"): "x"}}});
            site.cluster.patch(&path, &labels);
            site.cluster.patch(&ca(), &labels);
            site.cluster.patch(&bundle(), &labels);
        }
        wait_until("a new bundle", || site.bundle() != before);
        site.settled();
    }
    for path in [path, ca(), bundle()] {
        let labels = site.object(&path)["metadata"]["labels"].clone();
        for round in 0..5 {
            for edit in 0..20 {
                assert_eq!(labels[format!("edit-{round}-{edit}")], "x", "{path}");
            }
        }
    }
    assert_eq!(trusted(&site.user_data("worker-user-data")), site.bundle().as_bytes());
    assert_eq!(site.bundle().matches("BEGIN").count(), 6);
}

#[test]
fn a_ca_that_is_due_is_renewed() {
    let site = ControlledCluster::new();
    let directory = site.directory.path();
    let key = rcgen::KeyPair::generate().expect("a key");
    let mut params = rcgen::CertificateParams::new(Vec::new()).expect("no names");
    params.distinguished_name.push(rcgen::DnType::CommonName, "machine-config-server-ca@1");
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.key_usages = vec![rcgen::KeyUsagePurpose::KeyCertSign];
    // Nine years old, of ten.
    let now = time::OffsetDateTime::now_utc();
    params.not_before = now - time::Duration::days(9 * 365);
    params.not_after = now + time::Duration::days(365);
    let old = params.self_signed(&key).expect("a certificate").pem();
    let secret = tls_secret(
        "machine-config-server-ca",
        "kubernetes.io/tls",
        &old,
        &key.serialize_pem(),
        &json!({}),
    );
    site.cluster.create(&secrets(NAMESPACE), &secret);
    let source = json!({"source": format!("data:;base64,{}", BASE64.encode(&old))});
    let text = user_data_config("3.1.0", &source).to_string();
    site.make_user_data("worker-user-data", text.as_bytes());
    let controller = site.start(&[]);
    wait_until("a renewal", || controller.log().contains("due for renewal"));
    site.settled();
    fs::write(directory.join("old"), &old).expect("a write");
    fs::write(directory.join("chain"), site.serial(&serving())).expect("a write");
    openssl(directory, &["verify", "-CAfile", "old", "-untrusted", "chain", "chain"]);
}

#[test]
fn a_rotation_whose_controller_is_killed_at_any_step_is_ended_by_the_next_one() {
    let site = ControlledCluster::new();
    let directory = site.directory.path();
    let first = site.start_settled(&[]);
    drop(first);
    let mut handed = Vec::new();
    for round in 0..6 {
        handed.push(trusted(&site.user_data("worker-user-data-managed")));
        let value = format!("round {round} --force");
        site.cluster.patch(&ca(), &json!({"metadata": {"annotations": {ROTATE: value}}}));
        site.cluster.drop_lease();
        let controller = site.start(&[]);
        wait_until("the controller to be active", || controller.is_active());
        // One step later each time, by its log, until it ends by itself.
        let leads = |line: &&str| !line.contains("became the leader");
        let steps = || controller.log().lines().skip_while(leads).skip(1).count();
        let is_last = || controller.log().contains("issued a serving certificate");
        wait_until("a step", || steps() >= round || is_last());
        drop(controller);
        fs::write(directory.join("chain"), site.serial(&serving())).expect("a write");
        for pem in &handed {
            fs::write(directory.join("trusted"), pem).expect("a write");
            openssl(directory, &["verify", "-CAfile", "trusted", "-untrusted", "chain", "chain"]);
        }
    }
    site.cluster.drop_lease();
    let _last = site.start(&[]);
    site.settled();
    assert_eq!(trusted(&site.user_data("worker-user-data-managed")), site.bundle().as_bytes());
}
