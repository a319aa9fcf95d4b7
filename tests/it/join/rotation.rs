//! A rotation of the CA between two machines, the second of which boots by the user data of before.

use std::fs;

use super::network::apart;
use super::site::{Place, Site};
use crate::support::command::Store as _;
use crate::support::wait_until;

#[test]
fn two_machines_join_by_one_user_data_before_and_after_a_rotation_of_the_ca() {
    apart(|| {
        let site = Site::start();
        let old = site.directory.path().join("old.ign");
        fs::copy(site.user_data("worker"), &old).expect("a copy");
        let first = Place(11);
        let mut machine = Site::boot(&old, &first);
        site.joined(&mut machine, &first.node());
        drop(machine);

        let shown = || site.shown_certificates();
        let before = shown();
        site.plane.cluster.run(&["certs", "rotate", "--ca"]).done();
        wait_until("all servers to show another certificate", || {
            site.mount_pair();
            let now = shown();
            before.iter().zip(&now).all(|(before, now)| before != now)
        });
        wait_until("other user data", || {
            fs::read(site.user_data("worker")).ok() != fs::read(&old).ok()
        });

        let second = Place(12);
        let mut machine = Site::boot(&old, &second);
        site.joined(&mut machine, &second.node());
    });
}
