//! What is kept of tokens, as anybody may have written it, and what is made of it: the first line of an
//! input is the list of tokens, the second what servers are told. `@0` to `@3` stand for tokens, `@a` to
//! `@d` for their hashes.

use super::{NOW, expanded};
use model::access::rotation::{
    FetchCredential, Issued, MAX_STEPS, NextAction, ObservedTokens, PointerToken, PointerWrite,
    RotationPolicy, Write, next,
};
use model::access::{AccessMode, KnownTokens, Records, Token};
use time::OffsetDateTime;

fn word(letter: u8) -> Option<String> {
    let token = |number: u8| Token::new([number; 32]);
    match letter {
        b'0'..=b'3' => Some(token(letter - b'0').as_str().to_owned()),
        b'a'..=b'd' => {
            let hash = serde_json::to_value(token(letter - b'a').hash()).expect("JSON");
            hash.as_str().map(str::to_owned)
        }
        _ => None,
    }
}

/// Whether servers that are told this let the token in.
fn opens(records: &Records, token: &Token, now: OffsetDateTime) -> bool {
    let verdict = KnownTokens::new(records).verify(token.as_str(), "worker", now);
    matches!(verdict, Some(Ok(_)))
}

/// Has a pool's pointer configs brought in order, step by step.
fn settle(mut state: ObservedTokens, now: OffsetDateTime) -> ObservedTokens {
    let policy = RotationPolicy::default();
    for step in 0..=MAX_STEPS + state.pools.len() {
        let fresh = Token::new([u8::try_from(100 + step).expect("few steps"); 32]);
        match next(&state, &policy, now, &fresh) {
            NextAction::Settled { .. } => return state,
            NextAction::Write(_, Write::Issued(issued)) => state.issued = issued,
            NextAction::Write(_, Write::Records(records)) => {
                // Nobody whose token opens the pool is refused by a step.
                for token in (0..4).map(|number| Token::new([number; 32])) {
                    assert!(!opens(&state.records, &token, now) || opens(&records, &token, now));
                }
                state.records = records;
            }
            NextAction::Write(_, Write::Pointers(writes)) => {
                for PointerWrite { name, token, .. } in writes {
                    assert!(opens(&state.records, &token, now), "carried before it opens");
                    let pointer = state.pointers.iter_mut().find(|pointer| pointer.name == name);
                    pointer.expect("one that there is").credential = FetchCredential::Token(token);
                }
            }
        }
    }
    panic!("no end: {state:?}");
}

/// Judges one input.
pub fn run(data: &[u8]) {
    let whole = expanded(data, word);
    let mut lines = whole.splitn(2, |byte| *byte == b'\n');
    let [issued, records] = [(); 2].map(|()| lines.next().unwrap_or_default());
    let (issued, records) = (Issued::read(issued), Records::read(records));
    for error in [issued.as_ref().err(), records.as_ref().err()].into_iter().flatten() {
        assert!(!error.to_string().contains("mcs-"), "{error}");
    }
    if let Ok(issued) = &issued {
        let text = serde_json::to_vec(issued).expect("JSON");
        assert_eq!(Issued::read(&text).expect("what was written"), *issued);
        let is_shown = issued.tokens.iter().any(|issued| issued.pool.contains("mcs-"));
        assert!(is_shown || !format!("{issued:?}").contains("mcs-"));
    }
    if let Ok(records) = &records
        && let Ok(text) = serde_json::to_vec(records)
    {
        assert_eq!(Records::read(&text).expect("what was written"), *records);
    }
    let (Ok(issued), Ok(records)) = (issued, records) else { return };
    let pointer = PointerToken {
        name: "a".to_owned(),
        pool: "worker".to_owned(),
        credential: FetchCredential::Token(Token::new([0; 32])),
        waits: false,
    };
    let state = ObservedTokens {
        issued,
        records,
        pointers: vec![pointer],
        pools: [("worker".to_owned(), AccessMode::Enforce)].into(),
    };
    let state = settle(state, NOW);
    assert!(state.records.enforced.contains("worker"));
    let FetchCredential::Token(token) = &state.pointers[0].credential else { panic!("{state:?}") };
    assert!(opens(&state.records, token, NOW), "{state:?}");
}
