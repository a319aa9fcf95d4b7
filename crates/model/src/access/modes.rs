//! Access modes of pools: those that annotations and flags request, and those in force.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::mode::{ACCESS_ANNOTATION, AccessMode, Waiting};
use super::proof::Refusal;
use super::records::{Enforcement, Records};
use crate::objects::MachineConfigPool;

/// Requested mode by pool, from annotations and the flag.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WantedModes {
    default: AccessMode,
    modes: BTreeMap<String, AccessMode>,
    /// Pools whose annotation is not understood, and whose earlier mode is unknown.
    unclear: BTreeSet<String>,
}

impl WantedModes {
    /// Reads the pools' annotations as [`Self::of_annotations`] does. Pools that are closed in the `records` of an
    /// earlier process count as closed.
    pub fn read(
        pools: &BTreeMap<String, Arc<MachineConfigPool>>,
        default: AccessMode,
        before: &Self,
        records: Option<&Records>,
    ) -> (Self, Vec<String>) {
        let was_closed = |pool: &str| {
            let closed = records.map(|it| [&it.enforced, &it.contested, &it.undetermined]);
            closed.into_iter().flatten().any(|closed| closed.contains(pool))
        };
        let annotations =
            pools.iter().map(|(name, pool)| (&**name, pool.annotation(ACCESS_ANNOTATION)));
        let (wanted, faults) = Self::of_annotations(annotations, default, before, was_closed);
        (wanted, faults.into_iter().map(|fault| format!("pool {fault}")).collect())
    }

    /// Reads annotations by pool name, with `default` for pools without one. Returns a line for each that is not
    /// understood, beginning with the name.
    ///
    /// Such an annotation changes nothing: the pool keeps its mode from `before`, or is enforced if it `was_closed`.
    /// Otherwise it opens no pool, and its refusals are temporary.
    pub fn of_annotations<'a>(
        pools: impl Iterator<Item = (&'a str, Option<&'a str>)>,
        default: AccessMode,
        before: &Self,
        was_closed: impl Fn(&str) -> bool,
    ) -> (Self, Vec<String>) {
        let mut faults = Vec::new();
        let mut wanted = Self { default, ..Self::default() };
        for (name, annotation) in pools {
            let mode = match annotation.map(str::parse::<AccessMode>) {
                None => default,
                Some(Ok(mode)) => mode,
                Some(Err(error)) => {
                    faults.push(format!("{name}: {ACCESS_ANNOTATION}: {error}"));
                    match before.modes.get(name).filter(|_| !before.unclear.contains(name)) {
                        Some(before) => *before,
                        None if was_closed(name) => AccessMode::Enforce,
                        None => {
                            wanted.unclear.insert(name.to_owned());
                            default
                        }
                    }
                }
            };
            wanted.modes.insert(name.to_owned(), mode);
        }
        (wanted, faults)
    }

    /// Modes of the pools whose annotation is understood.
    pub fn understood(&self) -> BTreeMap<String, AccessMode> {
        let mut modes = self.modes.clone();
        modes.retain(|pool, _| !self.unclear.contains(pool));
        modes
    }

    /// Returns `true` if tokens matter, that is unless all pools are open.
    pub fn need_tokens(&self) -> bool {
        let mut modes = self.modes.values().chain([&self.default]);
        modes.any(|mode| *mode != AccessMode::Off) || !self.unclear.is_empty()
    }

    /// Pools that are not open, with the requested mode.
    pub fn restricted(&self) -> impl Iterator<Item = (&str, AccessMode)> {
        let restricted = self.modes.iter().filter(|(_, mode)| **mode != AccessMode::Off);
        restricted.map(|(pool, mode)| (&**pool, *mode))
    }

    /// Modes in force with these records of tokens.
    pub fn in_force(&self, records: Option<&Records>) -> Modes {
        Modes::new(self.default, &self.modes, &self.unclear, records)
    }
}

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
    pub fn new(
        default: AccessMode,
        wanted: &BTreeMap<String, AccessMode>,
        unclear: &BTreeSet<String>,
        records: Option<&Records>,
    ) -> Self {
        let mut modes = Self { default, is_read: records.is_some(), ..Self::default() };
        for (pool, &wanted) in wanted {
            let enforcement = match records {
                _ if unclear.contains(pool) => Enforcement::Waiting(Waiting::Unclear),
                Some(records) if wanted == AccessMode::Enforce => records.enforcement(pool),
                _ => Enforcement::Enforced,
            };
            let mode = match enforcement {
                Enforcement::Enforced => wanted,
                Enforcement::Open(without_token) => {
                    modes.held.insert(pool.clone(), held(without_token));
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
        let names: BTreeSet<_> = self.pools.keys().chain(other.pools.keys()).cloned().collect();
        let changing = names.iter().filter(|pool| self.of(pool) != other.of(pool));
        let changing = changing.map(|pool| (pool.clone(), Waiting::Changing));
        let stricter = |pool: &String| (pool.clone(), self.of(pool).max(other.of(pool)));
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
    pub fn of(&self, pool: &str) -> AccessMode {
        self.pools.get(pool).copied().unwrap_or(self.default)
    }

    /// Pools with mode `enforce` that are open, with the evidence.
    pub fn held(&self) -> impl Iterator<Item = (&str, &str)> {
        self.held.iter().map(|(pool, reason)| (&**pool, &**reason))
    }

    /// Pools that are enforced.
    pub fn enforced(&self) -> BTreeSet<String> {
        let enforced = self.pools.iter().filter(|(_, mode)| **mode == AccessMode::Enforce);
        enforced.map(|(pool, _)| pool.clone()).collect()
    }
}

/// Joins lines about pointer configs without a token, of which the first five are listed and the others counted.
fn held(lines: &[String]) -> String {
    match lines.split_at_checked(5) {
        Some((listed, more @ [_, ..])) => {
            format!("{}; and {} more", listed.join("; "), more.len())
        }
        _ => lines.join("; "),
    }
}
