//! Registry hosts in the keys of a ConfigMap.

/// A registry's host with an optional port, the name of a directory in `/etc/docker/certs.d`.
///
/// The spelling is kept: the container runtime looks for a directory with the spelling of an image's name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegistryHost(String);

/// Error for a key that is no registry host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a registry host: expected host, host:port or host..port")]
pub struct InvalidHost(String);

/// Maximum length of a ConfigMap's key, short enough for the name of a directory.
const LONGEST: usize = 253;

impl RegistryHost {
    /// Parses `host`, `host:port` or a ConfigMap's `host..port`.
    ///
    /// Only letters, digits, `-`, `_` and single dots are allowed, so that no key is a path outside of its directory.
    pub fn parse(key: &str) -> Result<Self, InvalidHost> {
        let name = key.replacen("..", ":", 1);
        let (host, port) = match name.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (name.as_str(), None),
        };
        let label = |label: &str| {
            !label.is_empty()
                && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        };
        let is_port = |port: &str| {
            port.bytes().all(|b| b.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|p| p > 0)
        };
        if name.len() > LONGEST || !host.split('.').all(label) || !port.is_none_or(is_port) {
            return Err(InvalidHost(key.chars().take(LONGEST).collect()));
        }
        Ok(Self(name))
    }

    /// The host as `host` or `host:port`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The host as `host` or `host..port`, because a ConfigMap's key cannot have a colon.
    pub fn config_map_key(&self) -> String {
        self.0.replacen(':', "..", 1)
    }

    /// Path at which the container runtime looks for the registry's CAs.
    pub fn certs_d_path(&self) -> String {
        format!("/etc/docker/certs.d/{}/ca.crt", self.0)
    }

    /// A common form of all spellings of one registry: host names ignore case, and a port is a number.
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
