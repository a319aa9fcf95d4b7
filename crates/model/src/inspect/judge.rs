//! What a machine makes of the certificates that it is shown, and of an answer's status.

use http::StatusCode;
use ignition::SpecVersion;
use pki::{Certificate, Holder, Host, LockoutReason, locked_out};
use time::{Duration, OffsetDateTime};

use super::Cause;
use super::cause::date;
use crate::render::Unselected;

/// Clocks that differ by less are well set.
const SLACK: Duration = Duration::minutes(5);

/// What vouches for a chain that is accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trusted {
    /// This authority, which the machine trusts.
    By(Box<Certificate>),
    /// It is not known whom the machine trusts: only names and times were looked at.
    Unjudged,
}

/// Judges `chain`, leaf first, as a machine would that trusts `trusted`, asks for `host`, and whose
/// clock says `now`. `right` is what another clock says, by which a wrong one is told.
pub fn judge_chain(
    chain: &[Certificate],
    trusted: Option<&[Certificate]>,
    host: &Host,
    now: OffsetDateTime,
    right: OffsetDateTime,
) -> Result<Trusted, Cause> {
    // A leaf that is trusted itself is judged by its names and its time alone.
    let holder = |trusted: &[Certificate]| Holder {
        name: String::new(),
        trusted: trusted.to_vec(),
        hosts: vec![host.clone()],
    };
    let judge = |trusted: &[Certificate], at| {
        locked_out(chain, &[holder(trusted)], at).into_iter().next().map(|it| it.reason)
    };
    let all = trusted.unwrap_or(chain);
    let Some(reason) = judge(all, now) else {
        let Some(trusted) = trusted else { return Ok(Trusted::Unjudged) };
        let voucher = trusted.iter().find(|ca| judge(std::slice::from_ref(ca), now).is_none());
        return Ok(voucher.map_or(Trusted::Unjudged, |ca| Trusted::By(Box::new(ca.clone()))));
    };
    let is_clock_off = (right - now).abs() > SLACK;
    if is_clock_off && is_of_time(&reason) && judge(all, right).is_none() {
        return Err(Cause::WrongClock { machine: now, right, told: reason.to_string() });
    }
    Err(cause(reason, chain))
}

fn is_of_time(reason: &LockoutReason) -> bool {
    use LockoutReason::{Expired, NoValidCa, NotYetValid};
    matches!(reason, Expired { .. } | NotYetValid { .. } | NoValidCa)
}

fn cause(reason: LockoutReason, chain: &[Certificate]) -> Cause {
    let leaf = chain.first();
    match reason {
        LockoutReason::Host(asked) => {
            let hosts = leaf.into_iter().flat_map(|leaf| &leaf.hosts);
            Cause::WrongName { asked, named: hosts.map(Host::to_string).collect() }
        }
        LockoutReason::Expired { certificate, at }
            if leaf.is_some_and(|leaf| leaf.not_after == at) =>
        {
            Cause::ServingPairExpired(format!("\"{certificate}\" ended at {}", date(at)))
        }
        LockoutReason::NoValidCa
        | LockoutReason::Untrusted(_)
        | LockoutReason::IssuerMissing { .. } => Cause::UnknownAuthority(reason.to_string()),
        reason => Cause::Refused(reason.to_string()),
    }
}

/// What a server answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answered {
    /// Of HTTP.
    pub status: StatusCode,
    /// The first line of its text, without the pool's name before it.
    pub line: String,
    /// Where it says that the answer is.
    pub location: Option<String>,
}

/// Why a machine that asks for `pool` in the spec `asked` does not come up by this answer, if it does
/// not. `served` are the specs that the same server answers in, where that was asked.
#[must_use]
pub fn judge_answer(
    answered: &Answered,
    pool: &str,
    asked: SpecVersion,
    served: &[SpecVersion],
) -> Option<Cause> {
    let Answered { status, line, location } = answered;
    let told = if line.is_empty() { reason_of(*status) } else { line.clone() };
    let code = status.as_u16();
    Some(match status {
        &StatusCode::OK => return None,
        status if status.is_redirection() => {
            Cause::Redirected(location.clone().unwrap_or_else(|| "nowhere".to_owned()))
        }
        &StatusCode::UNAUTHORIZED | &StatusCode::FORBIDDEN => Cause::AccessRefused(code),
        status if status.is_server_error() => {
            if *line == Unselected::UnknownPool.to_string() {
                Cause::PoolUnknown(pool.to_owned())
            } else if is_no_config_yet(line) {
                Cause::NoConfigYet(told)
            } else if !served.is_empty() {
                Cause::NotInSpec {
                    asked,
                    served: served.to_vec(),
                    told: String::new(),
                    is_received: false,
                }
            } else if line.contains("cannot be rendered") {
                Cause::InvalidConfig {
                    told: format!("{told}, nor in any other"),
                    is_received: false,
                }
            } else {
                Cause::NotNow { status: code, told }
            }
        }
        _ => Cause::GivenUp { status: code, told },
    })
}

impl Answered {
    /// What a server says of `pool`, by the text of its answer.
    #[must_use]
    pub fn new(status: StatusCode, text: &str, pool: &str, location: Option<String>) -> Self {
        let line = text.lines().next().unwrap_or_default().trim();
        let line = line.strip_prefix(&format!("pool {pool}: ")).unwrap_or(line).to_owned();
        Self { status, line, location }
    }

    /// Whether it is worth asking in which other specs there is an answer.
    #[must_use]
    pub fn may_depend_on_spec(&self) -> bool {
        self.status.is_server_error()
            && self.line != Unselected::UnknownPool.to_string()
            && !is_no_config_yet(&self.line)
    }
}

fn is_no_config_yet(line: &str) -> bool {
    let whole = [Unselected::NoConfiguration.to_string(), Unselected::NotInBootstrap.to_string()];
    let missing = Unselected::NoMachineConfig(String::new()).to_string();
    let is_missing = missing
        .split_once("  ")
        .is_some_and(|(before, after)| line.starts_with(before) && line.ends_with(after));
    whole.iter().any(|text| text == line) || is_missing
}

fn reason_of(status: StatusCode) -> String {
    status.canonical_reason().unwrap_or("it says no more").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cause(status: u16, line: &str, served: &[SpecVersion]) -> Option<Cause> {
        let status = StatusCode::from_u16(status).unwrap();
        let answered = Answered::new(status, line, "p", None);
        judge_answer(&answered, "p", SpecVersion::V3_4, served)
    }

    fn label(status: u16, line: &str, served: &[SpecVersion]) -> &'static str {
        cause(status, line, served).map_or("", |cause| cause.label())
    }

    #[test]
    fn a_status_means_to_a_machine_what_ignition_makes_of_it() {
        assert_eq!(label(200, "", &[]), "");
        assert_eq!(label(302, "", &[]), "redirected");
        assert_eq!(label(401, "", &[]), "access-refused");
        assert_eq!(label(404, "", &[]), "given-up");
        assert_eq!(label(400, "", &[]), "given-up");
        assert_eq!(label(503, "the inputs have not been read yet", &[]), "not-now");
        assert_eq!(label(500, "", &[SpecVersion::V3_5]), "not-in-spec");
        for (status, is_retried) in
            [(500, true), (503, true), (404, false), (400, false), (204, false)]
        {
            assert_eq!(cause(status, "", &[]).unwrap().is_retried(), is_retried, "{status}");
        }
    }

    #[test]
    fn the_words_of_this_server_are_known() {
        assert_eq!(label(503, &Unselected::UnknownPool.to_string(), &[]), "pool-unknown");
        let line = format!("pool p: {}\n", Unselected::UnknownPool);
        assert_eq!(label(503, &line, &[]), "pool-unknown");
        for reason in [
            Unselected::NoConfiguration,
            Unselected::NotInBootstrap,
            Unselected::NoMachineConfig("rendered-x".to_owned()),
        ] {
            assert_eq!(label(503, &reason.to_string(), &[]), "no-config-yet", "{reason}");
        }
        let line = "the pool's config cannot be rendered in Ignition spec 3.4.0";
        assert_eq!(label(503, line, &[]), "invalid-config");
        assert_eq!(label(503, line, &[SpecVersion::V3_5]), "not-in-spec");
    }
}
