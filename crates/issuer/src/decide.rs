//! Decides on a certificate request. The module does no I/O.
//!
//! | request | issuer | what becomes of it |
//! | --- | --- | --- |
//! | answered, or not approved | any | nothing |
//! | denied | any | marked as denied |
//! | approved | not there, not ready | waits, with the reason |
//! | approved, broken or not covered by the policy | ready | failed, with all reasons |
//! | approved and covered | ready | signed |
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

use pki::Issued;

use super::objects::{Approval, RequestSeen};
use super::policy::{Grant, Policy};
use super::reserved_names::ReservedNames;

/// Answer to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    /// None.
    Nothing,
    /// The request waits, for this reason.
    Pending(String),
    /// The request waits for an external CA, with which the last attempt failed. It is retried later.
    InTrouble(String),
    Denied,
    /// The request failed for good, for these reasons.
    Failed(String),
    /// The certificate is issued; the text describes changes by an external CA.
    Issued(Box<Issued>, Option<String>),
}

/// Policy of an issuer with its reserved names, or the reason why it cannot sign.
pub(super) type IssuerReadiness<'a> = Result<(&'a Policy, &'a ReservedNames), &'a str>;

/// Decides on a request to an issuer, `None` if the issuer does not exist. Returns the certificate to sign, or the
/// outcome without one.
pub(super) fn decide(
    seen: RequestSeen,
    issuer: Option<IssuerReadiness<'_>>,
) -> Result<Grant, Outcome> {
    let RequestSeen { issuer: name, approval, requested } = seen;
    match approval {
        Approval::Answered | Approval::Unapproved => return Err(Outcome::Nothing),
        Approval::Denied => return Err(Outcome::Denied),
        Approval::Approved => {}
    }
    let (policy, reserved) =
        issuer
            .ok_or_else(|| Outcome::Pending(format!("{name} not found")))?
            .map_err(|reason| Outcome::Pending(format!("{name} is not ready: {reason}")))?;
    let requested = requested.map_err(Outcome::Failed)?;
    policy.grant(requested, reserved).map_err(|all| Outcome::Failed(all.join("; ")))
}

#[cfg(test)]
mod tests {
    use core::time::Duration;
    use std::collections::BTreeSet;

    use kubernetes::ObjectName;
    use pki::SigningRequest;

    use super::super::issuer_spec::ISSUER_KINDS;
    use super::super::policy::RequestedCertificate;
    use super::*;

    fn seen(approval: Approval, dns_name: &str) -> RequestSeen {
        let dns_names = vec![dns_name.to_owned()];
        let requested = RequestedCertificate {
            request: SigningRequest { dns_names, ..SigningRequest::default() },
            usages: BTreeSet::new(),
            is_ca: false,
            duration: Some(Duration::from_secs(60)),
        };
        let issuer = ObjectName::new(ISSUER_KINDS[1], "ns", "a");
        RequestSeen { issuer, approval, requested: Ok(requested) }
    }

    #[test]
    fn only_what_is_approved_and_covered_is_signed() {
        let policy = Policy { dns_names: vec!["good".to_owned()], ..Policy::default() };
        let reserved = ReservedNames::default();
        let ready = Some(Ok((&policy, &reserved)));
        let broken = Some(Err("no secret"));
        let pending = |reason: &str| Outcome::Pending(reason.to_owned());
        let failed = Outcome::Failed("the issuer's dnsNames do not cover bad".to_owned());
        let unready = pending("Issuer ns/a is not ready: no secret");
        let absent = pending("Issuer ns/a not found");
        for (approval, issuer, name, expected) in [
            (Approval::Answered, ready, "good", Outcome::Nothing),
            (Approval::Answered, None, "good", Outcome::Nothing),
            (Approval::Unapproved, ready, "good", Outcome::Nothing),
            (Approval::Unapproved, broken, "bad", Outcome::Nothing),
            (Approval::Denied, ready, "good", Outcome::Denied),
            (Approval::Denied, None, "bad", Outcome::Denied),
            (Approval::Approved, None, "good", absent),
            (Approval::Approved, broken, "bad", unready),
            (Approval::Approved, ready, "bad", failed),
        ] {
            assert_eq!(decide(seen(approval, name), issuer), Err(expected), "{approval:?}, {name}");
        }
        let grant = decide(seen(Approval::Approved, "good"), ready).expect("it is signed");
        assert_eq!((grant.duration, grant.is_ca), (Duration::from_secs(60), false));
        let unread = RequestSeen { requested: Err("x".to_owned()), ..seen(Approval::Approved, "") };
        assert_eq!(decide(unread, ready), Err(Outcome::Failed("x".to_owned())));
    }
}
