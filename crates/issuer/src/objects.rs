//! Parses requests. The module does no I/O.
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

use core::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use controllers::object_conditions::condition;
use kubernetes::ObjectName;
use pki::{BadRequest, SigningRequest};
use serde::Deserialize;
use serde_json::Value;

use super::issuer_spec::{CLUSTER_ISSUER, GROUP, ISSUER_KINDS, duration, read_usages};
use super::policy::RequestedCertificate;

/// Prefix of the signer name in Kubernetes CertificateSigningRequests for a cluster issuer.
pub(super) const SIGNER: &str = "clusterissuers.pki.machine-config-server.io/";

/// A request of either kind, parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RequestSeen {
    pub(super) issuer: ObjectName,
    pub(super) approval: Approval,
    /// Requested certificate, or the fault of the request.
    pub(super) requested: Result<RequestedCertificate, String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Approval {
    /// The request is answered, or is being deleted.
    Answered,
    /// The request is neither approved nor denied.
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
    #[serde(rename = "isCA")]
    is_ca: Option<bool>,
    usages: Option<Vec<String>>,
}

/// Parses a cert-manager CertificateRequest, `None` if it is for another group's issuer.
pub(super) fn certificate_request(namespace: &str, object: &Value) -> Option<RequestSeen> {
    let reference = &object["spec"]["issuerRef"];
    if reference["group"] != GROUP {
        return None;
    }
    let kind = reference["kind"].as_str().filter(|kind| !kind.is_empty()).unwrap_or("Issuer");
    let kind = ISSUER_KINDS.into_iter().find(|known| known.name == kind)?;
    let namespace = if kind == CLUSTER_ISSUER { "" } else { namespace };
    let name = reference["name"].as_str()?;
    let ready = condition(object, "Ready").and_then(|ready| ready["reason"].as_str());
    let is_final = matches!(ready, Some("Issued" | "Failed" | "Denied"));
    let approval = approval(object, is_final);
    let issuer = ObjectName::new(kind, namespace, name);
    Some(RequestSeen { issuer, approval, requested: read_spec(&object["spec"]) })
}

/// Parses a Kubernetes CertificateSigningRequest, `None` if it is for another signer.
pub(super) fn signing_request(object: &Value) -> Option<RequestSeen> {
    let name = object["spec"]["signerName"].as_str()?.strip_prefix(SIGNER)?;
    let approval = approval(object, condition(object, "Failed").is_some());
    let issuer = ObjectName::new(CLUSTER_ISSUER, "", name);
    Some(RequestSeen { issuer, approval, requested: read_spec(&object["spec"]) })
}

fn approval(object: &Value, is_final: bool) -> Approval {
    let has_certificate = object["status"]["certificate"].as_str().is_some_and(|it| !it.is_empty());
    let is = |type_| condition(object, type_).is_some_and(|it| it["status"] == "True");
    match () {
        () if is_final || has_certificate => Approval::Answered,
        () if is("Denied") => Approval::Denied,
        () if is("Approved") => Approval::Approved,
        () => Approval::Unapproved,
    }
}

fn read_spec(spec: &Value) -> Result<RequestedCertificate, String> {
    let raw = RawRequest::deserialize(spec)
        .map_err(|error| format!("its spec cannot be read: {error}"))?;
    let pem = BASE64.decode(&raw.request).map_err(|_| BadRequest::NoPem);
    let request = pem.and_then(|pem| SigningRequest::from_pem(&pem));
    let request = request.map_err(|error| format!("cannot sign its request: {error}"))?;
    let usages = read_usages(raw.usages.as_deref().unwrap_or_default());
    let duration = match (raw.duration, raw.expiration_seconds) {
        (Some(text), _) => Some(duration(&text).map_err(|error| format!("its duration: {error}"))?),
        (None, seconds) => seconds.map(Duration::from_secs),
    };
    Ok(RequestedCertificate {
        usages: usages.map_err(|error| format!("its usages: {error}"))?,
        // Kubernetes' requests have no such field, so the PKCS #10 request decides.
        is_ca: raw
            .is_ca
            .unwrap_or_else(|| spec["signerName"].is_string() && request.is_ca == Some(true)),
        duration,
        request,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

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
        use Approval::{Answered, Approved, Denied, Unapproved};
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
            assert_eq!(seen.approval, expected, "{object}");
        }
        let object = json!({
            "spec": {"signerName": format!("{SIGNER}a"), "request": ""},
            "status": {"conditions": [approved()], "certificate": "eA=="},
        });
        assert_eq!(signing_request(&object).unwrap().approval, Answered);
    }

    #[test]
    fn a_request_that_cannot_be_read_says_why() {
        let of = |spec: Value| read_spec(&spec).unwrap_err();
        assert!(of(json!({})).contains("missing field `request`"));
        let no_pem = "cannot sign its request: not the PEM text of one certificate request";
        assert_eq!(of(json!({"request": "?"})), no_pem);
        assert_eq!(of(json!({"request": ""})), no_pem);
    }
}
