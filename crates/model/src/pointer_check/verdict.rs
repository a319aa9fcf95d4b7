//! The verdict on a pointer config, by what is served.

use std::collections::BTreeSet;

use ignition::secrets::redacted;
use pki::{Certificate, Lockout, LockoutReason};
use time::OffsetDateTime;

use super::fault::{Fault, Warning};
use super::fetch::Fetch;
use super::token::{Admission, admission};
use super::{read, refusals};
use crate::access::{Records, Refusal};

/// What is known of the servers that a machine asks.
#[derive(Debug, Clone, Copy)]
pub struct Known<'a> {
    /// What is served, leaf first; `None` where that is judged elsewhere.
    pub chain: Option<&'a [Certificate]>,
    /// What is known of tokens, if anything is.
    pub records: Option<&'a Records>,
    /// The pools that have a config, empty where they are not known.
    pub pools: &'a BTreeSet<String>,
}

/// Why no machine boots from a file. One line each.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// It is in the file itself.
    #[error("{0}")]
    Fault(Fault),
    /// The certificates that are served.
    #[error("{0}")]
    LockedOut(Lockout),
    /// A pool that there is not.
    #[error(
        "no config from {url}: there is no pool {pool} here: a machine asks again until there is"
    )]
    UnknownPool {
        /// What is fetched.
        url: http::Uri,
        /// The pool in it.
        pool: String,
    },
    /// The token.
    #[error("no config from {url}: {refusal}")]
    Refused {
        /// What is fetched.
        url: http::Uri,
        /// Why it is refused.
        refusal: Refusal,
    },
}

/// What there is to say of a file.
#[derive(Debug)]
pub struct Verdict {
    /// Why no machine boots from it; none if one does.
    pub problems: Vec<Problem>,
    /// What keeps no machine from booting today.
    pub warnings: Vec<Warning>,
    /// What a machine fetches, and what comes of its token; empty where the file has faults.
    pub fetches: Vec<(Fetch, Admission)>,
}

/// Judges the pointer config `name`.
#[must_use]
pub fn judge(name: &str, user_data: &[u8], known: Known<'_>, now: OffsetDateTime) -> Verdict {
    let reading = read(user_data);
    let mut problems: Vec<Problem> = reading.faults.into_iter().map(Problem::Fault).collect();
    let fetches = reading.config.map(|config| config.fetches).unwrap_or_default();
    if let Some(chain) = known.chain {
        problems.extend(refusals(name, &fetches, chain, now).into_iter().map(Problem::LockedOut));
    }
    let mut judged = Vec::new();
    for fetch in fetches {
        let url = fetch.url.clone();
        if !known.pools.is_empty() && !known.pools.contains(&fetch.pool) {
            problems.push(Problem::UnknownPool { url: url.clone(), pool: fetch.pool.clone() });
        }
        let admission = known.records.map_or(Admission::Open, |it| admission(&fetch, it, now));
        if let Admission::Refused(refusal) = admission {
            problems.push(Problem::Refused { url, refusal });
        }
        judged.push((fetch, admission));
    }
    Verdict { problems, warnings: reading.warnings, fetches: judged }
}

/// Why no machine boots from the pointer config `name`, whatever is served and whatever its token is: one line.
#[must_use]
pub fn faults_of(name: &str, user_data: &[u8], pools: &BTreeSet<String>) -> Vec<Lockout> {
    let known = Known { chain: None, records: None, pools };
    let problems = judge(name, user_data, known, OffsetDateTime::UNIX_EPOCH).problems;
    // A URL may have a password in it.
    let lines: Vec<_> =
        problems.iter().map(|problem| redacted(&problem.to_string()).into_owned()).collect();
    let reason = LockoutReason::Pointer(lines.join("; "));
    let lockout = Lockout { holder: name.to_owned(), reason };
    if lines.is_empty() { Vec::new() } else { vec![lockout] }
}

/// The pools that the files of a state directory are made for, by the files' names without `.ign`: each is the name of
/// a pool, but for a file that fetches the configs of others alone.
#[must_use]
pub fn pools_of<'a>(files: impl Iterator<Item = (&'a str, &'a [u8])> + Clone) -> BTreeSet<String> {
    let names: BTreeSet<&str> = files.clone().map(|(name, _)| name).collect();
    let is_of_others = |name: &str, text: &[u8]| {
        read(text).config.is_some_and(|config| {
            let mut pools = config.fetches.iter().map(|fetch| &fetch.pool[..]);
            pools.all(|pool| pool != name && names.contains(pool))
        })
    };
    let of_pools = files.filter(|(name, text)| !is_of_others(name, text));
    of_pools.map(|(name, _)| name.to_owned()).collect()
}
