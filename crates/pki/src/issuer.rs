//! A CA that an external CA issues: when it is requested, and which answers are accepted.
//!
//! The key never leaves this server. An answer is judged before it is used, because its issuer decides on validity,
//! usage and constraints. An unfit answer is reported, and the present CA stays in use. Machines trust the roots that
//! come with the CA, and the CA itself is sent.

use time::{Duration, OffsetDateTime};

use super::ca_store::{Ca, CaKey};
use super::certificate::{Certificate, extend_unique, key_of};
use super::holder::date;
use super::reason::Unusable;
use super::servable::read_chain;
use super::state::{Answer, Issuer, Request};

/// Time after which a missing answer is reported.
const TIMEOUT: Duration = Duration::minutes(10);
/// Wait before the first new request after a refusal or an unfit answer. It doubles each time, up to [`LONGEST_WAIT`].
const ASKED_AGAIN: Duration = Duration::hours(1);
/// Maximum wait before a new request.
const LONGEST_WAIT: Duration = Duration::DAY;
/// Minimum remaining validity of an accepted CA: machines are installed from pointer configs that were exported weeks
/// before.
const LEAST_VALIDITY: Duration = Duration::days(30);

/// An issued CA, as the store keeps it.
pub(super) struct IssuedCa {
    pub(super) ca: Ca,
    /// Intermediates above it and the roots, without keys.
    pub(super) above: Vec<Ca>,
    /// CAs that machines trust.
    pub(super) roots: Vec<Certificate>,
}

/// Reasons why an issued CA is not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IssuedCaFault {
    #[error(transparent)]
    Unusable(#[from] Unusable),
    /// Begin and end of the validity.
    #[error("not valid now: from {} to {}", date(*.0), date(*.1))]
    NotValid(OffsetDateTime, OffsetDateTime),
    /// Days of remaining validity.
    #[error("expires in {0} days, and pointer configs must be valid for {least}", least = LEAST_VALIDITY.whole_days())]
    TooShort(i64),
    #[error("has no root that machines can trust")]
    NoRoot,
    #[error("machines that trust its root cannot boot: {0}")]
    NoPath(String),
}

impl Issuer {
    /// Returns `true` if a new request is due while a CA is wanted, and otherwise the time of the next look. If the
    /// issued CA is unfit, a new request is due at that time.
    pub(super) fn request_due(&self, now: OffsetDateTime) -> (bool, Option<OffsetDateTime>) {
        let Some(request) = &self.request else { return (true, None) };
        let again = request.again();
        match request.answer {
            Answer::Pending(_) => (false, Some(request.since.saturating_add(TIMEOUT))),
            Answer::Refused(_) if again <= now => (true, None),
            Answer::Refused(_) | Answer::Issued { .. } => (false, Some(again)),
        }
    }

    /// Message for administrators if a wanted CA is late.
    pub(super) fn delay(&self, now: OffsetDateTime) -> Option<String> {
        let request = self.request.as_ref()?;
        match &request.answer {
            Answer::Pending(what) if request.since.saturating_add(TIMEOUT) <= now => {
                let what = if what.is_empty() { String::new() } else { format!(": {what}") };
                Some(format!("no answer since {}{what}", date(request.since)))
            }
            Answer::Refused(reason) => Some(reason.clone()),
            Answer::Pending(_) | Answer::Issued { .. } => None,
        }
    }
}

impl Request {
    /// Time of the next request if this one fails.
    fn again(&self) -> OffsetDateTime {
        let longer = 1 << self.before.min(8);
        self.since.saturating_add(ASKED_AGAIN.saturating_mul(longer).min(LONGEST_WAIT))
    }

    /// The issued CA, `None` if there is none yet. The caller checks that machines can boot with it.
    pub(super) fn granted(&self, now: OffsetDateTime) -> Option<Result<IssuedCa, IssuedCaFault>> {
        let Answer::Issued { chain, roots } = &self.answer else { return None };
        Some(granted(&self.key, chain, roots, now))
    }
}

fn granted(
    key: &[u8],
    chain: &[u8],
    roots: &[u8],
    now: OffsetDateTime,
) -> Result<IssuedCa, IssuedCaFault> {
    let (chain, mut roots) = (read_chain(chain)?, read_chain(roots)?);
    let mut chain = chain.into_iter();
    let certificate = chain.next().ok_or(Unusable::NoCertificate)?;
    let pair = key_of(key).ok_or(Unusable::NoKey)?;
    if !certificate.matches(&pair) {
        return Err(Unusable::ForeignKey.into());
    }
    if let Some(fault) = certificate.signing_fault() {
        return Err(fault.into());
    }
    let (selves, between): (Vec<_>, Vec<_>) = chain.partition(Certificate::is_self_signed);
    extend_unique(&mut roots, selves);
    roots.retain(|root| *root != certificate && root.is_valid_at(now));
    let last = roots.iter().map(|root| root.not_after).max().ok_or(IssuedCaFault::NoRoot)?;
    let (begin, end) = (certificate.not_before, certificate.not_after.min(last));
    if !certificate.is_valid_at(now) {
        return Err(IssuedCaFault::NotValid(begin, end));
    }
    if end - now < LEAST_VALIDITY {
        return Err(IssuedCaFault::TooShort((end - now).whole_days()));
    }
    let between = between.into_iter().filter(|it| *it != certificate && !roots.contains(it));
    let known = |certificate| Ca { certificate, key: None };
    let above = between.collect::<Vec<_>>().into_iter().chain(roots.clone()).map(known).collect();
    let ca = Ca { certificate, key: Some(CaKey::new(pair).into()) };
    Ok(IssuedCa { ca, above, roots })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: OffsetDateTime = time::macros::datetime!(2026-11-21 0:00 UTC);

    #[test]
    fn what_is_refused_is_asked_for_less_and_less_often_and_once_a_day_at_least() {
        for (before, hours) in [(0, 1), (1, 2), (2, 4), (4, 16), (5, 24), (u32::MAX, 24)] {
            let issuer = |since, answer| Issuer {
                name: "corporate".to_owned(),
                has_issued: false,
                request: Some(Request { key: Vec::new(), since, before, answer }),
            };
            let refused = issuer(NOW, Answer::Refused("no".to_owned()));
            let again = NOW + Duration::hours(hours);
            let early = again - Duration::SECOND;
            assert_eq!(refused.request_due(early), (false, Some(again)), "{before}");
            assert_eq!(refused.request_due(again), (true, None), "{before}");
            let unfit = issuer(NOW, Answer::Issued { chain: Vec::new(), roots: Vec::new() });
            // A new one is due by the time that is returned.
            assert_eq!(unfit.request_due(early), (false, Some(again)));
            assert_eq!(unfit.request_due(again), (false, Some(again)));
            // The last moment must not overflow.
            let late = super::super::moment::LAST;
            let refused = issuer(late, Answer::Refused("no".to_owned()));
            assert!(!refused.request_due(late).0);
            assert_eq!(issuer(late, Answer::Pending(String::new())).delay(late), None);
        }
    }
}
