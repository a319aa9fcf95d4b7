//! What is bounded, and what happens past the bound: nothing that a machine needs is left out unsaid.

use pki::{
    Certificate, External, KeyAlgorithm, MAX_CHAIN_BYTES, Refusal, Refused, StoredPair, Warning,
};
use time::Duration;

use super::world::{OwnCa, START, World, YEAR, host};

const TWO_HOURS: Duration = Duration::hours(2);

impl World {
    fn rotate_times(&mut self, times: usize, force: bool) {
        for _ in 0..times {
            self.now += TWO_HOURS;
            self.rotate(true, force);
        }
    }

    fn stored_blocks(&self, tag: &str) -> usize {
        let stored = self.stored.ca.as_ref().expect("a CA");
        let text = [&stored.certificates[..], &stored.key, &stored.previous].concat();
        let blocks = pem::parse_many(text).expect("PEM");
        blocks.iter().filter(|block| block.tag() == tag).count()
    }

    fn refusals(&self) -> Vec<&Refusal> {
        let refusal = |attention| match attention {
            &Warning::Refused(Refused { ref refusal, .. }) => Some(refusal),
            _ => None,
        };
        self.attention.iter().filter_map(refusal).collect()
    }
}

#[test]
fn a_restored_backup_boots_every_pointer_config_of_many_rotations() {
    for (algorithm, rotations) in [(KeyAlgorithm::P256, 17), (KeyAlgorithm::Rsa2048, 10)] {
        let mut world = World::fresh(START);
        world.policy.algorithm = algorithm;
        world.settle();
        let backup = world.stored.clone();
        world.rotate_times(rotations, false);
        assert_eq!(world.bundle().len(), rotations + 1, "{algorithm:?}: {:?}", world.attention);
        // As in a cluster, where one secret is restored; and as in a directory, where all is.
        for is_directory in [false, true] {
            let mut world = world.clone();
            world.stored.ca.clone_from(&backup.ca);
            if is_directory {
                world.stored = backup.clone();
                world.pointers.truncate(0);
            }
            world.settle();
            assert_eq!(world.locked_out().len(), 0, "{algorithm:?}: {:?}", world.locked_out());
            world.now += TWO_HOURS;
            world.rotate(true, false);
            assert_eq!(world.locked_out().len(), 0, "{algorithm:?}: {:?}", world.locked_out());
        }
    }
}

#[test]
fn no_key_and_no_pair_leaves_the_store_while_it_is_valid() {
    let mut world = World::settled(START);
    world.rotate_times(20, true);
    assert_eq!(world.stored_blocks("PRIVATE KEY"), 21);
    // Pairs that nobody here can issue again, each replaced.
    let ca = OwnCa::with(START, |_| {});
    for _ in 0..18 {
        world.now += TWO_HOURS;
        world.stored.serving = Some(ca.pair(&[host()], world.now, YEAR));
        world.rotate(false, true);
    }
    assert_eq!(world.stored_blocks("KEPT SERVING PAIR"), 18);
    // Long after their end they make room, the oldest first, for as many as there may be.
    world.now += 12 * YEAR;
    world.settle();
    assert_eq!(world.stored_blocks("PRIVATE KEY"), 16);
    assert_eq!(world.stored_blocks("KEPT SERVING PAIR"), 16);
}

#[test]
fn names_that_leave_no_room_are_refused_and_no_former_name_is_dropped() {
    let mut world = World::settled(START);
    world.rotate_times(3, false);
    let named = |world: &World| world.chain()[0].hosts.clone();
    let mut round = 0;
    let refused = loop {
        let before = named(&world);
        // What a machine was reached by before is known to nothing but the certificate.
        let new = (0..20).map(|name| format!("former-{round}-{name}.example.com"));
        world.stored.hosts = [host()].into_iter().chain(new.map(|n| n.parse().unwrap())).collect();
        world.now += TWO_HOURS;
        world.settle();
        assert!(named(&world).is_superset(&before), "a name was dropped after {round}");
        assert_eq!(world.locked_out().len(), 0);
        if !world.refusals().is_empty() {
            break named(&world);
        }
        round += 1;
    };
    assert!(refused.len() > 200, "{}", refused.len());
    let [Refusal::Names { hosts, .. }] = world.refusals()[..] else {
        panic!("{:?}", world.attention)
    };
    assert_eq!(*hosts, refused.len() + 20);
    let bytes: usize = world.chain().iter().map(|it| it.der().len()).sum();
    assert!(bytes < MAX_CHAIN_BYTES, "{bytes}");
    // Without the pair there are only the names that are known to be used.
    world.stored.serving = None;
    world.settle();
    assert_eq!(named(&world).len(), 21);
    assert_eq!(world.attention, []);
}

#[test]
fn forty_former_addresses_stay_in_the_certificate() {
    let mut world = World::settled(START);
    for last in 1..=40 {
        let address = format!("192.0.2.{last}").parse().expect("an address");
        world.stored.hosts = vec![host(), address];
        world.settle();
    }
    assert_eq!(world.chain()[0].hosts.len(), 41);
}

fn external(world: &mut World, pair: Option<StoredPair>, trust: &[&Certificate]) {
    let trust: String = trust.iter().map(|ca| ca.to_pem()).collect();
    let (name, trust) = ("Secret ns/theirs".to_owned(), trust.into_bytes());
    world.stored.external = Some(External { name, pair, trust });
    world.settle();
}

#[test]
fn of_a_long_list_of_cas_only_those_that_issue_what_is_served_go_into_pointer_configs() {
    let mut world = World::settled(START);
    let own = world.bundle();
    let cas: Vec<_> =
        (0..144).map(|day| OwnCa::with(START + Duration::days(day), |_| {})).collect();
    let all: Vec<_> = cas.iter().map(|ca| &ca.certificate).collect();
    let pair = |ca: &OwnCa, world: &World| Some(ca.pair(&[host()], world.now, YEAR));

    let first = pair(&cas[7], &world);
    external(&mut world, first.clone(), &all);
    assert_eq!(world.chain().first(), first.and_then(|pair| pair.leaf()).as_ref());
    assert!(world.bundle().contains(all[7]));
    assert_eq!(world.bundle().len(), own.len() + 1);
    let [Warning::Trust { listed: 144, dropped: 143, .. }] = world.attention[..] else {
        panic!("{:?}", world.attention)
    };
    assert!(world.pointers.iter().all(|pointer| pointer.len() < 16 << 10));

    // Another CA's pair is taken when pointer configs trust that CA.
    let second = pair(&cas[100], &world);
    external(&mut world, second.clone(), &all);
    assert_eq!(world.chain().first(), second.and_then(|pair| pair.leaf()).as_ref());
    assert_eq!(world.bundle().len(), own.len() + 2);
    // Nothing leaves while the pair is away for a moment, and a short list goes in as it is.
    external(&mut world, None, &all);
    assert_eq!(world.bundle().len(), own.len() + 2);
    let third = pair(&cas[100], &world);
    external(&mut world, third, &all[100..104]);
    assert_eq!(world.bundle().len(), own.len() + 5);
    assert_eq!(world.attention, []);
}

#[test]
fn a_pointer_config_larger_than_a_platform_takes_is_named_with_its_size() {
    let mut world = World::settled(START);
    world.rotate_times(16, false);
    assert_eq!(world.attention, [], "sixteen rotations stay below what EC2 takes");
    world.rotate_times(4, false);
    let [Warning::UserData { bytes, .. }] = world.attention[..] else {
        panic!("{:?}", world.attention)
    };
    assert_eq!(bytes, world.pointers[0].len());
    let said = world.attention[0].to_string();
    assert!(said.ends_with("EC2 accepts 16384"), "{said}");
    assert_eq!(Warning::verdict(&world.attention), "OK");
    assert_eq!(
        Warning::summary(&world.attention).as_deref(),
        Some("user data too large for EC2, or not updated: 1; run `certs check` for details")
    );
}
