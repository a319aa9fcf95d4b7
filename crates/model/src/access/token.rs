//! Provisioning tokens, and their hashes.
//!
//! A token has 256 random bits, so it cannot be guessed. Servers keep only its SHA-256, which opens nothing.

use std::fmt;
use std::sync::Arc;

use data_encoding::{BASE64URL_NOPAD, HEXLOWER};
use rustls::crypto::{GetRandomFailed, aws_lc_rs};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use sha2::{Digest as _, Sha256};

/// Prefix of every token, by which people and secret scanners recognise one.
const PREFIX: &str = "mcs-";
/// Number of digits of an ID.
const ID: usize = 12;

/// A token in plain text. `Debug` hides it.
#[derive(Clone, PartialEq, Eq, Serialize)]
pub struct Token(String);

impl Token {
    /// Encodes 32 random bytes as a token.
    pub fn new(random: [u8; 32]) -> Self {
        Self(format!("{PREFIX}{}", BASE64URL_NOPAD.encode(&random)))
    }

    /// Generates a token from the system's randomness: the only place of access control that uses it.
    ///
    /// # Errors
    /// The random generator failed.
    #[expect(clippy::disallowed_methods, reason = "what a token is made of")]
    pub fn generate() -> Result<Self, GetRandomFailed> {
        let mut random = [0; 32];
        aws_lc_rs::default_provider().secure_random.fill(&mut random)?;
        Ok(Self::new(random))
    }

    /// Parses a token, `None` if the text is not one.
    pub fn read(text: &str) -> Option<Self> {
        let bytes = BASE64URL_NOPAD.decode(text.strip_prefix(PREFIX)?.as_bytes()).ok()?;
        (bytes.len() == 32).then(|| Self(text.to_owned()))
    }

    /// The token as sent in requests.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The token's SHA-256.
    pub fn hash(&self) -> TokenHash {
        TokenHash(Sha256::digest(&self.0).into())
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({})", self.hash().id())
    }
}

impl<'de> Deserialize<'de> for Token {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        // The text may be another secret, so the error omits it.
        Self::read(&text).ok_or_else(|| de::Error::custom("not a token"))
    }
}

/// The SHA-256 of a token.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TokenHash([u8; 32]);

/// Token of a machine, as a request shows it. A machine's object can get another token while the request is judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownToken {
    /// Name of the machine.
    pub machine: Arc<str>,
    /// Hash of the token.
    pub sha256: TokenHash,
}

impl TokenHash {
    /// The hash's bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// ID of the token for people: the first digits of its hash, in hexadecimal.
    pub fn id(&self) -> String {
        let mut digits = HEXLOWER.encode(&self.0);
        digits.truncate(ID);
        digits
    }
}

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.id())
    }
}

impl Serialize for TokenHash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&HEXLOWER.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for TokenHash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = HEXLOWER.decode(text.as_bytes()).ok().and_then(|bytes| bytes.try_into().ok());
        bytes.map(Self).ok_or_else(|| de::Error::custom("not a SHA-256 in hexadecimal"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_are_alike() {
        assert_ne!(Token::generate().unwrap(), Token::generate().unwrap());
    }

    #[test]
    fn a_token_is_read_as_it_was_made() {
        let token = Token::new([7; 32]);
        assert_eq!(token.as_str(), "mcs-BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc");
        assert_eq!(Token::read(token.as_str()), Some(token.clone()));
        assert_eq!(token.hash().id().len(), ID);
        assert!(!format!("{token:?}{:?}", token.hash()).contains("BwcH"), "it is not shown");
        let json = serde_json::to_string(&(&token, token.hash())).unwrap();
        assert_eq!(
            serde_json::from_str::<(Token, TokenHash)>(&json).unwrap(),
            (token.clone(), token.hash())
        );
    }

    #[test]
    fn what_is_no_token_is_none() {
        let good = Token::new([0; 32]);
        let good = good.as_str();
        for text in [
            "",
            "mcs-",
            "mcs-AAAA",
            &good[4..],
            &good[..good.len() - 1],
            &format!("{good}A"),
            &format!(" {good}"),
            &format!("{good}="),
            &good.replace("mcs-", "MCS-"),
            // The last digit has bits beyond 256.
            &format!("{}B", &good[..good.len() - 1]),
            &good.replacen('A', "+", 1),
        ] {
            assert_eq!(Token::read(text), None, "{text:?}");
        }
        assert!(
            serde_json::from_str::<Token>("\"secret\"")
                .unwrap_err()
                .to_string()
                .starts_with("not a token")
        );
        assert!(serde_json::from_str::<TokenHash>("\"00\"").is_err());
    }
}
