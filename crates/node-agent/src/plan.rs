//! Plans of what is done about registries, without I/O.
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Registries with something that was written here. For credentials, each has the SHA-256 of the written value, and of
/// the next one while the file is being replaced.
pub(super) type List<R> = BTreeMap<R, BTreeSet<String>>;

/// Action for one registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Do nothing.
    Leave,
    /// Add it to the list: what is present is as if it had been written here.
    Adopt,
    /// Write what is absent.
    Make,
    /// Replace a file or link with a directory.
    Exchange,
    /// Write what is wrong.
    Repair,
    /// Remove what was written here.
    Remove,
    /// Remove it from the list: what is present was not written here.
    Forget,
    /// Report what another party wrote.
    Foreign,
}

/// Actions, and the lists around them. The list gets new entries before the actions, and loses old ones after them:
/// whenever this process dies, all that it has written is on the list.
#[derive(PartialEq, Eq)]
pub struct Plan<R: Ord, C> {
    pub actions: Vec<(R, Action)>,
    /// List before the actions: with old and new entries.
    pub before: List<R>,
    /// List after the actions.
    pub after: List<R>,
    /// A file that the actions replace as a whole.
    pub change: Option<C>,
}

impl<R: Ord + Clone, C> Plan<R, C> {
    pub fn new(listed: &List<R>) -> Self {
        let (before, after) = (listed.clone(), listed.clone());
        Self { actions: Vec::new(), before, after, change: None }
    }

    /// Adds an action. `digest` is that of the wanted value.
    pub fn push(&mut self, registry: &R, action: Action, digest: Option<String>) {
        let digests: BTreeSet<String> = digest.into_iter().collect();
        match action {
            Action::Leave => {
                // The present value is up to date, so older ones are removed from the list.
                if let Some(listed) = self.after.get_mut(registry) {
                    *listed = digests;
                }
            }
            Action::Adopt | Action::Make | Action::Exchange | Action::Repair => {
                self.before.entry(registry.clone()).or_default().extend(digests.clone());
                self.after.insert(registry.clone(), digests);
            }
            Action::Remove | Action::Forget => {
                self.after.remove(registry);
            }
            Action::Foreign => {}
        }
        self.actions.push((registry.clone(), action));
    }

    /// Registries with this action.
    pub fn registries(&self, action: Action) -> impl Iterator<Item = &R> {
        self.actions.iter().filter(move |(_, it)| *it == action).map(|(registry, _)| registry)
    }

    /// Returns `true` if nothing is to be written.
    pub fn is_done(&self, listed: &List<R>) -> bool {
        let is_done = |action| matches!(action, Action::Leave | Action::Foreign);
        self.actions.iter().all(|(_, action)| is_done(*action))
            && self.change.is_none()
            && self.after == *listed
    }
}

impl<R: Ord + fmt::Debug, C> fmt::Debug for Plan<R, C> {
    /// Hides the file, which can have credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.actions).finish()
    }
}

/// All registries of a check with their wanted values: `None` for listed ones that are no longer wanted. A registry with
/// an undecodable entry is left out, and so keeps what it has.
pub(super) fn registries<'a, R: Ord, V>(
    good: &'a BTreeMap<R, V>,
    undecodable: &'a BTreeSet<R>,
    listed: &'a List<R>,
) -> impl Iterator<Item = (&'a R, Option<&'a V>)> {
    let is_unwanted =
        |registry: &&R| !good.contains_key(*registry) && !undecodable.contains(*registry);
    let unwanted = listed.keys().filter(is_unwanted).map(|registry| (registry, None));
    good.iter().map(|(registry, value)| (registry, Some(value))).chain(unwanted)
}
