//! Rules by which the claims of a signed token open pools, for issuers that know neither pools nor this server: the
//! verdict of an attestation service, above all.
//!
//! A claim is named by a JSON pointer (RFC 6901), since names of claims contain dots: `/submods/cpu0/ear.status`.

use std::collections::BTreeSet;
use std::fmt;

use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

/// Maximum size of the text of rules, in bytes.
const MAX_RULES_BYTES: usize = 1 << 20;

/// Rules of which one must match a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimRules(Vec<ClaimRule>);

/// Required claims, and the pools that they open.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ClaimRule {
    /// Name, for the log.
    pub(super) name: String,
    /// Pools whose configs a token opens.
    pub(super) pools: BTreeSet<String>,
    /// Claims by JSON pointer, each with its values.
    claims: Pairs,
}

/// Reasons why rules are refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClaimRulesError {
    /// The text is larger than the maximum size.
    #[error("larger than 1 MiB")]
    TooLarge,
    /// The text is not a list of rules.
    #[error("expected {{\"rules\": [{{\"name\": …, \"pools\": […], \"claims\": {{…}}}}]}}: {0}")]
    Malformed(String),
    /// There are no rules.
    #[error("has no rule, so that no token opens anything")]
    Empty,
    /// A rule opens no pool.
    #[error("rule {0:?} names no pool")]
    NoPool(String),
    /// A rule would let any token of the issuer in.
    #[error("rule {0:?} requires no claim, so that every token of the issuer matches it")]
    NoClaim(String),
    /// A claim is named twice, so that one of the values would be ignored.
    #[error("rule {0:?} names the claim {1:?} twice; several values of one are a list")]
    Twice(String, String),
    /// A claim is not named by a JSON pointer.
    #[error("rule {0:?}: {1:?} is not a JSON pointer, such as \"/submods/cpu0/ear.status\"")]
    NotAPointer(String, String),
    /// A value is none that is compared.
    #[error(
        "rule {0:?}: the values of {1:?} must be texts, numbers or booleans, or a list of them"
    )]
    BadValue(String, String),
}

impl ClaimRules {
    /// Parses rules in JSON.
    pub fn new(json: &[u8]) -> Result<Self, ClaimRulesError> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Rules {
            rules: Vec<ClaimRule>,
        }
        if json.len() > MAX_RULES_BYTES {
            return Err(ClaimRulesError::TooLarge);
        }
        let malformed = |error: serde_json::Error| ClaimRulesError::Malformed(error.to_string());
        let Rules { rules } = serde_json::from_slice(json).map_err(malformed)?;
        if rules.is_empty() {
            return Err(ClaimRulesError::Empty);
        }
        rules.iter().try_for_each(ClaimRule::check)?;
        Ok(Self(rules))
    }

    /// Rules that a token with these claims matches.
    pub(super) fn matching(&self, claims: &Map<String, Value>) -> Vec<&ClaimRule> {
        let claims = Value::Object(claims.clone());
        self.0.iter().filter(|rule| rule.is_met(&claims)).collect()
    }
}

impl ClaimRule {
    fn check(&self) -> Result<(), ClaimRulesError> {
        let name = || self.name.clone();
        if self.pools.is_empty() {
            return Err(ClaimRulesError::NoPool(name()));
        }
        if self.claims.0.is_empty() {
            return Err(ClaimRulesError::NoClaim(name()));
        }
        let mut seen = BTreeSet::new();
        for (pointer, value) in &self.claims.0 {
            if !seen.insert(pointer) {
                return Err(ClaimRulesError::Twice(name(), pointer.clone()));
            }
            if !pointer.starts_with('/') {
                return Err(ClaimRulesError::NotAPointer(name(), pointer.clone()));
            }
            let is_plain =
                |value: &Value| value.is_string() || value.is_number() || value.is_boolean();
            let is_usable = match value {
                Value::Array(values) => !values.is_empty() && values.iter().all(is_plain),
                value => is_plain(value),
            };
            if !is_usable {
                return Err(ClaimRulesError::BadValue(name(), pointer.clone()));
            }
        }
        Ok(())
    }

    fn is_met(&self, claims: &Value) -> bool {
        self.claims.0.iter().all(|(pointer, expected)| {
            claims.pointer(pointer).is_some_and(|claim| match expected {
                Value::Array(values) => values.contains(claim),
                value => value == claim,
            })
        })
    }
}

/// Members of a JSON object with those that are there twice, of which a map would drop one.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Pairs(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;

        impl<'de> Visitor<'de> for Members {
            type Value = Pairs;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of claims")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }

            fn visit_unit<E: serde::de::Error>(self) -> Result<Pairs, E> {
                Err(E::custom("claims are missing"))
            }
        }

        deserializer.deserialize_map(Members).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::ClaimRulesError::{BadValue, Empty, NoClaim, NoPool, NotAPointer, Twice};
    use super::*;

    fn rules(value: &Value) -> Result<ClaimRules, ClaimRulesError> {
        ClaimRules::new(value.to_string().as_bytes())
    }

    fn rule(claims: &Value) -> Value {
        json!({"rules": [{"name": "r", "pools": ["worker"], "claims": claims}]})
    }

    #[test]
    fn rules_that_let_more_in_than_they_say_are_refused() {
        let good = json!({"/a": "b"});
        assert!(rules(&rule(&good)).is_ok());
        let named = |name: &str| (String::from("r"), name.to_owned());
        let ((r, a), (_, b)) = (named("/a"), named("a.b"));
        for (value, error) in [
            (json!({"rules": []}), Empty),
            (json!({"rules": [{"name": "r", "pools": [], "claims": good}]}), NoPool(r.clone())),
            (rule(&json!({})), NoClaim(r.clone())),
            (rule(&json!({"a.b": "c"})), NotAPointer(r.clone(), b)),
            (rule(&json!({"/a": null})), BadValue(r.clone(), a.clone())),
            (rule(&json!({"/a": []})), BadValue(r.clone(), a.clone())),
            (rule(&json!({"/a": [[1]]})), BadValue(r.clone(), a.clone())),
            (rule(&json!({"/a": {"b": 1}})), BadValue(r.clone(), a.clone())),
        ] {
            assert_eq!(rules(&value), Err(error), "{value}");
        }
        let twice = r#"{"rules": [{"name": "r", "pools": ["p"], "claims": {"/a": 1, "/a": 2}}]}"#;
        assert_eq!(ClaimRules::new(twice.as_bytes()), Err(Twice(r, a)));
        for text in [
            "",
            "[]",
            "{}",
            r#"{"rules": [{"name": "r", "pools": ["p"]}]}"#,
            r#"{"rules": [{"name": "r", "pools": ["p"], "claims": null}]}"#,
            r#"{"rules": [{"name": "r", "pools": ["p"], "claims": {"/a": 1}, "exept": 1}]}"#,
            r#"{"rules": [{"name": "r", "pools": ["p"], "claims": {"/a": 1}}], "x": 1}"#,
        ] {
            let refused = ClaimRules::new(text.as_bytes());
            assert!(matches!(refused, Err(ClaimRulesError::Malformed(_))), "{text}: {refused:?}");
        }
        let large = vec![b' '; MAX_RULES_BYTES + 1];
        assert_eq!(ClaimRules::new(&large), Err(ClaimRulesError::TooLarge));
    }

    #[test]
    fn every_claim_of_a_rule_must_have_one_of_its_values() {
        let claims = json!({"/submods/cpu0/ear.status": ["affirming", 2], "/tee~1kind": "tdx"});
        let rules = rules(&rule(&claims)).unwrap();
        let with = |status: Value, kind: Value| {
            let claims = json!({"submods": {"cpu0": {"ear.status": status}}, "tee/kind": kind});
            !rules.matching(claims.as_object().unwrap()).is_empty()
        };
        assert!(with(json!("affirming"), json!("tdx")) && with(json!(2), json!("tdx")));
        for status in [json!("warning"), json!(["affirming"]), json!("2"), json!(true), Value::Null]
        {
            assert!(!with(status.clone(), json!("tdx")), "{status}");
        }
        assert!(!with(json!("affirming"), json!("snp")));
        // Dots separate nothing.
        let other =
            json!({"submods": {"cpu0": {"ear": {"status": "affirming"}}}, "tee/kind": "tdx"});
        assert!(rules.matching(other.as_object().unwrap()).is_empty());
    }
}
