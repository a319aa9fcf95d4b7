//! Decides on the next state of a Lease, without I/O.
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

use core::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};

/// Time for which a Lease is valid without a renewal.
pub(crate) const DURATION: Duration = Duration::from_secs(15);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    Create,
    /// Take the Lease: it is free, or expired.
    Take,
    /// Wait: another holder renews it.
    Wait,
}

/// Decides for the candidate `identity`. `unchanged_for` is the time for which the candidate has seen the Lease
/// unchanged, by its own clock.
pub(crate) fn decide(lease: Option<&Lease>, identity: &str, unchanged_for: Duration) -> Decision {
    let Some(lease) = lease else { return Decision::Create };
    let seconds = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds);
    let duration = seconds.and_then(|seconds| u64::try_from(seconds).ok());
    let duration = duration.map_or(DURATION, Duration::from_secs);
    let is_free = holder(lease).is_empty() || holder(lease) == identity;
    if is_free || unchanged_for >= duration { Decision::Take } else { Decision::Wait }
}

/// A new Lease, held by `identity`.
pub(crate) fn created(name: &str, identity: &str, now: &MicroTime) -> Lease {
    Lease {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        spec: Some(held(identity, 0, now)),
    }
}

/// The Lease that was read, with the new holder `identity`. Its metadata are the precondition.
pub(crate) fn taken(lease: Lease, identity: &str, now: &MicroTime) -> Lease {
    let transitions = lease.spec.as_ref().and_then(|spec| spec.lease_transitions);
    let transitions = transitions.unwrap_or(0).saturating_add(1);
    Lease { spec: Some(held(identity, transitions, now)), ..lease }
}

/// The Lease that was read, renewed; `None` if `identity` does not hold it.
pub(crate) fn renewed(lease: Lease, identity: &str, now: &MicroTime) -> Option<Lease> {
    let spec = lease.spec.clone().filter(|_| holder(&lease) == identity)?;
    let spec = LeaseSpec { renew_time: Some(now.clone()), ..spec };
    Some(Lease { spec: Some(spec), ..lease })
}

/// The Lease that was read, released; `None` if `identity` does not hold it.
pub(crate) fn released(lease: Lease, identity: &str) -> Option<Lease> {
    let spec = lease.spec.clone().filter(|_| holder(&lease) == identity)?;
    let spec =
        LeaseSpec { holder_identity: Some(String::new()), lease_duration_seconds: Some(1), ..spec };
    Some(Lease { spec: Some(spec), ..lease })
}

fn held(identity: &str, transitions: i32, now: &MicroTime) -> LeaseSpec {
    LeaseSpec {
        holder_identity: Some(identity.to_owned()),
        lease_duration_seconds: i32::try_from(DURATION.as_secs()).ok(),
        acquire_time: Some(now.clone()),
        renew_time: Some(now.clone()),
        lease_transitions: Some(transitions),
        ..LeaseSpec::default()
    }
}

fn holder(lease: &Lease) -> &str {
    lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::jiff::Timestamp;

    fn at(second: i64) -> MicroTime {
        MicroTime(Timestamp::from_second(second).unwrap())
    }

    fn lease(identity: &str) -> Lease {
        created("lease", identity, &at(0))
    }

    #[test]
    fn a_lease_is_taken_when_it_is_free_or_was_not_renewed_for_its_time() {
        let by_other = lease("other");
        let given_back = released(by_other.clone(), "other").unwrap();
        let bare = Lease::default();
        let with_duration = |seconds| {
            let spec = by_other.spec.clone().unwrap();
            Lease {
                spec: Some(LeaseSpec { lease_duration_seconds: seconds, ..spec }),
                ..Lease::default()
            }
        };
        let seconds = Duration::from_secs;
        let (new, long) = (Duration::ZERO, DURATION);
        let nearly = long.checked_sub(Duration::from_millis(1)).unwrap();
        let (short, odd, none) =
            (with_duration(Some(3)), with_duration(Some(-1)), with_duration(None));
        for (case, lease, unchanged_for, decision) in [
            ("there is none", None, new, Decision::Create),
            ("nobody ever held it", Some(&bare), new, Decision::Take),
            ("it was given back", Some(&given_back), new, Decision::Take),
            ("it is its own, from before", Some(&lease("me")), new, Decision::Take),
            ("another one's, seen first now", Some(&by_other), new, Decision::Wait),
            ("another one's, nearly over", Some(&by_other), nearly, Decision::Wait),
            ("another one's, not renewed", Some(&by_other), long, Decision::Take),
            ("a shorter one, still good", Some(&short), seconds(2), Decision::Wait),
            ("a shorter one, over", Some(&short), seconds(3), Decision::Take),
            ("a time that makes no sense", Some(&odd), seconds(3), Decision::Wait),
            ("no time, over by ours", Some(&none), long, Decision::Take),
        ] {
            assert_eq!(decide(lease, "me", unchanged_for), decision, "{case}");
        }
    }

    #[test]
    fn only_its_holder_renews_and_gives_back() {
        let mut own = lease("me");
        own.metadata.resource_version = Some("7".to_owned());
        let next = renewed(own.clone(), "me", &at(9)).unwrap();
        let spec = next.spec.unwrap();
        assert_eq!(spec.renew_time, Some(at(9)));
        assert_eq!(spec.acquire_time, Some(at(0)));
        assert_eq!(next.metadata, own.metadata, "the version that was read");
        let given_back = released(own.clone(), "me").unwrap();
        assert_eq!(holder(&given_back), "");
        assert!(renewed(given_back, "me", &at(9)).is_none());
        assert!(renewed(lease("other"), "me", &at(9)).is_none());
        assert!(released(lease("other"), "me").is_none());
        let next = taken(lease("other"), "me", &at(9)).spec.unwrap();
        assert_eq!(next.holder_identity.as_deref(), Some("me"));
        assert_eq!((next.lease_transitions, next.acquire_time), (Some(1), Some(at(9))));
    }
}
