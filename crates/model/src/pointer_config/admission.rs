//! Decides if the credential in a pointer config opens the pool that it fetches, by the same rules as the server.

use core::net::{IpAddr, Ipv4Addr};
use std::collections::{BTreeMap, BTreeSet};

use time::OffsetDateTime;

use super::fetch::Fetch;
use crate::access::{
    AccessMode, Credential, KnownTokens, Modes, Policy, Records, Refusal, Request, Token, decide,
};

/// Result for a fetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// Every client gets the config.
    Open,
    /// The fetch's credential opens the pool.
    Proven,
    /// The fetch is refused, for this reason.
    Refused(Refusal),
    /// The credential is signed by another issuer; only servers have its keys.
    Unjudged,
}

/// Judges a fetch. Networks are not checked, because the machine's address is unknown.
pub fn admission(fetch: &Fetch, records: &Records, now: OffsetDateTime) -> Admission {
    let is_proof = |(name, _): &&(String, String)| name.eq_ignore_ascii_case("Authorization");
    let proofs = fetch.headers.iter().filter(is_proof).map(|(_, value)| value.as_bytes());
    let credential = Credential::of(proofs);
    if let Credential::Bearer(token) = credential
        && let Some(judged) = by_machine_token(token, &fetch.pool, records, now)
    {
        return judged;
    }
    let enforced: BTreeMap<String, AccessMode> =
        records.enforced.iter().map(|pool| (pool.clone(), AccessMode::Enforce)).collect();
    let policy = Policy {
        modes: Modes::new(AccessMode::Off, &enforced, &BTreeSet::new(), Some(records)),
        tokens: KnownTokens::new(records),
        ..Policy::default()
    };
    let request = Request {
        pool: &fetch.pool,
        address: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        is_private: true,
        user_agent: "",
        credential,
        has_failed_often: false,
    };
    let verdict = decide(&request, &policy, now);
    match (verdict.refusal(), credential) {
        (Some(Refusal::Malformed), Credential::Bearer(token)) if is_signed(token) => {
            Admission::Unjudged
        }
        (Some(refusal), _) => Admission::Refused(refusal),
        (None, _) if verdict.is_proven() => Admission::Proven,
        (None, _) => Admission::Open,
    }
}

/// Judges the token of a single machine, which counts in every mode; `None` for other credentials.
fn by_machine_token(
    credential: &str,
    pool: &str,
    records: &Records,
    now: OffsetDateTime,
) -> Option<Admission> {
    let record = records.find(&Token::read(credential)?.hash());
    record.filter(|record| record.is_of_machine())?;
    let judged = KnownTokens::new(records).verify(credential, pool, now)?;
    Some(judged.map_or_else(Admission::Refused, |_| Admission::Proven))
}

/// Returns `true` if a credential has the three parts of a JSON Web Token (RFC 7515, section 7.1).
fn is_signed(credential: &str) -> bool {
    let parts: Vec<_> = credential.split('.').collect();
    parts.len() == 3 && parts.iter().all(|part| !part.is_empty())
}

#[cfg(test)]
mod tests {
    use time::Duration;
    use time::macros::datetime;

    use super::*;
    use crate::access::Record;

    const NOON: OffsetDateTime = datetime!(2026-11-21 12:00 UTC);

    fn fetch(pool: &str, headers: &[(&str, &str)]) -> Fetch {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Fetch {
            url: format!("https://localhost:22623/config/{pool}").parse().unwrap(),
            host: "localhost".parse().unwrap(),
            pool: pool.to_owned(),
            headers: headers.iter().map(owned).collect(),
            spec: ignition::SpecVersion::V3_1,
            trusted: Vec::new(),
        }
    }

    #[test]
    fn a_fetch_is_judged_as_a_server_judges_it() {
        let token = Token::new([1; 32]);
        let good = Record {
            sha256: token.hash(),
            name: None,
            pools: ["worker".to_owned()].into(),
            made: NOON,
            until: None,
            revoked: None,
        };
        let revoked = Record { revoked: Some(NOON), ..good.clone() };
        let ended = Record { until: Some(NOON), ..good.clone() };
        let ends = Record { until: Some(NOON + Duration::HOUR), ..good.clone() };
        let bearer = format!("Bearer {}", token.as_str());
        let ours = [("authorization", &*bearer)];
        let signed = [("Authorization", "Bearer e30.e30.c2ln")];
        let twice = [ours[0], ours[0]];
        let refused = Admission::Refused;
        for (pool, headers, tokens, expected) in [
            ("worker", &ours[..], vec![good.clone()], Admission::Proven),
            ("worker", &ours, vec![ends], Admission::Proven),
            ("worker", &ours, vec![revoked.clone()], refused(Refusal::Revoked)),
            ("worker", &ours, vec![ended], refused(Refusal::Expired)),
            ("worker", &ours, vec![], refused(Refusal::Unknown)),
            ("master", &ours, vec![good.clone()], refused(Refusal::OtherPool)),
            ("worker", &[("X", "y")], vec![good.clone()], refused(Refusal::Missing)),
            ("worker", &twice, vec![good.clone()], refused(Refusal::Malformed)),
            ("worker", &[("Authorization", "Bearer x")], vec![], refused(Refusal::Malformed)),
            ("worker", &[("Authorization", "Bearer a..b")], vec![], refused(Refusal::Malformed)),
            ("worker", &[("Authorization", "Basic eA==")], vec![], refused(Refusal::Malformed)),
            ("worker", &signed, vec![good.clone()], Admission::Unjudged),
            ("audited", &ours, vec![revoked], Admission::Open),
            ("audited", &signed, vec![], Admission::Open),
            ("audited", &[], vec![], Admission::Open),
        ] {
            let enforced = ["worker", "master"].map(str::to_owned).into();
            let records = Records { tokens, enforced, ..Records::default() };
            let judged = admission(&fetch(pool, headers), &records, NOON);
            assert_eq!(judged, expected, "{pool} {headers:?}");
        }
        // A machine's token counts in every mode.
        let of_machine = Record { name: Some("machine a".to_owned()), ..good };
        let spent = Record { until: Some(NOON - Duration::MINUTE), ..of_machine.clone() };
        for (pool, token, expected) in [
            ("audited", of_machine.clone(), refused(Refusal::OtherPool)),
            ("worker", of_machine, Admission::Proven),
            ("worker", spent, refused(Refusal::Expired)),
        ] {
            let records = Records { tokens: vec![token], ..Records::default() };
            assert_eq!(admission(&fetch(pool, &ours), &records, NOON), expected, "{pool}");
        }
        let judged = admission(&fetch("worker", &[]), &Records::default(), NOON);
        assert_eq!(judged, Admission::Open, "where nothing is known, nothing is enforced");
    }
}
