//! Judges the certificates and the answer of a server as a machine would.

use http::{HeaderMap, StatusCode, header};
use ignition::SpecVersion;
use model::pointer_config::Fetch;
use model::refusal::RefusalCode;
use pki::{Certificate, Host, LockoutReason, TrustHolder, locked_out};
use time::{Duration, OffsetDateTime};

use super::cause::{Cause, date};

/// Tolerated difference between clocks.
pub const SLACK: Duration = Duration::minutes(5);

/// Observed behaviour of a server for a request of a pool's config.
#[derive(Debug, Clone, Default)]
pub struct ServerEvidence {
    /// Sent certificates, the leaf first; `None` without TLS.
    pub chain: Option<Vec<Certificate>>,
    /// HTTP answer; `None` if no request was sent.
    pub answer: Option<ServerAnswer>,
    /// Specs in which the server answers, oldest first, if they were tried.
    pub served: Vec<SpecVersion>,
}

impl ServerEvidence {
    /// A handshake without a request.
    pub fn chain(chain: Vec<Certificate>) -> Self {
        Self { chain: Some(chain), ..Self::default() }
    }
}

/// Times of two clocks.
#[derive(Debug, Clone, Copy)]
pub struct Clocks {
    /// Time of the machine's clock.
    pub machine: OffsetDateTime,
    /// Time of a correct clock.
    pub right: OffsetDateTime,
}

/// Judgement of a server's behaviour.
#[derive(Debug)]
pub struct Judgement {
    /// Reasons for refusing the certificates, each once; empty if they are accepted.
    pub refusals: Vec<LockoutReason>,
    /// Trusted CA that the accepted certificates lead to.
    pub voucher: Option<Certificate>,
    /// Cause of a failed boot; `None` if nothing observed prevents it.
    pub cause: Option<Cause>,
}

/// Judges the behaviour of a server for a machine that makes this fetch: the common judge of `certs check --connect`
/// and `inspect`.
pub fn judge(fetch: &Fetch, evidence: &ServerEvidence, clocks: Clocks) -> Judgement {
    let answered =
        || evidence.answer.as_ref().and_then(|it| judge_answer(fetch, it, &evidence.served));
    let Some(chain) = &evidence.chain else {
        return Judgement { refusals: Vec::new(), voucher: None, cause: answered() };
    };
    let refusals = refusals(fetch, &fetch.trusted, chain, clocks.machine);
    let Some(first) = refusals.first() else {
        let is_voucher = |ca: &&Certificate| {
            self::refusals(fetch, std::slice::from_ref(ca), chain, clocks.machine).is_empty()
        };
        let voucher = fetch.trusted.iter().find(is_voucher).cloned();
        return Judgement { refusals, voucher, cause: answered() };
    };
    let is_clock_off = (clocks.right - clocks.machine).abs() > SLACK;
    let would_do = || self::refusals(fetch, &fetch.trusted, chain, clocks.right).is_empty();
    let cause = if is_clock_off && is_of_time(first) && would_do() {
        let Clocks { machine, right } = clocks;
        Cause::WrongClock { machine, right, reported: first.to_string() }
    } else {
        cause_of(first, chain)
    };
    Judgement { refusals, voucher: None, cause: Some(cause) }
}

/// Reasons why a machine that trusts `trusted` refuses `chain`, each once. Of a leaf that is trusted itself, only names
/// and validity are checked.
fn refusals(
    fetch: &Fetch,
    trusted: &[Certificate],
    chain: &[Certificate],
    now: OffsetDateTime,
) -> Vec<LockoutReason> {
    let holder = TrustHolder {
        name: String::new(),
        trusted: trusted.to_vec(),
        hosts: vec![fetch.host.clone()],
    };
    let mut found: Vec<_> =
        locked_out(chain, &[holder], now).into_iter().map(|it| it.reason).collect();
    found.dedup();
    found
}

fn is_of_time(reason: &LockoutReason) -> bool {
    use LockoutReason::{Expired, NoValidCa, NotYetValid};
    matches!(reason, Expired { .. } | NotYetValid { .. } | NoValidCa)
}

/// Cause of a failed boot if a machine refuses `chain` for this reason.
pub fn cause_of(reason: &LockoutReason, chain: &[Certificate]) -> Cause {
    let leaf = chain.first();
    match reason {
        LockoutReason::Host(requested) => {
            let hosts = leaf.into_iter().flat_map(|leaf| &leaf.hosts);
            Cause::WrongName(requested.clone(), hosts.map(Host::to_string).collect())
        }
        LockoutReason::Expired { certificate, at }
            if leaf.is_some_and(|leaf| leaf.not_after == *at) =>
        {
            Cause::ServingPairExpired(format!("\"{certificate}\" expired at {}", date(*at)))
        }
        LockoutReason::NoValidCa
        | LockoutReason::Untrusted(_)
        | LockoutReason::IssuerMissing { .. } => Cause::UnknownCa(reason.to_string()),
        reason => Cause::Refused(reason.to_string()),
    }
}

/// HTTP answer of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerAnswer {
    /// HTTP status.
    pub status: StatusCode,
    /// Code of the refusal, if the server sends one.
    pub code: Option<RefusalCode>,
    /// First line of the body without the pool's name, for people.
    pub line: String,
    /// Value of `Location`.
    pub location: Option<String>,
}

/// Cause of a failed boot by this answer, if any. `served` are the specs in which the server answers, if they were
/// tried.
fn judge_answer(fetch: &Fetch, answered: &ServerAnswer, served: &[SpecVersion]) -> Option<Cause> {
    let ServerAnswer { status, line, location, .. } = answered;
    let reason = status.canonical_reason().unwrap_or("no details");
    let reported = if line.is_empty() { reason.to_owned() } else { line.clone() };
    let code = status.as_u16();
    Some(match status {
        &StatusCode::OK => return None,
        status if status.is_redirection() => {
            Cause::Redirected(location.clone().unwrap_or_else(|| "nowhere".to_owned()))
        }
        &StatusCode::UNAUTHORIZED | &StatusCode::FORBIDDEN => Cause::AccessRefused(code),
        status if status.is_server_error() => match answered.code {
            Some(RefusalCode::PoolUnknown) => Cause::PoolUnknown(fetch.pool.clone(), Vec::new()),
            Some(
                RefusalCode::NoConfigYet
                | RefusalCode::NotInBootstrap
                | RefusalCode::MachineConfigMissing,
            ) => Cause::NoConfigYet(reported),
            Some(RefusalCode::FetchesForever) => Cause::FetchesForever(reported),
            None | Some(RefusalCode::NotRenderable) if !served.is_empty() => Cause::NotInSpec {
                requested: fetch.spec,
                served: served.to_vec(),
                reported: String::new(),
                is_received: false,
            },
            Some(RefusalCode::NotRenderable) => Cause::InvalidConfig {
                reported: format!("{reported}, nor in any other spec"),
                is_received: false,
            },
            _ => Cause::NotNow(code, reported),
        },
        _ => Cause::GivenUp(code, reported),
    })
}

impl ServerAnswer {
    /// Reads an answer about `pool` from status and headers, with the first line of `text` for people.
    pub fn new(status: StatusCode, headers: &HeaderMap, text: &str, pool: &str) -> Self {
        let line = text.lines().next().unwrap_or_default().trim();
        let line = line.strip_prefix(&format!("pool {pool}: ")).unwrap_or(line).to_owned();
        let location = headers
            .get(header::LOCATION)
            .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
        Self { status, code: RefusalCode::of(headers), line, location }
    }

    /// Returns `true` if the answer may depend on the requested spec.
    pub fn may_depend_on_spec(&self) -> bool {
        self.status.is_server_error()
            && matches!(self.code, None | Some(RefusalCode::NotRenderable))
    }
}

#[cfg(test)]
mod tests {
    use model::refusal::REFUSAL;
    use pki::issue::{Signer, Validity, issue_ca, issue_serving};
    use pki::{KeyAlgorithm, VALIDITY};
    use time::macros::datetime;

    use super::*;

    const NOW: OffsetDateTime = datetime!(2026-11-21 0:00 UTC);

    fn fetch(host: &str, trusted: &[Certificate]) -> Fetch {
        Fetch {
            url: format!("https://{host}:22623/config/p").parse().unwrap(),
            host: host.parse().unwrap(),
            pool: "p".to_owned(),
            headers: Vec::new(),
            spec: SpecVersion::V3_4,
            trusted: trusted.to_vec(),
        }
    }

    fn answered(status: u16, code: Option<RefusalCode>, text: &str) -> ServerAnswer {
        let headers = code.map(|code| (REFUSAL, code.header()));
        let status = StatusCode::from_u16(status).unwrap();
        ServerAnswer::new(status, &HeaderMap::from_iter(headers), text, "p")
    }

    fn cause(answered: &ServerAnswer, served: &[SpecVersion]) -> Option<Cause> {
        let evidence =
            ServerEvidence { chain: None, answer: Some(answered.clone()), served: served.to_vec() };
        judge(&fetch("localhost", &[]), &evidence, Clocks { machine: NOW, right: NOW }).cause
    }

    fn label(answered: &ServerAnswer, served: &[SpecVersion]) -> &'static str {
        cause(answered, served).map_or("", |cause| cause.label())
    }

    #[test]
    fn certificates_are_judged_before_the_answer() {
        let key = || KeyAlgorithm::P256.generate().unwrap();
        let (own_key, other_key) = (key(), key());
        let ca = issue_ca(&own_key, VALIDITY, NOW).unwrap();
        let other = issue_ca(&other_key, VALIDITY, NOW).unwrap();
        let signer = Signer { certificate: &ca, key: &own_key };
        let validity = Validity { begin: ca.not_before, end: ca.not_after };
        let leaf = issue_serving(&key(), &["h".parse().unwrap()], signer, validity).unwrap();
        let answer = Some(answered(404, None, ""));
        let evidence = ServerEvidence { answer, ..ServerEvidence::chain(vec![leaf]) };
        let late = ca.not_after + Duration::DAY;
        let both = [other.clone(), ca.clone()];
        for (host, trusted, machine, right, label, refusals) in [
            ("h", &both[..], NOW, NOW, "given-up", 0),
            ("h", &both[..1], NOW, NOW, "unknown-authority", 1),
            ("i", &both, NOW, NOW, "wrong-name", 1),
            ("h", &[], NOW, NOW, "unknown-authority", 1),
            ("h", &both, late, late, "serving-pair-expired", 1),
            ("h", &both, late, NOW, "wrong-clock", 1),
        ] {
            let judged = judge(&fetch(host, trusted), &evidence, Clocks { machine, right });
            assert_eq!(judged.cause.map(|cause| cause.label()), Some(label), "{host} {machine}");
            assert_eq!(judged.refusals.len(), refusals, "{:?}", judged.refusals);
            assert_eq!(judged.voucher.is_some(), refusals == 0, "{label}");
            assert!(judged.voucher.is_none_or(|voucher| voucher == ca));
        }
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
            AccessRefused, AccessUndecided, FetchesForever, InputsNotRead, MachineConfigMissing,
            NoConfigYet, NotInBootstrap, NotRenderable, PoolUnknown, TokenUnknown,
            VersionNotServed,
        };
        let elsewhere = [SpecVersion::V3_5];
        for (code, by_itself, with_others) in [
            (PoolUnknown, "pool-unknown", "pool-unknown"),
            (NoConfigYet, "no-config-yet", "no-config-yet"),
            (NotInBootstrap, "no-config-yet", "no-config-yet"),
            (MachineConfigMissing, "no-config-yet", "no-config-yet"),
            (FetchesForever, "fetches-forever", "fetches-forever"),
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
        let without = answered(503, None, "no pool has this name");
        assert_eq!(label(&without, &[]), "not-now");
        assert!(without.may_depend_on_spec());
    }
}
