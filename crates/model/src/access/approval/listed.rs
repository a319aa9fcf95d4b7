//! Machines that wait for approval, and those that are approved.

use core::net::IpAddr;
use std::collections::BTreeMap;

use escape::{NAME, cut_for_json};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::ToSchema;

use super::given::OpenApproval;
use super::subject::Subject;
use super::waiting::Waits;

/// A machine that waits for approval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WaitingMachine {
    /// Name of its FirstBootMachine, if it has shown the token of one.
    pub name: Option<String>,
    /// Pool that it asks for.
    pub pool: String,
    /// Address of its last request.
    #[schema(value_type = String)]
    pub address: IpAddr,
    /// Name of the token that it has shown; `null` if it has shown none.
    pub token: Option<String>,
    /// Its version of Ignition; `null` of another program.
    pub ignition: Option<String>,
    /// Time of its first request.
    #[serde(with = "time::serde::rfc3339")]
    pub since: OffsetDateTime,
    /// Time of its last request.
    #[serde(with = "time::serde::rfc3339")]
    pub last: OffsetDateTime,
}

/// A machine that is approved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ApprovedMachine {
    /// Name of its FirstBootMachine; `null` of a machine at an address.
    pub name: Option<String>,
    /// Pool of the machine at the address; `null` of one with a name.
    pub pool: Option<String>,
    /// Its address; `null` of a machine with a name.
    #[schema(value_type = Option<String>)]
    pub address: Option<IpAddr>,
    /// Time of the approval.
    #[serde(with = "time::serde::rfc3339")]
    pub at: OffsetDateTime,
    /// End of the approval.
    #[serde(with = "time::serde::rfc3339")]
    pub until: OffsetDateTime,
}

impl WaitingMachine {
    /// A machine that waits.
    pub fn of(waits: &Waits) -> Self {
        let name = match &waits.subject {
            Subject::Named(name) => Some(name.to_string()),
            Subject::At { .. } => None,
        };
        Self {
            name,
            pool: waits.pool.to_string(),
            address: waits.address,
            token: waits.token.as_deref().map(|name| cut_for_json(name, NAME).into_owned()),
            ignition: waits.ignition.map(|version| version.to_string()),
            since: waits.since.wall.truncate_to_second(),
            last: waits.last.wall.truncate_to_second(),
        }
    }

    /// Name or address, for people.
    pub fn title(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.address.to_string())
    }

    /// Adds what another server knows of the same machine.
    fn absorb(&mut self, other: &Self) {
        let token = self.token.take().or_else(|| other.token.clone());
        let since = self.since.min(other.since);
        if other.last > self.last {
            self.clone_from(other);
        }
        (self.token, self.since) = (token, since);
    }
}

/// Machines that wait at one of two servers, those that have shown a token first.
pub fn merged(own: Vec<WaitingMachine>, others: Vec<WaitingMachine>) -> Vec<WaitingMachine> {
    let mut waiting: BTreeMap<_, WaitingMachine> = BTreeMap::new();
    for machine in own.into_iter().chain(others) {
        let place = machine.name.is_none().then(|| (machine.pool.clone(), machine.address));
        let known = waiting.entry((machine.name.clone(), place));
        known.and_modify(|known| known.absorb(&machine)).or_insert(machine);
    }
    let mut all: Vec<_> = waiting.into_values().collect();
    all.sort_by_key(|machine| machine.token.is_none());
    all
}

impl ApprovedMachine {
    /// A machine that is approved.
    pub fn of(subject: &Subject, open: OpenApproval) -> Self {
        let (name, pool, address) = match subject {
            Subject::Named(name) => (Some(name.to_string()), None, None),
            Subject::At { pool, address } => (None, Some(pool.to_string()), Some(*address)),
        };
        let (at, until) = (open.at.truncate_to_second(), open.until.wall.truncate_to_second());
        Self { name, pool, address, at, until }
    }

    /// Name or address, for people.
    pub fn title(&self) -> String {
        let address = self.address.map(|address| address.to_string());
        self.name.clone().or(address).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    #[test]
    fn a_machine_that_waits_at_two_servers_is_one_and_those_with_a_token_are_first() {
        let at = |address: &str, name: Option<&str>, token: Option<&str>, minute: i64| {
            let time = datetime!(2026-11-25 12:00 UTC) + time::Duration::minutes(minute);
            WaitingMachine {
                name: name.map(str::to_owned),
                pool: "worker".to_owned(),
                address: address.parse().unwrap(),
                token: token.map(str::to_owned),
                ignition: None,
                since: time,
                last: time,
            }
        };
        let own = vec![at("192.0.2.1", None, None, 0), at("192.0.2.2", Some("n"), Some("n"), 5)];
        let others = vec![at("192.0.2.3", Some("n"), Some("n"), 9), at("192.0.2.1", None, None, 3)];
        let all = merged(own, others);
        let shown: Vec<_> = all
            .iter()
            .map(|it| (it.title(), it.address.to_string(), it.since.minute(), it.last.minute()))
            .collect();
        let expected = [("n", "192.0.2.3", 5, 9), ("192.0.2.1", "192.0.2.1", 0, 3)];
        assert_eq!(shown, expected.map(|(a, b, c, d)| (a.to_owned(), b.to_owned(), c, d)));
    }
}
