//! Tokens of single machines while they are used.
//!
//! ```text
//!  request ──> check ──> begin ──> next ──> record ──┬─> a file of the state directory
//!           (is it spent?)  ^                 │        └─> the status of the machine's object
//!                           └── superseded ───┘
//! ```
//!
//! A use is recorded before the answer that it is about. What is recorded of an answer is enough for the next process: it
//! counts an answer that had begun as taken, so that nothing needs to be recorded when it was.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use arc_swap::ArcSwap;
use common::sync::lock;
use model::access::machine::{
    ClockReading, KnownMachine, NamedMachine, Stage, TokenInUse, UsageChange, Use, Window,
};
use model::access::{Refusal, ShownToken};
use model::history::History;
use model::objects::FirstBootMachine;
use telemetry::Reporting;
use telemetry::faults;
use time::OffsetDateTime;
use tokio::time::Instant;

/// Maximum number of conflicts with other servers within a request.
pub(super) const MAX_TRIES: usize = 8;

/// Place where the uses of tokens are recorded.
pub(crate) trait UseStore: Sized {
    type Token: TokenInUse;

    /// Records a use of a token that is known as `token`, and then adds it to the entry. The lock for writing is held.
    async fn record(
        tokens: &RecordedTokens<Self>,
        entry: &Entry<Self::Token>,
        token: Self::Token,
        used: Use,
    ) -> Recorded;
}

/// Result of an attempt to record a use.
#[derive(Debug)]
pub(crate) enum Recorded {
    /// It is recorded, or need not be.
    Done(UsageChange),
    /// There is something newer to decide by.
    Superseded,
    Refused(Refusal),
}

/// Entries by the name of the machine.
pub(in crate::serving) type Entries<T> = BTreeMap<Arc<str>, Arc<Entry<T>>>;

/// Tokens of machines, whose uses are recorded in a store.
pub(crate) struct RecordedTokens<S: UseStore> {
    pub(in crate::serving) store: S,
    pub(in crate::serving) entries: ArcSwap<Entries<S::Token>>,
    pub(in crate::serving) window: Window,
    pub(in crate::serving) reporting: Reporting,
    pub(in crate::serving) history: History,
    /// The wall clock.
    pub(in crate::serving) wall: fn() -> OffsetDateTime,
    started: Instant,
}

/// Token of one machine.
pub(crate) struct Entry<T> {
    pub(in crate::serving) name: Arc<str>,
    token: Mutex<T>,
    /// Locked while a change of the token is recorded. The token's own lock is held for moments only.
    pub(in crate::serving) writing: tokio::sync::Mutex<()>,
}

impl<S: UseStore> RecordedTokens<S> {
    /// Creates an empty set, whose uses are recorded in `store`.
    pub(crate) fn new(store: S, window: Window, reporting: Reporting, history: History) -> Self {
        let (entries, started) = (ArcSwap::default(), Instant::now());
        Self { store, entries, window, reporting, history, wall: OffsetDateTime::now_utc, started }
    }

    pub(in crate::serving) fn now(&self) -> ClockReading {
        ClockReading { wall: (self.wall)(), up: self.started.elapsed() }
    }

    pub(in crate::serving) fn entry(&self, name: &str) -> Option<Arc<Entry<S::Token>>> {
        self.entries.load().get(name).cloned()
    }

    /// The entry of the machine that a request names by its token.
    ///
    /// # Errors
    /// The machine has another token by now, or none.
    fn shown(&self, shown: &ShownToken) -> Result<Arc<Entry<S::Token>>, Refusal> {
        let entry = self.entry(&shown.machine);
        entry.filter(|entry| entry.token().sha256() == shown.sha256).ok_or(Refusal::Revoked)
    }

    fn is_spent(&self, token: &S::Token) -> bool {
        token.usage().stage(self.window, self.now()) == Stage::Spent
    }

    /// Returns `true` if the token of a machine is here and not spent.
    pub(in crate::serving) fn is_open(&self, shown: &ShownToken) -> bool {
        self.shown(shown).is_ok_and(|entry| !self.is_spent(&entry.token()))
    }

    /// Checks that a machine's token is open. A token that has just been found spent is recorded as spent.
    ///
    /// # Errors
    /// The token is spent, or gone.
    pub(crate) async fn check(&self, shown: &ShownToken) -> Result<(), Refusal> {
        let entry = self.shown(shown)?;
        if !self.is_spent(&entry.token()) {
            return Ok(());
        }
        let _writing = entry.writing.lock().await;
        let token = entry.token().clone();
        if token.sha256() == shown.sha256 && self.is_spent(&token) {
            S::record(self, &entry, token, Use::Spend(self.now())).await;
        }
        Err(Refusal::Spent)
    }

    /// Records that an answer begins for `address`, before it returns the time since the start of the process.
    ///
    /// # Errors
    /// The token is spent or gone meanwhile, or its use cannot be recorded.
    pub(crate) async fn begin(
        &self,
        shown: &ShownToken,
        address: IpAddr,
    ) -> Result<Duration, Refusal> {
        let entry = self.shown(shown)?;
        let writing = entry.writing.lock().await;
        for _ in 0..MAX_TRIES {
            let (now, token) = (self.now(), entry.token().clone());
            // Another token can have been made while this waited for the lock.
            if token.is_revoked() || token.sha256() != shown.sha256 {
                return Err(Refusal::Revoked);
            }
            let used = token.usage().next(address, self.window, now);
            match S::record(self, &entry, token, used).await {
                // It is refused anyway, and recorded at the next request where that fails now.
                _ if matches!(used, Use::Spend(_)) => return Err(Refusal::Spent),
                Recorded::Refused(refusal) => return Err(refusal),
                Recorded::Superseded => {}
                Recorded::Done(UsageChange { is_newly_shared, .. }) => {
                    drop(writing);
                    if is_newly_shared {
                        self.report_shared_use(&shown.machine, address);
                    }
                    return Ok(now.up);
                }
            }
        }
        Err(Refusal::NotStored)
    }

    /// Records that an answer that began at `began` was delivered in full, in memory: what is stored of its beginning counts as
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
        entries
            .values()
            .map(|it| NamedMachine::of(&it.name, &*it.token(), self.window, now))
            .collect()
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

impl<T> Entry<T> {
    /// Creates an entry, with its key.
    pub(in crate::serving) fn keyed(name: Arc<str>, token: T) -> (Arc<str>, Arc<Self>) {
        let entry = Self { name, token: Mutex::new(token), writing: tokio::sync::Mutex::default() };
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
