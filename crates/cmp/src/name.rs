//! Names of senders, recipients and subjects, as a person writes them and as they are compared.

use core::fmt;
use core::str::FromStr;

use der::Decode as _;
use x509_cert::attr::AttributeTypeAndValue;
use x509_cert::name::{Name, RdnSequence, RelativeDistinguishedName};

/// A distinguished name (RFC 5280 section 4.1.2.4).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DirectoryName(pub(super) Name);

/// A text that is no name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a name: expected one such as CN=server,O=Example or /O=Example/CN=server")]
pub struct InvalidName(String);

impl FromStr for DirectoryName {
    type Err = InvalidName;

    /// Reads `CN=server,O=Example` (RFC 4514), and `/O=Example/CN=server` as OpenSSL writes it.
    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let name = match text.strip_prefix('/') {
            Some(parts) => {
                parts.split('/').map(str::parse).collect::<Result<_, _>>().map(RdnSequence)
            }
            None => text.parse(),
        };
        name.map(Self).map_err(|_| InvalidName(text.to_owned()))
    }
}

impl fmt::Display for DirectoryName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl DirectoryName {
    /// Decodes a DER name.
    pub fn from_der(der: &[u8]) -> Option<Self> {
        Name::from_der(der).ok().map(Self)
    }

    /// Returns `true` if the name has no parts.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns `true` if both names are equal regardless of string type and case, as RFC 5280 section 7.1 compares the
    /// strings that CAs use.
    pub fn is_same_as(&self, other: &Self) -> bool {
        let is_same_value = |one: &AttributeTypeAndValue, other: &AttributeTypeAndValue| {
            one.oid == other.oid && one.value.value().eq_ignore_ascii_case(other.value.value())
        };
        let is_same_part = |one: &RelativeDistinguishedName, other: &RelativeDistinguishedName| {
            one.0.len() == other.0.len()
                && one.0.iter().all(|one| other.0.iter().any(|other| is_same_value(one, other)))
        };
        let (one, other) = (&self.0.0, &other.0.0);
        one.len() == other.len()
            && one.iter().zip(other).all(|(one, other)| is_same_part(one, other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> DirectoryName {
        text.parse().unwrap()
    }

    #[test]
    fn both_ways_of_writing_a_name_mean_the_same() {
        assert_eq!(name("CN=a b,O=Example,C=DE"), name("/C=DE/O=Example/CN=a b"));
        assert_eq!(name("CN=a\\,b").to_string(), "CN=a\\,b");
        assert!(DirectoryName::default().is_empty());
        for text in ["", "server", "CN=a,b", "/CN=a/b", "XX=a"] {
            assert!(text.parse::<DirectoryName>().is_err(), "{text}");
        }
    }

    #[test]
    fn names_are_the_same_in_any_case_and_kind_of_string_but_not_in_another_order() {
        let mut printable = name("/C=DE/CN=Server");
        let value = der::asn1::Any::new(der::Tag::PrintableString, b"SERVER".to_vec()).unwrap();
        let attribute =
            AttributeTypeAndValue { oid: printable.0.0[1].0.get(0).unwrap().oid, value };
        printable.0.0[1] = vec![attribute].try_into().unwrap();
        assert!(printable.is_same_as(&name("/C=de/CN=server")));
        assert!(!printable.is_same_as(&name("/CN=server/C=de")));
        assert!(!printable.is_same_as(&name("/C=de/CN=server/O=a")));
        assert!(!printable.is_same_as(&name("/C=de/O=server")));
    }
}
