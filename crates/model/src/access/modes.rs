//! How much is restricted, for each pool.

use std::collections::{BTreeMap, BTreeSet};

use super::mode::{AccessMode, Waiting};
use super::records::{Records, Standing};

/// The modes in force.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Modes {
    default: AccessMode,
    pools: BTreeMap<String, AccessMode>,
    held: BTreeMap<String, String>,
    waiting: BTreeMap<String, Waiting>,
    is_read: bool,
}

impl Modes {
    /// The modes where `default` is asked for, and `wanted` for pools that say so themselves, of which
    /// those of `unclear` say nothing that is understood.
    ///
    /// A pool that is to be enforced is open only while `records` name a pointer config of it without a
    /// token, because the machines that have it would be locked out. Without such evidence it is
    /// enforced, as far as that is known: see [`Waiting`]. A pool of which nothing was read is as `default`
    /// says, and refuses nobody for good: it has no config, and may be read in a moment.
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
                _ if unclear.contains(pool) => Standing::Waiting(Waiting::Unclear),
                Some(records) if wanted == AccessMode::Enforce => records.standing(pool),
                _ => Standing::Enforced,
            };
            let mode = match standing {
                Standing::Enforced => wanted,
                Standing::Open(lacking) => {
                    modes.held.insert(pool.clone(), held(lacking));
                    AccessMode::Audit
                }
                Standing::Waiting(waiting) => {
                    modes.waiting.insert(pool.clone(), waiting);
                    AccessMode::Enforce
                }
            };
            modes.pools.insert(pool.clone(), mode);
        }
        modes
    }

    /// For each pool the stricter of the two, for the moment in which one follows the other. Nobody is
    /// refused for good in it.
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

    /// Whether enough is known of a pool to refuse somebody for good.
    pub(super) fn are_known(&self, pool: &str) -> bool {
        self.is_read && self.pools.contains_key(pool) && !self.waiting.contains_key(pool)
    }

    /// The pools that are neither open nor enforced, although the records were read.
    pub fn waiting(&self) -> impl Iterator<Item = (&str, Waiting)> {
        self.waiting.iter().map(|(pool, waiting)| (&**pool, *waiting))
    }

    /// The mode in force for a pool.
    #[must_use]
    pub fn of(&self, pool: &str) -> AccessMode {
        self.pools.get(pool).copied().unwrap_or(self.default)
    }

    /// The pools that are to be enforced and are open, with the evidence.
    pub fn held(&self) -> impl Iterator<Item = (&str, &str)> {
        self.held.iter().map(|(pool, reason)| (&**pool, &**reason))
    }

    /// The pools that are enforced.
    #[must_use]
    pub fn enforced(&self) -> BTreeSet<String> {
        let enforced = self.pools.iter().filter(|(_, mode)| **mode == AccessMode::Enforce);
        enforced.map(|(pool, _)| pool.clone()).collect()
    }
}

/// Lines that are told of those that lack a token; the others are counted.
const LISTED: usize = 5;

fn held(lines: &[String]) -> String {
    let reported = lines[..lines.len().min(LISTED)].join("; ");
    match lines.len().saturating_sub(LISTED) {
        0 => reported,
        more => format!("{reported}; and {more} more"),
    }
}
