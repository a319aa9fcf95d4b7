//! Host names and addresses by which machines reach the server.

use core::net::{IpAddr, Ipv6Addr};

/// A DNS name or an IP address, as a URL's host and as a certificate's alternative name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Host {
    /// A DNS name, in lower case.
    Name(String),
    /// An IP address.
    Address(IpAddr),
}

/// A text that no certificate can have as a host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is neither a DNS name nor an IP address")]
pub struct InvalidHost(String);

impl std::str::FromStr for Host {
    type Err = InvalidHost;

    /// Parses a DNS name or an address, IPv6 with or without brackets. An IPv4-mapped IPv6 address becomes IPv4, as in
    /// Go. Labels follow RFC 1123 section 2.1, with underscores as in DNS.
    fn from_str(text: &str) -> Result<Self, InvalidHost> {
        let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
        if let Some(bare) = bare {
            let address: Ipv6Addr = bare.parse().map_err(|_| InvalidHost(text.to_owned()))?;
            return Ok(Self::Address(address.to_canonical()));
        }
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self::Address(address.to_canonical()));
        }
        let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
        let label = |label: &str| {
            (1..=63).contains(&label.len())
                && !label.starts_with('-')
                && !label.ends_with('-')
                && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        };
        // URL parsers read a name whose last label has only digits as an address.
        let numeric =
            name.rsplit('.').next().is_some_and(|l| l.bytes().all(|b| b.is_ascii_digit()));
        if name.len() > 253 || numeric || !name.split('.').all(label) {
            return Err(InvalidHost(text.to_owned()));
        }
        Ok(Self::Name(name))
    }
}

/// An address as certificates encode it.
pub(super) fn address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
}

impl Host {
    /// The host as resolvers take it: IPv6 without brackets.
    pub fn bare(&self) -> String {
        match self {
            Self::Name(name) => name.clone(),
            Self::Address(address) => address.to_string(),
        }
    }
}

impl std::fmt::Display for Host {
    /// Formats the host for a URL: IPv6 in brackets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Address(IpAddr::V4(address)) => address.fmt(f),
            Self::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_addresses_are_told_apart() {
        let host = |text: &str| text.parse::<Host>().unwrap();
        assert_eq!(host("API-int.Example.com."), Host::Name("api-int.example.com".into()));
        assert_eq!(host("192.0.2.1"), Host::Address("192.0.2.1".parse().unwrap()));
        assert_eq!(host("[2001:db8::1]"), host("2001:db8::1"));
        assert_eq!(host("2001:db8::1").to_string(), "[2001:db8::1]");
        assert_eq!(host("[::ffff:192.0.2.1]"), host("192.0.2.1"));
        assert_eq!(host("::ffff:192.0.2.1"), host("192.0.2.1"));
    }

    #[test]
    fn what_no_certificate_can_carry_is_refused() {
        for text in ["", "a b", "-a", "a-", "a..b", "*.a", "1.2.3", "[a]", "a/b", "a:1"] {
            assert!(text.parse::<Host>().is_err(), "{text:?}");
        }
    }
}
