//! Decides if a machine boots from a pointer config: the common judge of `certs check`, the controller, readiness and
//! the page. [`locked_out`] judges the certificates.

use std::collections::BTreeSet;

use pki::{Certificate, Lockout, LockoutReason, locked_out};
use secrets::redacted;
use time::OffsetDateTime;

use super::admission::{Admission, admission};
use super::config::{PointerConfig, holders_of};
use super::fault::Fault;
use super::fetch::Fetch;
use crate::access::{Records, Refusal};

/// Known state of the servers.
#[derive(Debug, Clone, Copy)]
pub struct ServerState<'a> {
    /// Served chain, leaf first; `None` if it is judged elsewhere.
    pub chain: Option<&'a [Certificate]>,
    /// Records of tokens, if they are known.
    pub records: Option<&'a Records>,
    /// Pools with a config; empty if they are not known.
    pub pools: &'a BTreeSet<String>,
}

/// Reasons why no machine boots from a file. Each message is one line.
#[derive(Debug, thiserror::Error)]
pub enum Problem<'a> {
    /// A fault of the file.
    #[error("{0}")]
    Fault(&'a Fault),
    /// The served certificates are refused.
    #[error("{0}")]
    LockedOut(Lockout),
    /// The pool of the fetch does not exist.
    #[error(
        "no config from {url}: pool {pool} not found: a machine retries until the pool exists",
        url = .0.url,
        pool = .0.pool
    )]
    UnknownPool(&'a Fetch),
    /// The token of the fetch is refused.
    #[error("no config from {url}: {1}", url = .0.url)]
    Refused(&'a Fetch, Refusal),
}

/// Verdict about a pointer config.
#[derive(Debug)]
pub struct Verdict<'a> {
    /// Reasons why no machine boots from it; empty if one does.
    pub problems: Vec<Problem<'a>>,
    /// Fetches with the result for their tokens; empty if the file has faults.
    pub fetches: Vec<(&'a Fetch, Admission)>,
}

impl PointerConfig<'_> {
    /// Judges the config `name` against the known state of the servers.
    pub fn verdict(&self, name: &str, known: ServerState<'_>, now: OffsetDateTime) -> Verdict<'_> {
        let mut problems: Vec<_> = self.faults().iter().map(Problem::Fault).collect();
        if let Some(chain) = known.chain {
            let mut refusals = locked_out(chain, &holders_of(name, self.fetches()), now);
            // Each reason once.
            refusals.dedup();
            problems.extend(refusals.into_iter().map(Problem::LockedOut));
        }
        let mut fetches = Vec::new();
        for fetch in self.fetches() {
            if !known.pools.is_empty() && !known.pools.contains(&fetch.pool) {
                problems.push(Problem::UnknownPool(fetch));
            }
            let admission = known.records.map_or(Admission::Open, |it| admission(fetch, it, now));
            if let Admission::Refused(refusal) = admission {
                problems.push(Problem::Refused(fetch, refusal));
            }
            fetches.push((fetch, admission));
        }
        Verdict { problems, fetches }
    }

    /// Reasons why no machine boots from the config `name`, regardless of the served chain and of tokens: one line.
    pub fn lockouts(&self, name: &str, pools: &BTreeSet<String>) -> Vec<Lockout> {
        let known = ServerState { chain: None, records: None, pools };
        let problems = self.verdict(name, known, OffsetDateTime::UNIX_EPOCH).problems;
        if problems.is_empty() {
            return Vec::new();
        }
        // A URL can contain a password.
        let lines = problems.iter().map(|problem| redacted(&problem.to_string()).into_owned());
        let reason = LockoutReason::Pointer(lines.collect::<Vec<_>>().join("; "));
        vec![Lockout { holder: name.to_owned(), reason }]
    }
}

/// Pools of the files in a state directory, by file names without `.ign`: each name is a pool, unless the file fetches
/// only configs of others.
pub fn pools_of<'a>(files: impl Iterator<Item = (&'a str, &'a [u8])> + Clone) -> BTreeSet<String> {
    let names: BTreeSet<&str> = files.clone().map(|(name, _)| name).collect();
    let is_of_others = |name: &str, text: &[u8]| {
        let config = PointerConfig::read(text);
        let mut pools = config.fetches().iter().map(|fetch| &fetch.pool[..]);
        config.faults().is_empty() && pools.all(|pool| pool != name && names.contains(pool))
    };
    let of_pools = files.filter(|(name, text)| !is_of_others(name, text));
    of_pools.map(|(name, _)| name.to_owned()).collect()
}

#[cfg(test)]
mod tests;
