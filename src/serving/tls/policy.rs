//! TLS versions and cipher suites by OpenShift's names.
//!
//! OpenShift uses IANA names of suites in flags and OpenSSL names in profiles, and its lists contain suites that rustls
//! omits on purpose (CBC, static RSA). Those are ignored with a warning; only a list without others is an error.

use std::sync::Arc;

use model::objects::TlsProfile;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::version::{TLS12, TLS13};
use rustls::{CipherSuite, ProtocolVersion, SupportedCipherSuite, SupportedProtocolVersion};

static SINCE_TLS12: [&SupportedProtocolVersion; 2] = [&TLS13, &TLS12];
static SINCE_TLS13: [&SupportedProtocolVersion; 1] = [&TLS13];

/// Allowed versions and cipher suites.
#[derive(Debug, Clone)]
pub(crate) struct TlsPolicy {
    pub(crate) provider: Arc<CryptoProvider>,
    pub(crate) versions: &'static [&'static SupportedProtocolVersion],
}

/// A policy that is not supported.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PolicyError {
    #[error(
        "TLS version {0:?} is not one of VersionTLS10, VersionTLS11, VersionTLS12, VersionTLS13"
    )]
    UnknownVersion(String),
    #[error("TLS profile {0:?} is not one of Old, Intermediate, Modern, Custom")]
    UnknownProfile(String),
    #[error("none of the cipher suites is available: {}", .0.join(","))]
    NoSuite(Vec<String>),
}

impl TlsPolicy {
    /// Creates a policy from two flags: the minimum version, by default `VersionTLS12`, and the suites, by default all.
    /// The second value lists ignored names, for a warning.
    ///
    /// As in Go's TLS library, TLS 1.3's suites are allowed, unless the list names some of them.
    pub(crate) fn new(
        min_version: &str,
        suites: &[String],
    ) -> Result<(Self, Vec<String>), PolicyError> {
        let mut skipped = Vec::new();
        let versions: &'static [_] = match min_version {
            "" | "VersionTLS12" => &SINCE_TLS12,
            "VersionTLS13" => &SINCE_TLS13,
            "VersionTLS10" | "VersionTLS11" => {
                skipped.push(format!("{min_version} (VersionTLS12 is the oldest supported)"));
                &SINCE_TLS12
            }
            other => return Err(PolicyError::UnknownVersion(other.to_owned())),
        };
        let mut provider = aws_lc_rs::default_provider();
        // AES-128 first, as Ignition itself prefers: safe, and a quarter cheaper than AES-256.
        provider.cipher_suites.sort_by_key(|suite| is_aes_256(*suite));
        if !suites.is_empty() {
            let mut allowed = Vec::new();
            for name in suites {
                match suite(name) {
                    Some(suite) => allowed.push(suite),
                    None => skipped.push(name.clone()),
                }
            }
            if allowed.is_empty() {
                return Err(PolicyError::NoSuite(suites.to_vec()));
            }
            let restricts_tls13 = provider
                .cipher_suites
                .iter()
                .any(|suite| is_tls13(*suite) && allowed.contains(&suite.suite()));
            provider.cipher_suites.retain(|suite| {
                allowed.contains(&suite.suite()) || (is_tls13(*suite) && !restricts_tls13)
            });
        }
        Ok((Self { provider: Arc::new(provider), versions }, skipped))
    }

    /// Prefers the hybrid of X25519 and ML-KEM-768 if a client offers it, or disables it. It protects recorded
    /// connections from future quantum computers, and makes a handshake more expensive.
    pub(crate) fn with_post_quantum(mut self, is_on: bool) -> Self {
        let hybrid = aws_lc_rs::kx_group::X25519MLKEM768;
        let provider = Arc::make_mut(&mut self.provider);
        provider.kx_groups.retain(|group| group.name() != hybrid.name());
        if is_on {
            provider.kx_groups.insert(0, hybrid);
        }
        self
    }

    /// Copies the key exchanges of another policy, which profiles do not specify.
    pub(crate) fn with_groups_of(mut self, other: &Self) -> Self {
        let groups = other.provider.kx_groups.clone();
        Arc::make_mut(&mut self.provider).kx_groups = groups;
        self
    }

    /// The policy of an `APIServer`'s profile.
    pub(crate) fn from_profile(profile: &TlsProfile) -> Result<(Self, Vec<String>), PolicyError> {
        match profile.kind.as_str() {
            "" | "Intermediate" => Self::new("VersionTLS12", &[]),
            "Old" => Self::new("VersionTLS10", &[]),
            "Modern" => Self::new("VersionTLS13", &[]),
            "Custom" => match &profile.custom {
                Some(custom) => Self::new(&custom.min_tls_version, &custom.ciphers),
                None => Self::new("VersionTLS12", &[]),
            },
            other => Err(PolicyError::UnknownProfile(other.to_owned())),
        }
    }
}

/// Logs ignored names of a policy.
pub(crate) fn warn_ignored_suites(skipped: &[String]) {
    if !skipped.is_empty() {
        let names = skipped.join(",");
        tracing::warn!(
            names,
            fix =
                "remove the names from --tls-cipher-suites or the TLS profile of APIServer cluster",
            "ignored cipher suites that the TLS library does not have"
        );
    }
}

fn is_tls13(suite: SupportedCipherSuite) -> bool {
    suite.version().version == ProtocolVersion::TLSv1_3
}

fn is_aes_256(suite: SupportedCipherSuite) -> bool {
    suite.suite().as_str().is_some_and(|name| name.contains("AES_256"))
}

/// The suite of this name, IANA's or OpenSSL's.
fn suite(name: &str) -> Option<CipherSuite> {
    // Go's library has a shorter name for the two of ChaCha20 and TLS 1.2 as well.
    let legacy = format!("{name}_SHA256");
    let suite = aws_lc_rs::ALL_CIPHER_SUITES.iter().find(|suite| {
        let iana = iana_name(suite.suite());
        iana == name || iana == legacy || (!is_tls13(**suite) && openssl_name(&iana) == name)
    });
    suite.map(SupportedCipherSuite::suite)
}

fn iana_name(suite: CipherSuite) -> String {
    suite.as_str().unwrap_or_default().replace("TLS13_", "TLS_")
}

/// OpenSSL's name of a suite of TLS 1.2; those of TLS 1.3 have one name.
fn openssl_name(iana: &str) -> String {
    let name = iana.replace("TLS_", "").replace("_WITH", "").replace("AES_", "AES");
    name.replace("POLY1305_SHA256", "POLY1305").replace('_', "-")
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::NamedGroup;
    use serde_json::json;

    fn names(suites: &[&str]) -> Vec<String> {
        suites.iter().map(|&suite| suite.to_owned()).collect()
    }

    fn suites_of(policy: &TlsPolicy) -> Vec<CipherSuite> {
        policy.provider.cipher_suites.iter().map(SupportedCipherSuite::suite).collect()
    }

    /// IANA's name, OpenSSL's name and the number of every suite that rustls has.
    const SUITES: [(&str, &str, CipherSuite); 9] = [
        ("TLS_AES_128_GCM_SHA256", "TLS_AES_128_GCM_SHA256", CipherSuite::TLS13_AES_128_GCM_SHA256),
        ("TLS_AES_256_GCM_SHA384", "TLS_AES_256_GCM_SHA384", CipherSuite::TLS13_AES_256_GCM_SHA384),
        (
            "TLS_CHACHA20_POLY1305_SHA256",
            "TLS_CHACHA20_POLY1305_SHA256",
            CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
        ),
        (
            "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
            "ECDHE-ECDSA-AES128-GCM-SHA256",
            CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        ),
        (
            "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
            "ECDHE-RSA-AES128-GCM-SHA256",
            CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
        ),
        (
            "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
            "ECDHE-ECDSA-AES256-GCM-SHA384",
            CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
        ),
        (
            "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
            "ECDHE-RSA-AES256-GCM-SHA384",
            CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
        ),
        (
            "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
            "ECDHE-ECDSA-CHACHA20-POLY1305",
            CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
        ),
        (
            "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
            "ECDHE-RSA-CHACHA20-POLY1305",
            CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
        ),
    ];

    #[test]
    fn every_suite_of_the_library_has_its_names() {
        assert_eq!(aws_lc_rs::ALL_CIPHER_SUITES.len(), SUITES.len());
        for (iana, openssl, number) in SUITES {
            assert_eq!((suite(iana), suite(openssl)), (Some(number), Some(number)), "{iana}");
        }
        let go = "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305";
        assert_eq!(suite(go), Some(CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256));
        // OpenSSL's name of one with static RSA.
        assert_eq!(suite("AES128-GCM-SHA256"), None);
    }

    #[test]
    fn aes_128_is_preferred() {
        let (policy, _) = TlsPolicy::new("", &[]).unwrap();
        assert_eq!(suites_of(&policy)[0], CipherSuite::TLS13_AES_128_GCM_SHA256);
    }

    #[test]
    fn suites_that_the_library_lacks_are_passed_over() {
        let (policy, skipped) = TlsPolicy::new(
            "VersionTLS12",
            &names(&["TLS_RSA_WITH_AES_128_CBC_SHA", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"]),
        )
        .unwrap();
        assert_eq!(skipped, ["TLS_RSA_WITH_AES_128_CBC_SHA"]);
        let suites = suites_of(&policy);
        assert!(suites.contains(&CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256));
        assert!(suites.contains(&CipherSuite::TLS13_AES_128_GCM_SHA256));
        assert!(!suites.contains(&CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256));
    }

    #[test]
    fn a_list_of_nothing_available_is_an_error() {
        let error = TlsPolicy::new("", &names(&["TLS_RSA_WITH_AES_128_CBC_SHA"])).unwrap_err();
        assert!(error.to_string().contains("TLS_RSA_WITH_AES_128_CBC_SHA"));
    }

    #[test]
    fn a_list_that_names_suites_of_tls13_restricts_it() {
        let (policy, _) =
            TlsPolicy::new("VersionTLS13", &names(&["TLS_AES_256_GCM_SHA384"])).unwrap();
        assert_eq!(suites_of(&policy), [CipherSuite::TLS13_AES_256_GCM_SHA384]);
    }

    #[test]
    fn profiles_stand_for_a_version() {
        let policy = |value| TlsPolicy::from_profile(&serde_json::from_value(value).unwrap());
        assert_eq!(policy(json!({"type": "Modern"})).unwrap().0.versions.len(), 1);
        assert_eq!(policy(json!({"type": "Intermediate"})).unwrap().0.versions.len(), 2);
        let (old, skipped) = policy(json!({"type": "Old"})).unwrap();
        assert_eq!((old.versions.len(), skipped.len()), (2, 1));
        let (custom, _) = policy(json!({"type": "Custom", "custom": {
            "minTLSVersion": "VersionTLS12", "ciphers": ["ECDHE-ECDSA-CHACHA20-POLY1305"]}}))
        .unwrap();
        assert_eq!(suites_of(&custom).len(), 4);
        assert!(policy(json!({"type": "Odd"})).is_err());
    }

    #[test]
    fn the_hybrid_group_comes_first_or_not_at_all() {
        let groups = |is_on| {
            let policy = TlsPolicy::new("", &[]).unwrap().0.with_post_quantum(is_on);
            policy.provider.kx_groups.iter().map(|group| group.name()).collect::<Vec<_>>()
        };
        assert_eq!(groups(true)[..2], [NamedGroup::X25519MLKEM768, NamedGroup::X25519]);
        assert_eq!(groups(false)[0], NamedGroup::X25519);
        assert!(!groups(false).contains(&NamedGroup::X25519MLKEM768));
    }

    #[test]
    fn an_unknown_version_is_an_error() {
        assert!(TlsPolicy::new("TLS1.2", &[]).is_err());
    }
}
