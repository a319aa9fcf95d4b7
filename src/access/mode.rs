//! How much is restricted, for each pool.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use super::records::{Records, Standing};

/// How much of a pool's access is restricted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Mode {
    /// Everybody who reaches the server gets the config.
    #[default]
    Off,
    /// The same, but it is told who would be refused.
    Audit,
    /// Nobody gets the config who does not prove that he may have it.
    Enforce,
}

impl Mode {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Off, Self::Audit, Self::Enforce];

    /// As flags and annotations have it.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Audit => "audit",
            Self::Enforce => "enforce",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|mode| mode.label() == text);
        found.ok_or_else(|| "expected off, audit or enforce".to_owned())
    }
}

/// The modes in force.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Modes {
    default: Mode,
    pools: BTreeMap<String, Mode>,
    held: BTreeMap<String, String>,
    waiting: BTreeMap<String, Waiting>,
    is_read: bool,
}

/// Why a pool is neither open nor enforced: a token that is known opens it, everything else gets 503.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Waiting {
    /// Nothing is known of its pointer configs.
    #[error(
        "whether its pointer configs carry tokens is not known; the controller reports it, where it \
         runs with --access"
    )]
    NotKnown,
    /// It was enforced, and the records do not say so any more.
    #[error(
        "it was enforced, and the records of tokens do not say so any more: were they restored from a \
         backup? Annotate the pool with audit, then with enforce"
    )]
    Contested,
    /// What the pool says of its access is not understood, and nothing is known of it from before.
    #[error("its mode of access is not known")]
    Unclear,
    /// One mode follows another at this moment.
    #[error("its mode of access changes")]
    Changing,
}

impl Modes {
    /// The modes where `default` is asked for, and `wanted` for pools that say so themselves, of which
    /// those of `unclear` say nothing that is understood.
    ///
    /// A pool that is to be enforced is open only while `records` name a pointer config of it without a
    /// token, because the machines that have it would be locked out. Without such evidence it is
    /// enforced, as far as that is known: see [`Waiting`]. A pool that does not exist is as `default`
    /// says: it has no config.
    #[must_use]
    pub fn new(
        default: Mode,
        wanted: &BTreeMap<String, Mode>,
        unclear: &BTreeSet<String>,
        records: Option<&Records>,
    ) -> Self {
        let mut modes = Self { default, is_read: records.is_some(), ..Self::default() };
        for (pool, &wanted) in wanted {
            let standing = match records {
                _ if unclear.contains(pool) => Standing::Waiting(Waiting::Unclear),
                Some(records) if wanted == Mode::Enforce => records.standing(pool),
                _ => Standing::Enforced,
            };
            let mode = match standing {
                Standing::Enforced => wanted,
                Standing::Open(lacking) => {
                    modes.held.insert(pool.clone(), held(lacking));
                    Mode::Audit
                }
                Standing::Waiting(waiting) => {
                    modes.waiting.insert(pool.clone(), waiting);
                    Mode::Enforce
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
        self.is_read && !self.waiting.contains_key(pool)
    }

    /// The pools that are neither open nor enforced, although the records were read.
    pub fn waiting(&self) -> impl Iterator<Item = (&str, Waiting)> {
        self.waiting.iter().map(|(pool, waiting)| (&**pool, *waiting))
    }

    /// The mode in force for a pool.
    #[must_use]
    pub fn of(&self, pool: &str) -> Mode {
        self.pools.get(pool).copied().unwrap_or(self.default)
    }

    /// The pools that are to be enforced and are open, with the evidence.
    pub fn held(&self) -> impl Iterator<Item = (&str, &str)> {
        self.held.iter().map(|(pool, reason)| (&**pool, &**reason))
    }

    /// The pools that are enforced.
    #[must_use]
    pub fn enforced(&self) -> BTreeSet<String> {
        let enforced = self.pools.iter().filter(|(_, mode)| **mode == Mode::Enforce);
        enforced.map(|(pool, _)| pool.clone()).collect()
    }
}

/// Lines that are told of those that lack a token; the others are counted.
const TOLD: usize = 5;

fn held(lines: &[String]) -> String {
    let told = lines[..lines.len().min(TOLD)].join("; ");
    match lines.len().saturating_sub(TOLD) {
        0 => told,
        more => format!("{told}; and {more} more"),
    }
}
