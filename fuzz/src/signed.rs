//! Signed tokens, and the sets of keys that they are checked by: the first line of an input is a token,
//! the rest a set. `@h` and `@c` stand for the head and the claims of a good token, `@s` for the
//! signature over both, `@k` for the key. Nobody else has the key to sign another one.

use std::sync::LazyLock;

use super::{NOW, expanded};
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use model::access::SignedTokens;
use model::access::signed::Settings;
use rcgen::KeyPair;
use serde_json::json;

/// A good token in its three parts, and the key that it is checked by.
static GOOD: LazyLock<([String; 3], String)> = LazyLock::new(|| {
    let key = KeyPair::generate().expect("a key").serialize_der();
    let key = EncodingKey::from_ec_der(&key);
    let mut jwk = Jwk::from_encoding_key(&key, Algorithm::ES256).expect("a key");
    jwk.common.key_id = Some("it".to_owned());
    let mut head = Header::new(Algorithm::ES256);
    head.kid = Some("it".to_owned());
    let claims = json!({
        "iss": "a", "aud": "b", "sub": "c", "pools": ["worker"], "exp": NOW.unix_timestamp() + 60,
    });
    let token = encode(&head, &claims, &key).expect("a token");
    let mut parts = token.split('.').map(str::to_owned);
    let parts = [(); 3].map(|()| parts.next().expect("a part"));
    (parts, serde_json::to_string(&jwk).expect("JSON"))
});

static TOKENS: LazyLock<SignedTokens> = LazyLock::new(|| {
    let jwks = format!(r#"{{"keys":[{}]}}"#, GOOD.1);
    SignedTokens::new(jwks.as_bytes(), settings()).expect("a set")
});

fn settings() -> Settings {
    let text = str::to_owned;
    Settings::Issuer { issuer: text("a"), audience: text("b"), pool_claim: text("pools") }
}

fn word(letter: u8) -> Option<String> {
    let (parts, key) = &*GOOD;
    Some(match letter {
        b'h' => parts[0].clone(),
        b'c' => parts[1].clone(),
        b's' => parts[2].clone(),
        b'k' => key.clone(),
        _ => return None,
    })
}

/// Judges one input.
pub fn run(data: &[u8]) {
    let whole = expanded(data, word);
    let mut lines = whole.splitn(2, |byte| *byte == b'\n');
    let token = String::from_utf8_lossy(lines.next().unwrap_or_default()).into_owned();
    let verdict = TOKENS.verify(&token, "worker", NOW);
    if matches!(verdict, Some(Ok(_))) {
        assert_eq!(token, GOOD.0.join("."), "a token that nobody signed");
    }
    if verdict.is_some() {
        assert_eq!(token.matches('.').count(), 2);
    }
    assert!(!matches!(TOKENS.verify(&token, "master", NOW), Some(Ok(_))));
    if let Ok(tokens) = SignedTokens::new(lines.next().unwrap_or_default(), settings()) {
        let _ = tokens.verify(&GOOD.0.join("."), "worker", NOW);
        let _ = tokens.verify(&token, "worker", NOW);
    }
}
