//! Tokens of single machines, whose uses are stored in a state directory.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::access::approval::ApprovedObject;
use model::access::machine::{ClockReading, Usage, Use, Window};
use model::access::{MachineToken, Refusal, TokenHash};
use model::objects::FirstBootMachine;
use status::overview::NamedMachine;
use tokio::task::block_in_place;

use super::machine::{Entries, Entry, MachineTokens, Recorded, UseStore, UsedToken};
use crate::store::state_directory::StateDirectory;
use crate::telemetry::faults;

pub(crate) type DirectoryTokens = MachineTokens<StateDirectory>;

impl UsedToken for MachineToken {
    fn usage(&self) -> &Usage {
        &self.usage
    }

    fn usage_mut(&mut self) -> &mut Usage {
        &mut self.usage
    }

    fn sha256(&self) -> TokenHash {
        self.token.hash()
    }

    fn is_revoked(&self) -> bool {
        MachineToken::is_revoked(self)
    }

    fn listed(&self, name: &str, window: Window, now: ClockReading) -> NamedMachine {
        NamedMachine::of(name, self, window, now)
    }
}

impl UseStore for StateDirectory {
    type Token = MachineToken;

    /// A change is on disk before it returns. It blocks.
    async fn record(
        tokens: &DirectoryTokens,
        entry: &Entry<MachineToken>,
        mut token: MachineToken,
        used: Use,
    ) -> Recorded {
        let change = token.usage.add(used);
        if change.is_changed {
            let stored = tokens.store.write_machine_token(&entry.name, &token);
            let reason = stored.err().map(|error| error.to_string());
            let status = &tokens.reporting.status;
            faults::USE_UNSTORED.of(&entry.name).report(status, reason.as_deref());
            if reason.is_some() {
                return Recorded::Refused(Refusal::NotStored);
            }
            // An answer can have been taken whole while this was written, so the copy is not put back.
            entry.token().usage.add(used);
        }
        Recorded::Done(change)
    }
}

impl DirectoryTokens {
    /// A copy of a machine's token with its present use.
    pub(in crate::serving) fn get(&self, name: &str) -> Option<MachineToken> {
        Some(self.entry(name)?.token().clone())
    }

    /// The object of a machine with a token.
    pub(super) fn approved_object(
        &self,
        name: &str,
        machines: &BTreeMap<String, Arc<FirstBootMachine>>,
    ) -> ApprovedObject {
        match (self.get(name), machines.get(name)) {
            (Some(token), None) if token.is_revoked() => ApprovedObject::Removed,
            (Some(token), Some(machine)) => {
                // What cannot be read is reported where it is followed.
                let command = self.store.requested_arming(name).unwrap_or_default();
                ApprovedObject::in_directory(machine, &token, command)
            }
            _ => ApprovedObject::Unknown,
        }
    }

    pub(in crate::serving) fn names(&self) -> Vec<Arc<str>> {
        self.entries.load().keys().cloned().collect()
    }

    /// Replaces a machine's token with the result of `change`, which is called while no use is stored and can store one
    /// itself.
    pub(in crate::serving) fn change<E>(
        &self,
        name: &str,
        change: impl FnOnce(Option<&MachineToken>) -> Result<Option<MachineToken>, E>,
    ) -> Result<(), E> {
        let entry = self.entry(name);
        let writing = entry.as_ref().map(|entry| block_in_place(|| entry.writing.blocking_lock()));
        let known = entry.as_ref().map(|entry| entry.token().clone());
        let changed = change(known.as_ref())?;
        match (&entry, changed) {
            (Some(entry), Some(mut token)) => {
                let mut present = entry.token();
                // An answer can have been taken whole while this was stored.
                if known.is_some_and(|known| known.usage == token.usage) {
                    token.usage = present.usage.clone();
                }
                *present = token;
            }
            (_, changed) => {
                let mut entries = Entries::clone(&self.entries.load());
                entries.remove(name);
                entries.extend(changed.map(|token| Entry::keyed(name.into(), token)));
                self.entries.store(Arc::new(entries));
            }
        }
        drop(writing);
        Ok(())
    }

    /// Adds the stored tokens of machines that have none here.
    pub(in crate::serving) fn add(&self, tokens: impl IntoIterator<Item = (String, MachineToken)>) {
        let mut entries = Entries::clone(&self.entries.load());
        let added = tokens.into_iter().map(|(name, token)| Entry::keyed(name.into(), token));
        entries.extend(added);
        self.entries.store(Arc::new(entries));
    }
}
