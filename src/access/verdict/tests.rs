use std::net::{IpAddr, Ipv4Addr};

use time::macros::datetime;

use std::collections::BTreeSet;

use super::super::records::{KnownTokens, Record, Records};
use super::super::token::Token;
use super::*;

const NOON: OffsetDateTime = datetime!(2026-11-21 12:00 UTC);

fn policy(mode: Mode, token: &Token) -> Policy {
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
        ..Records::default()
    };
    let wanted = ["worker", "master"].map(|pool| (pool.to_owned(), mode)).into();
    Policy {
        modes: Modes::new(mode, &wanted, Some(&records)),
        networks: Networks::default(),
        verifiers: vec![Arc::new(KnownTokens::new(&records))],
    }
}

fn request<'a>(pool: &'a str, credential: Credential<'a>) -> Request<'a> {
    Request {
        pool,
        address: IpAddr::V4(Ipv4Addr::LOCALHOST),
        is_private: true,
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
        (request("nowhere", good), Err(Refusal::OtherPool)),
        (Request { is_private: false, ..request("worker", good) }, Err(Refusal::PlainPort)),
    ];
    for (request, expected) in cases {
        for mode in Mode::ALL {
            let verdict = decide(&request, &policy(mode, &token), NOON);
            if mode == Mode::Off {
                assert_eq!(verdict.judged, Ok(Proof::NotAsked), "{request:?}");
                continue;
            }
            assert_eq!(verdict.judged, expected, "{request:?} {mode}");
            let refusal = expected.clone().err();
            // Pool master is held back: nothing says that its pointer configs carry tokens.
            let is_enforced = mode == Mode::Enforce && request.pool != "master";
            assert_eq!(verdict.refusal(), refusal.filter(|_| is_enforced), "{request:?} {mode}");
            assert_eq!(verdict.would_be_refused(), refusal.filter(|_| !is_enforced));
        }
    }
}

#[test]
fn before_tokens_are_read_nobody_is_let_in_nor_refused_for_good() {
    let token = Token::new([1; 32]);
    let good = Credential::Bearer(token.as_str());
    for mode in Mode::ALL {
        let wanted = [("worker".to_owned(), mode)].into();
        let policy = Policy { modes: Modes::new(mode, &wanted, None), ..Policy::default() };
        for credential in [good, Credential::Missing, Credential::Malformed] {
            let verdict = decide(&request("worker", credential), &policy, NOON);
            let expected = (mode == Mode::Enforce).then_some(Refusal::NotRead);
            assert_eq!(verdict.refusal(), expected, "{mode} {credential:?}");
        }
        assert!(policy.modes.held().next().is_none());
    }
}

#[test]
fn between_two_rules_the_stricter_one_holds() {
    let modes = |of: &[(&str, Mode)]| {
        let wanted = of.iter().map(|&(pool, mode)| (pool.to_owned(), mode)).collect();
        let enforced = of.iter().map(|&(pool, _)| pool.to_owned()).collect();
        let records = Records { enforced, ..Records::default() };
        Modes::new(Mode::Off, &wanted, Some(&records))
    };
    let before = modes(&[("a", Mode::Enforce), ("b", Mode::Off), ("c", Mode::Audit)]);
    let after = modes(&[("a", Mode::Off), ("b", Mode::Enforce), ("d", Mode::Enforce)]);
    for both in [before.stricter(&after), after.stricter(&before)] {
        assert_eq!(both.enforced(), ["a", "b", "d"].map(str::to_owned).into());
        assert_eq!(both.of("c"), Mode::Audit);
    }
}

#[derive(Debug)]
struct Costly;

impl Verifier for Costly {
    fn verify(
        &self,
        credential: &str,
        _: &str,
        _: OffsetDateTime,
    ) -> Option<Result<Proof, Refusal>> {
        (credential == "costly").then(|| Ok(Proof::Signed("somebody".into())))
    }

    fn is_cheap(&self) -> bool {
        false
    }
}

#[test]
fn who_has_failed_often_waits_unless_it_has_a_good_token() {
    let token = Token::new([1; 32]);
    let mut policy = policy(Mode::Enforce, &token);
    policy.verifiers.push(Arc::new(Costly));
    for (credential, at_first, later) in [
        (Credential::Bearer(token.as_str()), None, None),
        (Credential::Bearer("costly"), None, Some(Refusal::TooMany)),
        (Credential::Bearer("nothing"), Some(Refusal::Malformed), Some(Refusal::TooMany)),
        (Credential::Missing, Some(Refusal::Missing), Some(Refusal::TooMany)),
    ] {
        let request = request("worker", credential);
        assert_eq!(decide(&request, &policy, NOON).refusal(), at_first);
        let request = Request { has_failed_often: true, ..request };
        assert_eq!(decide(&request, &policy, NOON).refusal(), later);
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

#[test]
fn a_pool_is_enforced_once_its_pointer_configs_carry_tokens() {
    let wanted = |mode: Mode| [("worker".to_owned(), mode)].into();
    let records = |enforced: &[&str], lacking: &[&str]| Records {
        enforced: enforced.iter().map(|&pool| pool.to_owned()).collect(),
        lacking: [("worker".to_owned(), lacking.iter().map(|&it| it.to_owned()).collect())].into(),
        ..Records::default()
    };
    let (off, audit, enforce) = (Mode::Off, Mode::Audit, Mode::Enforce);
    let yes = records(&["worker"], &["a: it carries no token"]);
    let no = records(&["master"], &["a: it carries no token"]);
    for (default, own, records, expected, held) in [
        (off, None, &yes, off, None),
        (audit, None, &yes, audit, None),
        (enforce, None, &yes, enforce, None),
        (enforce, None, &no, audit, Some("a: it carries no token")),
        (enforce, Some(off), &yes, off, None),
        (enforce, Some(audit), &no, audit, None),
        (off, Some(enforce), &yes, enforce, None),
        (off, Some(enforce), &no, audit, Some("a: it carries no token")),
    ] {
        let modes = Modes::new(default, &wanted(own.unwrap_or(default)), Some(records));
        assert_eq!(modes.of("worker"), expected, "{default} {own:?}");
        assert_eq!(modes.held().next().map(|(_, reason)| reason), held);
        assert_eq!(modes.enforced().contains("worker"), expected == enforce);
        assert_eq!(modes.of("nowhere"), default, "a pool that there is not is as the flag says");
    }
    let many = records(&[], &["1", "2", "3", "4", "5", "6", "7"]);
    let modes = Modes::new(enforce, &wanted(enforce), Some(&many));
    assert_eq!(modes.held().next().unwrap().1, "1; 2; 3; 4; 5; and 2 more");
    let modes = Modes::new(enforce, &wanted(enforce), Some(&Records::default()));
    assert!(modes.held().next().unwrap().1.starts_with("nothing says that"));
}

#[test]
fn what_may_heal_is_what_another_server_may_know_and_what_time_brings() {
    let may_heal: Vec<_> = Refusal::ALL.into_iter().filter(|refusal| refusal.may_heal()).collect();
    assert_eq!(may_heal, [Refusal::Unknown, Refusal::NotYet, Refusal::TooMany, Refusal::NotRead]);
    let labels: BTreeSet<_> = Refusal::ALL.iter().map(|refusal| refusal.label()).collect();
    assert_eq!(labels.len(), Refusal::ALL.len());
    for mode in Mode::ALL {
        assert_eq!(mode.label().parse(), Ok(mode));
    }
    assert_eq!("on".parse::<Mode>(), Err("expected off, audit or enforce".to_owned()));
}
