//! Access mode in force for each pool.

use std::collections::{BTreeMap, BTreeSet};

use super::mode::{AccessMode, Waiting};
use super::proof::Refusal;
use super::records::{Enforcement, Records};

/// Modes in force, with their reasons.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Modes {
    default: AccessMode,
    pools: BTreeMap<String, AccessMode>,
    held: BTreeMap<String, String>,
    waiting: BTreeMap<String, Waiting>,
    is_read: bool,
}

impl Modes {
    /// Determines the modes from the `default` and the pools' own modes in `wanted`; the annotations of pools in
    /// `unclear` are not understood.
    ///
    /// A pool with mode `enforce` is open only while `records` name one of its pointer configs without a token, because
    /// its machines would be locked out. Without such evidence it is enforced, or waiting: see [`Waiting`]. A pool that
    /// was not read has the `default` mode, and its refusals are temporary: it has no config, and may be read soon.
    #[must_use]
    pub fn new(
        default: AccessMode,
        wanted: &BTreeMap<String, AccessMode>,
        unclear: &BTreeSet<String>,
        records: Option<&Records>,
    ) -> Self {
        let mut modes = Self { default, is_read: records.is_some(), ..Self::default() };
        for (pool, &wanted) in wanted {
            let standing = match records {
                _ if unclear.contains(pool) => Enforcement::Waiting(Waiting::Unclear),
                Some(records) if wanted == AccessMode::Enforce => records.enforcement(pool),
                _ => Enforcement::Enforced,
            };
            let mode = match standing {
                Enforcement::Enforced => wanted,
                Enforcement::Open(lacking) => {
                    modes.held.insert(pool.clone(), held(lacking));
                    AccessMode::Audit
                }
                Enforcement::Waiting(waiting) => {
                    modes.waiting.insert(pool.clone(), waiting);
                    AccessMode::Enforce
                }
            };
            modes.pools.insert(pool.clone(), mode);
        }
        modes
    }

    /// The stricter mode of each pool, for the time of a change. Refusals are temporary in it.
    #[must_use]
    pub fn stricter(&self, other: &Self) -> Self {
        let names: BTreeSet<_> = self.pools.keys().chain(other.pools.keys()).collect();
        let changing = names.iter().filter(|pool| self.of(pool) != other.of(pool));
        let changing = changing.map(|pool| ((*pool).clone(), Waiting::Changing));
        let stricter = |pool: &&String| ((*pool).clone(), self.of(pool).max(other.of(pool)));
        Self {
            default: self.default.max(other.default),
            waiting: changing.chain(other.waiting.clone()).collect(),
            pools: names.iter().map(stricter).collect(),
            held: BTreeMap::new(),
            is_read: other.is_read,
        }
    }

    /// Reason why too little is known of a pool for a permanent refusal, `None` if enough is.
    pub(super) fn unknown(&self, pool: &str) -> Option<Refusal> {
        let is_waiting = !self.is_read || self.waiting.contains_key(pool);
        match self.pools.contains_key(pool) {
            true if is_waiting => Some(Refusal::NotRead),
            true => None,
            // Pools are read together.
            false if self.pools.is_empty() => Some(Refusal::NotRead),
            false => Some(Refusal::NoPool),
        }
    }

    /// Pools that are neither open nor enforced, although the records were read.
    pub fn waiting(&self) -> impl Iterator<Item = (&str, Waiting)> {
        self.waiting.iter().map(|(pool, waiting)| (&**pool, *waiting))
    }

    /// The mode in force for a pool.
    #[must_use]
    pub fn of(&self, pool: &str) -> AccessMode {
        self.pools.get(pool).copied().unwrap_or(self.default)
    }

    /// Pools with mode `enforce` that are open, with the evidence.
    pub fn held(&self) -> impl Iterator<Item = (&str, &str)> {
        self.held.iter().map(|(pool, reason)| (&**pool, &**reason))
    }

    /// Pools that are enforced.
    #[must_use]
    pub fn enforced(&self) -> BTreeSet<String> {
        let enforced = self.pools.iter().filter(|(_, mode)| **mode == AccessMode::Enforce);
        enforced.map(|(pool, _)| pool.clone()).collect()
    }
}

/// Maximum number of lines about pointer configs without a token; the others are counted.
const LISTED: usize = 5;

fn held(lines: &[String]) -> String {
    let reported = lines[..lines.len().min(LISTED)].join("; ");
    match lines.len().saturating_sub(LISTED) {
        0 => reported,
        more => format!("{reported}; and {more} more"),
    }
}
