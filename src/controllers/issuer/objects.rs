//! The objects of issuers and requests: what they say, and the status that is written into them. Nothing here does
//! I/O.

use core::net::IpAddr;
use core::time::Duration;
use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use ipnet::IpNet;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::policy::{Asked, Policy};
use crate::pki::{BadRequest, SigningRequest, UnknownUsage, Usage};

/// The group of the issuers' kinds.
pub(super) const GROUP: &str = "pki.machine-config-server.io";
/// The name by which a Kubernetes CertificateSigningRequest asks for a cluster issuer, before its name.
pub(super) const SIGNER: &str = "clusterissuers.pki.machine-config-server.io/";

/// Which issuer a request asks for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct IssuerName {
    /// Empty for a cluster issuer.
    pub(super) namespace: String,
    pub(super) name: String,
}

impl std::fmt::Display for IssuerName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.namespace.as_str() {
            "" => write!(f, "ClusterIssuer {}", self.name),
            namespace => write!(f, "Issuer {namespace}/{}", self.name),
        }
    }
}

/// What an issuer says that it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct IssuerSpec {
    pub(super) signer: SignerSpec,
    pub(super) policy: Policy,
}

/// Who signs for an issuer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SignerSpec {
    /// The machine config server's own CA.
    MachineConfigServer,
    /// A CA in the secret of this name: beside an issuer, and for a cluster issuer in the namespace that the
    /// controller has for that.
    Secret(String),
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
    Secret { name: String },
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
    /// Reads an issuer's `spec`, or tells what is wrong with it. What is not understood is no policy.
    pub(super) fn read(spec: &Value, name: &IssuerName) -> Result<Self, String> {
        let RawSpec { signer, policy } = RawSpec::deserialize(spec)
            .map_err(|error| format!("its spec is not understood: {error}"))?;
        let signer = match signer {
            // Whoever may make objects in a namespace does not decide what machines trust.
            RawSigner::MachineConfigServer {} if !name.namespace.is_empty() => {
                return Err("only a ClusterIssuer may sign by the server's own CA".to_owned());
            }
            RawSigner::MachineConfigServer {} => SignerSpec::MachineConfigServer,
            RawSigner::Secret { name } => SignerSpec::Secret(name),
        };
        Ok(Self { signer, policy: policy.read()? })
    }
}

impl RawPolicy {
    fn read(self) -> Result<Policy, String> {
        let default = Policy::default();
        let network = |text: String| {
            let network =
                text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
            network
                .map_err(|_| format!("policy.ipAddresses: {text:?} is no network and no address"))
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

/// A request of either kind, as far as a decision about it goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RequestSeen {
    pub(super) issuer: IssuerName,
    pub(super) standing: Standing,
    /// What it asks for, or what is wrong with it.
    pub(super) asked: Result<Asked, String>,
}

/// How far a request has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// It has its answer, or goes away.
    Answered,
    /// Nobody has said whether it may be signed.
    Unapproved,
    Approved,
    Denied,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawRequest {
    request: String,
    duration: Option<String>,
    expiration_seconds: Option<u64>,
    #[serde(default, rename = "isCA")]
    is_ca: Option<bool>,
    #[serde(default)]
    usages: Option<Vec<String>>,
}

/// Reads a CertificateRequest of cert-manager, `None` if it asks for an issuer of somebody else's.
pub(super) fn certificate_request(namespace: &str, object: &Value) -> Option<RequestSeen> {
    let reference = &object["spec"]["issuerRef"];
    if reference["group"] != GROUP {
        return None;
    }
    let kind = reference["kind"].as_str().filter(|kind| !kind.is_empty()).unwrap_or("Issuer");
    let namespace = match kind {
        "Issuer" => namespace,
        "ClusterIssuer" => "",
        _ => return None,
    };
    let name = reference["name"].as_str()?.to_owned();
    let ready = condition(object, "Ready").and_then(|ready| ready["reason"].as_str());
    let is_final = matches!(ready, Some("Issued" | "Failed" | "Denied"));
    let standing = standing(object, is_final);
    Some(RequestSeen {
        issuer: IssuerName { namespace: namespace.to_owned(), name },
        standing,
        asked: asked(&object["spec"]),
    })
}

/// Reads a CertificateSigningRequest of Kubernetes, `None` if it is for another signer.
pub(super) fn signing_request(object: &Value) -> Option<RequestSeen> {
    let name = object["spec"]["signerName"].as_str()?.strip_prefix(SIGNER)?.to_owned();
    let standing = standing(object, condition(object, "Failed").is_some());
    let issuer = IssuerName { namespace: String::new(), name };
    Some(RequestSeen { issuer, standing, asked: asked(&object["spec"]) })
}

fn standing(object: &Value, is_final: bool) -> Standing {
    let has_certificate = object["status"]["certificate"].as_str().is_some_and(|it| !it.is_empty());
    let is = |type_| condition(object, type_).is_some_and(|it| it["status"] == "True");
    match () {
        () if is_final || has_certificate => Standing::Answered,
        () if is("Denied") => Standing::Denied,
        () if is("Approved") => Standing::Approved,
        () => Standing::Unapproved,
    }
}

fn asked(spec: &Value) -> Result<Asked, String> {
    let raw = RawRequest::deserialize(spec)
        .map_err(|error| format!("its spec is not understood: {error}"))?;
    let pem = BASE64.decode(&raw.request).map_err(|_| BadRequest::NoPem);
    let request = pem.and_then(|pem| SigningRequest::from_pem(&pem));
    let request = request.map_err(|error| format!("its request cannot be signed: {error}"))?;
    let usages = read_usages(raw.usages.as_deref().unwrap_or_default());
    let duration = match (raw.duration, raw.expiration_seconds) {
        (Some(text), _) => Some(duration(&text).map_err(|error| format!("its duration: {error}"))?),
        (None, seconds) => seconds.map(Duration::from_secs),
    };
    Ok(Asked {
        usages: usages.map_err(|error| format!("its usages: {error}"))?,
        // Kubernetes' own requests have no such field: there the request itself says it.
        is_ca: raw
            .is_ca
            .unwrap_or_else(|| spec["signerName"].is_string() && request.is_ca == Some(true)),
        duration,
        request,
    })
}

fn read_usages(words: &[String]) -> Result<BTreeSet<Usage>, UnknownUsage> {
    words.iter().map(|word| word.parse()).collect()
}

/// A duration as Go writes it: `2160h0m0s`.
fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|error| format!("{text:?} is no duration: {error}"))
}

/// A condition of an object, by its type.
pub(super) fn condition<'a>(object: &'a Value, type_: &str) -> Option<&'a Value> {
    let mut conditions = object["status"]["conditions"].as_array()?.iter();
    conditions.find(|condition| condition["type"] == type_)
}

/// What is to be said in a condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) type_: &'static str,
    pub(super) is_true: bool,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// The conditions of an object with this one among them, `None` if it says so already. The others stay as they are;
/// conditions that are none are an error.
pub(super) fn conditions_with(
    object: &Value,
    said: &Said,
    now: OffsetDateTime,
) -> Result<Option<Value>, String> {
    let Said { type_, is_true, reason, message } = said;
    let mut conditions = match &object["status"]["conditions"] {
        Value::Null => Vec::new(),
        Value::Array(conditions) => conditions.clone(),
        _ => return Err("status.conditions is no list".to_owned()),
    };
    let status = if *is_true { "True" } else { "False" };
    let before = conditions.iter().position(|condition| condition["type"] == *type_);
    let before_said = before.map(|at| &conditions[at]);
    let is_same = before_said.is_some_and(|before| {
        before["status"] == status && before["reason"] == *reason && before["message"] == *message
    });
    if is_same {
        return Ok(None);
    }
    let since = before_said.filter(|before| before["status"] == status);
    let since = since.map_or_else(|| json!(time_text(now)), |it| it["lastTransitionTime"].clone());
    let new = json!({
        "type": type_, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": since,
    });
    match before {
        Some(at) => conditions[at] = new,
        None => conditions.push(new),
    }
    Ok(Some(Value::Array(conditions)))
}

/// A time as RFC 3339 has it, in whole seconds.
pub(super) fn time_text(time: OffsetDateTime) -> String {
    let whole = time.replace_nanosecond(0).unwrap_or(time);
    // A clock past the year 9999 is the one thing that cannot be written.
    whole.format(&Rfc3339).unwrap_or_default()
}

/// Bytes as an object has them.
pub(super) fn bytes(text: &str) -> Value {
    Value::String(BASE64.encode(text))
}

/// A status of these fields.
pub(super) fn status(
    fields: impl IntoIterator<Item = (&'static str, Value)>,
) -> Map<String, Value> {
    fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster_issuer() -> IssuerName {
        IssuerName { namespace: String::new(), name: "a".to_owned() }
    }

    #[test]
    fn an_issuer_is_read_with_its_policy() {
        let spec = json!({
            "signer": {"machineConfigServer": {}},
            "policy": {
                "dnsNames": ["*.example.com"], "ipAddresses": ["192.0.2.0/24", "2001:db8::1"],
                "uris": ["spiffe://a/*"], "subjects": ["O=x"], "usages": ["server auth", "signing"],
                "maxDuration": "36h0m0s", "isCA": true,
            },
        });
        let read = IssuerSpec::read(&spec, &cluster_issuer()).unwrap();
        assert_eq!(read.signer, SignerSpec::MachineConfigServer);
        let Policy { dns_names, addresses, uris, subjects, usages, longest, is_ca } = read.policy;
        assert_eq!(
            (dns_names, uris),
            (vec!["*.example.com".to_owned()], vec!["spiffe://a/*".to_owned()])
        );
        let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
        assert_eq!(addresses, ["192.0.2.0/24", "2001:db8::1/128"]);
        assert_eq!((subjects, is_ca), (vec!["O=x".to_owned()], true));
        assert_eq!(usages, [Usage::DIGITAL_SIGNATURE, Usage::SERVER_AUTH].into());
        assert_eq!(longest, Duration::from_secs(36 * 3600));

        let of_namespace = IssuerName { namespace: "ns".to_owned(), ..cluster_issuer() };
        let spec = json!({"signer": {"secret": {"name": "own"}}});
        let read = IssuerSpec::read(&spec, &of_namespace).unwrap();
        assert_eq!(read.signer, SignerSpec::Secret("own".to_owned()));
        assert_eq!(read.policy, Policy::default());
    }

    #[test]
    fn an_issuer_that_is_not_understood_is_none() {
        let with = |policy: Value| json!({"signer": {"secret": {"name": "a"}}, "policy": policy});
        for (spec, expected) in [
            (json!(null), "its spec is not understood"),
            (json!({}), "missing field `signer`"),
            (json!({"signer": {}}), "its spec is not understood"),
            (json!({"signer": {"somebody": {}}}), "unknown variant `somebody`"),
            (json!({"signer": {"secret": {"name": 1}}}), "invalid type"),
            (with(json!({"dnsName": ["a"]})), "unknown field `dnsName`"),
            (with(json!({"isCA": "yes"})), "invalid type"),
            (with(json!({"ipAddresses": ["a"]})), "\"a\" is no network and no address"),
            (with(json!({"usages": ["a"]})), "\"a\" is no use of a key"),
            (with(json!({"maxDuration": "a"})), "\"a\" is no duration"),
        ] {
            let error = IssuerSpec::read(&spec, &cluster_issuer()).unwrap_err();
            assert!(error.contains(expected), "{spec}: {error}");
        }
        let of_namespace = IssuerName { namespace: "ns".to_owned(), ..cluster_issuer() };
        let spec = json!({"signer": {"machineConfigServer": {}}});
        let error = IssuerSpec::read(&spec, &of_namespace).unwrap_err();
        assert_eq!(error, "only a ClusterIssuer may sign by the server's own CA");
    }

    #[test]
    fn a_request_is_ours_by_the_group_and_kind_of_its_issuer() {
        let issuer = |reference: Value| {
            let object = json!({"spec": {"issuerRef": reference, "request": ""}});
            certificate_request("ns", &object).map(|seen| seen.issuer.to_string())
        };
        let ours = |kind: &str| issuer(json!({"group": GROUP, "kind": kind, "name": "a"}));
        assert_eq!(ours("Issuer").unwrap(), "Issuer ns/a");
        assert_eq!(ours("").unwrap(), "Issuer ns/a");
        assert_eq!(ours("ClusterIssuer").unwrap(), "ClusterIssuer a");
        assert_eq!(ours("Other"), None);
        assert_eq!(
            issuer(json!({"group": "cert-manager.io", "kind": "Issuer", "name": "a"})),
            None
        );
        assert_eq!(issuer(json!({"name": "a"})), None);

        let of_kubernetes = |signer: &str| {
            let object = json!({"spec": {"signerName": signer, "request": ""}});
            signing_request(&object).map(|seen| seen.issuer.to_string())
        };
        assert_eq!(of_kubernetes(&format!("{SIGNER}a")).unwrap(), "ClusterIssuer a");
        assert_eq!(of_kubernetes("kubernetes.io/kubelet-serving"), None);
    }

    #[test]
    fn a_request_stands_as_its_conditions_say() {
        use Standing::{Answered, Approved, Denied, Unapproved};
        let is = |type_: &str, status: &str, reason: &str| json!({"type": type_, "status": status, "reason": reason});
        let approved = || is("Approved", "True", "x");
        for (conditions, expected) in [
            (vec![], Unapproved),
            (vec![is("Approved", "False", "x")], Unapproved),
            (vec![is("Ready", "False", "Pending")], Unapproved),
            (vec![approved()], Approved),
            (vec![approved(), is("Ready", "False", "Pending")], Approved),
            (vec![approved(), is("Denied", "True", "x")], Denied),
            (vec![approved(), is("Ready", "False", "Failed")], Answered),
            (vec![is("Denied", "True", "x"), is("Ready", "False", "Denied")], Answered),
            (vec![approved(), is("Ready", "True", "Issued")], Answered),
        ] {
            let object = json!({
                "spec": {"issuerRef": {"group": GROUP, "name": "a"}, "request": ""},
                "status": {"conditions": conditions},
            });
            let seen = certificate_request("ns", &object).unwrap();
            assert_eq!(seen.standing, expected, "{object}");
        }
        let object = json!({
            "spec": {"signerName": format!("{SIGNER}a"), "request": ""},
            "status": {"conditions": [approved()], "certificate": "eA=="},
        });
        assert_eq!(signing_request(&object).unwrap().standing, Answered);
    }

    #[test]
    fn a_request_that_cannot_be_read_says_why() {
        let of = |spec: Value| asked(&spec).unwrap_err();
        assert!(of(json!({})).contains("missing field `request`"));
        let no_pem = "its request cannot be signed: it is no PEM text of one certificate request";
        assert_eq!(of(json!({"request": "?"})), no_pem);
        assert_eq!(of(json!({"request": ""})), no_pem);
    }

    #[test]
    fn a_condition_takes_the_place_of_its_type_and_leaves_the_others() {
        let now = time::macros::datetime!(2026-01-02 03:04:05.678 UTC);
        let said = |is_true, message: &str| Said {
            type_: "Ready",
            is_true,
            reason: "R",
            message: message.to_owned(),
        };
        let other = json!({"type": "Approved", "status": "True", "more": 1});
        let object = json!({"status": {"conditions": [other]}});
        let first = conditions_with(&object, &said(false, "m"), now).unwrap().unwrap();
        let ready = json!({
            "type": "Ready", "status": "False", "reason": "R", "message": "m",
            "lastTransitionTime": "2026-01-02T03:04:05Z",
        });
        assert_eq!(first, json!([other, ready]));
        let object = json!({"status": {"conditions": first}});
        assert_eq!(conditions_with(&object, &said(false, "m"), now), Ok(None), "no write");
        let later = now + time::Duration::HOUR;
        let told = conditions_with(&object, &said(false, "n"), later).unwrap().unwrap();
        assert_eq!(told[1]["message"], "n");
        assert_eq!(told[1]["lastTransitionTime"], "2026-01-02T03:04:05Z", "its status is the same");
        let ready = conditions_with(&object, &said(true, "m"), later).unwrap().unwrap();
        assert_eq!(ready[1]["lastTransitionTime"], "2026-01-02T04:04:05Z");
        let broken = json!({"status": {"conditions": "x"}});
        assert!(conditions_with(&broken, &said(true, "m"), now).is_err());
    }
}
