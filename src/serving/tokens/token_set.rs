//! Tokens of single machines with their use, shared by what keeps them and by requests.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use arc_swap::ArcSwap;
use common::sync::lock;
use model::access::machine::{ClockReading, KnownMachine, Stage, Usage, Window};
use model::access::{Refusal, ShownToken, TokenHash};
use model::objects::FirstBootMachine;
use status::overview::{History, NamedMachine};
use telemetry::Reporting;
use telemetry::faults;
use time::OffsetDateTime;
use tokio::time::Instant;

/// A token with its use.
pub(in crate::serving) trait UsedToken {
    fn usage(&self) -> &Usage;

    fn usage_mut(&mut self) -> &mut Usage;

    fn sha256(&self) -> TokenHash;

    fn is_revoked(&self) -> bool;

    /// The machine for people.
    fn listed(&self, name: &str, window: Window, now: ClockReading) -> NamedMachine;
}

/// Entries by the name of the machine.
pub(in crate::serving) type Entries<T, W> = BTreeMap<Arc<str>, Arc<Entry<T, W>>>;

/// Tokens of a kind `T`. Each has a lock `W` that is held while a change of it is stored.
pub(in crate::serving) struct TokenSet<T, W> {
    pub(in crate::serving) entries: ArcSwap<Entries<T, W>>,
    pub(in crate::serving) window: Window,
    pub(in crate::serving) reporting: Reporting,
    pub(in crate::serving) history: History,
    /// The wall clock.
    pub(in crate::serving) wall: fn() -> OffsetDateTime,
    started: Instant,
}

/// Token of one machine.
pub(in crate::serving) struct Entry<T, W> {
    pub(in crate::serving) name: Arc<str>,
    token: Mutex<T>,
    /// Locked while a change of the token is stored. The token's own lock is held for moments only.
    pub(in crate::serving) writing: W,
}

impl<T: UsedToken, W: Default> TokenSet<T, W> {
    /// Creates an empty set.
    pub(in crate::serving) fn new(window: Window, reporting: Reporting, history: History) -> Self {
        let (entries, started) = (ArcSwap::default(), Instant::now());
        Self { entries, window, reporting, history, wall: OffsetDateTime::now_utc, started }
    }

    pub(in crate::serving) fn now(&self) -> ClockReading {
        ClockReading { wall: (self.wall)(), up: self.started.elapsed() }
    }

    pub(in crate::serving) fn entry(&self, name: &str) -> Option<Arc<Entry<T, W>>> {
        self.entries.load().get(name).cloned()
    }

    /// The entry of the machine that a request names by its token.
    ///
    /// # Errors
    /// The machine has another token by now, or none.
    pub(crate) fn shown(&self, shown: &ShownToken) -> Result<Arc<Entry<T, W>>, Refusal> {
        let entry = self.entry(&shown.machine);
        entry.filter(|entry| entry.token().sha256() == shown.sha256).ok_or(Refusal::Revoked)
    }

    pub(in crate::serving) fn is_spent(&self, token: &T) -> bool {
        token.usage().stage(self.window, self.now()) == Stage::Spent
    }

    /// Returns `true` if the token of a machine is here and not spent.
    pub(in crate::serving) fn is_open(&self, shown: &ShownToken) -> bool {
        self.shown(shown).is_ok_and(|entry| !self.is_spent(&entry.token()))
    }

    /// Records that an answer that began at `began` was taken whole, in memory: what is stored of its beginning counts as
    /// that.
    pub(in crate::serving) fn mark_delivered(&self, shown: &ShownToken, began: Duration) {
        let Some(entry) = self.entry(&shown.machine) else { return };
        let mut token = entry.token();
        if token.sha256() == shown.sha256 {
            token.usage_mut().take(began, self.now());
        }
    }

    /// The machines by name, for people.
    pub(in crate::serving) fn list(&self) -> Vec<NamedMachine> {
        let now = self.now();
        let entries = self.entries.load();
        entries.values().map(|it| it.token().listed(&it.name, self.window, now)).collect()
    }

    /// Reports that a token is used from another address than before.
    pub(in crate::serving) fn report_shared_use(&self, name: &str, address: IpAddr) {
        tracing::warn!(
            machine = name,
            %address,
            fix = "if the machine has one address, someone has copied its pointer config: remove its \
                   FirstBootMachine",
            "the token of a machine is used from another address"
        );
        self.history.note(shared_note(name, address), OffsetDateTime::now_utc());
        self.report_shared();
    }

    /// Reports all tokens that were used from several addresses, one line each.
    pub(in crate::serving) fn report_shared(&self) {
        let entries = self.entries.load();
        let lines = entries.values().filter_map(|entry| {
            let token = entry.token();
            let addresses = token.usage().addresses();
            let is_shared = addresses.len() > 1 && !token.is_revoked();
            is_shared.then(|| shared_line(&entry.name, addresses))
        });
        let lines: Vec<_> = lines.collect();
        let Reporting { metrics, status } = &self.reporting;
        metrics.machine_tokens_shared.set(lines.len().try_into().unwrap_or(i64::MAX));
        faults::SHARED_TOKENS.report_all(status, &lines);
    }
}

impl<T, W: Default> Entry<T, W> {
    /// Creates an entry, with its key.
    pub(in crate::serving) fn keyed(name: Arc<str>, token: T) -> (Arc<str>, Arc<Self>) {
        let entry = Self { name, token: Mutex::new(token), writing: W::default() };
        (Arc::clone(&entry.name), Arc::new(entry))
    }

    pub(in crate::serving) fn token(&self) -> MutexGuard<'_, T> {
        lock(&self.token)
    }
}

/// A machine for the access policy, with the restrictions of its object.
pub(in crate::serving) fn known_machine(
    name: &Arc<str>,
    pool: &str,
    object: Option<&Arc<FirstBootMachine>>,
    is_revoked: bool,
) -> KnownMachine {
    KnownMachine {
        name: Arc::clone(name),
        pool: pool.to_owned(),
        networks: object.map(|it| it.spec.networks.clone()).unwrap_or_default(),
        is_revoked,
        is_missing: false,
        needs_approval: object.is_some_and(|it| it.needs_approval()),
    }
}

/// The report of a shared use in one line.
pub(in crate::serving) fn shared_note(name: &str, address: IpAddr) -> String {
    format!("machine {name}: its token is used from another address, {address}")
}

/// A token with its addresses in one line.
fn shared_line(name: &str, addresses: &BTreeSet<IpAddr>) -> String {
    let addresses: Vec<_> = addresses.iter().map(ToString::to_string).collect();
    format!("machine {name}: used from {}", addresses.join(", "))
}
