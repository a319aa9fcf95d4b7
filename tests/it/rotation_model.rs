//! A model of forty years: certificates are renewed, rotations are asked for at random, the process
//! is stopped after every single write, and after each the chain that is served verifies for every
//! pointer config that was ever handed out and trusts an authority that has not expired.

use std::process::Command;
use std::sync::Arc;
use std::time::Duration as StdDuration;

use machine_config_server::ignition::{SpecVersion, pointer};
use machine_config_server::pki::issue::{Signer, issue_authority, issue_serving};
use machine_config_server::pki::plan::renewal;
use machine_config_server::pki::{
    Certificate, CertificateState, Holder, Host, KeyAlgorithm, MOST_STEPS, Next, Policy, Reason,
    Step, StoredPair, Write, locked_out, next, plan,
};
use machine_config_server::user_data::{self, Assessment};
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use time::{Duration, OffsetDateTime};

const START: OffsetDateTime = time::macros::datetime!(2026-11-21 0:00 UTC);
const HOST: &str = "api-int.example.com";
const YEAR: Duration = Duration::days(365);

/// A pointer config as a machine holds it for ever.
struct Handed {
    authorities: Vec<Certificate>,
    made: OffsetDateTime,
}

/// All that is stored, changed one write at a time.
struct World {
    observed: CertificateState,
    pointers: Vec<Vec<u8>>,
    handed: Vec<Handed>,
    now: OffsetDateTime,
    policy: Policy,
    crash_points: u64,
    /// Machines of an installation whose authority's key was never kept.
    root: Option<Certificate>,
    /// Every authority that there ever was.
    authorities: Vec<Certificate>,
}

fn host() -> Host {
    HOST.parse().expect("a host")
}

fn key() -> rcgen::KeyPair {
    KeyAlgorithm::P256.generate().expect("a key")
}

impl World {
    fn fresh(now: OffsetDateTime) -> Self {
        Self {
            observed: CertificateState { hosts: vec![host()], ..CertificateState::default() },
            pointers: Vec::new(),
            handed: Vec::new(),
            now,
            policy: Policy::default(),
            crash_points: 0,
            root: None,
            authorities: Vec::new(),
        }
    }

    /// An installation whose authority is known by its certificate alone.
    fn with_root(now: OffsetDateTime) -> Self {
        let mut world = Self::fresh(now);
        let signing = key();
        let root = issue_authority(&signing, 10 * YEAR, now - YEAR).expect("an authority");
        let signer = Signer { certificate: &root, key: &signing };
        let own = key();
        let leaf = issue_serving(&own, &[host()], &signer, 10 * YEAR, now - YEAR).expect("a pair");
        world.observed.root_authority = Some(root.to_pem().into());
        world.observed.serving = Some(StoredPair {
            certificates: leaf.to_pem().into(),
            key: own.serialize_pem().into(),
            previous: Vec::new(),
        });
        world.pointers = vec![pointer_config(std::slice::from_ref(&root))];
        world.root = Some(root);
        world.hand_out();
        world
    }

    fn bundle(&self) -> Vec<Certificate> {
        Certificate::read_all(self.observed.bundle.as_deref().unwrap_or_default())
    }

    fn known(&self) -> Vec<Certificate> {
        self.root.iter().chain(&self.authorities).cloned().collect()
    }

    /// What the next plan sees: all of it is stored, nothing is remembered.
    fn observe(&mut self) {
        let (bundle, known) = (self.bundle(), self.known());
        let pointers = self.pointers.iter().enumerate();
        self.observed.pointers = pointers
            .map(|(index, text)| user_data::observe(&index.to_string(), text, &bundle, &known))
            .collect();
    }

    /// At most so many writes of the next step, as a process makes them that dies after the last.
    /// Returns the step, `None` when all is in order.
    fn step(&mut self, most: usize) -> Option<Step> {
        self.observe();
        let algorithm = self.policy.algorithm;
        let next = next(&self.observed, &self.policy, self.now, &mut || algorithm.generate());
        match next.expect("certificates that can be issued") {
            Next::Settled { until } => {
                assert!(until > self.now, "a look that is due at once, with nothing to do");
                None
            }
            Next::Step { step, writes } => {
                assert!(!writes.is_empty(), "{step:?}");
                for write in writes.iter().take(most) {
                    self.apply(write);
                }
                Some(step)
            }
        }
    }

    fn apply(&mut self, write: &Write) {
        match write.clone() {
            Write::Authority(pair) => {
                self.authorities.extend(pair.leaf());
                self.observed.authority = Some(pair);
            }
            Write::Bundle(pem) => self.observed.bundle = Some(pem.into()),
            Write::Pointer { name, text } => {
                self.pointers[name.parse::<usize>().expect("an index")] = text;
            }
            Write::Serving(pair) => self.observed.serving = Some(pair),
        }
        self.observed.asked = write.leaves(self.observed.asked);
        self.crash_points += 1;
        self.hand_out();
        self.check();
    }

    /// Machines take what pointer configs there are.
    fn hand_out(&mut self) {
        for text in &self.pointers {
            let authorities = user_data::authorities(text);
            let is_new = !self.handed.iter().any(|handed| handed.authorities == authorities);
            if !authorities.is_empty() && is_new {
                self.handed.push(Handed { authorities, made: self.now });
            }
        }
    }

    /// No machine is locked out.
    fn check(&mut self) {
        let chain = self.observed.chain();
        let now = self.now;
        self.handed.retain(|handed| handed.authorities.iter().any(|a| a.is_valid_at(now)));
        // Before there is anything to serve, or when all was stopped for so long that its time is
        // over, there is nothing that a write could spoil.
        if !chain.first().is_some_and(|leaf| leaf.is_valid_at(now)) {
            return;
        }
        for handed in &self.handed {
            let trusted: Vec<_> =
                handed.authorities.iter().filter(|authority| authority.is_valid_at(now)).collect();
            let is_root_only =
                trusted.iter().all(|authority| Some(*authority) == self.root.as_ref());
            let leaf_is_roots = self.root.as_ref().is_some_and(|root| chain[0].is_issued_by(root));
            let holder = Holder {
                name: format!("a pointer config of {}", handed.made),
                trusted: handed.authorities.clone(),
                hosts: vec![host()],
            };
            let lockouts = locked_out(&chain, &[holder], now);
            // Another verifier says the same. It takes expired authorities for valid, so it is not
            // given them, and ways of six authorities at most: the short ways keep it below that.
            assert_eq!(verifies(&chain, &trusted, now), lockouts.is_empty(), "{lockouts:?}");
            if is_root_only && !leaf_is_roots {
                // Its key was never kept, and the serving pair has reached its own end.
                continue;
            }
            assert!(
                lockouts.is_empty(),
                "at {now}, {} writes in: {lockouts:?} by {chain:?}",
                self.crash_points,
            );
        }
        // The bundle holds the authority that signed what is served, and the serving pair does not
        // outlive it.
        let bundle = self.bundle();
        let issuer = bundle.iter().find(|trusted| chain[0].is_issued_by(trusted));
        if let Some(issuer) = issuer {
            assert!(chain[0].not_after <= issuer.not_after);
        } else {
            // It was served before there was a bundle.
            assert!(bundle.is_empty(), "{chain:?} {bundle:?}");
        }
    }

    fn settle(&mut self) {
        for _ in 0..MOST_STEPS {
            if self.step(usize::MAX).is_none() {
                if self.pointers.is_empty() {
                    // The first pool's is made when there is something to trust.
                    self.pointers.push(pointer_config(&self.bundle()));
                    self.hand_out();
                    self.check();
                }
                self.in_order();
                return;
            }
        }
        panic!("no end at {}", self.now);
    }

    /// What holds once nothing is left to do.
    fn in_order(&self) {
        let bundle = self.bundle();
        let text = self.observed.bundle.as_deref().expect("a bundle");
        assert!(text.ends_with(b"-----END CERTIFICATE-----\n"));
        assert!(bundle.iter().all(|authority| authority.not_after >= self.now));
        assert!(bundle.is_sorted_by(|a, b| a.not_before >= b.not_before), "newest first");
        for pointer in &self.pointers {
            assert_eq!(user_data::assess(pointer, &bundle, &self.known()), Assessment::Current);
        }
        let chain = self.observed.chain();
        assert!(chain[0].is_valid_at(self.now));
        let cross_signed = self.root.as_ref().is_none_or(|root| !chain[0].is_issued_by(root));
        if cross_signed {
            // Old clients read the first authority of a bundle only.
            assert!(verifies(&chain, &[&bundle[0]], self.now));
        }
    }
}

fn pointer_config(bundle: &[Certificate]) -> Vec<u8> {
    let url = format!("https://{HOST}:22623/config/worker");
    let pem: String = bundle.iter().map(Certificate::to_pem).collect();
    pointer(&url, pem.as_bytes(), SpecVersion::V3_1).to_string().into_bytes()
}

fn verifies(chain: &[Certificate], trusted: &[&Certificate], now: OffsetDateTime) -> bool {
    let mut roots = RootCertStore::empty();
    for authority in trusted {
        roots.add(CertificateDer::from(authority.der().to_vec())).expect("an authority");
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .expect("a verifier");
    let der: Vec<CertificateDer<'_>> =
        chain.iter().map(|certificate| CertificateDer::from(certificate.der())).collect();
    let seconds = u64::try_from(now.unix_timestamp()).expect("after 1970");
    let time = UnixTime::since_unix_epoch(StdDuration::from_secs(seconds));
    let name = ServerName::try_from(HOST).expect("a name");
    verifier.verify_server_cert(&der[0], &der[1..], &name, &[], time).is_ok()
}

/// Random numbers that are the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        // Marsaglia's xorshift64.
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

#[test]
fn no_machine_is_locked_out_at_any_crash_point_of_forty_years() {
    let mut crash_points = 0;
    let mut seed = Random(0x9e37_79b9_7f4a_7c15);
    while crash_points < 10_000 {
        let mut world = match seed.below(3) {
            0 => World::fresh(START),
            1 => World::with_root(START),
            _ => {
                // Adopted in the middle of a rotation.
                let mut world = World::fresh(START - 5 * YEAR);
                world.settle();
                world.observed.asked.authority = true;
                world.now = START;
                for _ in 0..seed.below(4) {
                    world.step(1);
                }
                world
            }
        };
        let end = START + 40 * YEAR;
        while world.now < end {
            world.settle();
            let days = i64::try_from(1 + seed.below(900)).expect("a few years");
            world.now += Duration::days(days);
            match seed.below(3) {
                0 => world.observed.asked.authority = true,
                1 => world.observed.asked.serving = true,
                _ => {}
            }
            // Some pools come, each with a pointer config of its own.
            if world.pointers.len() < 4 && seed.below(3) == 0 {
                let copy = world.pointers[0].clone();
                world.pointers.push(copy);
            }
            // Stopped after some writes, and gone on with later.
            for _ in 0..seed.below(5) {
                world.step(1 + usize::try_from(seed.below(3)).expect("a few"));
                world.now += Duration::days(i64::try_from(seed.below(20)).expect("some days"));
            }
        }
        crash_points += world.crash_points;
    }
    println!("{crash_points} crash points");
}

#[test]
fn renewal_and_expiry_are_kept_to_the_second() {
    let mut world = World::fresh(START);
    world.settle();
    let policy = world.policy;
    let due = renewal(&world.observed.chain()[0], &policy);
    assert!((due - START).whole_days() >= 8 * 365 - 1);
    let reason = |world: &mut World, now: OffsetDateTime| {
        world.observe();
        plan(&world.observed, &policy, now).step
    };
    assert_eq!(reason(&mut world, due - Duration::SECOND), None);
    assert_eq!(reason(&mut world, due), Some(Step::Authority(Reason::Renewal)));
    let end = world.observed.chain()[0].not_after;
    assert_eq!(reason(&mut world, end), Some(Step::Authority(Reason::Renewal)));
    assert_eq!(reason(&mut world, end + Duration::SECOND), Some(Step::Authority(Reason::Expired)));
    assert_eq!(
        reason(&mut world, START - Duration::days(1)),
        Some(Step::Authority(Reason::Expired)),
        "its time has not come"
    );

    // The old authority leaves the bundle in the second after its end.
    let old = world.bundle()[0].clone();
    world.now = due;
    world.settle();
    assert!(world.bundle().contains(&old));
    world.now = old.not_after;
    assert_eq!(reason(&mut world, old.not_after), None);
    let Some(Step::Bundle(_)) = reason(&mut world, old.not_after + Duration::SECOND) else {
        panic!("it stays in the bundle")
    };
}

#[test]
fn each_reason_is_told() {
    let mut world = World::fresh(START);
    let reason = |world: &mut World| {
        world.observe();
        plan(&world.observed, &world.policy, world.now).step
    };
    assert_eq!(reason(&mut world), Some(Step::Authority(Reason::Missing)));
    world.settle();
    let settled = world.observed.clone();
    let serving = |reason| Some(Step::Serving(reason, vec![host()]));

    world.observed.authority.as_mut().expect("one").certificates = b"x".to_vec();
    assert_eq!(reason(&mut world), Some(Step::Authority(Reason::Unreadable)));
    world.observed = settled.clone();
    world.observed.authority.as_mut().expect("one").key = key().serialize_pem().into();
    assert_eq!(reason(&mut world), Some(Step::Authority(Reason::Key)));

    world.observed = settled.clone();
    world.observed.serving = None;
    assert_eq!(reason(&mut world), serving(Reason::Missing));
    world.observed = settled.clone();
    world.observed.serving.as_mut().expect("one").certificates = b"x".to_vec();
    assert_eq!(reason(&mut world), serving(Reason::Unreadable));
    world.observed = settled.clone();
    world.observed.serving.as_mut().expect("one").key = Vec::new();
    assert_eq!(reason(&mut world), serving(Reason::Key));

    world.observed = settled.clone();
    let other: Host = "192.0.2.1".parse().expect("an address");
    world.observed.hosts.push(other.clone());
    let wanted = vec![host(), other.clone()];
    assert_eq!(reason(&mut world), Some(Step::Serving(Reason::Host(other), wanted)));

    world.observed = settled.clone();
    let stranger = key();
    let signing = issue_authority(&stranger, YEAR, START).expect("an authority");
    let signer = Signer { certificate: &signing, key: &stranger };
    let own = key();
    let leaf = issue_serving(&own, &[host()], &signer, YEAR, START).expect("a pair");
    world.observed.serving = Some(StoredPair {
        certificates: leaf.to_pem().into(),
        key: own.serialize_pem().into(),
        previous: Vec::new(),
    });
    assert_eq!(reason(&mut world), serving(Reason::Issuer));
    world.observed = settled;
    assert_eq!(reason(&mut world), None, "it was in order");
}

#[test]
fn a_leaf_does_not_outlive_its_authority_and_is_renewed_in_time() {
    let mut world = World::fresh(START);
    world.settle();
    world.now = START + 7 * YEAR;
    world.observed.asked.serving = true;
    world.settle();
    let (leaf, authority) = (world.observed.chain()[0].clone(), world.bundle()[0].clone());
    assert_eq!(leaf.not_after, authority.not_after);
    let due = renewal(&leaf, &world.policy);
    assert!(due < leaf.not_after && due > world.now, "{due}");
}

#[test]
fn a_pointer_of_an_old_installation_is_served_as_long_as_its_pair_lasts() {
    let mut world = World::with_root(START);
    let root = world.root.clone().expect("one");
    world.settle();
    assert!(world.observed.chain()[0].is_issued_by(&root), "the old pair stays");
    assert_eq!(world.bundle().len(), 2, "new machines trust both");
    // Later authorities are cross_signed among each other, and the old pair still stays.
    world.observed.asked.authority = true;
    world.settle();
    assert!(world.observed.chain()[0].is_issued_by(&root));
    world.now = renewal(&world.observed.chain()[0], &world.policy);
    world.settle();
    assert!(!world.observed.chain()[0].is_issued_by(&root), "its time was over");
}

/// Writes PEM files and has OpenSSL verify the chain by one authority.
fn openssl_verifies(chain: &[Certificate], trusted: &Certificate, now: OffsetDateTime) -> String {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let pem = |certificates: &[Certificate]| -> String {
        certificates.iter().map(Certificate::to_pem).collect()
    };
    let write = |name: &str, text: String| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("a writable folder");
        path
    };
    let leaf = write("leaf", pem(&chain[..1]));
    let others = write("others", pem(&chain[1..]));
    let root = write("root", trusted.to_pem());
    let mut command = Command::new("openssl");
    command.args(["verify", "-x509_strict", "-purpose", "sslserver", "-verify_hostname", HOST]);
    command.arg("-attime").arg(now.unix_timestamp().to_string());
    command.arg("-CAfile").arg(root);
    if chain.len() > 1 {
        command.arg("-untrusted").arg(others);
    }
    let output = command.arg(leaf).output().expect("openssl");
    let text = [output.stdout, output.stderr].concat();
    String::from_utf8_lossy(&text).into_owned()
}

#[test]
fn openssl_follows_two_dozen_rotations_strictly() {
    let mut world = World::fresh(START);
    world.settle();
    let first = world.bundle()[0].clone();
    for month in 1..=24 {
        world.now = START + Duration::days(30 * month);
        world.observed.asked.authority = true;
        world.settle();
    }
    let chain = world.observed.chain();
    assert_eq!(chain.len(), 1 + 24 + 23, "a short way and a link for each older authority");
    for authority in [&first, &world.bundle()[0], &world.bundle()[12]] {
        let verified = openssl_verifies(&chain, authority, world.now);
        assert!(verified.contains(": OK"), "{verified}");
    }
}

#[test]
fn certificates_are_as_rfc_5280_asks() {
    for (name, algorithm) in KeyAlgorithm::ALL {
        let mut world = World::fresh(START);
        world.observed.hosts.push("192.0.2.1".parse().expect("an address"));
        world.observed.hosts.push("2001:db8::1".parse().expect("an address"));
        world.policy.algorithm = algorithm;
        world.settle();
        let authority = world.observed.authority.as_ref().expect("one");
        let authority = Certificate::read_all(&authority.certificates).remove(0);
        let chain = world.observed.chain();
        let verified = openssl_verifies(&chain, &authority, START);
        assert!(verified.contains(": OK"), "{name}: {verified}");
        let text = openssl_text(&chain[0]);
        for wanted in [
            "CA:FALSE",
            "Digital Signature",
            "TLS Web Server Authentication",
            "X509v3 Subject Key Identifier",
            "X509v3 Authority Key Identifier",
            "DNS:api-int.example.com, IP Address:192.0.2.1, IP Address:2001:DB8:0:0:0:0:0:1",
        ] {
            assert!(text.contains(wanted), "{name}: {wanted} in {text}");
        }
        for (flag, name) in
            [("-checkhost", HOST), ("-checkip", "192.0.2.1"), ("-checkip", "2001:db8::1")]
        {
            let checked = openssl_x509(&chain[0], &["-noout", flag, name]);
            assert!(checked.contains("does match certificate"), "{flag} {name}: {checked}");
        }
        let text = openssl_text(&authority);
        for wanted in ["CA:TRUE", "Certificate Sign, CRL Sign", "X509v3 Subject Key Identifier"] {
            assert!(text.contains(wanted), "{name}: {wanted} in {text}");
        }
    }
}

fn openssl_text(certificate: &Certificate) -> String {
    openssl_x509(certificate, &["-noout", "-text"])
}

fn openssl_x509(certificate: &Certificate, arguments: &[&str]) -> String {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(file.path(), certificate.to_pem()).expect("a writable file");
    let output = Command::new("openssl")
        .arg("x509")
        .args(arguments)
        .arg("-in")
        .arg(file.path())
        .output()
        .expect("openssl");
    String::from_utf8_lossy(&output.stdout).into_owned()
}
