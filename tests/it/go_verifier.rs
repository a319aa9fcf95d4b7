//! Who is locked out, asked of the rules in `pki` and of Go's `crypto/x509`: whatever is sent and
//! trusted, both have to say the same.
//!
//! They need a Go program, which `tests/run` builds: `--skip go_verifier::` leaves them out.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;

use pki::{Certificate, LockoutReason, TrustHolder, locked_out};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use rcgen::{
    BasicConstraints, CertificateParams, CidrSubnet, CustomExtension, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, GeneralSubtree, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose,
    NameConstraints, RsaKeySize, SanType,
};
use time::{Duration, OffsetDateTime};

use crate::rotation::model;
use crate::support::{go, in_repository};

const NOW: OffsetDateTime = time::macros::datetime!(2026-11-21 0:00 UTC);
const YEAR: Duration = Duration::days(365);

/// Who has keys and may sign: names with the kinds of their keys. The last two bear another's name.
static CAS: LazyLock<Vec<(&str, KeyPair)>> = LazyLock::new(|| {
    let key = |algorithm| KeyPair::generate_for(algorithm).expect("a key");
    let rsa = |algorithm| KeyPair::generate_rsa_for(algorithm, RsaKeySize::_2048).expect("a key");
    vec![
        ("one", key(&rcgen::PKCS_ECDSA_P256_SHA256)),
        ("two", rsa(&rcgen::PKCS_RSA_SHA256)),
        ("three", key(&rcgen::PKCS_ECDSA_P384_SHA384)),
        ("four", key(&rcgen::PKCS_ED25519)),
        ("one", rsa(&rcgen::PKCS_RSA_SHA512)),
        ("two", key(&rcgen::PKCS_ECDSA_P256_SHA256)),
    ]
});

const NAMES: [&str; 10] = [
    "api-int.example.com",
    "API.example.com",
    "*.example.com",
    "a.b.example.com",
    "*.b.example.com",
    "localhost",
    "under_score.example.org",
    "192.0.2.1",
    "2001:db8::1",
    "::ffff:192.0.2.7",
];
const HOSTS: [&str; 8] = [
    "api-int.example.com",
    "api.example.com",
    "example.com",
    "a.b.example.com",
    "localhost",
    "192.0.2.1",
    "192.0.2.7",
    "[2001:db8::1]",
];
const SUBTREES: [&str; 9] = [
    "",
    "example.com",
    ".example.com",
    "EXAMPLE.com",
    "b.example.com",
    "localhost",
    "192.0.2.0/24",
    "192.0.2.1/32",
    "2001:db8::/32",
];

/// What is unlike an ordinary certificate.
#[derive(Debug, Clone)]
enum Change {
    /// Seconds from now.
    Begins(i64),
    Ends(i64),
    NoCa,
    MarkedNoCa,
    PathLength(u8),
    Usage(Vec<KeyUsagePurpose>),
    ExtendedUsage(Vec<ExtendedKeyUsagePurpose>),
    Constraints {
        permitted: Vec<&'static str>,
        excluded: Vec<&'static str>,
    },
    UnknownExtension {
        is_critical: bool,
    },
    NoIssuerIdentifier,
    KeyIdentifier(u8),
}

/// A certificate of any name and key, by any signer.
#[derive(Debug, Clone)]
struct Ca {
    subject: usize,
    issuer: usize,
    changes: Vec<Change>,
}

/// A chain, and who is to accept it.
#[derive(Debug, Clone)]
struct Case {
    issuer: usize,
    names: Vec<&'static str>,
    changes: Vec<Change>,
    /// After the leaf, in this order.
    sent: Vec<Ca>,
    trusted: Vec<Ca>,
    trusts_leaf: bool,
    hosts: Vec<&'static str>,
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let extended = [
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
        ExtendedKeyUsagePurpose::Any,
    ];
    let usages =
        [KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    let subtrees = || subsequence(SUBTREES.to_vec(), 0..=3);
    let change = prop_oneof![
        1 => (-1_i64..=1).prop_map(Change::Begins),
        1 => (-1_i64..=1).prop_map(Change::Ends),
        1 => Just(Change::NoCa),
        1 => Just(Change::MarkedNoCa),
        3 => (0_u8..3).prop_map(Change::PathLength),
        2 => subsequence(usages.to_vec(), 0..=2).prop_map(Change::Usage),
        2 => subsequence(extended.to_vec(), 0..=2).prop_map(Change::ExtendedUsage),
        4 => (subtrees(), subtrees())
            .prop_map(|(permitted, excluded)| Change::Constraints { permitted, excluded }),
        1 => any::<bool>().prop_map(|is_critical| Change::UnknownExtension { is_critical }),
        1 => Just(Change::NoIssuerIdentifier),
        1 => (0_u8..2).prop_map(Change::KeyIdentifier),
    ];
    prop_oneof![Just(Vec::new()), vec(change, 1..=2)]
}

fn case() -> impl Strategy<Value = Case> {
    let who = || prop_oneof![4 => 0..3_usize, 1 => 3..CAS.len()];
    let ca = (who(), who(), changes()).prop_map(|(subject, issuer, changes)| Ca {
        subject,
        issuer,
        changes,
    });
    // They sign each other, and some themselves.
    let all = vec(ca, 1..=9);
    let all = (all, changes()).prop_map(|(mut all, changes)| {
        let subject = all[0].issuer;
        all.push(Ca { subject, issuer: subject, changes });
        all
    });
    let shared = all.prop_flat_map(|all| {
        let few = subsequence(all.clone(), 0..=all.len());
        let sent = prop_oneof![2 => Just(all.clone()), 1 => few].prop_shuffle();
        let trusted = subsequence(all.clone(), 1..=all.len().min(3));
        (sent, trusted)
    });
    let names = prop_oneof![2 => Just(NAMES.to_vec()), 1 => subsequence(NAMES.to_vec(), 0..=4)];
    let leaf = (who(), names, changes(), prop::bool::weighted(0.03));
    let hosts =
        prop_oneof![3 => subsequence(HOSTS.to_vec(), 0..=1), 1 => subsequence(HOSTS.to_vec(), 2)];
    (leaf, shared, hosts).prop_map(
        |((issuer, names, changes, trusts_leaf), (sent, trusted), hosts)| Case {
            issuer,
            names,
            changes,
            sent,
            trusted,
            trusts_leaf,
            hosts,
        },
    )
}

impl Change {
    fn apply(&self, params: &mut CertificateParams) {
        match self {
            Self::Begins(seconds) => params.not_before = NOW + Duration::seconds(*seconds),
            Self::Ends(seconds) => params.not_after = NOW + Duration::seconds(*seconds),
            Self::NoCa => params.is_ca = IsCa::NoCa,
            Self::MarkedNoCa => params.is_ca = IsCa::ExplicitNoCa,
            Self::PathLength(most) => {
                params.is_ca = IsCa::Ca(BasicConstraints::Constrained(*most));
            }
            Self::Usage(usages) => params.key_usages.clone_from(usages),
            Self::ExtendedUsage(usages) => params.extended_key_usages.clone_from(usages),
            Self::Constraints { permitted, excluded } => {
                let subtrees = |texts: &[&str]| texts.iter().map(|text| subtree(text)).collect();
                params.name_constraints = Some(NameConstraints {
                    permitted_subtrees: subtrees(permitted),
                    excluded_subtrees: subtrees(excluded),
                });
            }
            Self::UnknownExtension { is_critical } => {
                let mut extension =
                    CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 32473, 1], vec![5, 0]);
                extension.set_criticality(*is_critical);
                params.custom_extensions = vec![extension];
            }
            Self::NoIssuerIdentifier => params.use_authority_key_identifier_extension = false,
            Self::KeyIdentifier(byte) => {
                params.key_identifier_method = KeyIdMethod::PreSpecified(vec![*byte; 20]);
            }
        }
    }
}

fn subtree(text: &str) -> GeneralSubtree {
    if text.contains('/') {
        return GeneralSubtree::IpAddress(text.parse::<CidrSubnet>().expect("a network"));
    }
    GeneralSubtree::DnsName(text.to_owned())
}

fn params(name: &str, changes: &[Change]) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = NOW - YEAR;
    params.not_after = NOW + YEAR;
    params.use_authority_key_identifier_extension = true;
    for change in changes {
        change.apply(&mut params);
    }
    params
}

fn ca_params(name: &str, changes: &[Change]) -> CertificateParams {
    let marked = [Change::Usage(vec![KeyUsagePurpose::KeyCertSign])];
    let mut params = params(name, &marked);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    for change in changes {
        change.apply(&mut params);
    }
    params
}

/// By an ordinary certificate of this issuer, whatever others there are.
fn sign(params: &CertificateParams, key: &KeyPair, (name, by): (&str, &KeyPair)) -> Certificate {
    let issuer = ca_params(name, &[]);
    let signed = params.signed_by(key, &Issuer::from_params(&issuer, by)).expect("a certificate");
    Certificate::from_der(signed.der()).expect("a certificate")
}

fn ca(shape: &Ca) -> Certificate {
    let ((name, key), (issuer, by)) = (&CAS[shape.subject], &CAS[shape.issuer]);
    sign(&ca_params(name, &shape.changes), key, (issuer, by))
}

fn leaf(case: &Case) -> Certificate {
    static KEY: LazyLock<KeyPair> = LazyLock::new(|| KeyPair::generate().expect("a key"));
    let mut params = params("leaf", &case.changes);
    let name = |name: &&str| match name.parse() {
        Ok(address) => SanType::IpAddress(address),
        Err(_) => SanType::DnsName((*name).try_into().expect("ASCII")),
    };
    params.subject_alt_names = case.names.iter().map(name).collect();
    let (issuer, by) = &CAS[case.issuer];
    sign(&params, &KEY, (issuer, by))
}

fn holder(trusted: Vec<Certificate>, hosts: &[&str]) -> TrustHolder {
    let hosts = hosts.iter().map(|host| host.parse().expect("a host")).collect();
    TrustHolder { name: "worker.ign".to_owned(), trusted, hosts }
}

/// What both say, `None` if they accept the chain. Panics where they differ.
fn verdict(
    chain: &[Certificate],
    holder: &TrustHolder,
) -> Result<Option<LockoutReason>, TestCaseError> {
    let ours = locked_out(chain, std::slice::from_ref(holder), NOW).pop().map(|it| it.reason);
    let theirs = go::judge(chain, holder, NOW);
    prop_assert_eq!(ours.is_some(), !theirs.is_empty(), "{:?} but Go says {:?}", ours, theirs);
    Ok(ours)
}

/// The variant's name.
fn kind(reason: Option<&LockoutReason>) -> String {
    let text = reason.map_or_else(|| "Accepted".to_owned(), |reason| format!("{reason:?}"));
    text.chars().take_while(char::is_ascii_alphabetic).collect()
}

/// Runs the same cases each time. Returns how often each verdict came.
fn run<T: std::fmt::Debug>(
    cases: u32,
    strategy: impl Strategy<Value = T>,
    judge: impl Fn(T) -> Result<Option<LockoutReason>, TestCaseError>,
) -> BTreeMap<String, u32> {
    let config = Config { failure_persistence: None, ..Config::with_cases(cases) };
    let random = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let counts = RefCell::new(BTreeMap::new());
    let outcome = TestRunner::new_with_rng(config, random).run(&strategy, |case| {
        let reason = judge(case)?;
        *counts.borrow_mut().entry(kind(reason.as_ref())).or_default() += 1;
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
    counts.into_inner()
}

#[test]
fn go_locks_out_the_same_holders_for_any_chain_and_any_trusted_cas() {
    let counts = run(4_000, case(), |case| {
        let leaf = leaf(&case);
        let mut chain = vec![leaf.clone()];
        chain.extend(case.sent.iter().map(ca));
        let mut trusted: Vec<_> = case.trusted.iter().map(ca).collect();
        trusted.extend(case.trusts_leaf.then_some(leaf));
        verdict(&chain, &holder(trusted, &case.hosts))
    });
    for wanted in [
        "Accepted",
        "CriticalExtension",
        "Expired",
        "ExtendedKeyUsage",
        "Host",
        "IssuerMissing",
        "KeyUsage",
        "NameConstraints",
        "NoCa",
        "NoValidCa",
        "NotYetValid",
        "PathLength",
        "Untrusted",
    ] {
        let count = counts.get(wanted).copied().unwrap_or_default();
        assert!(count >= 5, "{wanted} came {count} times: {counts:?}");
    }
    assert!(counts["Accepted"] >= 400, "{counts:?}");
}

/// How the CAs of a rotation vouch for each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Vouching {
    /// The one before signs the next one.
    Previous,
    /// And the next one signs the one before.
    Mutual,
    /// Each one signs all newer ones.
    All,
}

/// So many CAs, one after the other, in whatever order; the newest signs the leaf, and one of them
/// is trusted.
fn rotation() -> impl Strategy<Value = (Vec<(usize, usize)>, usize, usize)> {
    let kinds = vec![Vouching::Previous, Vouching::Mutual, Vouching::All];
    let sizes = (select(kinds), 1..=70_usize, prop::bool::weighted(0.2));
    sizes.prop_flat_map(|(vouching, size, loses_one)| {
        let size = if vouching == Vouching::All { 1 + size / 5 } else { size };
        let vouches = |by: usize, of: usize| match vouching {
            Vouching::Previous => of == by + 1,
            Vouching::Mutual => of == by + 1 || by == of + 1,
            Vouching::All => of > by,
        };
        let all = (0..size).flat_map(|by| (0..size).map(move |of| (by, of)));
        let pairs: Vec<_> = all.filter(|(by, of)| vouches(*by, *of)).collect();
        let kept = pairs.len() - usize::from(loses_one && !pairs.is_empty());
        (Just(pairs).prop_shuffle(), Just(kept), 0..size, Just(size))
            .prop_map(|(pairs, kept, trusted, size)| (pairs[..kept].to_vec(), trusted, size - 1))
    })
}

#[test]
fn go_finds_its_way_through_a_rotated_chain_as_far_as_we_say() {
    let keys: Vec<_> = (0..70)
        .map(|number| (format!("ca-{number}"), KeyPair::generate().expect("a key")))
        .collect();
    let issued: RefCell<HashMap<_, Certificate>> = RefCell::default();
    let certificate = |(by, of): (usize, usize)| {
        let make = || sign(&ca_params(&keys[of].0, &[]), &keys[of].1, (&keys[by].0, &keys[by].1));
        issued.borrow_mut().entry((by, of)).or_insert_with(make).clone()
    };
    let counts = run(600, rotation(), |(pairs, trusted, newest)| {
        let mut params = params("leaf", &[]);
        params.subject_alt_names = vec![SanType::DnsName("localhost".try_into().expect("ASCII"))];
        let key = &keys[newest];
        let mut chain = vec![sign(&params, &keys[0].1, (&key.0, &key.1))];
        chain.extend(pairs.iter().copied().map(certificate));
        verdict(&chain, &holder(vec![certificate((trusted, trusted))], &["localhost"]))
    });
    for wanted in ["Accepted", "IssuerMissing", "TooManyCandidates"] {
        assert!(counts.get(wanted).is_some_and(|count| *count >= 20), "{wanted}: {counts:?}");
    }
}

#[test]
fn go_refuses_what_is_too_long_and_what_is_not_there() {
    let root = &CAS[0];
    let ca = sign(&ca_params(root.0, &[]), &root.1, (root.0, &root.1));
    let key = KeyPair::generate().expect("a key");
    let of_size = |size: usize| {
        let mut params = params("leaf", &[]);
        let padding =
            CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 32473, 2], vec![0; size]);
        params.custom_extensions.push(padding);
        sign(&params, &key, (root.0, &root.1))
    };
    let trusting = holder(vec![ca.clone()], &[]);
    let said =
        |chain: &[Certificate]| kind(verdict(chain, &trusting).expect("they agree").as_ref());
    assert_eq!(said(&[of_size(1)]), "Accepted");
    assert_eq!(said(&[of_size(60_000)]), "Accepted");
    assert_eq!(said(&[of_size(66_000)]), "TooLarge");
    assert_eq!(said(&[&[of_size(1)][..], &vec![ca; 300]].concat()), "TooLarge");
    assert_eq!(said(&[]), "NothingServed");
}

#[test]
fn go_gives_up_after_as_many_candidates() {
    let [one, two, .., namesake] = &CAS[..] else { panic!("too few authorities") };
    let (root, by) = ((one.0, &one.1), (two.0, &two.1));
    let trusting = holder(vec![sign(&ca_params(one.0, &[]), &one.1, root)], &[]);
    // Without an identifier of the key, all that have the issuer's name are as likely.
    let mut chain = vec![sign(&params("leaf", &[Change::NoIssuerIdentifier]), &one.1, by)];
    let issuer = sign(&ca_params(two.0, &[]), &two.1, root);
    let mut verdicts = Vec::new();
    for number in 0..110 {
        let with_issuer = [&chain[..], std::slice::from_ref(&issuer)].concat();
        verdicts.push(kind(verdict(&with_issuer, &trusting).expect("they agree").as_ref()));
        let another = ca_params(namesake.0, &[Change::Ends(1 + number)]);
        chain.push(sign(&another, &namesake.1, root));
    }
    assert_eq!(verdicts[0], "Accepted");
    assert_eq!(verdicts[109], "TooManyCandidates");
}

/// What happens to certificates in decades, judged by Go as by us.
#[test]
fn go_rejects_the_same_holders_in_states_of_the_model() {
    model::seen_by(
        |world| {
            let (chain, now) = (world.chain(), world.now);
            // A sample: Go parses everything anew each time.
            for holder in
                world.holders().iter().skip(usize::try_from(world.states % 7).expect("a few"))
            {
                let go = go::judge(&chain, holder, now);
                let ours = locked_out(&chain, std::slice::from_ref(holder), now);
                assert_eq!(go.is_empty(), ours.is_empty(), "{now}: {go:?}, {ours:?} by {chain:?}");
            }
        },
        2_000,
    );
}

/// The programs by which `tests/verifier/install` makes its own, as functions that do nothing but what it
/// looks at. Packages can be had where there is a network, once their lists are there.
const STAND_INS: [(&str, &str); 4] = [
    (
        "BASH_FUNC_go%%",
        r#"() { if [[ $1 == env ]]; then echo go1.99; else cp /bin/true "$4"; fi; }"#,
    ),
    (
        "BASH_FUNC_apt-get%%",
        r#"() {
            if [[ $* == *update* ]]; then [[ $NETWORK == yes ]] && touch "$XDG_CACHE_HOME/lists"
            else [[ -e $XDG_CACHE_HOME/lists ]] && touch go.deb; fi
        }"#,
    ),
    ("BASH_FUNC_apt-cache%%", "() { echo golang-1.19-go; }"),
    (
        "BASH_FUNC_dpkg-deb%%",
        r#"() {
            mkdir -p "$3/usr/lib/go-1.19/bin"
            printf '#!/bin/bash\ncp /bin/true "$4"\n' >"$3/usr/lib/go-1.19/bin/go"
            chmod 755 "$3/usr/lib/go-1.19/bin/go"
        }"#,
    ),
];

#[test]
fn the_program_of_an_older_go_is_made_as_soon_as_it_can_be() {
    let cache = tempfile::tempdir().expect("a temporary folder");
    for (network, is_there) in [("no", false), ("yes", true), ("no", true)] {
        let mut install = Command::new(in_repository("tests/verifier/install"));
        install.envs(STAND_INS).env("XDG_CACHE_HOME", cache.path()).env("NETWORK", network);
        let output = install.output().expect("bash");
        let path = String::from_utf8(output.stdout).expect("text");
        let path = Path::new(path.trim_end());
        assert!(output.status.success() && path.is_file(), "{}", path.display());
        assert_eq!(path.with_file_name("verifier-1.19").is_file(), is_there);
    }
}
