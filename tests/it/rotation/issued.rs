//! CAs that another CA issues: taken, renewed and moved to another root, with every pointer config
//! that was ever handed out.

use pki::{
    Answer, Certificate, Issuer, NextAction, Reason, Refusal, Refused, Request, RequestAction,
    StoredPair, Warning,
};
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair, KeyUsagePurpose};
use time::{Duration, OffsetDateTime};

use super::world::{START, World, YEAR, key};

const DAY: Duration = Duration::DAY;
const NAME: &str = "cert-manager.io/ClusterIssuer/corporate";

/// An organisation's CA.
struct Corporate {
    params: CertificateParams,
    key: KeyPair,
    root: Certificate,
}

impl Corporate {
    fn new(name: &str, now: OffsetDateTime) -> Self {
        let key = key();
        let mut params = params(name, now - YEAR, 20 * YEAR);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issued = params.self_signed(&key).expect("a root");
        let root = Certificate::from_der(issued.der()).expect("a certificate");
        Self { params, key, root }
    }

    /// What it issues for a key, changed.
    fn issue(
        &self,
        for_key: &KeyPair,
        now: OffsetDateTime,
        valid: Duration,
        change: impl FnOnce(&mut CertificateParams),
    ) -> Certificate {
        let name = format!("machine-config-server-ca@{}-0", now.unix_timestamp());
        let mut params = params(&name, now, valid);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        change(&mut params);
        let by = rcgen::Issuer::from_params(&self.params, &self.key);
        let issued = params.signed_by(for_key, &by).expect("a CA");
        Certificate::from_der(issued.der()).expect("a certificate")
    }
}

fn params(name: &str, begin: OffsetDateTime, valid: Duration) -> CertificateParams {
    let mut params = CertificateParams::new(Vec::new()).expect("parameters");
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    (params.not_before, params.not_after) = (begin, begin + valid);
    params.use_authority_key_identifier_extension = true;
    params
}

fn anything(_: &mut CertificateParams) {}

fn no_ca_below(params: &mut CertificateParams) {
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
}

fn nobody_asked() -> Issuer {
    Issuer { name: NAME.to_owned(), has_issued: false, request: None }
}

impl World {
    /// One whose CA made itself, and is to be issued from now on.
    fn to_be_issued() -> Self {
        let mut world = Self::settled(START);
        world.stored.issuer = Some(nobody_asked());
        world
    }

    fn issuer(&mut self) -> &mut Issuer {
        self.stored.issuer.as_mut().expect("an issuer")
    }

    fn request_action(&mut self) -> RequestAction {
        match self.next() {
            NextAction::Settled { request_action, .. } => request_action,
            NextAction::Step { step, .. } => panic!("{step:?}"),
        }
    }

    /// Asks, and has this answer.
    fn answered(&mut self, key: &KeyPair, answer: Answer) {
        let since = self.now;
        let key = key.serialize_pem().into();
        self.issuer().request = Some(Request { key, since, before: 0, answer });
    }

    /// Asks, as it is asked to, and gets this CA.
    fn granted(
        &mut self,
        by: &Corporate,
        valid: Duration,
        change: impl FnOnce(&mut CertificateParams),
    ) -> Certificate {
        assert!(
            matches!(self.request_action(), RequestAction::Ask(_)),
            "{:?}",
            self.request_action()
        );
        let key = key();
        let certificate = by.issue(&key, self.now, valid, change);
        self.answered(&key, issued(&certificate, &by.root));
        self.settle();
        certificate
    }

    /// The same; it is taken, and what was asked for is discarded.
    fn taken(
        &mut self,
        by: &Corporate,
        valid: Duration,
        change: impl FnOnce(&mut CertificateParams),
    ) -> Certificate {
        let certificate = self.granted(by, valid, change);
        let own = self.stored.ca.as_ref().and_then(StoredPair::leaf);
        assert_eq!(own.as_ref(), Some(&certificate), "{:?}", self.attention);
        self.stored.requested.ca = false;
        self.settle();
        assert_eq!((self.request_action(), &self.attention[..]), (RequestAction::Discard, &[][..]));
        self.issuer().request = None;
        assert_eq!(self.request_action(), RequestAction::Nothing);
        certificate
    }

    /// The bundle is these.
    #[track_caller]
    fn trusts<const N: usize>(&self, cas: [&Certificate; N]) {
        let bundle = self.bundle();
        assert!(bundle.len() == N && cas.iter().all(|ca| bundle.contains(ca)), "{bundle:?}");
    }

    fn reported(&self) -> Vec<String> {
        self.attention.iter().map(Warning::to_string).collect()
    }
}

fn issued(certificate: &Certificate, root: &Certificate) -> Answer {
    let [chain, roots] = [certificate, root].map(|it| it.to_pem().into_bytes());
    Answer::Issued { chain, roots }
}

#[test]
fn an_issued_ca_is_taken_renewed_and_moved_to_another_root_and_nobody_is_locked_out() {
    let mut world = World::to_be_issued();
    let [first, second] = ["Root 1", "Root 2"].map(|name| Corporate::new(name, START));
    let own = world.bundle()[0].clone();
    assert_eq!(world.request_action(), RequestAction::Ask(Reason::Issuer(NAME.to_owned())));
    let intermediate = world.taken(&first, 90 * DAY, anything);
    world.trusts([&first.root, &own]);
    assert!(world.chain().contains(&intermediate) && world.chain()[0].is_issued_by(&intermediate));

    // It is renewed by what was granted, with a fifth left.
    world.now += 71 * DAY;
    world.settle();
    assert_eq!(world.request_action(), RequestAction::Nothing);
    world.now += 2 * DAY;
    assert_eq!(world.request_action(), RequestAction::Ask(Reason::Renewal));
    let renewed = world.taken(&first, 400 * DAY, anything);
    world.trusts([&first.root, &own]);
    assert!(world.chain()[0].is_issued_by(&renewed));

    world.stored.requested.ca = true;
    world.now += 10 * DAY;
    let moved = world.taken(&second, 400 * DAY, no_ca_below);
    world.trusts([&second.root, &first.root, &own]);
    assert!(world.chain()[0].is_issued_by(&moved));
    assert_eq!(world.locked_out().len(), 0);

    // By one that lets no CA follow, there is no way from another root's CA to its own holders.
    world.stored.requested.ca = true;
    world.now += 10 * DAY;
    let third = Corporate::new("Root 3", world.now);
    world.granted(&third, 400 * DAY, anything);
    assert!(matches!(
        &world.attention[..],
        [Warning::Refused(Refused { refusal: Refusal::LocksOut(_), .. })]
    ));
    assert!(world.chain()[0].is_issued_by(&moved));

    // A server that stops asking has one that made itself, at the next rotation.
    world.stored.issuer = None;
    world.now += YEAR;
    world.settle();
    let own = world.stored.ca.as_ref().and_then(StoredPair::leaf).expect("a CA");
    assert!(own.is_issued_by(&own) && world.bundle().contains(&own));
}

#[test]
fn an_issuer_that_is_unavailable_for_a_month_changes_nothing() {
    let mut world = World::to_be_issued();
    let corporate = Corporate::new("Root", START);
    world.taken(&corporate, 400 * DAY, anything);
    world.now += 321 * DAY;
    assert_eq!(world.request_action(), RequestAction::Ask(Reason::Renewal));
    let key = key();
    world.answered(&key, Answer::Pending("the issuer is not ready".to_owned()));
    let before = world.chain();
    for day in 0..30 {
        world.settle();
        let reported = world.reported();
        assert_eq!(reported.is_empty(), day == 0, "{reported:?}");
        assert!(
            reported.iter().all(|line| line.ends_with("Z: the issuer is not ready")),
            "{reported:?}"
        );
        assert_eq!(
            (world.request_action(), world.chain()),
            (RequestAction::Nothing, before.clone())
        );
        world.now += DAY;
    }
    let certificate = corporate.issue(&key, world.now, 400 * DAY, anything);
    let answer = issued(&certificate, &corporate.root);
    world.issuer().request.as_mut().expect("a request").answer = answer;
    // What has come is looked at, however long ago it was asked for.
    world.settle();
    assert!(world.chain()[0].is_issued_by(&certificate), "{:?}", world.reported());
}

#[test]
fn a_first_ca_is_waited_for_and_nothing_is_served_before() {
    let mut world = World::fresh(START);
    world.stored.issuer = Some(nobody_asked());
    world.settle();
    assert_eq!(world.request_action(), RequestAction::Ask(Reason::Missing));
    assert!(world.stored.ca.is_none() && world.chain().is_empty());
    let corporate = Corporate::new("Root", START);
    let first = world.taken(&corporate, 400 * DAY, anything);
    assert!(world.chain()[0].is_issued_by(&first));
    world.trusts([&corporate.root]);
    assert_eq!(world.locked_out().len(), 0);
}

#[test]
fn a_ca_that_was_issued_and_is_gone_is_asked_for_again() {
    let mut world = World::to_be_issued();
    let corporate = Corporate::new("Root", START);
    let intermediate = world.taken(&corporate, 400 * DAY, anything);
    // It ends while nobody answers: the CA before signs, and it is still asked for.
    world.now += 330 * DAY;
    let pending = Answer::Pending(String::new());
    world.answered(&key(), pending.clone());
    world.settle();
    world.now += 71 * DAY;
    world.settle();
    let own = world.stored.ca.as_ref().and_then(StoredPair::leaf).expect("a CA");
    assert!(own.is_issued_by(&own) && world.chain()[0].is_issued_by(&own));
    assert_eq!(world.request_action(), RequestAction::Nothing);
    assert!(world.reported().iter().any(|line| line.contains(NAME)), "{:?}", world.reported());
    world.issuer().request = None;
    let renewed = world.taken(&corporate, 400 * DAY, anything);
    assert!(world.chain()[0].is_issued_by(&renewed) && renewed != intermediate);

    world.distrust(&renewed);
    let own = world.stored.ca.as_ref().and_then(StoredPair::leaf).expect("a CA");
    assert!(own.is_issued_by(&own));
    assert_eq!(world.request_action(), RequestAction::Ask(Reason::Issuer(NAME.to_owned())));
}

/// Answers by what is wrong with them, and what is told of it.
fn misfits(corporate: &Corporate, own_key: &KeyPair) -> Vec<(&'static str, Answer, &'static str)> {
    let other = Corporate::new("Other root", START);
    let issue =
        |valid, change: fn(&mut CertificateParams)| corporate.issue(own_key, START, valid, change);
    let root = &corporate.root;
    let nowhere = |params: &mut CertificateParams| {
        params.name_constraints = Some(rcgen::NameConstraints {
            permitted_subtrees: vec![rcgen::GeneralSubtree::DnsName("example.com".to_owned())],
            excluded_subtrees: Vec::new(),
        });
    };
    vec![
        (
            "another key",
            issued(&corporate.issue(&key(), START, YEAR, anything), root),
            "its key does not belong to its certificate",
        ),
        ("no CA", issued(&issue(YEAR, |it| it.is_ca = IsCa::NoCa), root), "CA:TRUE is missing"),
        (
            "no signing",
            issued(
                &issue(YEAR, |it| it.key_usages = vec![KeyUsagePurpose::DigitalSignature]),
                root,
            ),
            "its key usage lacks keyCertSign",
        ),
        (
            "29 days",
            issued(&issue(29 * DAY, anything), root),
            "expires in 29 days, and pointer configs must be valid for 30",
        ),
        (
            "later",
            issued(&corporate.issue(own_key, START + DAY, YEAR, anything), root),
            "not valid now: from 2026-11-22",
        ),
        (
            "another root",
            issued(&issue(YEAR, anything), &other.root),
            "machines that trust its root cannot boot",
        ),
        ("names", issued(&issue(YEAR, nowhere), root), "machines that trust its root cannot boot"),
        (
            "no root",
            Answer::Issued { chain: issue(YEAR, anything).to_pem().into(), roots: Vec::new() },
            "has no root",
        ),
        (
            "nothing",
            Answer::Issued { chain: b"?".to_vec(), roots: root.to_pem().into() },
            "has no certificate",
        ),
        (
            "a refusal",
            Answer::Refused("the request was denied: no CAs here".to_owned()),
            "the request was denied: no CAs here",
        ),
    ]
}

#[test]
fn an_issued_ca_that_does_not_fit_is_reported_and_the_present_one_stays() {
    let corporate = Corporate::new("Root", START);
    let own_key = key();
    for (case, answer, expected) in misfits(&corporate, &own_key) {
        let mut world = World::to_be_issued();
        let before = world.chain();
        world.answered(&own_key, answer);
        world.settle();
        let reported = world.reported();
        assert!(reported.len() == 1 && reported[0].contains(expected), "{case}: {reported:?}");
        assert!(reported[0].contains(NAME), "{case}: {reported:?}");
        assert_eq!(
            (world.request_action(), world.chain()),
            (RequestAction::Nothing, before),
            "{case}"
        );
        world.now += Duration::HOUR;
        assert_eq!(
            world.request_action(),
            RequestAction::Ask(Reason::Issuer(NAME.to_owned())),
            "{case}"
        );
    }
}
