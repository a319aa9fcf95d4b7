//! A serving pair that another tool makes: taken over, renewed and moved to another root, with every pointer config that
//! was ever handed out.

use pki::{Certificate, External, Host, Refusal, Refused, StoredPair, Warning};
use time::Duration;

use super::world::{OwnCa, START, World, YEAR, host};

const DAY: Duration = Duration::DAY;
const NAME: &str = "Secret ns/theirs";

impl World {
    fn external(&mut self, pair: Option<StoredPair>, trust: &[&Certificate]) {
        let trust: String = trust.iter().map(|ca| ca.to_pem()).collect();
        let (name, trust) = (NAME.to_owned(), trust.into_bytes());
        self.stored.external = Some(External { name, pair, trust });
        self.settle();
    }

    #[track_caller]
    fn serves(&self, pair: &StoredPair) {
        assert_eq!(self.chain().first(), pair.leaf().as_ref(), "{:?}", self.attention);
        assert_eq!(self.locked_out().len(), 0);
    }

    fn said(&self) -> Vec<String> {
        self.attention.iter().map(Warning::to_string).collect()
    }
}

fn corporate(days: i32) -> OwnCa {
    OwnCa::with(START + DAY * days, |_| {})
}

#[test]
fn an_external_pair_is_taken_renewed_and_moved_to_another_root_and_nobody_is_locked_out() {
    let mut world = World::settled(START);
    let [first, second] = [1, 2].map(corporate);
    let pair = first.pair(&[host()], world.now, 90 * DAY);
    world.external(Some(pair.clone()), &[&first.certificate]);
    world.serves(&pair);
    assert_eq!(world.said(), [""; 0]);
    assert!(world.bundle().contains(&first.certificate));

    // What is made anew is served at once, and what was before is nothing to keep.
    let stored = world.stored.ca.clone();
    for _ in 0..3 {
        world.now += 60 * DAY;
        let pair = first.pair(&[host()], world.now, 90 * DAY);
        world.external(Some(pair.clone()), &[&first.certificate]);
        world.serves(&pair);
    }
    assert_eq!(world.stored.ca, stored);

    let moved = second.pair(&[host()], world.now, 90 * DAY);
    world.external(Some(moved.clone()), &[&first.certificate, &second.certificate]);
    world.serves(&moved);

    // Nothing is issued here, no matter who asks for it.
    world.stored.requested.ca = true;
    world.settle();
    world.serves(&moved);
    assert!(matches!(
        &world.attention[..],
        [Warning::Refused(Refused { refusal: Refusal::External(_), .. })]
    ));
    world.stored.requested.ca = false;

    // Without it the server makes its own again, when that of the other ends.
    world.stored.external = None;
    world.now += 91 * DAY;
    world.settle();
    assert!(world.serving().is_some() && world.chain().first() != moved.leaf().as_ref());
}

#[test]
fn with_an_external_first_pair_no_ca_is_made() {
    let mut world = World::fresh(START);
    let theirs = corporate(0);
    let pair = theirs.pair(&[host()], START, YEAR);
    world.external(Some(pair.clone()), &[&theirs.certificate]);
    world.settle();
    world.serves(&pair);
    assert_eq!(world.bundle(), [theirs.certificate]);
    assert_eq!(world.stored.ca, None);
}

#[test]
fn a_pair_that_locks_machines_out_is_served_when_that_is_forced() {
    let mut world = World::settled(START);
    let theirs = corporate(0);
    let elsewhere: Host = "elsewhere.example.com".parse().unwrap();
    let pair = theirs.pair(&[elsewhere], START, YEAR);
    world.external(Some(pair.clone()), &[&theirs.certificate]);
    assert_ne!(world.chain().first(), pair.leaf().as_ref());
    world.rotate(false, false);
    assert_ne!(world.chain().first(), pair.leaf().as_ref());
    world.rotate(false, true);
    assert_eq!(world.chain().first(), pair.leaf().as_ref());
}

#[test]
fn what_machines_would_not_trust_is_not_served() {
    let theirs = corporate(0);
    let other = corporate(1);
    let good = |hosts: &[Host]| theirs.pair(hosts, START, YEAR);
    let elsewhere: Host = "elsewhere.example.com".parse().unwrap();
    let foreign_key = StoredPair { key: other.stored().key, ..good(&[host()]) };
    let no_key = StoredPair { key: Vec::new(), ..good(&[host()]) };
    let root = &theirs.certificate;
    let unread = StoredPair::unreadable("ConfigMap ns/bundle not found".to_owned());
    let cases = [
        ("no secret", None, root, "not found"),
        ("no bundle", Some(unread), root, "cannot be read: ConfigMap ns/bundle not found"),
        ("another key", Some(foreign_key), root, "its key does not belong to its certificate"),
        ("no key", Some(no_key), root, "has no key"),
        ("nothing", Some(StoredPair::default()), root, "has no certificate"),
        ("a CA", Some(theirs.stored()), root, "its certificate is a CA certificate"),
        ("over", Some(theirs.pair(&[host()], START - YEAR, DAY)), root, "not valid now"),
        ("another name", Some(good(&[elsewhere])), root, "localhost"),
        ("another root", Some(good(&[host()])), &other.certificate, "cannot boot"),
    ];
    for (case, pair, trust, expected) in cases {
        let mut world = World::settled(START);
        let before = world.chain();
        world.external(pair, &[trust]);
        let said = world.said();
        assert!(said.len() == 1 && said[0].contains(expected), "{case}: {said:?}");
        assert!(said[0].contains(NAME), "{case}: {said:?}");
        assert_eq!(world.chain(), before, "{case}");
        // It is served once it is in order.
        world.external(Some(good(&[host()])), &[root]);
        assert_eq!(world.said(), [""; 0], "{case}");
        assert_ne!(world.chain(), before, "{case}");
    }
}
