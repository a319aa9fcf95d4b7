//! The certificate authorities of image registries: how config maps name registries, and which of
//! them a machine is to trust.
//!
//! OpenShift's enhancement on certificate authorities for image registries is the source of the
//! rules: the administrator's config map is named by `images.config.openshift.io/cluster`, the
//! registry operator's is `image-registry-ca`, both are merged into
//! `merged-trusted-image-registry-ca`, and a key is `host` or `host..port` because a config map's
//! key cannot hold a colon.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::objects::{ConfigMap, ImageConfig, Metadata};

/// The namespace of the administrator's config map.
pub const ADMINISTRATOR_NAMESPACE: &str = "openshift-config";
/// The namespace of the registry operator's and of the merged config map.
pub const MANAGED_NAMESPACE: &str = "openshift-config-managed";
/// The registry operator's config map.
pub const OPERATOR_MAP: &str = "image-registry-ca";
/// The config map that both are merged into.
pub const MERGED_MAP: &str = "merged-trusted-image-registry-ca";

/// A registry's host with an optional port, as it names a folder below `/etc/docker/certs.d`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegistryHost(String);

/// Why a key names no registry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no registry host: expected host, host:port or host..port")]
pub struct InvalidHost(String);

impl RegistryHost {
    /// Reads `host`, `host:port` or a config map's `host..port`.
    ///
    /// Letters, digits, `-`, `_` and single dots only, so that no key can name a path outside its
    /// folder.
    pub fn parse(key: &str) -> Result<Self, InvalidHost> {
        let invalid = || InvalidHost(key.to_owned());
        let name = key.replacen("..", ":", 1);
        let (host, port) = match name.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (name.as_str(), None),
        };
        let label = |label: &str| {
            !label.is_empty()
                && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        };
        if host.len() > 253 || !host.split('.').all(label) {
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

    /// Where the container runtime looks for this registry's certificate authorities.
    #[must_use]
    pub fn certs_d_path(&self) -> String {
        format!("/etc/docker/certs.d/{}/ca.crt", self.0)
    }
}

/// The certificate authorities that the config maps of a cluster name, and the entries that name
/// no registry, as `namespace/name: reason`.
///
/// Where the administrator's and the operator's config maps are there, they are merged and the
/// administrator's entry wins; the merged map alone is taken where neither is.
#[must_use]
pub fn collect(
    config_maps: &[&ConfigMap],
    image: Option<&ImageConfig>,
) -> (BTreeMap<RegistryHost, Bytes>, Vec<(String, InvalidHost)>) {
    let find = |namespace: &str, name: &str| {
        config_maps
            .iter()
            .find(|map| map.metadata.namespace == namespace && map.metadata.name == name)
            .copied()
    };
    let administrators = image
        .map(ImageConfig::additional_trusted_ca)
        .filter(|name| !name.is_empty())
        .and_then(|name| find(ADMINISTRATOR_NAMESPACE, name));
    let operators = find(MANAGED_NAMESPACE, OPERATOR_MAP);
    let sources = if administrators.is_none() && operators.is_none() {
        [find(MANAGED_NAMESPACE, MERGED_MAP), None]
    } else {
        [operators, administrators]
    };

    let mut authorities = BTreeMap::new();
    let mut refused = Vec::new();
    for map in sources.into_iter().flatten() {
        for (key, pem) in map.entries() {
            match RegistryHost::parse(key) {
                Ok(host) => {
                    authorities.insert(host, Bytes::copy_from_slice(pem));
                }
                Err(error) => {
                    let Metadata { namespace, name } = &map.metadata;
                    refused.push((format!("ConfigMap {namespace}/{name}"), error));
                }
            }
        }
    }
    (authorities, refused)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn map(namespace: &str, name: &str, data: &serde_json::Value) -> ConfigMap {
        serde_json::from_value(
            json!({"metadata": {"namespace": namespace, "name": name}, "data": data}),
        )
        .unwrap()
    }

    fn hosts(authorities: &BTreeMap<RegistryHost, Bytes>) -> Vec<(&str, &[u8])> {
        authorities.iter().map(|(host, pem)| (host.as_str(), &pem[..])).collect()
    }

    #[test]
    fn two_dots_in_a_key_stand_for_the_colon_before_a_port() {
        let host = RegistryHost::parse("registry.example.com..5000").unwrap();
        assert_eq!(host.as_str(), "registry.example.com:5000");
        assert_eq!(host.certs_d_path(), "/etc/docker/certs.d/registry.example.com:5000/ca.crt");
    }

    #[test]
    fn a_key_that_could_leave_its_folder_is_no_host() {
        for key in [
            "", ".", "..", "a/b", "../x", "a..b..1", "a..", "..5000", "a:0", "a:65536", "a b",
            "a\0", "a.", ".a",
        ] {
            assert!(RegistryHost::parse(key).is_err(), "{key:?}");
        }
    }

    #[test]
    fn the_administrators_entry_wins_over_the_operators() {
        let operators =
            map(MANAGED_NAMESPACE, OPERATOR_MAP, &json!({"a": "operator", "b": "operator"}));
        let administrators =
            map(ADMINISTRATOR_NAMESPACE, "mine", &json!({"a": "mine", "c..1": "mine"}));
        let merged = map(MANAGED_NAMESPACE, MERGED_MAP, &json!({"stale": "x"}));
        let image: ImageConfig =
            serde_json::from_value(json!({"spec": {"additionalTrustedCA": {"name": "mine"}}}))
                .unwrap();
        let (authorities, refused) = collect(&[&merged, &administrators, &operators], Some(&image));
        assert_eq!(
            hosts(&authorities),
            [("a", &b"mine"[..]), ("b", b"operator"), ("c:1", b"mine")]
        );
        assert!(refused.is_empty());
    }

    #[test]
    fn the_merged_map_is_taken_where_its_sources_are_absent() {
        let merged =
            map(MANAGED_NAMESPACE, MERGED_MAP, &json!({"a..5000": "merged", "a/b": "bad"}));
        let elsewhere = map("default", MERGED_MAP, &json!({"b": "not ours"}));
        let (authorities, refused) = collect(&[&elsewhere, &merged], None);
        assert_eq!(hosts(&authorities), [("a:5000", &b"merged"[..])]);
        assert_eq!(refused.len(), 1);
    }
}
