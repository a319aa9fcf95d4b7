//! Shares of permits and memory by source.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::source::{Group, Source};

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) connections: usize,
    pub(super) bytes: u64,
}

/// Shares of all groups; each change takes logarithmic time.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Shares {
    of: HashMap<Group, Share>,
    /// Parts of each group, sorted by memory.
    parts: BTreeMap<Group, BTreeSet<(u64, Group)>>,
}

impl Shares {
    pub(super) fn of(&self, group: Group) -> Share {
        self.of.get(&group).copied().unwrap_or_default()
    }

    pub(super) fn add(&mut self, source: Source, bytes: u64) {
        self.change(source, |share| {
            share.connections += 1;
            share.bytes += bytes;
        });
    }

    pub(super) fn remove(&mut self, source: Source, bytes: u64) {
        self.change(source, |share| {
            share.connections -= 1;
            share.bytes -= bytes;
        });
    }

    pub(super) fn set_memory(&mut self, source: Source, before: u64, after: u64) {
        self.change(source, |share| share.bytes = share.bytes - before + after);
    }

    fn change(&mut self, source: Source, change: impl Fn(&mut Share)) {
        let mut whole = None;
        for group in Group::of(source) {
            let before = self.of(group);
            let mut share = before;
            change(&mut share);
            if share.connections == 0 {
                self.of.remove(&group);
            } else {
                self.of.insert(group, share);
            }
            if let Some(whole) = whole {
                let parts = self.parts.entry(whole).or_default();
                parts.remove(&(before.bytes, group));
                if share.connections > 0 {
                    parts.insert((share.bytes, group));
                }
                if parts.is_empty() {
                    self.parts.remove(&whole);
                }
            }
            whole = Some(group);
        }
    }

    /// The sources of a group: those of its heaviest part first, recursively.
    pub(super) fn by_memory(&self, group: Group) -> Box<dyn Iterator<Item = Source> + '_> {
        if let Group::Source(source) = group {
            return Box::new(std::iter::once(source));
        }
        let parts = self.parts.get(&group).into_iter().flatten().rev();
        Box::new(parts.flat_map(|(_, part)| self.by_memory(*part)))
    }
}
