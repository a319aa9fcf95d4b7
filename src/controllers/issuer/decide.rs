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

use super::issuer_spec::IssuerName;
use super::objects::{Approval, RequestSeen};
use super::policy::{Grant, Policy};
use super::reserved_names::ReservedNames;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Decision {
    /// Do nothing.
    Leave,
    /// Wait, for this reason.
    Pending(String),
    /// The request is denied.
    Denied,
    /// The request fails, for these reasons.
    Failed(String),
    /// Sign the certificate.
    Sign(Box<Grant>),
}

/// Policy of an issuer with its reserved names, or the reason why it cannot sign.
pub(super) type IssuerReadiness<'a> = Result<(&'a Policy, &'a ReservedNames), &'a str>;

/// Decides on a request to an issuer, `None` if the issuer does not exist.
pub(super) fn decide(seen: RequestSeen, issuer: Option<IssuerReadiness<'_>>) -> Decision {
    match seen.approval {
        Approval::Answered | Approval::Unapproved => return Decision::Leave,
        Approval::Denied => return Decision::Denied,
        Approval::Approved => {}
    }
    let (policy, reserved) = match issuer {
        None => return Decision::Pending(absent(&seen.issuer)),
        Some(Err(reason)) => {
            return Decision::Pending(format!("{} is not ready: {reason}", seen.issuer));
        }
        Some(Ok(known)) => known,
    };
    let grant = |requested| policy.grant(requested, reserved).map_err(|all| all.join("; "));
    match seen.requested.and_then(grant) {
        Ok(grant) => Decision::Sign(Box::new(grant)),
        Err(reason) => Decision::Failed(reason),
    }
}

fn absent(issuer: &IssuerName) -> String {
    format!("{issuer} not found")
}

#[cfg(test)]
mod tests {
    use core::time::Duration;
    use std::collections::BTreeSet;

    use pki::SigningRequest;

    use super::super::issuer_spec::IssuerKind;
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
        let issuer = IssuerName {
            kind: IssuerKind::Issuer,
            namespace: "ns".to_owned(),
            name: "a".to_owned(),
        };
        RequestSeen { issuer, approval, requested: Ok(requested) }
    }

    #[test]
    fn only_what_is_approved_and_covered_is_signed() {
        let policy = Policy { dns_names: vec!["good".to_owned()], ..Policy::default() };
        let reserved = ReservedNames::default();
        let ready = Some(Ok((&policy, &reserved)));
        let broken = Some(Err("no secret"));
        let pending = |reason: &str| Decision::Pending(reason.to_owned());
        let failed = Decision::Failed("the issuer's dnsNames do not cover bad".to_owned());
        let unready = pending("Issuer ns/a is not ready: no secret");
        let absent = pending("Issuer ns/a not found");
        for (approval, issuer, name, expected) in [
            (Approval::Answered, ready, "good", Decision::Leave),
            (Approval::Answered, None, "good", Decision::Leave),
            (Approval::Unapproved, ready, "good", Decision::Leave),
            (Approval::Unapproved, broken, "bad", Decision::Leave),
            (Approval::Denied, ready, "good", Decision::Denied),
            (Approval::Denied, None, "bad", Decision::Denied),
            (Approval::Approved, None, "good", absent),
            (Approval::Approved, broken, "bad", unready),
            (Approval::Approved, ready, "bad", failed),
        ] {
            assert_eq!(decide(seen(approval, name), issuer), expected, "{approval:?}, {name}");
        }
        let Decision::Sign(grant) = decide(seen(Approval::Approved, "good"), ready) else {
            panic!("it is not signed")
        };
        assert_eq!((grant.duration, grant.is_ca), (Duration::from_secs(60), false));
        let unread = RequestSeen { requested: Err("x".to_owned()), ..seen(Approval::Approved, "") };
        assert_eq!(decide(unread, ready), Decision::Failed("x".to_owned()));
    }
}
