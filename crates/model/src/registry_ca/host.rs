//! How a config map's key names a registry.

/// A registry's host with an optional port, as it names a folder below `/etc/docker/certs.d`.
///
/// It keeps the spelling that it was given: the container runtime looks for a folder of the
/// spelling that an image's name has.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegistryHost(String);

/// Why a key names no registry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no registry host: expected host, host:port or host..port")]
pub struct InvalidHost(String);

/// The longest key that a config map can have, and so short that it can name a folder.
const LONGEST: usize = 253;

impl RegistryHost {
    /// Reads `host`, `host:port` or a config map's `host..port`.
    ///
    /// Letters, digits, `-`, `_` and single dots only, so that no key can name a path outside its
    /// folder.
    pub fn parse(key: &str) -> Result<Self, InvalidHost> {
        let invalid = || InvalidHost(key.chars().take(LONGEST).collect());
        let name = key.replacen("..", ":", 1);
        let (host, port) = match name.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (name.as_str(), None),
        };
        let label = |label: &str| {
            !label.is_empty()
                && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        };
        if name.len() > LONGEST || !host.split('.').all(label) {
            return Err(invalid());
        }
        let is_port = |port: &str| {
            port.bytes().all(|b| b.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|p| p > 0)
        };
        if port.is_some_and(|port| !is_port(port)) {
            return Err(invalid());
        }
        Ok(Self(name))
    }

    /// `host` or `host:port`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// `host` or `host..port`: a config map's key cannot hold a colon.
    #[must_use]
    pub fn config_map_key(&self) -> String {
        self.0.replacen(':', "..", 1)
    }

    /// Where the container runtime looks for this registry's certificate authorities.
    #[must_use]
    pub fn certs_d_path(&self) -> String {
        format!("/etc/docker/certs.d/{}/ca.crt", self.0)
    }

    /// The same for all spellings of one registry: host names know no case, and a port is a number.
    #[must_use]
    pub fn identity(&self) -> String {
        let name = self.0.to_ascii_lowercase();
        match name.split_once(':') {
            Some((host, port)) => format!("{host}:{}", port.trim_start_matches('0')),
            None => name,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_dots_in_a_key_stand_for_the_colon_before_a_port() {
        let host = RegistryHost::parse("registry.example.com..5000").unwrap();
        assert_eq!(host.as_str(), "registry.example.com:5000");
        assert_eq!(host.certs_d_path(), "/etc/docker/certs.d/registry.example.com:5000/ca.crt");
        assert_eq!(host.config_map_key(), "registry.example.com..5000");
    }

    #[test]
    fn a_key_that_could_leave_its_directory_is_no_host() {
        for key in [
            "", ".", "..", "a/b", "../x", "a..b..1", "a..", "..5000", "a:0", "a:65536", "a b",
            "a\0", "a.", ".a", "a:1:2", "a..1..2", "a\n", "\u{e4}", "a\\b", "a%2fb", "-/..",
        ] {
            assert!(RegistryHost::parse(key).is_err(), "{key:?}");
        }
        assert!(RegistryHost::parse(&"a".repeat(253)).is_ok());
        assert!(RegistryHost::parse(&"a".repeat(254)).is_err());
    }

    #[test]
    fn one_registry_has_one_identity_however_it_is_spelt() {
        let identity = |key| RegistryHost::parse(key).unwrap().identity();
        for key in ["a.example..5000", "A.Example:5000", "a.example..05000"] {
            assert_eq!(identity(key), "a.example:5000");
        }
        assert_ne!(identity("a.example"), identity("a.example..443"));
    }
}
