//! Tokens into user data of any kind: it stays JSON, the token is found again, and nothing else changes.
//!
//! `@p` stands for a pointer config as it is made, `@t` for one with a token.

use std::sync::LazyLock;

use super::{CAS, expanded};
use ignition::{SpecVersion, pointer};
use model::pointer_config::{Authorization, PointerConfig};
use serde::de::IgnoredAny;
use serde_json::Value;

const TOKEN: &str = "mcs-AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

static POINTER: LazyLock<String> = LazyLock::new(|| {
    let pem = CAS[0].certificate.to_pem();
    pointer("https://a.example:22623/config/worker", pem.as_bytes(), SpecVersion::V3_1).to_string()
});

fn word(letter: u8) -> Option<String> {
    match letter {
        b'p' => Some(POINTER.clone()),
        b't' => {
            let config = PointerConfig::read(POINTER.as_bytes());
            let text = config.with_bearer("worker", TOKEN).expect("a pointer config");
            Some(String::from_utf8(text).expect("text"))
        }
        _ => None,
    }
}

/// A config without the headers of its fetches.
fn without_headers(mut value: Value) -> Value {
    match &mut value {
        Value::Object(members) => {
            members.retain(|name, _| !name.eq_ignore_ascii_case("httpHeaders"));
            members.values_mut().for_each(|member| *member = without_headers(member.take()));
        }
        Value::Array(all) => all.iter_mut().for_each(|one| *one = without_headers(one.take())),
        _ => {}
    }
    value
}

fn is_json(text: &[u8]) -> bool {
    serde_json::from_slice::<IgnoredAny>(text).is_ok()
}

/// Judges one input.
pub fn run(data: &[u8]) {
    let text = expanded(data, word);
    let config = PointerConfig::read(&text);
    let before = config.written_fetches();
    let _ = config.lifted().map(|lifted| assert!(is_json(&lifted)));
    assert!(config.with_bearer("no such pool", TOKEN).is_err());
    for pool in before.iter().map(|fetch| &*fetch.pool) {
        let given = config.with_bearer(pool, TOKEN);
        let Ok(new) = given else { continue };
        assert_eq!(is_json(&new), is_json(&text));
        let repaired = PointerConfig::read(&new);
        let after = repaired.written_fetches();
        assert_eq!(after.len(), before.len());
        for (before, after) in before.iter().zip(&after) {
            assert_eq!(before.pool, after.pool);
            let is_meant = after.pool == pool;
            let given = Authorization::Bearer(TOKEN.to_owned());
            assert_eq!(
                after.authorization,
                if is_meant { given } else { before.authorization.clone() }
            );
        }
        assert_eq!(repaired.with_bearer(pool, TOKEN).as_deref(), Ok(&*new), "once is enough");
        let value = |text: &[u8]| serde_json::from_slice::<Value>(text).ok().map(without_headers);
        assert_eq!(value(&new), value(&text));
    }
}
