//! What is served at any moment of a rotation, and by a controller whose clock is wrong.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use pki::{Certificate, TrustHolder, locked_out};
use serde_json::json;
use time::OffsetDateTime;

use super::super::{
    ACCOUNT, ControlledCluster, Controller, ROTATE, bundle, ca, serving, trusted, user_data,
    user_data_config,
};
use crate::support::clock::set_clock;
use crate::support::cluster::NAMESPACE;
use crate::support::meanwhile::meanwhile;
use crate::support::server::binary;
use crate::support::wait_until;

#[test]
fn the_first_ca_of_bundle_and_user_data_vouches_for_what_is_served_at_any_moment() {
    let site = ControlledCluster::new();
    let controller = site.start(&[]);
    let managed = site.user_data("worker-user-data-managed");
    site.healthy(&controller);
    let mut spec_2 = user_data_config("2.2.0", &json!({"source": ""}));
    let pem = trusted(&managed);
    let source = format!("data:;base64,{}", BASE64.encode(pem));
    spec_2["ignition"]["security"]["tls"]["certificateAuthorities"][0]["source"] = source.into();
    site.make_user_data("spec-2-user-data", spec_2.to_string().as_bytes());
    site.settled();
    let the_first_ca_vouches = |_| {
        let names = ["worker-user-data-managed", "spec-2-user-data"];
        let mut texts = names.map(|name| trusted(&site.user_data(name))).to_vec();
        texts.push(site.bundle().into_bytes());
        let first = |pem: &Vec<u8>| TrustHolder::of_one(&Certificate::read_all(pem)[0]);
        let holders: Vec<_> = texts.iter().map(first).collect();
        assert_eq!(locked_out(&site.chain(&serving()), &holders, OffsetDateTime::now_utc()), []);
    };
    meanwhile(1, the_first_ca_vouches, |looks| {
        for round in 0..4 {
            site.rotate(&round.to_string());
            looks.continues(2);
        }
    });
}

#[test]
fn a_controller_whose_clock_is_wrong_says_so_and_locks_nobody_out_when_it_is_right_again() {
    let site = ControlledCluster::new();
    let mut first = site.start(&[]);
    site.object(&user_data("worker-user-data-managed"));
    site.healthy(&first);
    first.terminate();
    let state = || {
        [ca(), serving(), bundle(), user_data("worker-user-data-managed")]
            .map(|path| site.object(&path)["data"].clone())
    };
    let before = state();
    let kubeconfig = site.cluster.kubeconfig_of(ACCOUNT, NAMESPACE, site.cluster.address());
    let at = |offset: &str| {
        let mut command = binary();
        set_clock(&mut command, offset);
        Controller::by(command, &kubeconfig, &[])
    };
    for behind in ["-2h", "-400d"] {
        let mut controller = at(behind);
        let reported = "the clock is behind: ";
        wait_until("the log to tell", || controller.log().contains(reported));
        wait_until("the metric", || {
            let metric = "mcs_certificates_attention{what=\"clock\"} 1";
            controller.metrics().contains(metric)
        });
        wait_until("readiness", || controller.readiness().0 == 200);
        site.annotate(&ca(), &json!({ROTATE: behind}));
        // Where the clock is so far behind that no CA can sign, nothing needs to be refused.
        if behind == "-2h" {
            let refused = "a new signing CA is refused (requested): the clock";
            wait_until("the refusal", || controller.log().contains(refused));
        }
        site.looked_at(&format!("pool{behind}"));
        site.annotate(&ca(), &json!({ROTATE: null}));
        assert_eq!(state(), before, "{behind}");
        controller.terminate();
    }
    let mut next = site.start(&[]);
    site.looked_at("infra");
    site.healthy(&next);
    assert_eq!(state(), before);
    next.terminate();

    // Far ahead it has to make a CA; when the clock is right again, machines boot as before.
    let old = site.user_data("worker-user-data-managed");
    let mut ahead = at("+5000d");
    wait_until("a CA of that time", || ahead.log().contains("issued a serving certificate"));
    ahead.terminate();
    let last = site.start(&[]);
    wait_until("the old one to be back", || site.boots(&old));
    site.reported(&last, "clock", "the clock is behind: ");
    assert!(site.boots(&site.user_data("worker-user-data-managed")));
}
