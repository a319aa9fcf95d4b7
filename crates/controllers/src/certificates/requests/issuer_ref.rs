//! References to cert-manager issuers.
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

use std::fmt;
use std::str::FromStr;

const GROUP: &str = "cert-manager.io";

/// An issuer, as a CertificateRequest names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuerRef {
    /// API group without a version.
    pub group: String,
    /// Kind: `Issuer`, `ClusterIssuer`, or that of an external issuer.
    pub kind: String,
    pub name: String,
}

const INVALID: &str =
    "an issuer is GROUP/KIND/NAME, or KIND/NAME of cert-manager.io: ClusterIssuer/corporate";

impl FromStr for IssuerRef {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts: Vec<_> = text.split('/').collect();
        let (group, kind, name) = match parts[..] {
            [kind, name] => (GROUP, kind, name),
            [group, kind, name] => (group, kind, name),
            _ => return Err(INVALID),
        };
        if [group, kind, name].iter().any(|part| part.trim().is_empty()) {
            return Err(INVALID);
        }
        let [group, kind, name] = [group, kind, name].map(str::to_owned);
        Ok(Self { group, kind, name })
    }
}

impl fmt::Display for IssuerRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { group, kind, name } = self;
        write!(f, "{group}/{kind}/{name}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_issuer_is_read_and_named_by_its_parts() {
        let read = |text: &str| text.parse::<IssuerRef>().map(|issuer| issuer.to_string());
        assert_eq!(read("ClusterIssuer/a"), Ok("cert-manager.io/ClusterIssuer/a".to_owned()));
        assert_eq!(read("example.com/Kind/a"), Ok("example.com/Kind/a".to_owned()));
        for text in ["", "a", "/a", "a/", "a//b", "a/b/c/d", "a/b/ "] {
            assert_eq!(read(text), Err(INVALID), "{text}");
        }
    }
}
