//! Collects the failures of one look.
//!
//! If the API server refuses a status, that affects only its object, and the others are written. If it is unreachable,
//! or does not authenticate this process, that affects all.

use std::time::Duration;

use common::reconcile::Requeue;
use kubernetes::ControlError;
use kubernetes::apply::Applied;
use time::OffsetDateTime;

/// Wait before another look if an issuer's Secret is faulty: a controller that can read others' Secrets only by name
/// cannot watch them.
const ANOTHER_LOOK: Duration = Duration::from_secs(10);
/// Wait before another look if a status was refused: the reason can pass, such as a missing permission.
const ANOTHER_WRITE: Duration = Duration::from_secs(60);

pub(super) struct Round {
    pub(super) now: OffsetDateTime,
    is_superseded: bool,
    /// True if a faulty Secret may be corrected, which cannot be watched.
    pub(super) waits_for_secret: bool,
    /// Refused statuses, with reasons.
    pub(super) refused: Vec<String>,
    /// Failure that affects all.
    pub(super) failure: Option<ControlError>,
}

impl Round {
    pub(super) fn new(now: OffsetDateTime) -> Self {
        Self {
            now,
            is_superseded: false,
            waits_for_secret: false,
            refused: Vec::new(),
            failure: None,
        }
    }

    /// Records the result of a status write. Returns true if it was written.
    pub(super) fn note(&mut self, result: Result<Applied, ControlError>) -> bool {
        match result {
            Ok(Applied::Done) => return true,
            Ok(Applied::Superseded) => self.is_superseded = true,
            Err(error) if matches!(error, ControlError::Malformed(_)) || error.is_for_good() => {
                self.refused.push(error.to_string());
            }
            Err(error) => {
                self.failure.get_or_insert(error);
            }
        }
        false
    }

    /// Time of the next look without a failure.
    pub(super) fn requeue(&self) -> Requeue {
        match self {
            Self { is_superseded: true, .. } => Requeue::Now,
            Self { waits_for_secret: true, .. } => Requeue::After(ANOTHER_LOOK),
            Self { refused, .. } if !refused.is_empty() => Requeue::After(ANOTHER_WRITE),
            Self { .. } => Requeue::Resync,
        }
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;
    use kubernetes::ObjectName;
    use kubernetes::error::api_error;
    use model::objects::ObjectKind;

    use super::super::issuer_spec::ISSUER_KINDS;
    use super::*;

    fn answer(code: u16) -> ControlError {
        let status = Status::failure("no", "Test").with_code(code).boxed();
        let object = ObjectName::new(ObjectKind::CERTIFICATE_REQUEST, "ns", "a");
        api_error(&object)(kube::Error::Api(status))
    }

    fn requeue(
        results: impl IntoIterator<Item = Result<Applied, ControlError>>,
    ) -> Option<Requeue> {
        let mut round = Round::new(OffsetDateTime::UNIX_EPOCH);
        for result in results {
            round.note(result);
        }
        round.failure.is_none().then(|| round.requeue())
    }

    #[test]
    fn what_is_refused_of_one_object_holds_up_nothing_else() {
        for code in [400, 403, 413, 422] {
            assert_eq!(requeue([Err(answer(code))]), Some(Requeue::After(ANOTHER_WRITE)), "{code}");
            let all = [Err(answer(code)), Ok(Applied::Superseded), Ok(Applied::Done)];
            assert_eq!(requeue(all), Some(Requeue::Now), "{code}");
        }
        let mut round = Round { waits_for_secret: true, ..Round::new(OffsetDateTime::UNIX_EPOCH) };
        let malformed = ObjectName::new(ISSUER_KINDS[1], "ns", "b").malformed("x".to_owned());
        assert!(!round.note(Err(answer(422))) && !round.note(Err(malformed.into())));
        assert!(round.note(Ok(Applied::Done)));
        assert_eq!(round.refused.len(), 2);
        assert_eq!(round.refused[0], "CertificateRequest ns/a: no");
        assert_eq!(round.requeue(), Requeue::After(ANOTHER_LOOK));
        assert_eq!(requeue([Ok(Applied::Done)]), Some(Requeue::Resync));
    }

    #[test]
    fn a_server_that_is_away_or_knows_no_client_fails_all_requests() {
        for code in [401, 408, 429, 500, 503] {
            assert_eq!(requeue([Err(answer(422)), Err(answer(code))]), None, "{code}");
        }
        assert_eq!(requeue([Err(ControlError::Endless)]), None);
    }
}
