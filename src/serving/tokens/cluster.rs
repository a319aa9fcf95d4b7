//! Tokens of single machines in a cluster, while they are used.
//!
//! ```text
//!  watch ───> update ──> Entry <── begin, take whole ── request
//!                          │
//!  status of the object <──┴── a use that others must know: written before its answer
//! ```
//!
//! Servers agree through the status of the machine's object. A use is written with the version that was read as its
//! precondition: after a conflict the object is read again, with what other servers have recorded meanwhile. While the
//! API server is unreachable, a use is kept here and on disk, and written later.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::sync::lock;
use model::access::approval::{ApprovedObject, BoundApprovals, Subject};
use model::access::machine::{
    ClockReading, KnownMachine, MachineState, Usage, UsageChange, Window,
};
use model::access::{KnownMachines, Refusal, ShownToken, TokenHash};
use model::objects::FirstBootMachine;
use status::overview::{History, NamedMachine};
use telemetry::Reporting;
use telemetry::faults;
use time::OffsetDateTime;
use tokio::sync::Notify;

use super::cluster_use::ClusterUse;
use super::token_set::{Entry, TokenSet, UsedToken, known_machine, shared_note};
use super::unsaved_uses::{UnsavedUses, Uses};
use crate::source::cluster::{MachineRecords, RecordError};

/// Maximum number of conflicts with other servers within a request.
const MAX_TRIES: usize = 8;
/// Maximum number of revoked tokens that are remembered, so that their holders are refused for good.
const MAX_REVOKED: usize = 1_024;
/// Wait before the next attempt to write the uses that could not be written.
const RETRY: Duration = Duration::from_secs(2);

type Machines = BTreeMap<String, Arc<FirstBootMachine>>;
type States = BTreeMap<String, Arc<MachineState>>;

type ClusterEntry = Entry<ClusterUse, tokio::sync::Mutex<()>>;

/// Tokens of a cluster's machines, whose uses are written to their objects.
pub(crate) struct ClusterTokens {
    pub(in crate::serving) set: TokenSet<ClusterUse, tokio::sync::Mutex<()>>,
    /// Tokens that were revoked or replaced while this process runs, the latest last.
    revoked: Mutex<VecDeque<(TokenHash, KnownMachine)>>,
    records: Arc<MachineRecords>,
    uses: UnsavedUses,
    unsaved: Notify,
}

impl UsedToken for ClusterUse {
    fn usage(&self) -> &Usage {
        &self.usage
    }

    fn usage_mut(&mut self) -> &mut Usage {
        &mut self.usage
    }

    fn sha256(&self) -> TokenHash {
        self.token
    }

    /// A revoked token has no entry.
    fn is_revoked(&self) -> bool {
        false
    }

    fn listed(&self, name: &str, window: Window, now: ClockReading) -> NamedMachine {
        NamedMachine::used(name, &self.pool, &self.usage, (window, now))
    }
}

/// Result of an attempt to write a use.
enum RecordOutcome {
    /// It is written, or was before.
    Done(Option<Arc<MachineState>>),
    /// There is something newer to decide by.
    Again,
    /// The API server is unreachable.
    Later,
}

impl ClusterTokens {
    /// Creates an empty set, whose uses are written to `records`. Those that wait for it are stored in `cache`.
    pub(crate) fn new(
        records: MachineRecords,
        cache: Option<&Path>,
        window: Window,
        reporting: Reporting,
        history: History,
    ) -> Self {
        Self {
            uses: UnsavedUses::open(cache, &reporting),
            set: TokenSet::new(window, reporting, history),
            revoked: Mutex::default(),
            records: Arc::new(records),
            unsaved: Notify::new(),
        }
    }

    /// Uses these objects from this call on, and returns their tokens.
    pub(in crate::serving) fn update(&self, machines: &Machines, states: &States) -> KnownMachines {
        let before = self.set.entries.load_full();
        let mut entries = BTreeMap::new();
        for (name, state) in states {
            let (key, entry) = if let Some(entry) = before.get(&**name) {
                self.see(entry, state);
                (Arc::clone(&entry.name), Arc::clone(entry))
            } else {
                let Some(used) = ClusterUse::of(state) else { continue };
                Entry::keyed(name.as_str().into(), used)
            };
            self.restore(&entry);
            entries.insert(key, entry);
        }
        for (name, entry) in before.iter().filter(|(name, _)| !entries.contains_key(*name)) {
            self.revoke(name, &entry.token());
        }
        self.set.entries.store(Arc::new(entries));
        self.set.report_shared();
        if self.uses.is_unread() {
            self.unsaved.notify_one();
        }
        self.known(machines)
    }

    /// Takes in the use of a token that an earlier process left to be written.
    fn restore(&self, entry: &ClusterEntry) {
        let mut known = entry.token();
        let Some(left) = self.uses.of(&entry.name, &known.state) else { return };
        known.restore(&left);
        drop(known);
        self.uses.forget(&entry.name);
        self.unsaved.notify_one();
    }

    /// The object of a machine with a token.
    pub(super) fn approved_object(&self, name: &str, machines: &Machines) -> ApprovedObject {
        let (Some(entry), Some(machine)) = (self.set.entry(name), machines.get(name)) else {
            return ApprovedObject::Unknown;
        };
        let known = entry.token();
        let MachineState { uid, status, .. } = &*known.state;
        let of_status = |status| ApprovedObject::in_cluster(machine, uid, status);
        status.as_ref().map_or(ApprovedObject::Unknown, of_status)
    }

    /// Approvals with what they are for, as the controller has recorded them.
    pub(super) fn recorded_approvals(&self) -> BoundApprovals {
        let entries = self.set.entries.load();
        let recorded = entries.iter().filter_map(|(name, entry)| {
            let approval = entry.token().state.status.as_ref()?.approval.clone()?;
            Some((Subject::Named(Arc::clone(name)), approval))
        });
        recorded.collect()
    }

    /// Takes in a state of a machine's object, which may come from the watch before a use that waits is written.
    fn see(&self, entry: &ClusterEntry, state: &Arc<MachineState>) {
        let mut known = entry.token();
        let waiting = known.unsaved.map(|since| (since, known.clone()));
        if let Some(replaced) = known.see(state) {
            self.revoke(&entry.name, &replaced);
        }
        // If the token was armed again, its earlier use no longer waits.
        let now = known.unsaved.map(|_| known.clone());
        drop(known);
        if let (Some((since, waiting)), Some(known)) = (waiting, now) {
            self.compare(&entry.name, &waiting, &known, since);
        }
    }

    fn revoke(&self, name: &Arc<str>, known: &ClusterUse) {
        let mut revoked = lock(&self.revoked);
        let machine = known_machine(name, &known.pool, None, true);
        revoked.retain(|(hash, _)| *hash != known.token);
        revoked.push_back((known.token, machine));
        let over = revoked.len().saturating_sub(MAX_REVOKED);
        revoked.drain(..over);
    }

    /// The tokens by their hashes.
    fn known(&self, machines: &Machines) -> KnownMachines {
        let mut known: Vec<_> = lock(&self.revoked).iter().cloned().collect();
        for (name, entry) in self.set.entries.load().iter() {
            let object = machines.get(&**name);
            let used = entry.token();
            // Without a readable object its restrictions are unknown. With another pool the token is about to be replaced.
            let is_revoked =
                used.is_gone() || object.is_none_or(|object| object.spec.pool != used.pool);
            known.push((used.token, known_machine(name, &used.pool, object, is_revoked)));
        }
        known.into_iter().collect()
    }

    /// Checks that a machine's token is open. A token that has just been found spent is recorded as spent.
    ///
    /// # Errors
    /// The token is spent, or gone.
    pub(crate) async fn check(&self, shown: &ShownToken) -> Result<(), Refusal> {
        let entry = self.set.shown(shown)?;
        if !self.set.is_spent(&entry.token()) {
            return Ok(());
        }
        let _writing = entry.writing.lock().await;
        if entry.token().token == shown.sha256 {
            self.spend(&entry).await;
        }
        Err(Refusal::Spent)
    }

    /// Has it recorded that a token is spent, while the lock for writing is held: for other servers, and for clocks that
    /// are set back.
    async fn spend(&self, entry: &ClusterEntry) {
        if entry.token().is_spent() {
            return;
        }
        let spend = |known: &mut ClusterUse| {
            known.spend();
            known.record_later(OffsetDateTime::now_utc());
        };
        self.record_later(entry, spend).await;
    }

    /// Has a use written later. It is on disk when this returns.
    async fn record_later(&self, entry: &ClusterEntry, change: impl FnOnce(&mut ClusterUse)) {
        let is_changed = {
            let mut known = entry.token();
            let before = known.unsaved_use(self.set.window);
            change(&mut known);
            known.unsaved_use(self.set.window) != before
        };
        if is_changed {
            self.store_uses().await;
        }
        self.unsaved.notify_one();
    }

    /// Stores the uses that wait to be written.
    async fn store_uses(&self) {
        self.uses.store(|| self.waiting_uses(), &self.set.reporting).await;
    }

    fn waiting_uses(&self) -> Uses {
        let entries = self.set.entries.load();
        let waiting = entries.iter().filter_map(|(name, entry)| {
            Some((name.to_string(), entry.token().unsaved_use(self.set.window)?))
        });
        waiting.collect()
    }

    /// Records that an answer begins for `address`, before it returns the time since the start of the process.
    ///
    /// # Errors
    /// The token is spent or gone meanwhile, or the API server refuses the record.
    pub(crate) async fn begin(
        &self,
        shown: &ShownToken,
        address: IpAddr,
    ) -> Result<Duration, Refusal> {
        let entry = self.set.shown(shown)?;
        let _writing = entry.writing.lock().await;
        for _ in 0..MAX_TRIES {
            let (now, mut next) = (self.set.now(), entry.token().clone());
            if next.is_gone() || next.token != shown.sha256 {
                return Err(Refusal::Revoked);
            }
            if self.set.is_spent(&next) {
                self.spend(&entry).await;
                return Err(Refusal::Spent);
            }
            let UsageChange { is_newly_shared, .. } = next.usage.begin(address, now);
            let written = if next.is_due(self.set.window) {
                self.write(&entry, &next).await?
            } else {
                RecordOutcome::Done(None)
            };
            // An answer can have been taken whole while this was written, so the copy is not put back.
            match written {
                RecordOutcome::Again => continue,
                // An earlier process may have used the token.
                RecordOutcome::Later if self.uses.is_unread() => return Err(Refusal::NotStored),
                RecordOutcome::Later => {
                    let begin = |known: &mut ClusterUse| {
                        known.usage.begin(address, now);
                        known.record_later(now.wall);
                    };
                    self.record_later(&entry, begin).await;
                }
                RecordOutcome::Done(state) => {
                    entry.token().usage.begin(address, now);
                    if let Some(state) = state {
                        self.see(&entry, &state);
                    }
                }
            }
            if is_newly_shared {
                self.set.report_shared_use(&shown.machine, address);
            }
            return Ok(now.up);
        }
        Err(Refusal::NotStored)
    }

    /// Writes a use to the status of the machine's object.
    async fn write(
        &self,
        entry: &ClusterEntry,
        next: &ClusterUse,
    ) -> Result<RecordOutcome, Refusal> {
        let Some(recorded) = next.usage.record(self.set.window) else {
            return Ok(RecordOutcome::Done(None));
        };
        let name = &*entry.name;
        let mut result = self.records.write(name, &next.state, &recorded).await;
        let is_written = result.is_ok();
        if let Err(RecordError::Superseded) = result {
            result = self.records.read(name).await;
        }
        match result {
            Ok(state) if is_written => {
                if self.uses.reached() {
                    self.unsaved.notify_one();
                }
                self.report_unrecorded(None);
                self.report_added(name, next, &recorded.addresses);
                Ok(RecordOutcome::Done(Some(Arc::new(state))))
            }
            Ok(state) => {
                self.see(entry, &Arc::new(state));
                Ok(RecordOutcome::Again)
            }
            Err(RecordError::Superseded) => Ok(RecordOutcome::Again),
            Err(RecordError::Gone) => Err(Refusal::Revoked),
            Err(RecordError::Unreachable(reason)) => {
                self.report_unrecorded(Some(&reason));
                Ok(RecordOutcome::Later)
            }
            Err(RecordError::Refused(reason)) => {
                self.report_refused(name, &reason);
                Err(Refusal::NotStored)
            }
        }
    }

    fn report_unrecorded(&self, reason: Option<&str>) {
        faults::USE_UNRECORDED.report(&self.set.reporting.status, reason);
    }

    fn report_refused(&self, name: &str, reason: &str) {
        faults::USE_REFUSED.of(name).report(&self.set.reporting.status, Some(reason));
    }

    /// Publishes an Event for each address that a write has added to those before.
    fn report_added(&self, name: &str, next: &ClusterUse, addresses: &BTreeSet<IpAddr>) {
        if addresses.len() < 2 {
            return;
        }
        for address in addresses.iter().filter(|address| !next.was_recorded(address)) {
            self.warn(name, next, "token-used-elsewhere", shared_note(name, *address));
        }
    }

    /// Publishes an Event, without a wait for it: a machine may wait for its answer.
    fn warn(&self, name: &str, known: &ClusterUse, reason: &'static str, note: String) {
        let (records, name) = (Arc::clone(&self.records), name.to_owned());
        let uid = known.state.uid.clone();
        tokio::spawn(async move { records.warn(&name, &uid, reason, &note).await });
    }

    /// Writes the uses that could not be written at their time, forever.
    pub(crate) async fn flush(self: Arc<Self>) {
        if !self.uses.restored().is_empty() {
            self.unsaved.notify_one();
        }
        loop {
            self.unsaved.notified().await;
            while !self.save_all().await {
                tokio::time::sleep(RETRY).await;
            }
        }
    }

    /// Writes all uses that wait. Returns `true` if none is left.
    async fn save_all(&self) -> bool {
        let entries = self.set.entries.load_full();
        let mut is_done = true;
        for entry in entries.values().filter(|entry| entry.token().unsaved.is_some()) {
            let _writing = entry.writing.lock().await;
            match self.save(entry).await {
                RecordOutcome::Done(_) => {}
                RecordOutcome::Again => is_done = false,
                // The others would wait as long.
                RecordOutcome::Later => return false,
            }
        }
        is_done &= self.compare_restored().await;
        self.store_uses().await;
        is_done
    }

    /// Compares the uses of an earlier process with the objects. Returns `true` if none is left to be taken in.
    async fn compare_restored(&self) -> bool {
        let entries = self.set.entries.load_full();
        let first = entries.keys().next().filter(|_| self.uses.is_unread());
        let names = self.uses.restored().into_iter().chain(first.map(ToString::to_string));
        for name in names {
            let state = match self.records.read(&name).await {
                Ok(state) => Some(state),
                Err(RecordError::Gone) => None,
                Err(_) => return false,
            };
            let _ = self.uses.reached();
            self.uses.compare(&name, state.as_ref());
        }
        self.uses.restored().is_empty()
    }

    /// Writes a use that waits.
    async fn save(&self, entry: &ClusterEntry) -> RecordOutcome {
        for _ in 0..MAX_TRIES {
            let next = entry.token().clone();
            if next.unsaved.is_none() {
                return RecordOutcome::Done(None);
            }
            match self.write(entry, &next).await {
                Ok(RecordOutcome::Done(state)) => {
                    entry.token().unsaved = None;
                    if let Some(state) = state {
                        self.see(entry, &state);
                    }
                    return RecordOutcome::Done(None);
                }
                Ok(RecordOutcome::Again) => {}
                Ok(RecordOutcome::Later) => return RecordOutcome::Later,
                // Its object is gone.
                Err(Refusal::Revoked) => {
                    entry.token().unsaved = None;
                    return RecordOutcome::Done(None);
                }
                Err(_) => return RecordOutcome::Again,
            }
        }
        RecordOutcome::Again
    }

    /// Compares a use that waits since `since` with what is known once other servers' record is seen.
    fn compare(
        &self,
        name: &Arc<str>,
        waiting: &ClusterUse,
        known: &ClusterUse,
        since: OffsetDateTime,
    ) {
        let own = waiting.usage.addresses();
        let is_shared = known.usage.addresses().len() > 1;
        if let Some(address) = own.first().filter(|it| own.len() == 1 && !known.was_recorded(it))
            && is_shared
        {
            self.set.report_shared_use(name, *address);
        }
        if known.others_ended_before(since, self.set.window) && !waiting.is_spent() {
            let note = format!(
                "machine {name}: its token was used again after it was spent, while the API server was unreachable"
            );
            tracing::warn!(
                machine = %name,
                fix = "if it was not armed again, someone has copied its pointer config: remove \
                       its FirstBootMachine",
                "the token of a machine was used after it was spent, while the API server was unreachable"
            );
            self.set.history.note(note.clone(), OffsetDateTime::now_utc());
            self.warn(name, known, "token-used-again", note);
        }
    }
}

#[cfg(test)]
mod tests {
    use model::access::Token;
    use model::access::machine::{MachineStatus, RecordedUse};
    use telemetry::conditions::Status;

    use super::*;

    const WINDOW: Duration = Duration::from_secs(4);

    fn shown() -> ShownToken {
        ShownToken { machine: "n".into(), sha256: Token::new([1; 32]).hash() }
    }

    fn state(recorded: Option<RecordedUse>) -> States {
        let token = Some(Token::new([1; 32]).hash());
        let pool = "worker".to_owned();
        let state = MachineState {
            uid: "u".to_owned(),
            resource_version: "1".to_owned(),
            is_deleted: false,
            status: Some(MachineStatus {
                pool,
                token,
                armings: 1,
                recorded,
                ..MachineStatus::default()
            }),
        };
        [("n".to_owned(), Arc::new(state))].into()
    }

    /// A use at another server that ended `ago`.
    fn spent(ago: Duration) -> RecordedUse {
        let last = OffsetDateTime::now_utc() - WINDOW - ago;
        let addresses = [IpAddr::from([192, 0, 2, 1])].into();
        RecordedUse { first: last, last, until: None, spent: true, addresses }
    }

    fn without_the_api_server(cache: Option<&Path>) -> ClusterTokens {
        let records = MachineRecords::unreachable();
        let reporting = Reporting { metrics: Arc::default(), status: Status::default() };
        ClusterTokens::new(records, cache, Window(WINDOW), reporting, History::default())
    }

    async fn used_without_the_api_server() -> ClusterTokens {
        let tokens = without_the_api_server(None);
        tokens.update(&Machines::new(), &state(None));
        tokens.begin(&shown(), [192, 0, 2, 1].into()).await.unwrap();
        tokens
    }

    fn reports(tokens: &ClusterTokens) -> usize {
        let (changes, _) = tokens.set.history.changes();
        changes.iter().filter(|it| it.what.contains("again after it was spent")).count()
    }

    #[tokio::test]
    async fn a_use_after_the_end_is_reported_once_also_if_the_watch_is_first() {
        let tokens = used_without_the_api_server().await;
        let ended = state(Some(spent(Duration::from_secs(60))));
        tokens.update(&Machines::new(), &ended);
        assert_eq!(reports(&tokens), 1);
        assert_eq!(tokens.check(&shown()).await, Err(Refusal::Spent));
        // Read again after a conflict, it is another value.
        tokens.update(&Machines::new(), &state(Some(spent(Duration::from_secs(60)))));
        assert_eq!(reports(&tokens), 1);
    }

    #[tokio::test]
    async fn a_use_within_the_window_is_no_use_after_the_end() {
        let tokens = used_without_the_api_server().await;
        let last = OffsetDateTime::now_utc();
        let recorded = RecordedUse { first: last, last, spent: false, ..spent(Duration::ZERO) };
        tokens.update(&Machines::new(), &state(Some(recorded)));
        assert_eq!(reports(&tokens), 0);
    }

    #[tokio::test]
    async fn a_use_that_waits_for_the_api_server_is_known_to_the_next_process() {
        let directory = tempfile::tempdir().unwrap();
        let open = || without_the_api_server(Some(&directory.path().join("cache")));
        let (tokens, address) = (open(), [192, 0, 2, 1].into());
        tokens.update(&Machines::new(), &state(None));
        tokens.begin(&shown(), address).await.unwrap();
        // Without a chance to tell.
        let next = open();
        next.update(&Machines::new(), &state(None));
        let usage = next.set.entry("n").unwrap().token().usage.clone();
        assert!(usage.taken().is_some() && usage.addresses().contains(&address), "{usage:?}");
        next.spend(&next.set.entry("n").unwrap()).await;
        assert_eq!(next.check(&shown()).await, Err(Refusal::Spent));
        // It waits for its object, which is not there at first.
        let third = open();
        third.update(&Machines::new(), &States::new());
        assert_eq!(third.uses.restored(), ["n"]);
        third.store_uses().await;
        third.update(&Machines::new(), &state(None));
        assert_eq!(third.check(&shown()).await, Err(Refusal::Spent));
        // Armed again meanwhile, the token is open.
        let mut armed = MachineState::clone(&state(None)["n"]);
        armed.status.as_mut().unwrap().armings = 2;
        let fourth = open();
        fourth.update(&Machines::new(), &[("n".to_owned(), Arc::new(armed.clone()))].into());
        assert_eq!(fourth.check(&shown()).await, Ok(()));
        assert_eq!(fourth.uses.restored(), ["n"], "the object can be an old one");
        fourth.uses.compare("n", Some(&armed));
        assert!(fourth.uses.restored().is_empty());
    }

    #[tokio::test]
    async fn the_token_of_an_object_that_was_made_again_opens_nothing_before_the_new_one_has_a_token()
     {
        let tokens = used_without_the_api_server().await;
        let mut again = MachineState::clone(&state(None)["n"]);
        (again.uid, again.status) = ("v".to_owned(), Some(MachineStatus::default()));
        let object = model::objects::Object::from_value(serde_json::json!({
            "apiVersion": "machine-config-server.io/v1alpha1", "kind": "FirstBootMachine",
            "metadata": {"name": "n"}, "spec": {"pool": "worker"},
        }));
        let Ok(Some(model::objects::Object::FirstBootMachine(object))) = object else {
            panic!("{object:?}")
        };
        let machines: Machines = [("n".to_owned(), object)].into();
        let token = Token::new([1; 32]);
        let judge = |known: &KnownMachines| {
            let (machine, _) =
                known.find(model::access::Credential::Bearer(token.as_str())).unwrap();
            machine.judge("worker", [192, 0, 2, 1].into(), true)
        };
        assert_eq!(judge(&tokens.update(&machines, &state(None))), Ok(()));
        let known = tokens.update(&machines, &[("n".to_owned(), Arc::new(again))].into());
        assert_eq!(judge(&known), Err(Refusal::Revoked));
        let begun = tokens.begin(&shown(), [192, 0, 2, 1].into()).await;
        assert_eq!(begun, Err(Refusal::Revoked));
    }

    #[tokio::test]
    async fn while_earlier_uses_are_unknown_nothing_opens_without_the_api_server() {
        let directory = tempfile::tempdir().unwrap();
        for text in ["", "{\"n\": {", "[]"] {
            let path = directory.path().join("machine-uses.json");
            std::fs::write(&path, text).unwrap();
            let tokens = without_the_api_server(Some(directory.path()));
            tokens.update(&Machines::new(), &state(None));
            let reported = tokens.set.reporting.status.degraded.lines().join("\n");
            assert!(reported.contains("machine-uses.json"), "{reported}");
            let begun = tokens.begin(&shown(), [192, 0, 2, 1].into()).await;
            assert_eq!(begun, Err(Refusal::NotStored), "{text:?}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
            assert!(tokens.uses.reached());
            tokens.begin(&shown(), [192, 0, 2, 1].into()).await.unwrap();
            assert!(std::fs::read_to_string(&path).unwrap().contains("192.0.2.1"), "{text:?}");
        }
    }
}
