//! Requests a CA from a cert-manager issuer: the Secret with its key, and the CertificateRequest. The module does no
//! I/O.
//!
//! The key is stored before the request is created, so that no certificate comes for a lost key. The request's name is
//! derived from its contents, so that a restarted controller continues with the same one.
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use data_encoding::HEXLOWER;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kubernetes::write::{Malformed, ObjectName, Precondition, SecretWrite};
use model::objects::ObjectKind;
use pki::moment::written;
use pki::{Answer, Issuer, Request, VALIDITY};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::issuer_ref::IssuerRef;
use crate::NAMESPACE;
use crate::certificates::names::{
    CA_ISSUER, CA_REQUEST, PRIVATE_KEY, REQUEST_KEY, REQUESTED, REQUESTED_BEFORE,
};
use crate::certificates::secret::{annotation, date, stored_pair, value};
use crate::object_conditions::condition;

/// Name of the Secret with key and request.
pub(in crate::certificates) fn secret_name() -> ObjectName {
    ObjectName::secret(NAMESPACE, CA_REQUEST)
}

/// A CertificateRequest in the controller's namespace.
pub(in crate::certificates) fn certificate_request(name: &str) -> ObjectName {
    ObjectName::new(ObjectKind::CERTIFICATE_REQUEST, NAMESPACE, name)
}

/// A requested CA, as read from the cluster.
#[derive(Clone)]
pub struct CaRequest {
    pub issuer: IssuerRef,
    /// Secret with its key.
    pub secret: Option<Secret>,
    /// CertificateRequest without its metadata, with the precondition for its deletion.
    pub(in crate::certificates) request: Option<(Value, Precondition)>,
    /// Reason why the CertificateRequest could not be created.
    pub failure: Option<String>,
}

/// Name of the CertificateRequest for the request in a Secret.
pub(in crate::certificates) fn request_name(secret: &Secret) -> Option<String> {
    let digest = HEXLOWER.encode(&Sha256::digest(value(secret, REQUEST_KEY)?)[..5]);
    Some(format!("{CA_REQUEST}-{digest}"))
}

impl CaRequest {
    /// The CertificateRequest to create, `None` if it exists or nothing is requested.
    pub(in crate::certificates) fn missing(&self) -> Option<Value> {
        let secret = self.secret.as_ref().filter(|secret| is_for(secret, &self.issuer))?;
        if self.request.is_some() {
            return None;
        }
        let IssuerRef { group, kind, name } = &self.issuer;
        // It is deleted with the Secret.
        let owner = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "name": CA_REQUEST,
            "uid": secret.metadata.uid.as_ref()?,
        });
        Some(json!({
            "apiVersion": ObjectKind::CERTIFICATE_REQUEST.api_version(),
            "kind": ObjectKind::CERTIFICATE_REQUEST.name,
            "metadata": {
                "name": request_name(secret)?,
                "namespace": NAMESPACE,
                "ownerReferences": [owner],
            },
            "spec": {
                "request": BASE64_STANDARD.encode(value(secret, REQUEST_KEY)?),
                "isCA": true,
                "duration": format!("{}h0m0s", VALIDITY.whole_hours()),
                "usages": ["digital signature", "cert sign", "crl sign"],
                "issuerRef": {"group": group, "kind": kind, "name": name},
            },
        }))
    }

    /// The write of a new request, which replaces an earlier one. `key` and `request` are PEM.
    pub(in crate::certificates) fn write(
        &self,
        key: String,
        request: String,
        now: OffsetDateTime,
    ) -> Result<SecretWrite, Malformed> {
        let object = secret_name();
        let now = date(&object, now)?;
        let before = self.stored_request().map_or(0, |stored| stored.before.saturating_add(1));
        let annotations = [
            (CA_ISSUER.to_owned(), self.issuer.to_string()),
            (REQUESTED.to_owned(), now),
            (REQUESTED_BEFORE.to_owned(), before.to_string()),
        ]
        .into();
        let [key, request] = [key, request].map(|text| Some(ByteString(text.into())));
        let data = [(PRIVATE_KEY, key), (REQUEST_KEY, request)].into();
        SecretWrite::put(object, self.secret.as_ref(), "Opaque", annotations, data)
    }

    /// The existing CertificateRequest, to be deleted when another one replaces it.
    pub(in crate::certificates) fn present(&self) -> Option<(ObjectName, Precondition)> {
        let (_, precondition) = self.request.as_ref()?;
        let name = self.secret.as_ref().and_then(request_name)?;
        Some((certificate_request(&name), precondition.clone()))
    }

    pub(in crate::certificates) fn discard(&self) -> Result<Option<SecretWrite>, Malformed> {
        let Some(present) = &self.secret else { return Ok(None) };
        Ok(Some(SecretWrite::delete(secret_name(), &present.metadata)?))
    }

    /// The request as input of a plan. `ca` is the Secret of the present CA.
    pub(in crate::certificates) fn seen(&self, ca: Option<&Secret>) -> Issuer {
        let name = self.issuer.to_string();
        let issued_by = ca.and_then(|secret| annotation(secret, CA_ISSUER));
        // Another CA may have replaced it: it was distrusted, or has expired.
        let is_issued = ca.is_some_and(|secret| stored_pair(secret).is_issued_by_another());
        let has_issued = is_issued && issued_by == Some(&name);
        Issuer { has_issued, name, request: self.stored_request() }
    }

    /// The stored request, `None` if it is for another issuer, or unreadable: then a new one is made.
    fn stored_request(&self) -> Option<Request> {
        let secret = self.secret.as_ref().filter(|secret| is_for(secret, &self.issuer))?;
        let since = written(OffsetDateTime::parse(annotation(secret, REQUESTED)?, &Rfc3339).ok()?);
        let before = annotation(secret, REQUESTED_BEFORE).and_then(|before| before.parse().ok());
        let key = value(secret, PRIVATE_KEY)?.to_vec();
        value(secret, REQUEST_KEY)?;
        let answer = match (&self.request, &self.failure) {
            (Some((request, _)), _) => answer(request),
            (None, Some(reason)) => Answer::Refused(reason.clone()),
            (None, None) => Answer::Pending(String::new()),
        };
        Some(Request { key, since, before: before.unwrap_or_default(), answer })
    }
}

fn is_for(secret: &Secret, issuer: &IssuerRef) -> bool {
    annotation(secret, CA_ISSUER) == Some(&issuer.to_string())
}

/// The answer in a CertificateRequest without metadata: cert-manager's API reference, `CertificateRequestStatus` and
/// `CertificateRequestCondition`.
fn answer(request: &Value) -> Answer {
    let status = &request["status"];
    let find = |kind: &str| condition(request, kind);
    let is = |kind: &str, state: &str| find(kind).filter(|found| found["status"] == state);
    let says = |found: &Value| found["message"].as_str().unwrap_or_default().to_owned();
    if let Some(denied) = is("Denied", "True") {
        return Answer::Refused(format!("the request was denied: {}", says(denied)));
    }
    if let Some(invalid) = is("InvalidRequest", "True") {
        return Answer::Refused(format!("the request is invalid: {}", says(invalid)));
    }
    if let Some(failed) = is("Ready", "False").filter(|it| it["reason"] != "Pending") {
        return Answer::Refused(format!("the request failed: {}", says(failed)));
    }
    if is("Ready", "True").is_none() {
        return Answer::Pending(match (is("Approved", "True"), find("Ready")) {
            (None, _) => "the request is not approved".to_owned(),
            (Some(_), Some(pending)) => says(pending),
            (Some(_), None) => String::new(),
        });
    }
    let pem = |field: &str| {
        let text = status[field].as_str().unwrap_or_default();
        BASE64_STANDARD.decode(text).map_err(|error| format!("status.{field}: {error}"))
    };
    match (pem("certificate"), pem("ca")) {
        (Ok(chain), Ok(roots)) => Answer::Issued { chain, roots },
        (Err(reason), _) | (_, Err(reason)) => Answer::Refused(reason),
    }
}

#[cfg(test)]
mod tests {
    use kubernetes::write::Change;

    use super::*;

    #[test]
    fn requests_for_naught_are_counted_until_another_issuer_is_asked() {
        let now = time::macros::datetime!(2026-01-01 0:00 UTC);
        let write = |issuer: &str, secret: Option<Secret>| {
            let issuer = issuer.parse().unwrap();
            let request = CaRequest { issuer, secret, request: None, failure: None };
            let write = request.write("key".to_owned(), "csr".to_owned(), now).unwrap();
            match write.change {
                Change::Create(secret) => serde_json::to_value(secret).unwrap(),
                Change::Patch(patch) => serde_json::to_value(patch).unwrap(),
                Change::Replace(_) | Change::Delete(_) => panic!("it is neither made nor patched"),
            }
        };
        let before = |write: &Value| write["metadata"]["annotations"][REQUESTED_BEFORE].clone();
        let first = write("ClusterIssuer/corporate", None);
        assert_eq!(before(&first), "0");
        let mut secret: Secret = serde_json::from_value(first).unwrap();
        secret.metadata.uid = Some("u".to_owned());
        secret.metadata.resource_version = Some("1".to_owned());
        let mut reported = |count: &str| {
            let annotations = secret.metadata.annotations.as_mut().unwrap();
            annotations.insert(REQUESTED_BEFORE.to_owned(), count.to_owned());
            let same = write("ClusterIssuer/corporate", Some(secret.clone()));
            let other = write("ClusterIssuer/other", Some(secret.clone()));
            [same, other].map(|write| before(&write).as_str().unwrap().to_owned())
        };
        assert_eq!(reported("0"), ["1", "0"]);
        assert_eq!(reported("6"), ["7", "0"]);
        assert_eq!(reported("?"), ["1", "0"]);
    }

    #[test]
    fn a_requests_conditions_are_its_answer() {
        let ready = |status: &str, reason: &str| json!({"type": "Ready", "status": status, "reason": reason, "message": "m"});
        let is = |kind: &str| json!({"type": kind, "status": "True", "message": "m"});
        let status = |conditions: Vec<Value>| json!({"status": {"conditions": conditions, "certificate": "YQ==", "ca": "Yg=="}});
        let pending = |what: &str| Answer::Pending(what.to_owned());
        let refused = |what: &str| Answer::Refused(what.to_owned());
        let cases = [
            (json!({}), pending("the request is not approved")),
            (status(vec![ready("False", "Pending")]), pending("the request is not approved")),
            (status(vec![is("Approved")]), pending("")),
            (status(vec![is("Approved"), ready("False", "Pending")]), pending("m")),
            (status(vec![is("Denied")]), refused("the request was denied: m")),
            (status(vec![is("InvalidRequest")]), refused("the request is invalid: m")),
            (
                status(vec![is("Approved"), ready("False", "Failed")]),
                refused("the request failed: m"),
            ),
            (
                status(vec![is("Approved"), ready("True", "Issued")]),
                Answer::Issued { chain: b"a".to_vec(), roots: b"b".to_vec() },
            ),
            (
                json!({"status": {"conditions": [ready("True", "Issued")], "certificate": "?"}}),
                refused("status.certificate: Invalid symbol 63, offset 0."),
            ),
        ];
        for (request, expected) in cases {
            assert_eq!(answer(&request), expected, "{request}");
        }
    }
}
