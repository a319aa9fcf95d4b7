//! What a request brings to prove that it may have a config: an input is the values of its `Authorization`
//! headers, one a line. `@g` stands for a good token, `@e` for one that has ended, `@r` for one that was
//! revoked, `@o` for one of another pool, `@u` for one that nobody knows.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::LazyLock;

use super::{NOW, expanded};
use model::access::{
    AccessMode, Credential, KnownTokens, Modes, Policy, Record, Records, Refusal, Request, Token,
    decide,
};
use time::Duration;

const POOL: &str = "worker";

fn token(letter: u8) -> Option<Token> {
    b"gerou".contains(&letter).then(|| Token::new([letter; 32]))
}

static POLICY: LazyLock<Policy> = LazyLock::new(|| {
    let record = |letter: &u8| Record {
        sha256: token(*letter).expect("a token").hash(),
        name: None,
        pools: [if *letter == b'o' { "master" } else { POOL }.to_owned()].into(),
        made: NOW - Duration::DAY,
        until: (*letter == b'e').then_some(NOW),
        revoked: (*letter == b'r').then_some(NOW),
    };
    let records = Records {
        tokens: b"gero".iter().map(record).collect(),
        enforced: [POOL.to_owned()].into(),
        ..Records::default()
    };
    let wanted = [(POOL.to_owned(), AccessMode::Enforce)].into();
    Policy {
        modes: Modes::new(AccessMode::Enforce, &wanted, &BTreeSet::new(), Some(&records)),
        tokens: KnownTokens::new(&records),
        ..Policy::default()
    }
});

/// Whether a header's value is the good token as it has to be written.
fn is_good(value: &[u8]) -> bool {
    let good = Token::new([b'g'; 32]);
    let Some((scheme, rest)) = value.split_at_checked("Bearer ".len()) else { return false };
    let blanks = |byte: &u8| *byte == b' ';
    let start = rest.iter().position(|byte| !blanks(byte)).unwrap_or(rest.len());
    let end = rest.iter().rposition(|byte| !blanks(byte)).map_or(start, |last| last + 1);
    scheme.eq_ignore_ascii_case(b"Bearer ") && &rest[start..end] == good.as_str().as_bytes()
}

/// Judges one input.
pub fn run(data: &[u8]) {
    let whole = expanded(data, |letter| token(letter).map(|token| token.as_str().to_owned()));
    let values: Vec<&[u8]> =
        if whole.is_empty() { Vec::new() } else { whole.split(|byte| *byte == b'\n').collect() };
    let credential = Credential::of(values.iter().copied());
    assert_eq!(credential == Credential::Missing, values.is_empty());
    let is_good = values.len() == 1 && is_good(values[0]);
    for (is_private, has_failed_often) in [(true, false), (true, true), (false, false)] {
        let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let user_agent = "Ignition/2.14.0";
        let request =
            Request { pool: POOL, address, is_private, user_agent, credential, has_failed_often };
        let verdict = decide(&request, &POLICY, NOW);
        assert_eq!(verdict.is_proven(), is_good && is_private, "{values:?}");
        assert_eq!(verdict.refusal().is_none(), verdict.is_proven(), "{values:?}");
        if has_failed_often {
            assert!(matches!(verdict.refusal(), None | Some(Refusal::TooMany)));
        }
        let elsewhere = Request { pool: "nowhere", ..request };
        assert!(decide(&elsewhere, &POLICY, NOW).refusal().is_some());
    }
}
