//! Parses and adds times of certificates and annotations within the range that can be written.
//!
//! RFC 5280 ends with the year 9999, whose last second means "no expiration" (section 4.1.2.5). A time zone can move a
//! time beyond either end. So times are clamped to the years 0 to 9999 when they are read, and additions saturate.

use time::macros::datetime;
use time::{OffsetDateTime, UtcOffset};

/// The first moment that can be written.
const FIRST: OffsetDateTime = datetime!(0000-01-01 0:00 UTC);
/// The last moment that can be written.
pub const LAST: OffsetDateTime = datetime!(9999-12-31 23:59:59 UTC);

/// Converts a time to UTC, clamped to the range that can be written.
pub fn written(time: OffsetDateTime) -> OffsetDateTime {
    match time.checked_to_offset(UtcOffset::UTC) {
        Some(time) => time.clamp(FIRST, LAST),
        None if time.year() > 0 => LAST,
        None => FIRST,
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair, KeyUsagePurpose};
    use time::Duration;
    use time::macros::offset;

    use super::*;
    use crate::certificate::Certificate;
    use crate::holder::TrustHolder;
    use crate::hosts::Host;
    use crate::issue::{Signer, Validity, issue_serving};
    use crate::keys::KeyAlgorithm;
    use crate::lockout::locked_out;
    use crate::plan::{Policy, renewal};
    use crate::reason::IssueError;
    use crate::state::{CertificateState, External, RotationRequest, StoredPair};
    use crate::writes::{MAX_STEPS, NextAction, next, reported_lockouts};

    const NOW: OffsetDateTime = datetime!(2026-11-21 0:00 UTC);

    #[test]
    fn a_time_zone_goes_beyond_no_year_that_can_be_written() {
        for (time, expected) in [
            (NOW.to_offset(offset!(+2)), NOW),
            (datetime!(9999-12-31 23:59:59.999 UTC), LAST),
            (datetime!(9999-12-31 23:59:59 -23:59), LAST),
            (datetime!(0000-01-01 0:00 +23:59), FIRST),
            (datetime!(-9999-01-01 0:00 +23:59), FIRST),
        ] {
            let written = written(time);
            assert_eq!((written, written.offset()), (expected, UtcOffset::UTC), "{time}");
        }
    }

    /// A CA with this validity.
    fn ca(validity: Validity) -> (Certificate, KeyPair) {
        let key = KeyAlgorithm::P256.generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        (params.not_before, params.not_after) = (validity.begin, validity.end);
        let signed = params.self_signed(&key).unwrap();
        (Certificate::from_der(signed.der()).unwrap(), key)
    }

    fn stored(certificate: &Certificate, key: &KeyPair) -> StoredPair {
        StoredPair {
            certificates: certificate.to_pem().into(),
            key: key.serialize_pem().into(),
            ..StoredPair::default()
        }
    }

    /// Applies all due steps.
    fn settle(mut state: CertificateState, now: OffsetDateTime) -> CertificateState {
        let generate = &mut |_| KeyAlgorithm::P256.generate();
        for _ in 0..MAX_STEPS {
            match next(&state, &Policy::default(), now, generate).unwrap() {
                NextAction::Settled { until, attention, .. } => {
                    assert!(until > now, "{until}");
                    let _reported: Vec<_> = attention.iter().map(ToString::to_string).collect();
                    return state;
                }
                NextAction::Step { writes, .. } => {
                    state = writes.iter().fold(state, |state, write| state.with(write));
                }
            }
        }
        panic!("it finds no end")
    }

    #[test]
    fn certificates_of_all_times_are_kept_served_and_judged() -> Result<(), IssueError> {
        let host: Host = "mcs.example.com".parse().unwrap();
        let hosts = [host.clone()];
        let far = datetime!(9999-12-31 23:59:58 UTC);
        for (begin, end) in [
            (NOW - Duration::DAY, LAST),
            (FIRST, LAST),
            (FIRST, NOW + Duration::DAY),
            (FIRST, FIRST),
            (LAST, LAST),
            (far, LAST),
            (LAST, FIRST),
        ] {
            let validity = Validity { begin, end };
            let (ca, ca_key) = ca(validity);
            assert_eq!((ca.not_before, ca.not_after), (begin, end));
            let due = renewal(&ca, &Policy::default());
            assert!(begin.min(end) <= due && due <= begin.max(end), "{due}");
            let key = KeyAlgorithm::P256.generate()?;
            let signer = Signer { certificate: &ca, key: &ca_key };
            let leaf = issue_serving(&key, &hosts, signer, validity)?;
            let holder = TrustHolder::of_one(&ca);
            let own = CertificateState {
                ca: Some(stored(&ca, &ca_key)),
                bundle: Some(ca.to_pem().into()),
                serving: Some(stored(&leaf, &key)),
                hosts: hosts.to_vec(),
                ..CertificateState::default()
            };
            let foreign = CertificateState { ca: None, ..own.clone() };
            let requested =
                RotationRequest { ca: true, serving: true, ..RotationRequest::default() };
            let rotated = CertificateState { requested, ..own.clone() };
            let external = External {
                name: "a secret".to_owned(),
                pair: own.serving.clone(),
                trust: ca.to_pem().into(),
            };
            let external = CertificateState { external: Some(external), ..foreign.clone() };
            for now in [NOW, FIRST + Duration::days(9000), LAST - Duration::days(9000)] {
                for state in [&own, &foreign, &rotated, &external] {
                    let _reported = reported_lockouts(state, now);
                    let _lockouts = locked_out(&state.chain(), std::slice::from_ref(&holder), now);
                    // Another pair and CA replace those that cannot continue.
                    let settled = settle(state.clone(), now);
                    assert!(!settled.chain().is_empty());
                }
            }
        }
        Ok(())
    }
}
