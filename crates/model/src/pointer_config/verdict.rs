//! Whether a machine would boot from a pointer config, and if not, why: the one judge of `certs check`, of the
//! controller, of readiness and of the page. Who is locked out is judged by [`locked_out`].

use std::collections::BTreeSet;

use ignition::secrets::redacted;
use pki::{Certificate, Lockout, LockoutReason, locked_out};
use time::OffsetDateTime;

use super::admission::{Admission, admission};
use super::config::{PointerConfig, holders_of};
use super::fault::Fault;
use super::fetch::Fetch;
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
pub enum Problem<'a> {
    /// It is in the file itself.
    #[error("{0}")]
    Fault(&'a Fault),
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

/// What becomes of a machine that has a pointer config.
#[derive(Debug)]
pub struct Verdict<'a> {
    /// Why no machine boots from it; none if one does.
    pub problems: Vec<Problem<'a>>,
    /// What a machine fetches, and what comes of its token; empty where the file has faults.
    pub fetches: Vec<(&'a Fetch, Admission)>,
}

impl PointerConfig<'_> {
    /// Judges whether a machine would boot from it, called `name`, by what is known of servers.
    #[must_use]
    pub fn verdict(&self, name: &str, known: Known<'_>, now: OffsetDateTime) -> Verdict<'_> {
        let mut problems: Vec<_> = self.faults().iter().map(Problem::Fault).collect();
        if let Some(chain) = known.chain {
            let mut refusals = locked_out(chain, &holders_of(name, self.fetches()), now);
            // Each reason once.
            refusals.dedup();
            problems.extend(refusals.into_iter().map(Problem::LockedOut));
        }
        let mut fetches = Vec::new();
        for fetch in self.fetches() {
            let url = fetch.url.clone();
            if !known.pools.is_empty() && !known.pools.contains(&fetch.pool) {
                problems.push(Problem::UnknownPool { url: url.clone(), pool: fetch.pool.clone() });
            }
            let admission = known.records.map_or(Admission::Open, |it| admission(fetch, it, now));
            if let Admission::Refused(refusal) = admission {
                problems.push(Problem::Refused { url, refusal });
            }
            fetches.push((fetch, admission));
        }
        Verdict { problems, fetches }
    }

    /// Why no machine boots from it, called `name`, whatever is served and whatever its token is: one line.
    #[must_use]
    pub fn lockouts(&self, name: &str, pools: &BTreeSet<String>) -> Vec<Lockout> {
        let known = Known { chain: None, records: None, pools };
        let problems = self.verdict(name, known, OffsetDateTime::UNIX_EPOCH).problems;
        // A URL may have a password in it.
        let lines: Vec<_> =
            problems.iter().map(|problem| redacted(&problem.to_string()).into_owned()).collect();
        let reason = LockoutReason::Pointer(lines.join("; "));
        let lockout = Lockout { holder: name.to_owned(), reason };
        if lines.is_empty() { Vec::new() } else { vec![lockout] }
    }
}

/// The pools that the files of a state directory are made for, by the files' names without `.ign`: each is the name of
/// a pool, but for a file that fetches the configs of others alone.
#[must_use]
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
