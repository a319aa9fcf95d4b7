use std::sync::LazyLock;
use std::time::Instant;

use jsonwebtoken::{EncodingKey, Header};
use rcgen::{
    KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384, PKCS_ED25519, PKCS_RSA_SHA256,
};
use serde_json::json;

use super::*;

pub(in crate::access) const NOW: OffsetDateTime = time::macros::datetime!(2026-01-01 0:00 UTC);

/// A key of the issuer, with its ID in tokens.
pub(in crate::access) struct Signer {
    id: &'static str,
    algorithm: Algorithm,
    key: EncodingKey,
}

impl Signer {
    fn new(id: &'static str, algorithm: Algorithm) -> Self {
        let generate = |kind| KeyPair::generate_for(kind).unwrap().serialize_der();
        let key = match algorithm {
            Algorithm::ES256 => EncodingKey::from_ec_der(&generate(&PKCS_ECDSA_P256_SHA256)),
            Algorithm::ES384 => EncodingKey::from_ec_der(&generate(&PKCS_ECDSA_P384_SHA384)),
            // The library takes the first version of PKCS#8, which ends before the public half.
            Algorithm::EdDSA => {
                let private = &generate(&PKCS_ED25519)[5..48];
                EncodingKey::from_ed_der(&[b"\x30\x2e\x02\x01\x00", private].concat())
            }
            // The library takes the key in PKCS#1, which begins after 26 bytes of PKCS#8.
            _ => EncodingKey::from_rsa_der(&generate(&PKCS_RSA_SHA256)[26..]),
        };
        Self { id, algorithm, key }
    }

    /// The public half, as in a key set.
    fn jwk(&self) -> Value {
        let mut jwk = Jwk::from_encoding_key(&self.key, self.algorithm).unwrap();
        jwk.common.key_id = Some(self.id.to_owned());
        jwk.common.key_algorithm = None;
        serde_json::to_value(jwk).unwrap()
    }

    #[allow(clippy::needless_pass_by_value, reason = "for values written in place")]
    fn signed_as(&self, head: Value, claims: &Value) -> String {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let message = format!("{}.{}", part(&head), part(claims));
        self.over(&message)
    }

    fn over(&self, message: &str) -> String {
        let signature = jsonwebtoken::crypto::sign(message.as_bytes(), &self.key, self.algorithm);
        format!("{message}.{}", signature.unwrap())
    }

    pub(in crate::access) fn sign(&self, claims: &Value) -> String {
        let mut head = Header::new(self.algorithm);
        head.kid = Some(self.id.to_owned());
        jsonwebtoken::encode(&head, claims, &self.key).unwrap()
    }
}

pub(in crate::access) static EC: LazyLock<Signer> =
    LazyLock::new(|| Signer::new("ec", Algorithm::ES256));
static EC_384: LazyLock<Signer> = LazyLock::new(|| Signer::new("ec-384", Algorithm::ES384));
static ED: LazyLock<Signer> = LazyLock::new(|| Signer::new("ed", Algorithm::EdDSA));
static RSA: LazyLock<Signer> = LazyLock::new(|| Signer::new("rsa", Algorithm::RS256));
/// An unknown key with the ID of a known one.
static UNKNOWN_SIGNER: LazyLock<Signer> = LazyLock::new(|| Signer::new("ec", Algorithm::ES256));

fn settings() -> Settings {
    Settings::Issuer {
        issuer: "https://issuer.example".to_owned(),
        audience: "machine-config-server".to_owned(),
        pool_claim: "pools".to_owned(),
    }
}

/// Tokens of an attestation service, which names no issuer, audience, subject or pool.
#[test]
fn a_verdict_opens_the_pools_of_the_rules_that_it_matches() {
    let rules = json!({"rules": [
        {"name": "confidential", "pools": ["worker", "infra"],
            "claims": {"/submods/cpu0/ear.status": "affirming"}},
        {"name": "tolerated", "pools": ["edge"],
            "claims": {"/submods/cpu0/ear.status": ["affirming", "warning"]}},
    ]});
    let rules = ClaimRules::new(rules.to_string().as_bytes()).unwrap();
    let keys = json!({"keys": [EC.jwk()]}).to_string();
    let tokens = SignedTokens::new(keys.as_bytes(), Settings::Rules(rules)).unwrap();
    let now = NOW.unix_timestamp();
    let verdict = |status: &str, expires: i64| json!({"exp": expires, "submods": {"cpu0": {"ear.status": status}}});
    let judged = |pool: &str, claims: &Value| tokens.verify(&EC.sign(claims), pool, NOW).unwrap();
    let opened = |rule: &str| Ok(Proof::Signed(rule.into()));
    let (good, poor) = (verdict("affirming", now + 60), verdict("warning", now + 60));
    for (pool, claims, expected) in [
        ("worker", &good, opened("rule confidential")),
        ("infra", &good, opened("rule confidential")),
        ("edge", &good, opened("rule tolerated")),
        ("edge", &poor, opened("rule tolerated")),
        ("master", &good, Err(Refusal::OtherPool)),
        ("worker", &poor, Err(Refusal::OtherPool)),
        ("edge", &verdict("contraindicated", now + 60), Err(Refusal::Unsigned)),
        ("worker", &json!({"exp": now + 60}), Err(Refusal::Unsigned)),
        ("worker", &verdict("affirming", now - 61), Err(Refusal::Expired)),
        ("worker", &json!({"submods": good["submods"]}), Err(Refusal::Malformed)),
    ] {
        assert_eq!(judged(pool, claims), expected, "{pool} {claims}");
    }
    let named = json!({"exp": now + 60, "sub": "rack-7", "submods": good["submods"]});
    assert_eq!(judged("worker", &named), opened("rule confidential of rack-7"));
    let forged = tokens.verify(&UNKNOWN_SIGNER.sign(&good), "worker", NOW);
    assert_eq!(forged, Some(Err(Refusal::Unsigned)));
}

fn set(keys: &[Value]) -> Result<SignedTokens, JwksError> {
    SignedTokens::new(json!({ "keys": keys }).to_string().as_bytes(), settings())
}

pub(in crate::access) fn tokens() -> SignedTokens {
    set(&[EC.jwk(), EC_384.jwk(), ED.jwk(), RSA.jwk()]).unwrap()
}

/// Claims of a token that opens workers for an hour.
pub(in crate::access) fn claims() -> Value {
    let now = NOW.unix_timestamp();
    json!({
        "iss": "https://issuer.example", "aud": "machine-config-server", "sub": "rack-7",
        "exp": now + 3600, "nbf": now, "iat": now, "pools": "worker",
    })
}

/// The same claims with one changed.
fn claims_with(name: &str, value: Value) -> Value {
    let mut claims = claims();
    claims[name] = value;
    claims
}

fn claims_without(name: &str) -> Value {
    let mut claims = claims();
    claims.as_object_mut().unwrap().remove(name);
    claims
}

fn verdict(token: &str) -> Option<Result<Proof, Refusal>> {
    tokens().verify(token, "worker", NOW)
}

#[allow(clippy::unnecessary_wraps, reason = "a verdict of all there are")]
fn accepted() -> Option<Result<Proof, Refusal>> {
    Some(Ok(Proof::Signed("rack-7".into())))
}

#[allow(clippy::unnecessary_wraps, reason = "a verdict of all there are")]
fn refused(why: Refusal) -> Option<Result<Proof, Refusal>> {
    Some(Err(why))
}

#[test]
fn a_token_by_each_kind_of_key_is_accepted() {
    for signer in [&*EC, &*EC_384, &*ED, &*RSA] {
        assert_eq!(verdict(&signer.sign(&claims())), accepted(), "{}", signer.id);
    }
    for algorithm in
        [Algorithm::RS384, Algorithm::RS512, Algorithm::PS256, Algorithm::PS384, Algorithm::PS512]
    {
        let signer = Signer { id: "rsa", algorithm, key: RSA.key.clone() };
        assert_eq!(verdict(&signer.sign(&claims())), accepted(), "{algorithm:?}");
    }
}

#[test]
fn what_a_token_claims_has_to_fit() {
    use Refusal::{Expired, Malformed, NotYet, OtherPool, Unsigned};

    let now = NOW.unix_timestamp();
    let pools = json!(["master", "worker"]);
    for (claims, expected) in [
        (claims_with("pools", pools), accepted()),
        (claims_with("pools", json!("master")), refused(OtherPool)),
        (claims_with("pools", json!(["Worker", "worker ", "work"])), refused(OtherPool)),
        (claims_with("pools", json!("worker,master")), refused(OtherPool)),
        (claims_with("pools", json!("*")), refused(OtherPool)),
        (claims_with("pools", json!([])), refused(OtherPool)),
        (claims_with("pools", json!([["worker"]])), refused(OtherPool)),
        (claims_with("pools", json!({"worker": true})), refused(OtherPool)),
        (claims_with("pools", json!(null)), refused(OtherPool)),
        (claims_without("pools"), refused(OtherPool)),
        (claims_with("aud", json!(["else", "machine-config-server"])), accepted()),
        (claims_with("aud", json!("else")), refused(Unsigned)),
        (claims_with("aud", json!([])), refused(Unsigned)),
        (claims_without("aud"), refused(Unsigned)),
        (claims_with("iss", json!("https://issuer.example/")), refused(Unsigned)),
        (claims_with("iss", json!(["https://issuer.example"])), refused(Unsigned)),
        (claims_without("iss"), refused(Unsigned)),
        (claims_with("exp", json!(now)), accepted()),
        (claims_with("exp", json!(now - 59)), accepted()),
        (claims_with("exp", json!(now - 60)), refused(Expired)),
        (claims_with("exp", json!(0)), refused(Expired)),
        (claims_with("exp", json!(-1e300)), refused(Expired)),
        (claims_with("exp", json!(1e300)), accepted()),
        (claims_with("exp", json!(u64::MAX)), accepted()),
        (claims_with("exp", json!(now + 5)), accepted()),
        (claims_with("exp", json!("4102444800")), refused(Malformed)),
        (claims_with("exp", json!(null)), refused(Malformed)),
        (claims_without("exp"), refused(Malformed)),
        (claims_with("nbf", json!(now + 60)), accepted()),
        (claims_with("nbf", json!(now + 61)), refused(NotYet)),
        (claims_with("nbf", json!(60.5)), accepted()),
        (claims_with("nbf", json!("soon")), refused(Malformed)),
        (claims_without("nbf"), accepted()),
        (claims_without("iat"), accepted()),
        (claims_without("sub"), refused(Malformed)),
        (claims_with("sub", json!(7)), refused(Malformed)),
    ] {
        assert_eq!(verdict(&EC.sign(&claims)), expected, "{claims}");
    }
    let text = |claims: &str| {
        let head = URL_SAFE_NO_PAD.encode(r#"{"alg":"ES256","kid":"ec"}"#);
        verdict(&EC.over(&format!("{head}.{}", URL_SAFE_NO_PAD.encode(claims))))
    };
    for claims in ["", "[]", "7", "{", "\"worker\"", "{\"exp\":1e999}"] {
        assert_eq!(text(claims), refused(Malformed), "{claims}");
    }
}

#[test]
fn only_the_named_key_with_an_algorithm_of_its_own_is_believed() {
    use Refusal::{Malformed, Unknown, Unsigned};

    let good = claims();
    let head = |algorithm: &str, id: &str| json!({"alg": algorithm, "kid": id});
    let part = |text: &str| URL_SAFE_NO_PAD.encode(text);
    let unsigned =
        |head: &Value| format!("{}.{}.", part(&head.to_string()), part(&good.to_string()));
    let by_secret = |algorithm, secret: &[u8]| {
        let mut head = Header::new(algorithm);
        head.kid = Some("rsa".to_owned());
        jsonwebtoken::encode(&head, &good, &EncodingKey::from_secret(secret)).unwrap()
    };
    let modulus = RSA.jwk()["n"].as_str().unwrap().to_owned();
    let token = EC.sign(&good);
    let (message, signature) = token.rsplit_once('.').unwrap();
    let other_claims = EC.sign(&claims_with("pools", json!("master")));
    let (_, other_signature) = other_claims.rsplit_once('.').unwrap();
    let unknown_jwk = UNKNOWN_SIGNER.jwk();
    for (token, expected) in [
        (token.clone(), accepted()),
        (UNKNOWN_SIGNER.sign(&good), refused(Unsigned)),
        (format!("{message}.{other_signature}"), refused(Unsigned)),
        (format!("{message}."), refused(Unsigned)),
        (format!("{message}.{}", part("short")), refused(Unsigned)),
        (format!("{message}.{signature}{signature}"), refused(Unsigned)),
        (EC.signed_as(head("ES256", "ed"), &good), refused(Unsigned)),
        (EC.signed_as(head("ES256", "rsa"), &good), refused(Unsigned)),
        (EC.signed_as(head("RS256", "ec"), &good), refused(Unsigned)),
        (EC.signed_as(head("ES384", "ec"), &good), refused(Unsigned)),
        (EC.signed_as(head("ES256", "gone"), &good), refused(Unknown)),
        (EC.signed_as(head("ES256", ""), &good), refused(Unknown)),
        // Without a key ID, only one key is suitable.
        (EC.signed_as(json!({"alg": "ES256"}), &good), accepted()),
        (UNKNOWN_SIGNER.signed_as(json!({"alg": "ES256"}), &good), refused(Unsigned)),
        // Only keys of the set count.
        (
            UNKNOWN_SIGNER.signed_as(json!({"alg": "ES256", "jwk": unknown_jwk}), &good),
            refused(Unsigned),
        ),
        (
            UNKNOWN_SIGNER
                .signed_as(json!({"alg": "ES256", "kid": "x", "jku": "https://a.example"}), &good),
            refused(Unknown),
        ),
        (unsigned(&head("none", "ec")), refused(Malformed)),
        (unsigned(&head("None", "ec")), refused(Malformed)),
        (unsigned(&head("", "ec")), refused(Malformed)),
        (unsigned(&head("ES256", "ec")), refused(Unsigned)),
        (by_secret(Algorithm::HS256, modulus.as_bytes()), refused(Malformed)),
        (by_secret(Algorithm::HS512, b""), refused(Malformed)),
        (EC.signed_as(json!({"alg": 7, "kid": "ec"}), &good), refused(Malformed)),
        (EC.signed_as(json!({"alg": "ES256", "kid": 7}), &good), refused(Malformed)),
        (
            EC.signed_as(json!({"alg": "ES256", "kid": "ec", "crit": ["b64"], "b64": true}), &good),
            refused(Malformed),
        ),
        (EC.signed_as(json!({"alg": "ES512", "kid": "ec"}), &good), refused(Malformed)),
    ] {
        assert_eq!(verdict(&token), expected, "{token}");
    }
}

#[test]
fn what_is_no_token_is_left_to_others() {
    let good = EC.sign(&claims());
    for text in [
        String::new(),
        "..".to_owned(),
        "a.b".to_owned(),
        "a.b.c.d".to_owned(),
        format!("{good}.{good}"),
        format!("{good}="),
        format!(" {good}"),
        good.replacen('.', "+.", 1),
        format!("{}.e30.e30", URL_SAFE_NO_PAD.encode("{}")),
        format!("{}.e30.e30", URL_SAFE_NO_PAD.encode("[\"alg\"]")),
        format!("{}.e30.e30", URL_SAFE_NO_PAD.encode("alg")),
        "0123456789abcdef0123456789abcdef".to_owned(),
    ] {
        assert_eq!(verdict(&text), None, "{text}");
    }
}

/// A token with an unknown key is refused for the key alone, whatever else is wrong.
#[test]
fn a_key_that_is_not_there_tells_nothing() {
    let unknown = json!({"alg": "ES256", "kid": "gone"});
    let bad = json!({"alg": "ES256", "kid": "ec"});
    for claims in [
        claims(),
        claims_with("exp", json!(0)),
        claims_with("pools", json!("master")),
        claims_with("iss", json!("else")),
        json!({}),
    ] {
        for signer in [&*EC, &*UNKNOWN_SIGNER] {
            let token = signer.signed_as(unknown.clone(), &claims);
            assert_eq!(verdict(&token), refused(Refusal::Unknown), "{claims}");
        }
        let token = UNKNOWN_SIGNER.signed_as(bad.clone(), &claims);
        assert_eq!(verdict(&token), refused(Refusal::Unsigned), "{claims}");
    }
}

#[test]
fn a_key_that_is_not_there_is_refused_no_sooner_than_one_that_is() {
    let tokens = tokens();
    let unknown_signer = Signer::new("ec-384", Algorithm::ES384);
    let token = |id: &str| unknown_signer.signed_as(json!({"alg": "ES384", "kid": id}), &claims());
    let least = |token: &str| {
        let times = (0..100).map(|_| {
            let began = Instant::now();
            assert!(tokens.verify(token, "worker", NOW).unwrap().is_err());
            began.elapsed()
        });
        times.min().unwrap()
    };
    let (known, unknown) = (least(&token("ec-384")), least(&token("gone")));
    assert!(unknown * 2 > known, "{unknown:?} next to {known:?}");
}

#[test]
fn without_a_name_no_key_is_guessed_among_several() {
    let second = Signer::new("second", Algorithm::ES256);
    let both = set(&[EC.jwk(), second.jwk()]).unwrap();
    let nameless = second.signed_as(json!({"alg": "ES256"}), &claims());
    assert_eq!(both.verify(&nameless, "worker", NOW), refused(Refusal::Unknown));
    assert_eq!(both.verify(&second.sign(&claims()), "worker", NOW), accepted());
    // Two keys with one ID are both tried.
    let same = set(&[EC.jwk(), UNKNOWN_SIGNER.jwk()]).unwrap();
    for signer in [&*EC, &*UNKNOWN_SIGNER] {
        assert_eq!(same.verify(&signer.sign(&claims()), "worker", NOW), accepted());
    }
}

#[test]
fn a_key_that_says_its_algorithm_is_for_no_other() {
    let mut jwk = RSA.jwk();
    jwk["alg"] = json!("PS256");
    let tokens = set(&[jwk]).unwrap();
    let by = |algorithm| Signer { id: "rsa", algorithm, key: RSA.key.clone() }.sign(&claims());
    assert_eq!(tokens.verify(&by(Algorithm::PS256), "worker", NOW), accepted());
    let other = tokens.verify(&by(Algorithm::RS256), "worker", NOW);
    assert_eq!(other, refused(Refusal::Unsigned));
}

#[test]
fn a_set_has_public_keys_to_check_by() {
    let with = |signer: &Signer, member: &str, value: Value| {
        let mut jwk = signer.jwk();
        jwk[member] = value;
        jwk
    };
    let secret = json!({"kty": "oct", "kid": "shared", "k": "AAAA", "alg": "HS256"});
    let private = with(&EC, "d", json!("AAAA"));
    let name = "key \"shared\"".to_owned();
    assert_eq!(set(&[EC.jwk(), secret]).unwrap_err(), JwksError::Symmetric(name));
    assert_eq!(
        set(&[json!({"kty": "oct", "k": "AAAA"})]).unwrap_err(),
        JwksError::Symmetric("key 1 without a kid".to_owned())
    );
    assert_eq!(set(&[private]).unwrap_err(), JwksError::Private("key \"ec\"".to_owned()));
    assert_eq!(set(&[]).unwrap_err(), JwksError::Empty);
    let weak = URL_SAFE_NO_PAD.encode([0xff; 128]);
    for jwk in [
        json!({}),
        json!({"kty": "AKP", "kid": "new"}),
        with(&EC, "use", json!("enc")),
        with(&EC, "key_ops", json!(["encrypt"])),
        with(&EC, "alg", json!("ES384")),
        with(&EC, "alg", json!("HS256")),
        with(&EC, "crv", json!("P-521")),
        with(&EC, "crv", json!("secp256k1")),
        with(&EC, "crv", json!("P-384")),
        with(&EC, "x", json!("AAAA")),
        with(&EC, "y", json!("not base64!")),
        with(&ED, "x", json!("AAAA")),
        with(&RSA, "n", json!(weak)),
    ] {
        assert_eq!(set(std::slice::from_ref(&jwk)).unwrap_err(), JwksError::Empty, "{jwk}");
        let beside = set(&[jwk.clone(), EC_384.jwk()]).unwrap();
        assert_eq!(beside.skipped().len(), 1, "{jwk}");
        assert_eq!(beside.verify(&EC_384.sign(&claims()), "worker", NOW), accepted(), "{jwk}");
    }
    let fine = [with(&EC, "use", json!("sig")), with(&ED, "key_ops", json!(["verify"]))];
    assert!(set(&fine).unwrap().skipped().is_empty());
    for text in ["", "{}", "[]", "{\"keys\": \"PRIVATE\"}", "{\"keys\": [\"PRIVATE\"]}"] {
        let error = SignedTokens::new(text.as_bytes(), settings()).unwrap_err();
        assert!(!error.to_string().contains("PRIVATE"), "{error}");
        assert!(matches!(error, JwksError::Malformed(_)), "{text}: {error}");
        assert_eq!(error.to_string().lines().count(), 1, "{error}");
    }
    let jwks = json!({ "keys": [EC.jwk()] }).to_string();
    let padded = |length: usize| jwks.clone() + &" ".repeat(length - jwks.len());
    assert!(SignedTokens::new(padded(MAX_SET).as_bytes(), settings()).is_ok());
    let larger = SignedTokens::new(padded(MAX_SET + 1).as_bytes(), settings());
    assert_eq!(larger.unwrap_err(), JwksError::TooLarge);
}

#[test]
fn a_subject_of_any_characters_is_as_short_in_a_line_of_the_log() {
    for subject in ["\u{10ffff}".repeat(300), "\"\\\n".repeat(300)] {
        let token = EC.sign(&claims_with("sub", json!(subject)));
        let verified = tokens().verify(&token, "worker", NOW);
        let Some(Ok(proof)) = verified else { panic!("{verified:?}") };
        let line = format!("{:?}", proof.to_string());
        assert!(line.len() < 600, "{}: {line}", line.len());
    }
}
