//! What a machine makes of the certificates that it is shown, and of an answer's status.

use http::{HeaderMap, StatusCode, header};
use ignition::SpecVersion;
use pki::{Certificate, Holder, Host, LockoutReason, locked_out};
use time::{Duration, OffsetDateTime};

use super::Cause;
use super::cause::date;
use crate::refusal::RefusalCode;

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
    /// The cause, from a server that sends its code.
    pub code: Option<RefusalCode>,
    /// The first line of its text, without the pool's name before it: for people.
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
    let Answered { status, line, location, .. } = answered;
    let told = if line.is_empty() { reason_of(*status) } else { line.clone() };
    let code = status.as_u16();
    Some(match status {
        &StatusCode::OK => return None,
        status if status.is_redirection() => {
            Cause::Redirected(location.clone().unwrap_or_else(|| "nowhere".to_owned()))
        }
        &StatusCode::UNAUTHORIZED | &StatusCode::FORBIDDEN => Cause::AccessRefused(code),
        status if status.is_server_error() => match answered.code {
            Some(RefusalCode::PoolUnknown) => Cause::PoolUnknown(pool.to_owned()),
            Some(
                RefusalCode::NoConfigYet
                | RefusalCode::NotInBootstrap
                | RefusalCode::MachineConfigMissing,
            ) => Cause::NoConfigYet(told),
            None | Some(RefusalCode::NotRenderable) if !served.is_empty() => Cause::NotInSpec {
                asked,
                served: served.to_vec(),
                told: String::new(),
                is_received: false,
            },
            Some(RefusalCode::NotRenderable) => Cause::InvalidConfig {
                told: format!("{told}, nor in any other"),
                is_received: false,
            },
            _ => Cause::NotNow { status: code, told },
        },
        _ => Cause::GivenUp { status: code, told },
    })
}

impl Answered {
    /// What a server says of `pool`: by its status and headers, with the first line of `text` for people.
    #[must_use]
    pub fn new(status: StatusCode, headers: &HeaderMap, text: &str, pool: &str) -> Self {
        let line = text.lines().next().unwrap_or_default().trim();
        let line = line.strip_prefix(&format!("pool {pool}: ")).unwrap_or(line).to_owned();
        let location = headers
            .get(header::LOCATION)
            .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
        Self { status, code: RefusalCode::of(headers), line, location }
    }

    /// Whether it is worth asking in which other specs there is an answer.
    #[must_use]
    pub fn may_depend_on_spec(&self) -> bool {
        self.status.is_server_error()
            && matches!(self.code, None | Some(RefusalCode::NotRenderable))
    }
}

fn reason_of(status: StatusCode) -> String {
    status.canonical_reason().unwrap_or("it says no more").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refusal::REFUSAL;

    fn answered(status: u16, code: Option<RefusalCode>, text: &str) -> Answered {
        let headers = code.map(|code| (REFUSAL, code.header()));
        let status = StatusCode::from_u16(status).unwrap();
        Answered::new(status, &HeaderMap::from_iter(headers), text, "p")
    }

    fn cause(answered: &Answered, served: &[SpecVersion]) -> Option<Cause> {
        judge_answer(answered, "p", SpecVersion::V3_4, served)
    }

    fn label(answered: &Answered, served: &[SpecVersion]) -> &'static str {
        cause(answered, served).map_or("", |cause| cause.label())
    }

    #[test]
    fn a_status_means_to_a_machine_what_ignition_makes_of_it() {
        let by_status = |status, text, served: &[_]| label(&answered(status, None, text), served);
        assert_eq!(by_status(200, "", &[]), "");
        assert_eq!(by_status(302, "", &[]), "redirected");
        assert_eq!(by_status(401, "", &[]), "access-refused");
        assert_eq!(by_status(404, "", &[]), "given-up");
        assert_eq!(by_status(400, "", &[]), "given-up");
        assert_eq!(by_status(503, "the inputs have not been read yet", &[]), "not-now");
        assert_eq!(by_status(500, "", &[SpecVersion::V3_5]), "not-in-spec");
        for (status, is_retried) in
            [(500, true), (503, true), (404, false), (400, false), (204, false)]
        {
            let cause = cause(&answered(status, None, ""), &[]).unwrap();
            assert_eq!(cause.is_retried(), is_retried, "{status}");
        }
    }

    #[test]
    fn a_code_tells_causes_of_one_status_apart_and_no_text_does() {
        use RefusalCode::{
            AccessRefused, AccessUndecided, InputsNotRead, MachineConfigMissing, NoConfigYet,
            NotInBootstrap, NotRenderable, PoolUnknown, TokenUnknown, VersionNotServed,
        };
        let elsewhere = [SpecVersion::V3_5];
        for (code, by_itself, with_others) in [
            (PoolUnknown, "pool-unknown", "pool-unknown"),
            (NoConfigYet, "no-config-yet", "no-config-yet"),
            (NotInBootstrap, "no-config-yet", "no-config-yet"),
            (MachineConfigMissing, "no-config-yet", "no-config-yet"),
            (NotRenderable, "invalid-config", "not-in-spec"),
            (InputsNotRead, "not-now", "not-now"),
            (AccessUndecided, "not-now", "not-now"),
            (TokenUnknown, "not-now", "not-now"),
            (AccessRefused, "access-refused", "access-refused"),
            (VersionNotServed, "given-up", "given-up"),
        ] {
            let answered = answered(code.status().as_u16(), Some(code), "pool p: some words\n");
            assert_eq!(label(&answered, &[]), by_itself, "{code:?}");
            assert_eq!(label(&answered, &elsewhere), with_others, "{code:?}");
            assert_eq!(answered.line, "some words");
            assert_eq!(answered.may_depend_on_spec(), code == NotRenderable, "{code:?}");
        }
        let without = answered(503, None, "there is no pool of this name");
        assert_eq!(label(&without, &[]), "not-now");
        assert!(without.may_depend_on_spec());
    }
}
