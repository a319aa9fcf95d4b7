//! Tokens of single machines, whose uses are written to the objects of a cluster.
//!
//! ```text
//!  watch ───> update ──> Entry <── begin, delivered ─── request
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
use model::access::machine::{ClusterToken, KnownMachine, MachineState, TokenInUse as _, Use};
use model::access::{KnownMachines, Refusal, TokenHash};
use model::objects::FirstBootMachines;
use telemetry::Reporting;
use telemetry::faults;
use time::OffsetDateTime;
use tokio::sync::Notify;

use super::machine::{
    Entry, MAX_TRIES, Recorded, RecordedTokens, UseStore, known_machine, shared_note,
};
use super::unsaved_uses::UnsavedUses;
use crate::source::cluster::{MachineRecords, RecordError};

/// Maximum number of revoked tokens that are remembered, so that their holders are refused for good.
const MAX_REVOKED: usize = 1_024;
/// Wait before the next attempt to write the uses that could not be written.
const RETRY: Duration = Duration::from_secs(2);

type States = BTreeMap<String, Arc<MachineState>>;

/// Tokens whose uses are written to objects.
pub(crate) type ClusterTokens = RecordedTokens<ClusterUses>;

type ClusterEntry = Entry<ClusterToken>;

/// Objects of a cluster's machines, to which uses are written.
pub(crate) struct ClusterUses {
    /// Tokens that were revoked or replaced while this process runs, the latest last.
    revoked: Mutex<VecDeque<(TokenHash, KnownMachine)>>,
    records: Arc<MachineRecords>,
    uses: UnsavedUses,
    unsaved: Notify,
}

impl ClusterUses {
    /// Creates a store whose uses are written to `records`. Those that wait for it are stored in `cache`.
    pub(crate) fn new(
        records: MachineRecords,
        cache: Option<&Path>,
        reporting: &Reporting,
    ) -> Self {
        let (revoked, unsaved) = Default::default();
        let uses = UnsavedUses::open(cache, reporting);
        Self { revoked, records: Arc::new(records), uses, unsaved }
    }
}

impl UseStore for ClusterUses {
    type Token = ClusterToken;

    /// A use that cannot be written to the object now is on disk when this returns, and is written later. So is the end
    /// of a token, for other servers and for clocks that are set back.
    async fn record(
        tokens: &ClusterTokens,
        entry: &ClusterEntry,
        mut token: ClusterToken,
        used: Use,
    ) -> Recorded {
        let change = token.usage.add(used);
        let add = |known: &mut ClusterToken| {
            // The token can have been replaced or armed again meanwhile.
            if known.is_same_arming(&token) {
                known.usage.add(used);
            }
        };
        if !token.is_due(tokens.window) {
            add(&mut entry.token());
            return Recorded::Done(change);
        }
        let since = match used {
            Use::Spend(now) => now,
            Use::Begin(_, now) => match tokens.write(entry, &token, add).await {
                Ok(()) => return Recorded::Done(change),
                Err(RecordError::Superseded) => return Recorded::Superseded,
                Err(RecordError::Gone) => return Recorded::Refused(Refusal::Revoked),
                // An earlier process may have used the token.
                Err(RecordError::Unreachable(_)) if !tokens.store.uses.is_unread() => now,
                Err(_) => return Recorded::Refused(Refusal::NotStored),
            },
        };
        if tokens.record_later(entry, &token, used, since.wall).await {
            Recorded::Done(change)
        } else {
            Recorded::Superseded
        }
    }
}

impl ClusterTokens {
    /// Uses these objects from this call on, and returns their tokens.
    pub(in crate::serving) fn update(
        &self,
        machines: &FirstBootMachines,
        states: &States,
    ) -> KnownMachines {
        let before = self.entries.load_full();
        let (mut entries, mut restored) = (BTreeMap::new(), Vec::new());
        for (name, state) in states {
            let (key, entry) = if let Some(entry) = before.get(&**name) {
                self.see(entry, state);
                (Arc::clone(&entry.name), Arc::clone(entry))
            } else {
                let Some(used) = ClusterToken::of(state) else { continue };
                Entry::keyed(name.as_str().into(), used)
            };
            if self.restore(&entry) {
                restored.push(Arc::clone(&key));
            }
            entries.insert(key, entry);
        }
        for (name, entry) in before.iter().filter(|(name, _)| !entries.contains_key(*name)) {
            self.revoke(name, &entry.token());
        }
        self.entries.store(Arc::new(entries));
        // Not earlier: if the file of uses is written in between, it must have these.
        for name in &restored {
            self.store.uses.discard(name);
        }
        self.report_shared();
        if !restored.is_empty() || self.store.uses.is_unread() {
            self.store.unsaved.notify_one();
        }
        self.known(machines)
    }

    /// Takes in the use of a token that an earlier process left to be written. Returns `true` if there is one.
    fn restore(&self, entry: &ClusterEntry) -> bool {
        let mut known = entry.token();
        let Some(left) = self.store.uses.of(&entry.name, &known.state) else { return false };
        known.restore(&left);
        true
    }

    /// The object of a machine with a token.
    pub(super) fn approved_object(
        &self,
        name: &str,
        machines: &FirstBootMachines,
    ) -> ApprovedObject {
        let (Some(entry), Some(machine)) = (self.entry(name), machines.get(name)) else {
            return ApprovedObject::Unknown;
        };
        let known = entry.token();
        let MachineState { uid, status, .. } = &*known.state;
        let of_status = |status| ApprovedObject::in_cluster(machine, uid, status);
        status.as_ref().map_or(ApprovedObject::Unknown, of_status)
    }

    /// Approvals with what they are for, as the controller has recorded them.
    pub(super) fn recorded_approvals(&self) -> BoundApprovals {
        let entries = self.entries.load();
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

    fn revoke(&self, name: &Arc<str>, known: &ClusterToken) {
        let mut revoked = lock(&self.store.revoked);
        let machine = known_machine(name, &known.pool, None, true);
        revoked.retain(|(hash, _)| *hash != known.sha256);
        revoked.push_back((known.sha256, machine));
        let over = revoked.len().saturating_sub(MAX_REVOKED);
        revoked.drain(..over);
    }

    /// The tokens by their hashes.
    fn known(&self, machines: &FirstBootMachines) -> KnownMachines {
        let mut known: Vec<_> = lock(&self.store.revoked).iter().cloned().collect();
        for (name, entry) in self.entries.load().iter() {
            let object = machines.get(&**name);
            let used = entry.token();
            // Without a readable object its restrictions are unknown. With another pool the token is about to be replaced.
            let is_revoked =
                used.is_revoked() || object.is_none_or(|object| object.spec.pool != used.pool);
            known.push((used.sha256, known_machine(name, &used.pool, object, is_revoked)));
        }
        known.into_iter().collect()
    }

    /// Has a use written later. It is on disk when this returns, `false` if `token` was replaced or armed again meanwhile.
    async fn record_later(
        &self,
        entry: &ClusterEntry,
        token: &ClusterToken,
        used: Use,
        since: OffsetDateTime,
    ) -> bool {
        let is_changed = {
            let mut known = entry.token();
            if !known.is_same_arming(token) {
                return false;
            }
            let before = known.unsaved_use(self.window);
            known.usage.add(used);
            known.unsaved.get_or_insert(since);
            known.unsaved_use(self.window) != before
        };
        if is_changed {
            self.store_uses().await;
        }
        self.store.unsaved.notify_one();
        true
    }

    /// Stores the uses that wait to be written.
    async fn store_uses(&self) {
        let use_of = |(name, entry): (&Arc<str>, &Arc<ClusterEntry>)| {
            Some((name.to_string(), entry.token().unsaved_use(self.window)?))
        };
        let waiting = || self.entries.load().iter().filter_map(use_of).collect();
        self.store.uses.store(waiting, &self.reporting).await;
    }

    /// Writes a use to the status of the machine's object, and then changes the entry. After a conflict the object is read
    /// again.
    async fn write(
        &self,
        entry: &ClusterEntry,
        next: &ClusterToken,
        change: impl FnOnce(&mut ClusterToken),
    ) -> Result<(), RecordError> {
        let Some(recorded) = next.usage.record(self.window) else {
            change(&mut entry.token());
            return Ok(());
        };
        let (name, ClusterUses { records, uses, unsaved, .. }) = (&*entry.name, &self.store);
        let status = &self.reporting.status;
        let mut result = records.write(name, &next.state, &recorded).await;
        let is_written = result.is_ok();
        if let Err(RecordError::Superseded) = result {
            result = records.read(name).await;
        }
        match &result {
            Err(RecordError::Unreachable(reason)) => {
                faults::USE_UNRECORDED.report(status, Some(reason));
            }
            Err(RecordError::Refused(reason)) => {
                faults::USE_REFUSED.of(name).report(status, Some(reason));
            }
            Ok(_) if is_written => {
                if uses.reached() {
                    unsaved.notify_one();
                }
                faults::USE_UNRECORDED.report(status, None);
                self.report_added(name, next, &recorded.addresses);
                change(&mut entry.token());
            }
            _ => {}
        }
        self.see(entry, &Arc::new(result?));
        if is_written { Ok(()) } else { Err(RecordError::Superseded) }
    }

    /// Publishes an Event for each address that a write has added to those before.
    fn report_added(&self, name: &str, next: &ClusterToken, addresses: &BTreeSet<IpAddr>) {
        if addresses.len() < 2 {
            return;
        }
        for address in addresses.iter().filter(|address| !next.was_recorded(address)) {
            self.warn(name, next, "token-used-elsewhere", shared_note(name, *address));
        }
    }

    /// Publishes an Event, without a wait for it: a machine may wait for its answer.
    fn warn(&self, name: &str, known: &ClusterToken, reason: &'static str, note: String) {
        let (records, name) = (Arc::clone(&self.store.records), name.to_owned());
        let uid = known.state.uid.clone();
        tokio::spawn(async move { records.warn(&name, &uid, reason, &note).await });
    }

    /// Writes the uses that could not be written at their time, forever.
    pub(crate) async fn flush(self: Arc<Self>) {
        if !self.store.uses.restored().is_empty() {
            self.store.unsaved.notify_one();
        }
        loop {
            self.store.unsaved.notified().await;
            while !self.save_all().await {
                tokio::time::sleep(RETRY).await;
            }
        }
    }

    /// Writes all uses that wait. Returns `true` if none is left.
    async fn save_all(&self) -> bool {
        let entries = self.entries.load_full();
        let mut is_done = true;
        for entry in entries.values().filter(|entry| entry.token().unsaved.is_some()) {
            let _writing = entry.writing.lock().await;
            match self.save(entry).await {
                Ok(()) => {}
                // The others would wait as long.
                Err(RecordError::Unreachable(_)) => return false,
                Err(_) => is_done = false,
            }
        }
        is_done &= self.compare_restored().await;
        self.store_uses().await;
        is_done
    }

    /// Compares the uses of an earlier process with the objects. Returns `true` if none is left to be taken in.
    async fn compare_restored(&self) -> bool {
        let entries = self.entries.load_full();
        let first = entries.keys().next().filter(|_| self.store.uses.is_unread());
        let names = self.store.uses.restored().into_iter().chain(first.map(ToString::to_string));
        for name in names {
            let state = match self.store.records.read(&name).await {
                Ok(state) => Some(state),
                Err(RecordError::Gone) => None,
                Err(_) => return false,
            };
            let _ = self.store.uses.reached();
            self.store.uses.compare(&name, state.as_ref());
        }
        self.store.uses.restored().is_empty()
    }

    /// Writes a use that waits.
    async fn save(&self, entry: &ClusterEntry) -> Result<(), RecordError> {
        for _ in 0..MAX_TRIES {
            let next = entry.token().clone();
            if next.unsaved.is_none() {
                return Ok(());
            }
            match self.write(entry, &next, |known| known.unsaved = None).await {
                Err(RecordError::Superseded) => {}
                Err(RecordError::Gone) => {
                    entry.token().unsaved = None;
                    return Ok(());
                }
                result => return result,
            }
        }
        Err(RecordError::Superseded)
    }

    /// Compares a use that waits since `since` with what is known once other servers' record is seen.
    fn compare(
        &self,
        name: &Arc<str>,
        waiting: &ClusterToken,
        known: &ClusterToken,
        since: OffsetDateTime,
    ) {
        let own = waiting.usage.addresses();
        let is_shared = known.usage.addresses().len() > 1;
        if let Some(address) = own.first().filter(|it| own.len() == 1 && !known.was_recorded(it))
            && is_shared
        {
            self.report_shared_use(name, *address);
        }
        if known.others_ended_before(since, self.window) && !waiting.is_spent() {
            let note = format!(
                "machine {name}: its token was used again after it was spent, while the API server was unreachable"
            );
            tracing::warn!(
                machine = %name,
                fix = "if it was not armed again, someone has copied its pointer config: remove \
                       its FirstBootMachine",
                "the token of a machine was used after it was spent, while the API server was unreachable"
            );
            self.history.note(note.clone(), OffsetDateTime::now_utc());
            self.warn(name, known, "token-used-again", note);
        }
    }
}

#[cfg(test)]
mod tests {
    use model::access::machine::{MachineStatus, RecordedUse, TokenState, Usage, Window};
    use model::access::{ShownToken, Token};
    use model::history::History;
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
        let store = ClusterUses::new(records, cache, &reporting);
        ClusterTokens::new(store, Window(WINDOW), reporting, History::default())
    }

    async fn used_without_the_api_server() -> ClusterTokens {
        let tokens = without_the_api_server(None);
        tokens.update(&FirstBootMachines::new(), &state(None));
        tokens.begin(&shown(), [192, 0, 2, 1].into()).await.unwrap();
        tokens
    }

    fn reports(tokens: &ClusterTokens) -> usize {
        let (changes, _) = tokens.history.changes();
        changes.iter().filter(|it| it.what.contains("again after it was spent")).count()
    }

    #[tokio::test]
    async fn a_use_after_the_end_is_reported_once_also_if_the_watch_is_first() {
        let tokens = used_without_the_api_server().await;
        let ended = state(Some(spent(Duration::from_secs(60))));
        tokens.update(&FirstBootMachines::new(), &ended);
        assert_eq!(reports(&tokens), 1);
        assert_eq!(tokens.check(&shown()).await, Err(Refusal::Spent));
        // Read again after a conflict, it is another value.
        tokens.update(&FirstBootMachines::new(), &state(Some(spent(Duration::from_secs(60)))));
        assert_eq!(reports(&tokens), 1);
    }

    #[tokio::test]
    async fn a_use_within_the_window_is_no_use_after_the_end() {
        let tokens = used_without_the_api_server().await;
        let last = OffsetDateTime::now_utc();
        let recorded = RecordedUse { first: last, last, spent: false, ..spent(Duration::ZERO) };
        tokens.update(&FirstBootMachines::new(), &state(Some(recorded)));
        assert_eq!(reports(&tokens), 0);
    }

    #[tokio::test]
    async fn a_use_that_waits_for_the_api_server_is_known_to_the_next_process() {
        let directory = tempfile::tempdir().unwrap();
        let open = || without_the_api_server(Some(&directory.path().join("cache")));
        let (tokens, address) = (open(), [192, 0, 2, 1].into());
        tokens.update(&FirstBootMachines::new(), &state(None));
        tokens.begin(&shown(), address).await.unwrap();
        // Without a chance to tell.
        let next = open();
        next.update(&FirstBootMachines::new(), &state(None));
        let usage = next.entry("n").unwrap().token().usage.clone();
        assert!(usage.taken().is_some() && usage.addresses().contains(&address), "{usage:?}");
        let entry = next.entry("n").unwrap();
        let (known, spend) = (entry.token().clone(), Use::Spend(next.now()));
        ClusterUses::record(&next, &entry, known, spend).await;
        assert_eq!(next.check(&shown()).await, Err(Refusal::Spent));
        // It waits for its object, which is not there at first.
        let third = open();
        third.update(&FirstBootMachines::new(), &States::new());
        assert_eq!(third.store.uses.restored(), ["n"]);
        third.store_uses().await;
        third.update(&FirstBootMachines::new(), &state(None));
        assert_eq!(third.check(&shown()).await, Err(Refusal::Spent));
        // Armed again meanwhile, the token is open.
        let mut armed = MachineState::clone(&state(None)["n"]);
        armed.status.as_mut().unwrap().armings = 2;
        let fourth = open();
        fourth
            .update(&FirstBootMachines::new(), &[("n".to_owned(), Arc::new(armed.clone()))].into());
        assert_eq!(fourth.check(&shown()).await, Ok(()));
        assert_eq!(fourth.store.uses.restored(), ["n"], "the object can be an old one");
        fourth.store.uses.compare("n", Some(&armed));
        assert!(fourth.store.uses.restored().is_empty());
    }

    #[tokio::test]
    async fn a_use_of_an_arming_is_none_of_the_next_one_that_came_while_it_was_recorded() {
        let tokens = without_the_api_server(None);
        tokens.update(&FirstBootMachines::new(), &state(None));
        let entry = tokens.entry("n").unwrap();
        let before = entry.token().clone();
        let mut armed = MachineState::clone(&state(None)["n"]);
        armed.status.as_mut().unwrap().armings = 2;
        tokens.update(&FirstBootMachines::new(), &[("n".to_owned(), Arc::new(armed))].into());
        let now = tokens.now();
        for used in [Use::Begin([192, 0, 2, 1].into(), now), Use::Spend(now)] {
            let mut known = before.clone();
            known.usage.begin([192, 0, 2, 1].into(), now);
            let recorded = ClusterUses::record(&tokens, &entry, known, used).await;
            assert!(matches!(recorded, Recorded::Superseded), "{recorded:?}");
        }
        let known = entry.token().clone();
        assert_eq!((known.usage, known.unsaved), (Usage::default(), None));
        tokens.begin(&shown(), [192, 0, 2, 1].into()).await.unwrap();
        assert!(entry.token().unsaved.is_some(), "the request after it decides by the new arming");
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
        let machines: FirstBootMachines = [("n".to_owned(), object)].into();
        let token = Token::new([1; 32]);
        let judge = |known: &KnownMachines| {
            let (machine, _) =
                known.find(model::access::Credential::Bearer(token.as_str())).unwrap();
            machine.judge("worker", [192, 0, 2, 1].into(), true)
        };
        assert_eq!(judge(&tokens.update(&machines, &state(None))), Ok(()));
        let known = tokens.update(&machines, &[("n".to_owned(), Arc::new(again))].into());
        assert_eq!(judge(&known), Err(Refusal::Revoked));
        assert_eq!(tokens.list()[0].token, TokenState::Revoked);
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
            tokens.update(&FirstBootMachines::new(), &state(None));
            let reported = tokens.reporting.status.degraded.lines().join("\n");
            assert!(reported.contains("machine-uses.json"), "{reported}");
            let begun = tokens.begin(&shown(), [192, 0, 2, 1].into()).await;
            assert_eq!(begun, Err(Refusal::NotStored), "{text:?}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
            assert!(tokens.store.uses.reached());
            tokens.begin(&shown(), [192, 0, 2, 1].into()).await.unwrap();
            assert!(std::fs::read_to_string(&path).unwrap().contains("192.0.2.1"), "{text:?}");
        }
    }
}
