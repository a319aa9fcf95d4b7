//! Parses the `spec` of an issuer: its signer and its policy. The module does no I/O.
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

use core::net::IpAddr;
use core::time::Duration;
use std::collections::BTreeSet;

use cmp::DirectoryName;
use ipnet::IpNet;
use kubernetes::ObjectName;
use model::objects::ObjectKind;
use pki::{UnknownUsage, Usage};
use serde::Deserialize;
use serde_json::Value;

use super::policy::Policy;

/// API group of the issuers' kinds.
pub(super) const GROUP: &str = "pki.machine-config-server.io";
pub(super) const CLUSTER_ISSUER: &ObjectKind =
    &ObjectKind::new(GROUP, "v1alpha1", "ClusterIssuer", "clusterissuers");
const ISSUER: &ObjectKind = &ObjectKind::new(GROUP, "v1alpha1", "Issuer", "issuers");
/// A namespaced issuer with a CA that speaks CMPv2.
const CMPV2_ISSUER: &ObjectKind =
    &ObjectKind::new(GROUP, "v1alpha1", "CMPv2Issuer", "cmpv2issuers");
pub(super) const ISSUER_KINDS: [&ObjectKind; 3] = [CLUSTER_ISSUER, ISSUER, CMPV2_ISSUER];

/// Parsed `spec` of an issuer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct IssuerSpec {
    pub(super) signer: SignerSpec,
    pub(super) policy: Policy,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SignerSpec {
    /// The machine config server's CA.
    MachineConfigServer,
    /// A CA in the Secret of this name: in the issuer's namespace, or for a cluster issuer in the controller's
    /// namespace for that.
    Secret(String),
    /// An external CA that speaks CMPv2.
    Upstream(Box<UpstreamSpec>),
}

/// An external CA with its connection. Secrets are in the same namespace as for [`SignerSpec::Secret`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UpstreamSpec {
    pub(super) url: String,
    pub(super) ca_name: Option<String>,
    pub(super) recipient: Option<DirectoryName>,
    pub(super) expected_sender: Option<DirectoryName>,
    pub(super) proof: ProofSpec,
    /// CAs that verify HTTPS, and CAs that sign answers and certificates.
    pub(super) cas: Option<SecretKey>,
    pub(super) trusted: Option<SecretKey>,
    pub(super) allow_http: bool,
    pub(super) allow_sha1: bool,
    pub(super) implicit_confirm: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ProofSpec {
    /// A password and its reference.
    Password { password: SecretKey, reference: String },
    /// A certificate with its key.
    Certificate { certificate: SecretKey, key: SecretKey },
}

/// A value of a Secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SecretKey {
    pub(super) secret: String,
    pub(super) key: String,
    /// True if it can be missing, because it is the default.
    pub(super) is_default: bool,
}

impl std::fmt::Display for SecretKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of Secret {}", self.key, self.secret)
    }
}

impl UpstreamSpec {
    /// Names of the required Secrets.
    pub(super) fn secrets(&self) -> BTreeSet<&str> {
        let proof = match &self.proof {
            ProofSpec::Password { password, .. } => [Some(password), None],
            ProofSpec::Certificate { certificate, key } => [Some(certificate), Some(key)],
        };
        let keys = proof.into_iter().chain([self.cas.as_ref(), self.trusted.as_ref()]);
        keys.flatten().map(|key| key.secret.as_str()).collect()
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawSpec {
    signer: RawSigner,
    #[serde(default)]
    policy: RawPolicy,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
enum RawSigner {
    MachineConfigServer {},
    Secret {
        name: String,
    },
    #[serde(rename = "cmpv2")]
    CmpV2(Box<RawUpstream>),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawUpstream {
    url: String,
    ca_name: Option<String>,
    recipient: Option<String>,
    expect_sender: Option<String>,
    #[serde(default, rename = "senderKID")]
    sender_kid: String,
    secret_ref: Option<RawSecretRef>,
    cert_secret_ref: Option<RawCertSecretRef>,
    #[serde(default, rename = "allowHTTP")]
    allow_http: bool,
    #[serde(default, rename = "allowSHA1")]
    allow_sha1: bool,
    #[serde(default)]
    implicit_confirm: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawSecretRef {
    name: String,
    key: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawCertSecretRef {
    name: String,
    key_ref: Option<String>,
    cert_ref: Option<String>,
    cacert_ref: Option<String>,
    trusted_ref: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawPolicy {
    #[serde(default)]
    dns_names: Vec<String>,
    #[serde(default)]
    ip_addresses: Vec<String>,
    #[serde(default)]
    uris: Vec<String>,
    #[serde(default)]
    subjects: Vec<String>,
    usages: Option<Vec<String>>,
    max_duration: Option<String>,
    #[serde(default, rename = "isCA")]
    is_ca: bool,
}

impl IssuerSpec {
    /// Parses an issuer's `spec`. Unknown fields are an error, because they could restrict the policy.
    pub(super) fn read(spec: &Value, name: &ObjectName) -> Result<Self, String> {
        let misunderstood = |error| format!("its spec cannot be read: {error}");
        if name.kind == CMPV2_ISSUER {
            let mut fields = spec.clone();
            let policy = fields.as_object_mut().and_then(|fields| fields.remove("policy"));
            let policy = policy.map(RawPolicy::deserialize).transpose().map_err(misunderstood)?;
            let upstream = RawUpstream::deserialize(fields).map_err(misunderstood)?;
            let signer = SignerSpec::Upstream(Box::new(upstream.read()?));
            return Ok(Self { signer, policy: policy.unwrap_or_default().read()? });
        }
        let RawSpec { signer, policy } = RawSpec::deserialize(spec).map_err(misunderstood)?;
        let signer = match signer {
            // Users of a namespace must not decide which certificates machines trust.
            RawSigner::MachineConfigServer {} if !name.namespace.is_empty() => {
                return Err("only a ClusterIssuer can use the server's signing CA".to_owned());
            }
            RawSigner::MachineConfigServer {} => SignerSpec::MachineConfigServer,
            RawSigner::Secret { name } => SignerSpec::Secret(name),
            RawSigner::CmpV2(upstream) => SignerSpec::Upstream(Box::new(upstream.read()?)),
        };
        Ok(Self { signer, policy: policy.read()? })
    }
}

impl RawUpstream {
    fn read(self) -> Result<UpstreamSpec, String> {
        let name = |field: &str, text: Option<String>| {
            let name = text.map(|text| text.parse::<DirectoryName>()).transpose();
            name.map_err(|error| format!("{field}: {error}"))
        };
        let of_certificates = self.cert_secret_ref.as_ref();
        let key = |named: &Option<String>, default: &str, secret: &str| SecretKey {
            secret: secret.to_owned(),
            key: named.clone().unwrap_or_else(|| default.to_owned()),
            is_default: named.is_none(),
        };
        let cas = of_certificates.map(|it| key(&it.cacert_ref, "ca.crt", &it.name));
        let trusted = of_certificates.and_then(|it| match &it.trusted_ref {
            None => cas.clone(),
            named => Some(key(named, "", &it.name)),
        });
        let proof = match (self.secret_ref, of_certificates) {
            (Some(of_password), _) => ProofSpec::Password {
                password: key(&of_password.key, "password", &of_password.name),
                reference: self.sender_kid,
            },
            (None, Some(it)) => ProofSpec::Certificate {
                certificate: key(&it.cert_ref, "tls.crt", &it.name),
                key: key(&it.key_ref, "tls.key", &it.name),
            },
            (None, None) => {
                return Err(
                    "neither secretRef nor certSecretRef is set: one must authenticate the \
                    request"
                        .to_owned(),
                );
            }
        };
        Ok(UpstreamSpec {
            url: self.url,
            ca_name: self.ca_name,
            recipient: name("recipient", self.recipient)?,
            expected_sender: name("expectSender", self.expect_sender)?,
            proof,
            cas,
            trusted,
            allow_http: self.allow_http,
            allow_sha1: self.allow_sha1,
            implicit_confirm: self.implicit_confirm,
        })
    }
}

impl RawPolicy {
    fn read(self) -> Result<Policy, String> {
        let default = Policy::default();
        let network = |text: String| {
            let network =
                text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
            network
                .map_err(|_| format!("policy.ipAddresses: {text:?} is not an address or a network"))
        };
        let unknown = |error: UnknownUsage| format!("policy.usages: {error}");
        Ok(Policy {
            dns_names: self.dns_names,
            addresses: self.ip_addresses.into_iter().map(network).collect::<Result<_, _>>()?,
            uris: self.uris,
            subjects: self.subjects,
            usages: self
                .usages
                .map_or(Ok(default.usages), |words| read_usages(&words))
                .map_err(unknown)?,
            longest: match self.max_duration {
                Some(text) => {
                    duration(&text).map_err(|error| format!("policy.maxDuration: {error}"))?
                }
                None => default.longest,
            },
            is_ca: self.is_ca,
        })
    }
}

/// Parses uses of keys by cert-manager's words.
pub(super) fn read_usages(words: &[String]) -> Result<BTreeSet<Usage>, UnknownUsage> {
    words.iter().map(|word| word.parse()).collect()
}

/// Parses a Go duration such as `2160h0m0s`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|error| format!("{text:?} is not a duration: {error}"))
}

#[cfg(test)]
mod tests;
