//! Access modes that pools and flags request.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::mode::{ACCESS_ANNOTATION, AccessMode};
use super::modes::Modes;
use super::records::Records;
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
    #[must_use]
    pub fn read(
        pools: &BTreeMap<String, Arc<MachineConfigPool>>,
        default: AccessMode,
        before: &Self,
        records: Option<&Records>,
    ) -> (Self, Vec<String>) {
        let was_closed = |pool: &str| {
            let closed = records.map(|it| [&it.enforced, &it.contested, &it.unsure]);
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
    #[must_use]
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
    #[must_use]
    pub fn understood(&self) -> BTreeMap<String, AccessMode> {
        let mut modes = self.modes.clone();
        modes.retain(|pool, _| !self.unclear.contains(pool));
        modes
    }

    /// Returns `true` if tokens matter, that is unless all pools are open.
    #[must_use]
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
    #[must_use]
    pub fn in_force(&self, records: Option<&Records>) -> Modes {
        Modes::new(self.default, &self.modes, &self.unclear, records)
    }
}
