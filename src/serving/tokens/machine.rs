//! Tokens of single machines while they are used.
//!
//! A use is stored before the answer that it is about. What is stored of an answer is enough for the next process: it
//! counts an answer that had begun as taken, so that nothing needs to be stored when it was.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::sync::lock;
use model::access::approval::ApprovedObject;
use model::access::machine::{ClockReading, Usage, UsageChange, Window};
use model::access::{MachineToken, Refusal, ShownToken, TokenHash};
use model::objects::FirstBootMachine;
use status::overview::{History, NamedMachine};
use telemetry::Reporting;
use telemetry::faults;

use super::token_set::{Entries, Entry, TokenSet, UsedToken};
use crate::store::state_directory::StateDirectory;

type MachineEntry = Entry<MachineToken, Mutex<()>>;

/// Tokens of machines, whose uses are stored in a state directory.
pub(crate) struct MachineTokens {
    pub(in crate::serving) set: TokenSet<MachineToken, Mutex<()>>,
    state: StateDirectory,
}

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

impl MachineTokens {
    /// Creates an empty set, whose uses are stored in `state`.
    pub(crate) fn new(
        state: StateDirectory,
        window: Window,
        reporting: Reporting,
        history: History,
    ) -> Self {
        Self { set: TokenSet::new(window, reporting, history), state }
    }

    /// A copy of a machine's token with its present use.
    pub(in crate::serving) fn get(&self, name: &str) -> Option<MachineToken> {
        Some(self.set.entry(name)?.token().clone())
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
                let command = self.state.requested_arming(name).unwrap_or_default();
                ApprovedObject::in_directory(machine, &token, command)
            }
            _ => ApprovedObject::Unknown,
        }
    }

    pub(in crate::serving) fn names(&self) -> Vec<Arc<str>> {
        self.set.entries.load().keys().cloned().collect()
    }

    /// Replaces a machine's token with the result of `change`, which is called while no use is stored and can store one
    /// itself.
    pub(in crate::serving) fn change<E>(
        &self,
        name: &str,
        change: impl FnOnce(Option<&MachineToken>) -> Result<Option<MachineToken>, E>,
    ) -> Result<(), E> {
        let entry = self.set.entry(name);
        let writing = entry.as_ref().map(|entry| lock(&entry.writing));
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
                let mut entries = Entries::clone(&self.set.entries.load());
                entries.remove(name);
                entries.extend(changed.map(|token| Entry::keyed(name.into(), token)));
                self.set.entries.store(Arc::new(entries));
            }
        }
        drop(writing);
        Ok(())
    }

    /// Adds the stored tokens of machines that have none here.
    pub(in crate::serving) fn add(&self, tokens: impl IntoIterator<Item = (String, MachineToken)>) {
        let mut entries = Entries::clone(&self.set.entries.load());
        let added = tokens.into_iter().map(|(name, token)| Entry::keyed(name.into(), token));
        entries.extend(added);
        self.set.entries.store(Arc::new(entries));
    }

    /// Checks that a machine's token is open. A token that has just been found spent is stored as spent; it may block.
    ///
    /// # Errors
    /// The token is spent, or gone.
    pub(crate) fn check(&self, shown: &ShownToken) -> Result<(), Refusal> {
        let entry = self.set.shown(shown)?;
        if !self.set.is_spent(&entry.token()) {
            return Ok(());
        }
        let _writing = lock(&entry.writing);
        let token = entry.token().clone();
        if token.token.hash() == shown.sha256 && self.set.is_spent(&token) {
            self.spend(&entry, token);
        }
        Err(Refusal::Spent)
    }

    /// Stores that a token is spent, while the lock for writing is held.
    fn spend(&self, entry: &MachineEntry, mut token: MachineToken) {
        // It is refused anyway, and stored at the next request where that fails now.
        if token.usage.spend() && self.store(&entry.name, &token).is_ok() {
            *entry.token() = token;
        }
    }

    /// Records that an answer begins for `address`, on disk before it returns the time since the start of the process.
    /// It may block.
    ///
    /// # Errors
    /// The token is spent meanwhile, or its use cannot be stored.
    pub(crate) fn begin(&self, shown: &ShownToken, address: IpAddr) -> Result<Duration, Refusal> {
        let entry = self.set.shown(shown)?;
        let writing = lock(&entry.writing);
        let (now, mut token) = (self.set.now(), entry.token().clone());
        // Another token can have been made while this waited for the lock.
        if token.revoked.is_some() || token.token.hash() != shown.sha256 {
            return Err(Refusal::Revoked);
        }
        if self.set.is_spent(&token) {
            self.spend(&entry, token);
            return Err(Refusal::Spent);
        }
        let UsageChange { is_changed, is_newly_shared } = token.usage.begin(address, now);
        if is_changed {
            self.store(&shown.machine, &token)?;
            // An answer can have been taken whole while this was written, so the copy is not put back.
            entry.token().usage.begin(address, now);
        }
        drop(writing);
        if is_newly_shared {
            self.set.report_shared_use(&shown.machine, address);
        }
        Ok(now.up)
    }

    fn store(&self, name: &str, token: &MachineToken) -> Result<(), Refusal> {
        let stored = self.state.write_machine_token(name, token);
        let reason = stored.err().map(|error| error.to_string());
        let is_stored = reason.is_none();
        faults::USE_UNSTORED.of(name).report(&self.set.reporting.status, reason.as_deref());
        if is_stored { Ok(()) } else { Err(Refusal::NotStored) }
    }
}
