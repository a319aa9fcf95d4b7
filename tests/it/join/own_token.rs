//! Machines with a token and files of their own, whose pool is open to nobody without a token.

use super::network::apart;
use super::site::{Place, Site};
use crate::support::command::Store as _;

/// A machine whose overlay names its host.
const MACHINE: &str = r#"
apiVersion: machine-config-server.io/v1alpha1
kind: FirstBootMachine
metadata: {name: rack-7, namespace: openshift-machine-config-operator}
spec:
  pool: worker
  overlay:
    ignition: {version: 3.4.0}
    storage:
      files:
      - {path: /etc/hostname, mode: 0644, contents: {source: "data:,rack-7%0A"}}
"#;

#[test]
fn a_machine_of_an_enforced_pool_joins_by_its_token_and_the_name_of_its_overlay() {
    apart(|| {
        let site = Site::start();
        site.enforce();
        site.apply(MACHINE);
        let place = Place(11);
        let mut machine = Site::boot(&site.own_user_data("rack-7"), &place);
        site.joined(&mut machine, "rack-7");
        site.shows(&mut machine, &place, "joined", "joined as Node rack-7, ");
        assert_eq!(site.node(&place.node()), None);
        let listed = site.server().run(&["machines"]).output;
        assert!(listed.contains("rack-7"), "{listed}");
    });
}

#[test]
fn a_machine_that_is_approved_while_it_waits_joins_without_being_touched() {
    apart(|| {
        let site = Site::start();
        site.enforce();
        site.apply(&MACHINE.replace("  overlay:", "  approval: required\n  overlay:"));
        let place = Place(11);
        let mut machine = Site::boot(&site.own_user_data("rack-7"), &place);
        site.shows(&mut machine, &place, "stuck", "waits for approval");
        let listed = site.server().run(&["machines"]).output;
        assert!(listed.contains("rack-7") && listed.contains("waits for approval"), "{listed}");
        site.plane.cluster.run(&["machines", "approve", "rack-7"]).done();
        site.joined(&mut machine, "rack-7");
        site.shows(&mut machine, &place, "joined", "joined as Node rack-7, ");
    });
}
