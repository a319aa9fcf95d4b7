//! Tokens of single machines while they are used.
//!
//! A use is stored before the answer that it is about. What is stored of an answer is enough for the next process: it
//! counts an answer that had begun as taken, so that nothing needs to be stored when it was.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use arc_swap::ArcSwap;
use model::access::machine::{ClockReading, Stage, UsageChange, Window};
use model::access::{MachineToken, Refusal};
use model::overview::{History, NamedMachine};
use time::OffsetDateTime;

use super::shared_tokens::{report_shared, report_shared_use, shared_line};
use crate::store::state_directory::StateDirectory;
use crate::sync::lock;
use crate::telemetry::Reporting;
use crate::telemetry::conditions::Condition;

/// Tokens of machines with their use, shared by their keeper and by requests.
pub(crate) struct MachineTokens {
    entries: ArcSwap<BTreeMap<Arc<str>, Arc<Entry>>>,
    window: Window,
    state: StateDirectory,
    started: Instant,
    reporting: Reporting,
    history: History,
}

struct Entry {
    token: Mutex<MachineToken>,
    /// Locked while a change of the token is stored. The token's own lock is held for moments only.
    writing: Mutex<()>,
}

impl std::fmt::Debug for MachineTokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MachineTokens").finish_non_exhaustive()
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
        Self {
            entries: ArcSwap::default(),
            window,
            state,
            started: Instant::now(),
            reporting,
            history,
        }
    }

    fn now(&self) -> ClockReading {
        ClockReading { wall: OffsetDateTime::now_utc(), up: self.started.elapsed() }
    }

    fn entry(&self, name: &str) -> Option<Arc<Entry>> {
        self.entries.load().get(name).cloned()
    }

    /// A copy of a machine's token with its present use.
    pub(super) fn get(&self, name: &str) -> Option<MachineToken> {
        Some(self.entry(name)?.token().clone())
    }

    pub(super) fn names(&self) -> Vec<Arc<str>> {
        self.entries.load().keys().cloned().collect()
    }

    /// Replaces a machine's token with the result of `change`, which is called while no use is stored and can store one
    /// itself.
    pub(super) fn change<E>(
        &self,
        name: &str,
        change: impl FnOnce(Option<&MachineToken>) -> Result<Option<MachineToken>, E>,
    ) -> Result<(), E> {
        let entry = self.entry(name);
        let writing = entry.as_ref().map(|entry| lock(&entry.writing));
        let known = entry.as_ref().map(|entry| entry.token().clone());
        let changed = change(known.as_ref())?;
        match (&entry, changed) {
            (Some(entry), Some(token)) => *entry.token() = token,
            (None, Some(token)) => self.insert(name, token),
            (_, None) => self.remove(name),
        }
        drop(writing);
        Ok(())
    }

    /// Adds the tokens that an earlier process has stored.
    pub(super) fn load(&self, tokens: BTreeMap<String, MachineToken>) {
        let entries = tokens.into_iter().map(|(name, token)| (name.into(), Entry::new(token)));
        self.entries.store(Arc::new(entries.collect()));
    }

    fn insert(&self, name: &str, token: MachineToken) {
        let mut entries = BTreeMap::clone(&self.entries.load());
        entries.insert(name.into(), Entry::new(token));
        self.entries.store(Arc::new(entries));
    }

    fn remove(&self, name: &str) {
        let mut entries = BTreeMap::clone(&self.entries.load());
        entries.remove(name);
        self.entries.store(Arc::new(entries));
    }

    /// Checks that a machine's token is open. A token that has just been found spent is stored as spent; it may block.
    ///
    /// # Errors
    /// The token is spent, or gone.
    pub(crate) fn check(&self, name: &str) -> Result<(), Refusal> {
        let entry = self.entry(name).ok_or(Refusal::Revoked)?;
        let now = self.now();
        if entry.token().usage.stage(self.window, now) != Stage::Spent {
            return Ok(());
        }
        let _writing = lock(&entry.writing);
        let token = entry.token().clone();
        if token.usage.stage(self.window, now) == Stage::Spent {
            self.spend(name, &entry, token);
        }
        Err(Refusal::Spent)
    }

    /// Stores that a token is spent, while the lock for writing is held.
    fn spend(&self, name: &str, entry: &Entry, mut token: MachineToken) {
        // It is refused anyway, and stored at the next request where that fails now.
        if token.usage.spend() && self.store(name, &token).is_ok() {
            *entry.token() = token;
        }
    }

    /// Returns `true` if [`Self::check`] would return at once.
    pub(crate) fn is_open(&self, name: &str) -> bool {
        let stage = |entry: Arc<Entry>| entry.token().usage.stage(self.window, self.now());
        self.entry(name).is_some_and(|entry| stage(entry) != Stage::Spent)
    }

    /// Records that an answer begins for `address`, on disk before it returns. It may block.
    ///
    /// # Errors
    /// The token is spent meanwhile, or its use cannot be stored.
    pub(crate) fn begin(&self, name: &str, address: IpAddr) -> Result<(), Refusal> {
        let entry = self.entry(name).ok_or(Refusal::Revoked)?;
        let writing = lock(&entry.writing);
        let (now, mut token) = (self.now(), entry.token().clone());
        if token.usage.stage(self.window, now) == Stage::Spent {
            self.spend(name, &entry, token);
            return Err(Refusal::Spent);
        }
        if token.revoked.is_some() {
            return Err(Refusal::Revoked);
        }
        let UsageChange { is_changed, is_newly_shared } = token.usage.begin(address, now);
        if is_changed {
            self.store(name, &token)?;
            // An answer can have been taken whole while this was written, so the copy is not put back.
            entry.token().usage.begin(address, now);
        }
        drop(writing);
        if is_newly_shared {
            self.report_shared_use(name, address);
        }
        Ok(())
    }

    /// Records that an answer was taken whole, in memory: what is stored of its beginning is enough for later.
    pub(crate) fn take(&self, name: &str) {
        if let Some(entry) = self.entry(name) {
            entry.token().usage.take(self.now());
        }
    }

    fn store(&self, name: &str, token: &MachineToken) -> Result<(), Refusal> {
        let stored = self.state.write_machine_token(name, token);
        let reason = stored.err().map(|error| error.to_string());
        let is_stored = reason.is_none();
        Condition::new("use of machines' tokens", reason).report_failure(
            &self.reporting.status.degraded,
            |reason| {
                tracing::error!(
                    machine = name,
                    reason,
                    fix = "free space on the disk, or make the state directory writable for this server",
                    "cannot store the use of a machine's token; its machine gets 503 until then"
                );
            },
        );
        if is_stored { Ok(()) } else { Err(Refusal::NotStored) }
    }

    fn report_shared_use(&self, name: &str, address: IpAddr) {
        report_shared_use(&self.history, name, address);
        self.report_shared();
    }

    /// Reports the tokens that were used from several addresses.
    pub(super) fn report_shared(&self) {
        let entries = self.entries.load();
        let lines = entries.iter().filter_map(|(name, entry)| {
            let token = entry.token();
            let addresses = token.usage.addresses();
            let is_shared = addresses.len() > 1 && token.revoked.is_none();
            is_shared.then(|| shared_line(name, addresses))
        });
        report_shared(&self.reporting, &lines.collect::<Vec<_>>());
    }

    /// The machines by name, for people.
    pub(crate) fn list(&self) -> Vec<NamedMachine> {
        let now = self.now();
        let entries = self.entries.load();
        let line = |(name, entry): (&Arc<str>, &Arc<Entry>)| {
            NamedMachine::of(name, &entry.token(), self.window, now)
        };
        entries.iter().map(line).collect()
    }
}

impl Entry {
    fn new(token: MachineToken) -> Arc<Self> {
        Arc::new(Self { token: Mutex::new(token), writing: Mutex::default() })
    }

    fn token(&self) -> MutexGuard<'_, MachineToken> {
        lock(&self.token)
    }
}
