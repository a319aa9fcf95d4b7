use std::net::{IpAddr, Ipv4Addr};

use strum::VariantArray as _;
use time::macros::datetime;

use std::collections::{BTreeMap, BTreeSet};

use super::super::mode::Waiting;
use super::super::records::{Enforcement, KnownTokens, Record, Records};
use super::super::signed::{
    self,
    tests::{EC, NOW},
};
use super::super::token::Token;
use super::*;

const NOON: OffsetDateTime = datetime!(2026-11-21 12:00 UTC);
const MODES: [AccessMode; 3] = [AccessMode::Off, AccessMode::Audit, AccessMode::Enforce];

fn modes(
    default: AccessMode,
    wanted: &BTreeMap<String, AccessMode>,
    records: Option<&Records>,
) -> Modes {
    Modes::new(default, wanted, &BTreeSet::new(), records)
}

fn policy(mode: AccessMode, token: &Token) -> Policy {
    let record = Record {
        sha256: token.hash(),
        name: Some("rack-7".to_owned()),
        pools: ["worker".to_owned()].into(),
        made: NOON,
        until: None,
        revoked: None,
    };
    let records = Records {
        tokens: vec![record],
        enforced: ["worker".to_owned()].into(),
        without_token: [("master".to_owned(), vec!["a: has no token".to_owned()])].into(),
        ..Records::default()
    };
    let wanted = ["worker", "master"].map(|pool| (pool.to_owned(), mode)).into();
    Policy {
        modes: modes(mode, &wanted, Some(&records)),
        networks: Networks::default(),
        boot_rules: BootRules::default(),
        machines: KnownMachines::default(),
        tokens: KnownTokens::new(&records),
        signed: None,
    }
}

fn request<'a>(pool: &'a str, credential: Credential<'a>) -> Request<'a> {
    Request {
        pool,
        address: IpAddr::V4(Ipv4Addr::LOCALHOST),
        is_private: true,
        user_agent: "",
        credential,
        has_failed_often: false,
    }
}

#[test]
fn a_request_is_let_in_or_refused_for_a_reason() {
    let (token, other) = (Token::new([1; 32]), Token::new([2; 32]));
    let good = Credential::Bearer(token.as_str());
    let proof = Ok(Proof::Token("rack-7".into()));
    let cases = [
        (request("worker", good), proof.clone()),
        (request("worker", Credential::Missing), Err(Refusal::Missing)),
        (request("worker", Credential::Malformed), Err(Refusal::Malformed)),
        (request("worker", Credential::Bearer("secret")), Err(Refusal::Malformed)),
        (request("worker", Credential::Bearer(other.as_str())), Err(Refusal::Unknown)),
        (request("master", good), Err(Refusal::OtherPool)),
        (request("nowhere", good), Err(Refusal::NoPool)),
        (request("nowhere", Credential::Missing), Err(Refusal::NoPool)),
        (Request { is_private: false, ..request("worker", good) }, Err(Refusal::PlainPort)),
    ];
    for (request, expected) in cases {
        for mode in MODES {
            let verdict = decide(&request, &policy(mode, &token), NOON);
            if mode == AccessMode::Off {
                assert_eq!(verdict.judged, Ok(Proof::NotAsked), "{request:?}");
                continue;
            }
            assert_eq!(verdict.judged, expected, "{request:?} {mode}");
            let refusal = expected.clone().err();
            // Pool master stays open: one of its pointer configs carries no token.
            let is_enforced = mode == AccessMode::Enforce && request.pool != "master";
            assert_eq!(verdict.refusal(), refusal.filter(|_| is_enforced), "{request:?} {mode}");
            assert_eq!(verdict.would_be_refused(), refusal.filter(|_| !is_enforced));
        }
    }
}

#[test]
fn before_tokens_are_read_nobody_is_let_in_nor_refused_for_good() {
    let token = Token::new([1; 32]);
    let good = Credential::Bearer(token.as_str());
    for mode in MODES {
        let wanted = [("worker".to_owned(), mode)].into();
        let policy = Policy { modes: modes(mode, &wanted, None), ..Policy::default() };
        for credential in [good, Credential::Missing, Credential::Malformed] {
            let verdict = decide(&request("worker", credential), &policy, NOON);
            let expected = (mode == AccessMode::Enforce).then_some(Refusal::NotRead);
            assert_eq!(verdict.refusal(), expected, "{mode} {credential:?}");
            // A server that has read no pool does not know which exist.
            let modes = modes(mode, &BTreeMap::new(), None);
            let policy = Policy { modes, ..Policy::default() };
            let verdict = decide(&request("worker", credential), &policy, NOON);
            assert_eq!(verdict.refusal(), expected, "{mode} {credential:?}");
        }
        assert!(policy.modes.held().next().is_none());
        assert!(policy.modes.waiting().next().is_none());
    }
}

#[test]
fn between_two_rules_the_stricter_one_holds() {
    let of = |of: &[(&str, AccessMode)]| {
        let wanted = of.iter().map(|&(pool, mode)| (pool.to_owned(), mode)).collect();
        let enforced = of.iter().map(|&(pool, _)| pool.to_owned()).collect();
        let records = Records { enforced, ..Records::default() };
        modes(AccessMode::Off, &wanted, Some(&records))
    };
    let (off, audit, enforce) = (AccessMode::Off, AccessMode::Audit, AccessMode::Enforce);
    let before = of(&[("a", enforce), ("b", off), ("c", audit), ("e", enforce)]);
    let after = of(&[("a", off), ("b", enforce), ("d", enforce), ("e", enforce)]);
    for both in [before.stricter(&after), after.stricter(&before)] {
        assert_eq!(both.enforced(), ["a", "b", "d", "e"].map(str::to_owned).into());
        assert_eq!(both.of("c"), AccessMode::Audit);
        // Refusals are temporary during a change of the rule.
        let known: Vec<_> = ["a", "b", "d", "e"].map(|pool| both.unknown(pool).is_none()).into();
        assert_eq!(known, [false, false, false, true]);
    }
}

#[test]
fn who_has_failed_often_waits_unless_it_has_a_good_token() {
    let token = Token::new([1; 32]);
    let mut policy = policy(AccessMode::Enforce, &token);
    policy.signed = Some(signed::tests::tokens());
    let signed = EC.sign(&signed::tests::claims());
    for (credential, at_first, later) in [
        (Credential::Bearer(token.as_str()), None, None),
        (Credential::Bearer(&signed), None, Some(Refusal::TooMany)),
        (Credential::Bearer("nothing"), Some(Refusal::Malformed), Some(Refusal::TooMany)),
        (Credential::Missing, Some(Refusal::Missing), Some(Refusal::TooMany)),
    ] {
        let request = request("worker", credential);
        assert_eq!(decide(&request, &policy, NOW).refusal(), at_first);
        let request = Request { has_failed_often: true, ..request };
        assert_eq!(decide(&request, &policy, NOW).refusal(), later);
    }
}

#[test]
fn a_credential_is_one_word_after_bearer() {
    let of = |values: &[&str]| {
        let values: Vec<_> = values.iter().map(|value| value.as_bytes()).collect();
        match Credential::of(values) {
            Credential::Bearer(credential) => credential.to_owned(),
            other => format!("{other:?}"),
        }
    };
    for (values, expected) in [
        (&[][..], "Missing"),
        (&["Bearer abc"], "abc"),
        (&["bearer   abc "], "abc"),
        (&["BEARER abc"], "abc"),
        (&[""], "Malformed"),
        (&["Bearer"], "Malformed"),
        (&["Bearer "], "Malformed"),
        (&["Bearer a b"], "Malformed"),
        (&["Bearer\tabc"], "Malformed"),
        (&["Basic abc"], "Malformed"),
        (&["abc"], "Malformed"),
        (&["Bearer abc", "Bearer abc"], "Malformed"),
        (&["Bearer abc", ""], "Malformed"),
    ] {
        assert_eq!(of(values), expected, "{values:?}");
    }
    assert_eq!(Credential::of([&b"Bearer \xff"[..]]), Credential::Malformed);
    assert!(!format!("{:?}", Credential::Bearer("abc")).contains("abc"), "it is not shown");
}

fn lines(lines: &[&str]) -> BTreeMap<String, Vec<String>> {
    [("worker".to_owned(), lines.iter().map(|&line| line.to_owned()).collect())].into()
}

#[test]
fn a_pool_that_is_to_be_enforced_is_open_on_evidence_alone() {
    let wanted = |mode: AccessMode| [("worker".to_owned(), mode)].into();
    let records = |enforced: &[&str], without_token: &[&str]| Records {
        enforced: enforced.iter().map(|&pool| pool.to_owned()).collect(),
        without_token: lines(without_token),
        ..Records::default()
    };
    let (off, audit, enforce) = (AccessMode::Off, AccessMode::Audit, AccessMode::Enforce);
    let yes = records(&["worker"], &["a: has no token"]);
    let no = records(&["master"], &["a: has no token"]);
    for (default, own, records, expected, held) in [
        (off, None, &yes, off, None),
        (audit, None, &yes, audit, None),
        (enforce, None, &yes, enforce, None),
        (enforce, None, &no, audit, Some("a: has no token")),
        (enforce, Some(off), &yes, off, None),
        (enforce, Some(audit), &no, audit, None),
        (off, Some(enforce), &yes, enforce, None),
        (off, Some(enforce), &no, audit, Some("a: has no token")),
    ] {
        let modes = modes(default, &wanted(own.unwrap_or(default)), Some(records));
        assert_eq!(modes.of("worker"), expected, "{default} {own:?}");
        assert_eq!(modes.held().next().map(|(_, reason)| reason), held);
        assert_eq!(modes.enforced().contains("worker"), expected == enforce);
        assert_eq!(modes.of("nowhere"), default, "a pool that there is not is as the flag says");
        assert!(modes.waiting().next().is_none());
    }
    let many = records(&[], &["1", "2", "3", "4", "5", "6", "7"]);
    let modes = modes(enforce, &wanted(enforce), Some(&many));
    assert_eq!(modes.held().next().unwrap().1, "1; 2; 3; 4; 5; and 2 more");
}

/// Records that are missing, empty, about others or contradictory.
#[test]
fn what_is_not_known_of_a_pool_opens_it_to_nobody_and_refuses_nobody_for_good() {
    let token = Token::new([1; 32]);
    let known = policy(AccessMode::Enforce, &token).tokens;
    let name = || "worker".to_owned();
    let clear = BTreeSet::new();
    let unclear = BTreeSet::from([name()]);
    let nothing = Records::default();
    let no_lines = Records { without_token: lines(&[]), ..Records::default() };
    let others = Records {
        enforced: ["master".to_owned()].into(),
        without_token: [("infra".to_owned(), vec!["a: has no token".to_owned()])].into(),
        ..Records::default()
    };
    let evidence = Records { without_token: lines(&["a: has no token"]), ..Records::default() };
    let enforced = Records { enforced: [name()].into(), ..Records::default() };
    let contested = evidence.clone().following(Some(&enforced), &BTreeMap::new());
    for (records, unclear, why) in [
        (None, &clear, None),
        (Some(&nothing), &clear, Some(Waiting::NotKnown)),
        (Some(&no_lines), &clear, Some(Waiting::NotKnown)),
        (Some(&others), &clear, Some(Waiting::NotKnown)),
        (Some(&contested), &clear, Some(Waiting::Contested)),
        (Some(&evidence), &unclear, Some(Waiting::Unclear)),
        (None, &unclear, Some(Waiting::Unclear)),
    ] {
        let wanted = [(name(), AccessMode::Enforce)].into();
        let modes = Modes::new(AccessMode::Off, &wanted, unclear, records);
        assert_eq!(modes.waiting().next().map(|(_, why)| why), why, "{records:?}");
        assert_eq!(modes.held().next(), None, "{records:?}");
        let policy = Policy { modes, tokens: known.clone(), ..Policy::default() };
        let refusal = |request: &Request<'_>| decide(request, &policy, NOON).refusal();
        for credential in [Credential::Missing, Credential::Malformed, Credential::Bearer("x")] {
            let unproven = request("worker", credential);
            assert_eq!(refusal(&unproven), Some(Refusal::NotRead), "{records:?}");
            let plain = Request { is_private: false, ..unproven };
            assert_eq!(refusal(&plain), Some(Refusal::NotRead), "{records:?}");
        }
        // A proof is valid regardless of the unknown parts.
        assert_eq!(refusal(&request("worker", Credential::Bearer(token.as_str()))), None);
    }
}

#[test]
fn a_pool_that_was_enforced_is_contested_until_less_is_asked_or_it_is_enforced_again() {
    let enforced = Records { enforced: ["worker".to_owned()].into(), ..Records::default() };
    let evidence = Records { without_token: lines(&["a: has no token"]), ..Records::default() };
    let asked = |mode| BTreeMap::from([("worker".to_owned(), mode)]);
    let (enforce, gone) = (asked(AccessMode::Enforce), BTreeMap::new());
    for wanted in [&enforce, &gone] {
        let contested = evidence.clone().following(Some(&enforced), wanted);
        assert_eq!(contested.contested, enforced.enforced);
        // The pool stays contested, over a restart too.
        let json = serde_json::to_vec(&contested).unwrap();
        let again = evidence.clone().following(Some(&Records::read(&json).unwrap()), wanted);
        assert_eq!(again, contested);
        assert_eq!(enforced.clone().following(Some(&contested), wanted), enforced);
        for mode in [AccessMode::Off, AccessMode::Audit] {
            let less = evidence.clone().following(Some(&contested), &asked(mode));
            assert_eq!(less.following(None, &enforce), evidence);
        }
    }
    // Other writers cannot mark a pool as contested.
    let claimed = Records { contested: enforced.enforced.clone(), ..evidence.clone() };
    assert_eq!(claimed.following(None, &enforce), evidence);
    // The controller writes unsure pools, and removes them.
    let reported = Records { undetermined: enforced.enforced.clone(), ..evidence.clone() };
    assert_eq!(reported.clone().following(None, &asked(AccessMode::Audit)), reported);
    assert_eq!(reported.enforcement("worker"), Enforcement::Waiting(Waiting::Contested));
    let less = evidence.clone().following(Some(&reported), &asked(AccessMode::Audit));
    assert_eq!(less, evidence);
    let json = serde_json::to_string(&evidence).unwrap();
    assert!(!json.contains("contested"), "versions before read it: {json}");
}

#[test]
fn refusals_that_another_server_or_time_may_lift_are_503() {
    let is_temporary: Vec<_> =
        Refusal::VARIANTS.iter().copied().filter(|refusal| refusal.is_temporary()).collect();
    let expected = [
        Refusal::Unknown,
        Refusal::NotYet,
        Refusal::NotStored,
        Refusal::MachineMissing,
        Refusal::TooMany,
        Refusal::NotRead,
        Refusal::NoPool,
        Refusal::OldIgnition,
        Refusal::PoolPlainPort,
        Refusal::NotApproved,
    ];
    assert_eq!(is_temporary, expected);
    for mode in MODES {
        assert_eq!(mode.label().parse(), Ok(mode));
    }
    assert_eq!("on".parse::<AccessMode>(), Err("expected off, audit or enforce".to_owned()));
}

/// Metrics, alerts and the ledger have these words.
#[test]
fn labels_of_verdicts_stay_when_a_variant_gets_another_name() {
    let labels: Vec<_> = Refusal::VARIANTS.iter().map(|refusal| refusal.label()).collect();
    let expected = "network plain-port missing malformed unknown expired not-yet revoked other-pool unsigned \
        spent not-stored machine-missing too-many not-read no-pool old-ignition pool-plain-port not-approved";
    assert_eq!(labels.join(" "), expected);
    let proofs = [
        Proof::NotAsked,
        Proof::Token("a".into()),
        Proof::Signed("a".into()),
        Proof::Machine(ShownToken { machine: "a".into(), sha256: Token::new([1; 32]).hash() }),
    ];
    assert_eq!(proofs.each_ref().map(Proof::label), ["none", "token", "signed", "machine"]);
    assert_eq!(MODES.map(AccessMode::label), ["off", "audit", "enforce"]);
}
