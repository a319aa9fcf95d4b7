//! How much is restricted, for each pool.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use super::records::Records;

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
    pub(super) is_read: bool,
}

impl Modes {
    /// What is in force where `default` is asked for, and `wanted` for pools that say so themselves.
    ///
    /// A pool is enforced only if `records` have it: machines whose pointer configs carry no token
    /// would be locked out. While they have not been read, nothing opens a pool that is to be enforced,
    /// and nobody is refused for good. A pool that there is not is as `default` says: nothing is lost by
    /// that.
    #[must_use]
    pub fn new(default: Mode, wanted: &BTreeMap<String, Mode>, records: Option<&Records>) -> Self {
        let mut modes = Self { default, is_read: records.is_some(), ..Self::default() };
        for (pool, &wanted) in wanted {
            let mode = match records {
                Some(records) if wanted == Mode::Enforce && !records.enforced.contains(pool) => {
                    modes.held.insert(pool.clone(), held(records.lacking.get(pool)));
                    Mode::Audit
                }
                _ => wanted,
            };
            modes.pools.insert(pool.clone(), mode);
        }
        modes
    }

    /// For each pool the stricter of the two, for the moment in which one follows the other.
    #[must_use]
    pub fn stricter(&self, other: &Self) -> Self {
        let names = self.pools.keys().chain(other.pools.keys());
        let stricter = |pool: &String| (pool.clone(), self.of(pool).max(other.of(pool)));
        Self {
            default: self.default.max(other.default),
            pools: names.map(stricter).collect(),
            held: BTreeMap::new(),
            is_read: other.is_read,
        }
    }

    /// The mode in force for a pool.
    #[must_use]
    pub fn of(&self, pool: &str) -> Mode {
        self.pools.get(pool).copied().unwrap_or(self.default)
    }

    /// The pools that are to be enforced and are not, with the reason.
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

fn held(lacking: Option<&Vec<String>>) -> String {
    let lines = lacking.map_or(&[][..], Vec::as_slice);
    if lines.is_empty() {
        return "nothing says that its pointer configs carry tokens; what keeps them says so, \
                where access is on there too"
            .to_owned();
    }
    let told = lines[..lines.len().min(TOLD)].join("; ");
    match lines.len().saturating_sub(TOLD) {
        0 => told,
        more => format!("{told}; and {more} more"),
    }
}
