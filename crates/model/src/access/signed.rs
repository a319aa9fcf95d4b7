//! Tokens signed by another issuer: JSON Web Tokens, verified with a set of its public keys.
//!
//! The header of a token is not trusted. It selects among the keys and algorithms of the set, and nothing else: no key,
//! no URL of keys, and no symmetric algorithm comes from it. Claims are read after the signature is verified, so that a
//! client without one learns nothing about them.

mod claim_rules;

use std::str::FromStr as _;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use serde_json::error::Category;
use serde_json::{Map, Value};
use time::{Duration, OffsetDateTime};

pub use self::claim_rules::{ClaimRules, ClaimRulesError};
use super::proof::{Proof, Refusal};
use crate::escape::{NAME, cut_escaped};

/// Maximum size of a key set, in bytes.
const MAX_SET: usize = 1 << 20;
/// Maximum difference between the issuer's clock and the local one.
const LEEWAY: Duration = Duration::seconds(60);

/// Keys of an issuer, and required claims of its tokens.
#[derive(Debug, Clone)]
pub struct SignedTokens {
    keys: Vec<Key>,
    skipped: Vec<String>,
    settings: Settings,
}

/// Required claims of tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settings {
    /// Claims of an issuer that makes tokens for this server.
    Issuer {
        /// Required value of `iss`.
        issuer: String,
        /// Required value of `aud`, or one of its values.
        audience: String,
        /// Name of the claim with the pool, or a list of pools.
        pool_claim: String,
    },
    /// Rules for the tokens of an issuer that knows neither this server nor pools.
    Rules(ClaimRules),
}

/// Reasons why a key set is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JwksError {
    /// The set is larger than the maximum size.
    #[error("larger than 1 MiB")]
    TooLarge,
    /// The text is not a JWK set.
    #[error("not a JWK set: {0}")]
    Malformed(String),
    /// A key is symmetric, so that every verifier could make tokens.
    #[error("{0} is symmetric, and a set of public keys must not have it")]
    Symmetric(String),
    /// A key includes its private half.
    #[error("{0} has its private part, which must stay at the issuer")]
    Private(String),
    /// No key is usable for signatures.
    #[error(
        "has no key of RSA with 2048 bits or more, P-256, P-384 or Ed25519 for verifying signatures"
    )]
    Empty,
}

#[derive(Debug, Clone)]
struct Key {
    /// Key ID in tokens, `kid`.
    id: Option<String>,
    algorithms: &'static [Algorithm],
    /// Public half.
    half: DecodingKey,
}

/// Header of a token, reduced to the fields that are read.
struct Head {
    algorithm: Algorithm,
    key: Option<String>,
}

impl SignedTokens {
    /// Parses a JWK set (RFC 7517). Unknown keys are ignored, as its section 5 requires.
    pub fn new(jwks: &[u8], settings: Settings) -> Result<Self, JwksError> {
        #[derive(serde::Deserialize)]
        struct KeySet {
            keys: Vec<Map<String, Value>>,
        }
        if jwks.len() > MAX_SET {
            return Err(JwksError::TooLarge);
        }
        // The error omits the unexpected value: the file may be a wrong one, with secrets.
        let malformed = |error: serde_json::Error| match error.classify() {
            Category::Data => JwksError::Malformed("has no list of keys".to_owned()),
            _ => JwksError::Malformed(error.to_string()),
        };
        let set: KeySet = serde_json::from_slice(jwks).map_err(malformed)?;
        let (mut keys, mut skipped) = (Vec::new(), Vec::new());
        for (index, members) in set.keys.into_iter().enumerate() {
            let id = members.get("kid").and_then(Value::as_str).map(str::to_owned);
            let name = id.as_ref().map_or_else(
                || format!("key {} without a kid", index + 1),
                |id| format!("key {id:?}"),
            );
            if members.get("kty").and_then(Value::as_str) == Some("oct")
                || members.contains_key("k")
            {
                return Err(JwksError::Symmetric(name));
            }
            if members.contains_key("d") {
                return Err(JwksError::Private(name));
            }
            match usable(members) {
                Some((algorithms, half)) => keys.push(Key { id, algorithms, half }),
                None => skipped.push(name),
            }
        }
        if keys.is_empty() { Err(JwksError::Empty) } else { Ok(Self { keys, skipped, settings }) }
    }

    /// Descriptions of the keys in the set that verify no tokens: of another kind, too weak, or for another use.
    pub fn skipped(&self) -> &[String] {
        &self.skipped
    }

    /// Checks that `credential` gives a machine of `pool` access; `None` if it is no JSON Web Token.
    pub fn verify(
        &self,
        credential: &str,
        pool: &str,
        now: OffsetDateTime,
    ) -> Option<Result<Proof, Refusal>> {
        let claims = read_head(credential)?.and_then(|head| self.claims(credential, &head));
        Some(claims.and_then(|claims| self.judge(&claims, pool, now)))
    }

    /// The claims of a token, if its signature is valid.
    fn claims(&self, token: &str, head: &Head) -> Result<Map<String, Value>, Refusal> {
        let fits = |key: &&Key| key.algorithms.contains(&head.algorithm);
        let is_named = |key: &&Key| if head.key.is_some() { key.id == head.key } else { fits(key) };
        let mut named: Vec<&Key> = self.keys.iter().filter(is_named).collect();
        // Without a key ID, only a single suitable key is unambiguous.
        if head.key.is_none() && named.len() > 1 {
            named.clear();
        }
        if named.is_empty() {
            // Verify with any key, so that the time does not reveal which key IDs exist.
            if let Some(any) = self.keys.iter().find(fits) {
                let _ = checked(token, head.algorithm, any);
            }
            return Err(Refusal::Unknown);
        }
        named.retain(fits);
        let mut refusal = Refusal::Unsigned;
        for key in named {
            match checked(token, head.algorithm, key) {
                Ok(claims) => return Ok(claims),
                Err(why) => refusal = why,
            }
        }
        Err(refusal)
    }

    fn judge(
        &self,
        claims: &Map<String, Value>,
        pool: &str,
        now: OffsetDateTime,
    ) -> Result<Proof, Refusal> {
        let text = |name: &str| claims.get(name).and_then(Value::as_str);
        match &self.settings {
            Settings::Issuer { issuer, audience, pool_claim } => {
                let subject = text("sub").ok_or(Refusal::Malformed)?;
                if text("iss") != Some(issuer) || !says(claims.get("aud"), audience) {
                    return Err(Refusal::Unsigned);
                }
                check_times(claims, now)?;
                if !says(claims.get(pool_claim), pool) {
                    return Err(Refusal::OtherPool);
                }
                Ok(Proof::Signed(cut_escaped(subject, NAME).into()))
            }
            Settings::Rules(rules) => {
                let matching = rules.matching(claims);
                if matching.is_empty() {
                    return Err(Refusal::Unsigned);
                }
                check_times(claims, now)?;
                let opening = matching.iter().find(|rule| rule.pools.contains(pool));
                let rule = opening.ok_or(Refusal::OtherPool)?;
                let subject = text("sub").map(|subject| format!(" of {subject}"));
                let title = format!("rule {}{}", rule.name, subject.unwrap_or_default());
                Ok(Proof::Signed(cut_escaped(&title, NAME).into()))
            }
        }
    }
}

/// Checks `exp`, which must be there, and `nbf`.
fn check_times(claims: &Map<String, Value>, now: OffsetDateTime) -> Result<(), Refusal> {
    let since_1970 = now - OffsetDateTime::UNIX_EPOCH;
    let expires = date(claims, "exp")?.ok_or(Refusal::Malformed)?;
    if since_1970 >= expires.saturating_add(LEEWAY) {
        return Err(Refusal::Expired);
    }
    if date(claims, "nbf")?.is_some_and(|begins| since_1970.saturating_add(LEEWAY) < begins) {
        return Err(Refusal::NotYet);
    }
    Ok(())
}

/// The algorithms and verifier of a key; `None` if it verifies no signatures.
fn usable(members: Map<String, Value>) -> Option<(&'static [Algorithm], DecodingKey)> {
    use Algorithm::{ES256, ES384, EdDSA, PS256, PS384, PS512, RS256, RS384, RS512};
    const RSA: [Algorithm; 6] = [RS256, RS384, RS512, PS256, PS384, PS512];

    let checks_signatures = |operations: &Value| {
        operations.as_array().is_some_and(|all| all.iter().any(|one| one == "verify"))
    };
    if members.get("key_ops").is_some_and(|operations| !checks_signatures(operations)) {
        return None;
    }
    let jwk: Jwk = serde_json::from_value(Value::Object(members)).ok()?;
    if jwk.common.public_key_use.as_ref().is_some_and(|used| *used != PublicKeyUse::Signature) {
        return None;
    }
    let is_long = |member: &str, length: std::ops::RangeInclusive<usize>| {
        URL_SAFE_NO_PAD.decode(member).is_ok_and(|bytes| length.contains(&bytes.len()))
    };
    let (algorithms, is_sound): (&[Algorithm], bool) = match &jwk.algorithm {
        AlgorithmParameters::RSA(key) => (&RSA, is_long(&key.n, 256..=1024)),
        AlgorithmParameters::EllipticCurve(key) => {
            let (algorithms, length): (&[Algorithm], _) = match key.curve {
                EllipticCurve::P256 => (&[ES256], 32),
                EllipticCurve::P384 => (&[ES384], 48),
                _ => return None,
            };
            let is_sound = [&key.x, &key.y].iter().all(|part| is_long(part, length..=length));
            (algorithms, is_sound)
        }
        AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => {
            (&[EdDSA], is_long(&key.x, 32..=32))
        }
        _ => return None,
    };
    // A key with an algorithm is for no other one.
    let algorithms = match &jwk.common.key_algorithm {
        None => algorithms,
        Some(own) => {
            let own = Algorithm::from_str(&own.to_string()).ok()?;
            let place = algorithms.iter().position(|algorithm| *algorithm == own)?;
            &algorithms[place..=place]
        }
    };
    let key = DecodingKey::from_jwk(&jwk).ok().filter(|_| is_sound)?;
    Some((algorithms, key))
}

/// Parses the header of a token: three parts of base64url, the first of which is JSON with an algorithm. `None` for
/// other texts.
fn read_head(token: &str) -> Option<Result<Head, Refusal>> {
    use Algorithm::{HS256, HS384, HS512};

    let parts: Vec<&str> = token.split('.').collect();
    let [head, claims, signature] = parts[..] else { return None };
    let decoded = |part: &str| URL_SAFE_NO_PAD.decode(part).ok();
    let (head, _, _) = (decoded(head)?, decoded(claims)?, decoded(signature)?);
    let members: Map<String, Value> = serde_json::from_slice(&head).ok()?;
    let algorithm = members.get("alg")?;
    let head = || {
        let algorithm = Algorithm::from_str(algorithm.as_str()?).ok()?;
        // No critical extensions (RFC 7515, section 4.1.11) are supported.
        if matches!(algorithm, HS256 | HS384 | HS512) || members.contains_key("crit") {
            return None;
        }
        let key = match members.get("kid") {
            None => None,
            Some(id) => Some(id.as_str()?.to_owned()),
        };
        Some(Head { algorithm, key })
    };
    Some(head().ok_or(Refusal::Malformed))
}

/// The claims, if this key signed the token.
fn checked(token: &str, algorithm: Algorithm, key: &Key) -> Result<Map<String, Value>, Refusal> {
    let mut validation = Validation::new(algorithm);
    // The caller checks the claims against its own clock.
    validation.required_spec_claims.clear();
    (validation.validate_exp, validation.validate_aud) = (false, false);
    let token = jsonwebtoken::decode(token, &key.half, &validation);
    token.map(|token| token.claims).map_err(|error| match error.kind() {
        ErrorKind::Json(_) | ErrorKind::Utf8(_) => Refusal::Malformed,
        _ => Refusal::Unsigned,
    })
}

/// Returns `true` if a claim is this text, or a list that contains it.
fn says(claim: Option<&Value>, text: &str) -> bool {
    match claim {
        Some(Value::String(one)) => one == text,
        Some(Value::Array(all)) => all.iter().any(|one| one == text),
        _ => false,
    }
}

/// A claim with a time in seconds since 1970, with or without a fraction.
fn date(claims: &Map<String, Value>, name: &str) -> Result<Option<Duration>, Refusal> {
    let seconds = claims.get(name).map(|value| value.as_f64().ok_or(Refusal::Malformed));
    Ok(seconds.transpose()?.map(Duration::saturating_seconds_f64))
}

#[cfg(test)]
pub(super) mod tests;
