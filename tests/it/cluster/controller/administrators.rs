//! Several administrators at once: nobody's request takes the place of another's.

use pki::Certificate;
use serde_json::json;

use super::{ControlledCluster, ROTATE, ca};
use crate::service_user::{a_dozen_changes_of_tokens, distrust_at_once};
use crate::support::command::{Store, done_at_once};
use crate::support::wait_until;

const DISTRUST: &str = "machineconfiguration.openshift.io/distrust-certificates";

impl ControlledCluster {
    fn annotation(&self, key: &str) -> String {
        let secret = self.object(&ca());
        secret["metadata"]["annotations"][key].as_str().unwrap_or_default().to_owned()
    }

    fn fingerprints(&self) -> Vec<String> {
        let bundle = Certificate::read_all(self.bundle().as_bytes());
        bundle.iter().map(Certificate::fingerprint).collect()
    }
}

#[test]
fn cas_that_administrators_distrust_at_once_are_all_distrusted() {
    let site = ControlledCluster::new();
    let mut controller = Some(site.start_settled(&[]));
    // While the controller is stopped, and while it writes the same secret.
    for round in ["stopped", "running"] {
        for number in 0..5 {
            site.rotate(&format!("{round} {number}"));
        }
        if round == "stopped" {
            controller = None;
        }
        let cas = site.fingerprints();
        distrust_at_once(&site.cluster, &cas);
        let listed = site.annotation(DISTRUST);
        for ca in &cas {
            assert!(listed.contains(ca), "{ca} is lost {round}: {listed}");
        }
        controller = controller.or_else(|| Some(site.start(&[])));
        wait_until("all to leave", || site.fingerprints().iter().all(|ca| !cas.contains(ca)));
        site.settled();
    }
    drop(controller);
}

#[test]
fn a_forced_rotation_stays_forced_beside_other_requests() {
    let site = ControlledCluster::new();
    drop(site.start_settled(&[]));
    for _ in 0..4 {
        site.cluster.patch(&ca(), &json!({"metadata": {"annotations": {ROTATE: null}}}));
        let rotate = |number| {
            let force: &[_] = if number == 2 { &["--force"] } else { &[] };
            site.cluster.command(&[&["certs", "rotate", "--ca"], force].concat())
        };
        done_at_once((0..6).map(rotate).collect());
        assert!(site.annotation(ROTATE).ends_with(" --force"), "{}", site.annotation(ROTATE));
    }
    // It is done once, and the next one is not forced.
    let before = site.bundle();
    let _controller = site.start(&[]);
    wait_until("a new CA", || site.bundle() != before);
    site.settled();
    site.certs(&["rotate", "--ca"]).done();
    assert!(!site.annotation(ROTATE).contains("--force"));
}

#[test]
fn a_dozen_administrators_of_tokens_lose_none_of_each_others_changes() {
    let site = ControlledCluster::new();
    let mut controller = Some(site.start_settled(&["--access", "enforce"]));
    for round in ["running", "stopped"] {
        if round == "stopped" {
            controller = None;
        }
        let command = |arguments: &[&str]| site.cluster.command(arguments);
        a_dozen_changes_of_tokens(round, command, &["tokens", "rotate"]);
    }
    drop(controller);
}
