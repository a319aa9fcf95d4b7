//! A machine that cannot join, for a reason that is not in its config: what an administrator sees of it.

use super::network::apart;
use super::site::{Place, Site};
use crate::support::command::Store as _;
use crate::support::wait_until;

#[test]
fn a_machine_whose_bootstrap_token_is_wrong_is_shown_with_that_reason() {
    apart(|| {
        let mut site = Site::start();
        // The other one learns of it later.
        site.servers.remove(0);
        site.balance();
        site.mount_wrong_token();
        let place = Place(11);
        let mut machine = Site::boot(&site.user_data("worker"), &place);
        let words = "the API server refuses the bootstrap token that machines get: Unauthorized";
        site.shows(&mut machine, &place, "stuck", words);
        machine.wait_for("kubelet to be refused", |machine| {
            machine.console().contains("Unauthorized").then_some(())
        });
        assert!(site.server().page("/").contains(words));
        let listed = site.server().run(&["machines"]);
        assert_eq!(listed.status, 1);
        assert!(listed.output.contains(words), "{}", listed.output);
        let (_, readiness) = site.server().readiness();
        assert!(readiness.contains(words), "{readiness}");
        site.mount_token();
        wait_until("the recovery", || !site.server().readiness().1.contains(words));
    });
}

#[test]
fn a_machine_whose_clock_is_a_year_behind_is_shown_with_that_reason() {
    apart(|| {
        let site = Site::start();
        let place = Place(11);
        let mut machine =
            Site::boot_with(&site.user_data("worker"), &place, &["-rtc", "base=2025-11-01"]);
        site.shows(&mut machine, &place, "stuck", "its clock is wrong");
        let listed = site.server().run(&["machines"]);
        assert_eq!(listed.status, 1);
        assert!(listed.output.contains("its clock is wrong"), "{}", listed.output);
    });
}
