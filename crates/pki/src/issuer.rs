//! A CA that an external CA issues: when it is requested, and which answers are accepted.
//!
//! The key never leaves this server. An answer is judged before it is used, because its issuer decides on validity,
//! usage and constraints. An unfit answer is reported, and the present CA stays in use. Machines trust the roots that
//! come with the CA, and the CA itself is sent.

use time::{Duration, OffsetDateTime};

use super::ca_store::{Ca, CaKey};
use super::certificate::Certificate;
use super::certificate::key_of;
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

/// Next action for the request while a CA is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestDuty {
    /// Make a request, or a new one.
    Ask,
    /// Wait for the answer.
    Wait,
    /// Take the issued CA.
    Take,
}

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
    /// The certificate is not usable as a CA.
    #[error("{0}")]
    Unusable(Unusable),
    /// The certificate is not valid yet, or expired.
    #[error("not valid now: from {} to {}", date(*.0), date(*.1))]
    NotValid(OffsetDateTime, OffsetDateTime),
    /// The remaining validity is too short.
    #[error("expires in {0} days, and pointer configs must be valid for {least}", least = LEAST_VALIDITY.whole_days())]
    TooShort(i64),
    /// No root came with the certificate.
    #[error("has no root that machines can trust")]
    NoRoot,
    /// Machines that trust its root could not boot by it.
    #[error("machines that trust its root cannot boot: {0}")]
    NoWay(String),
}

impl Issuer {
    /// The next action while a CA is wanted, and the time of the one after it.
    pub(super) fn duty(&self, now: OffsetDateTime) -> (RequestDuty, Option<OffsetDateTime>) {
        let Some(request) = &self.request else { return (RequestDuty::Ask, None) };
        let again = request.again();
        match request.answer {
            Answer::Pending(_) => (RequestDuty::Wait, Some(request.since.saturating_add(TIMEOUT))),
            Answer::Refused(_) if again <= now => (RequestDuty::Ask, None),
            Answer::Refused(_) => (RequestDuty::Wait, Some(again)),
            Answer::Issued { .. } => (RequestDuty::Take, Some(again)),
        }
    }

    /// Returns `true` if a new request replaces an unfit answer at `now`.
    pub(super) fn asks_again(&self, now: OffsetDateTime) -> bool {
        self.request.as_ref().is_some_and(|request| request.again() <= now)
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
        let read = |pem: &[u8]| read_chain(pem).map_err(IssuedCaFault::Unusable);
        let both = read(chain).and_then(|chain| Ok((chain, read(roots)?)));
        Some(both.and_then(|(chain, roots)| granted(&self.key, chain, roots, now)))
    }
}

fn granted(
    key: &[u8],
    chain: Vec<Certificate>,
    mut roots: Vec<Certificate>,
    now: OffsetDateTime,
) -> Result<IssuedCa, IssuedCaFault> {
    let mut chain = chain.into_iter();
    let certificate = chain.next().ok_or(IssuedCaFault::Unusable(Unusable::NoCertificate))?;
    let pair = key_of(key).ok_or(IssuedCaFault::Unusable(Unusable::NoKey))?;
    if !certificate.matches(&pair) {
        return Err(IssuedCaFault::Unusable(Unusable::ForeignKey));
    }
    if let Some(fault) = certificate.signing_fault() {
        return Err(IssuedCaFault::Unusable(fault));
    }
    let is_root = |it: &Certificate| it.is_issued_by(it);
    let (selves, between): (Vec<_>, Vec<_>) = chain.partition(is_root);
    for root in selves {
        if !roots.contains(&root) {
            roots.push(root);
        }
    }
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
            assert_eq!(refused.duty(early), (RequestDuty::Wait, Some(again)), "{before}");
            assert_eq!(refused.duty(again), (RequestDuty::Ask, None), "{before}");
            let unfit = issuer(NOW, Answer::Issued { chain: Vec::new(), roots: Vec::new() });
            assert_eq!((unfit.asks_again(early), unfit.asks_again(again)), (false, true));
            // The last moment must not overflow.
            let late = super::super::moment::LAST;
            let refused = issuer(late, Answer::Refused("no".to_owned()));
            assert_eq!(refused.duty(late).0, RequestDuty::Wait);
            assert_eq!(issuer(late, Answer::Pending(String::new())).delay(late), None);
        }
    }
}
