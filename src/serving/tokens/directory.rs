//! Tokens of single machines, whose uses are stored in a state directory.

use std::sync::Arc;

use model::access::approval::ApprovedObject;
use model::access::machine::{TokenInUse as _, Use};
use model::access::{DirectoryToken, Refusal};
use model::objects::FirstBootMachines;
use telemetry::faults;
use tokio::task::block_in_place;

use super::machine::{Entries, Entry, Recorded, RecordedTokens, UseStore};
use crate::store::state_directory::StateDirectory;

/// Tokens whose uses are stored in files: to check one and to begin an answer can block.
pub(crate) type DirectoryTokens = RecordedTokens<StateDirectory>;

impl UseStore for StateDirectory {
    type Token = DirectoryToken;

    /// A change is on disk before it returns. It blocks.
    async fn record(
        tokens: &DirectoryTokens,
        entry: &Entry<DirectoryToken>,
        mut token: DirectoryToken,
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
            // An answer can have been delivered in full while this was written, so the copy is not put back.
            entry.token().usage.add(used);
        }
        Recorded::Done(change)
    }
}

impl DirectoryTokens {
    /// A copy of a machine's token with its present use.
    pub(in crate::serving) fn get(&self, name: &str) -> Option<DirectoryToken> {
        Some(self.entry(name)?.token().clone())
    }

    /// The object of a machine with a token.
    pub(super) fn approved_object(
        &self,
        name: &str,
        machines: &FirstBootMachines,
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
        change: impl FnOnce(Option<&DirectoryToken>) -> Result<Option<DirectoryToken>, E>,
    ) -> Result<(), E> {
        let entry = self.entry(name);
        let writing = entry.as_ref().map(|entry| block_in_place(|| entry.writing.blocking_lock()));
        let known = entry.as_ref().map(|entry| entry.token().clone());
        let changed = change(known.as_ref())?;
        match (&entry, changed) {
            (Some(entry), Some(mut token)) => {
                let mut present = entry.token();
                // An answer can have been delivered in full while this was stored.
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
    pub(in crate::serving) fn add(
        &self,
        tokens: impl IntoIterator<Item = (String, DirectoryToken)>,
    ) {
        let mut entries = Entries::clone(&self.entries.load());
        let added = tokens.into_iter().map(|(name, token)| Entry::keyed(name.into(), token));
        entries.extend(added);
        self.entries.store(Arc::new(entries));
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::time::Duration;

    use model::access::machine::{RearmRequests, Stage, Usage, Window};
    use model::access::{ShownToken, Token};
    use model::history::History;
    use telemetry::Reporting;
    use telemetry::conditions::Status;
    use time::OffsetDateTime;

    use super::super::named_machines::MachineTokens;
    use super::*;

    /// The token of a machine in an empty directory.
    struct Fixture {
        directory: tempfile::TempDir,
        state: StateDirectory,
        tokens: Arc<DirectoryTokens>,
        shown: ShownToken,
    }

    impl Fixture {
        fn new(window: Window) -> Self {
            let directory = tempfile::tempdir().unwrap();
            let state = StateDirectory::of_this_server(directory.path()).unwrap();
            let reporting = Reporting { metrics: Arc::default(), status: Status::default() };
            let tokens = DirectoryTokens::new(state.clone(), window, reporting, History::default());
            let token = token(1);
            let shown = ShownToken { machine: "n".into(), sha256: token.sha256() };
            tokens.add([("n".to_owned(), token)]);
            Self { directory, state, tokens: Arc::new(tokens), shown }
        }

        fn entry(&self) -> Arc<Entry<DirectoryToken>> {
            self.tokens.entry("n").unwrap()
        }

        fn stored(&self) -> Usage {
            self.state.machine_token("n").unwrap().unwrap().usage
        }
    }

    fn token(byte: u8) -> DirectoryToken {
        let armed = RearmRequests::default();
        DirectoryToken::new(Token::new([byte; 32]), "worker", armed, OffsetDateTime::now_utc())
    }

    fn address(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    #[test]
    fn a_use_is_recorded_also_if_its_machine_leaves_meanwhile() {
        let fixture = Fixture::new(Window::default());
        let used = MachineTokens::Directory(Arc::clone(&fixture.tokens));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .max_blocking_threads(1)
            .enable_time()
            .build()
            .unwrap();
        runtime.block_on(async {
            let entry = fixture.entry();
            let writing = entry.writing.lock().await;
            let mut left = Box::pin(used.begin(&fixture.shown, address(1)));
            assert!(futures_util::poll!(&mut left).is_pending());
            drop((left, writing));
            // One thread writes, one use after the other.
            used.begin(&fixture.shown, address(2)).await.unwrap();
        });
        assert_eq!(fixture.stored().addresses(), &[1, 2].map(address).into());
        assert_eq!(fixture.entry().token().usage.addresses(), &[1, 2].map(address).into());
    }

    #[tokio::test]
    async fn a_token_that_was_replaced_while_a_request_waited_opens_nothing() {
        let fixture = Fixture::new(Window::default());
        let entry = fixture.entry();
        let writing = entry.writing.lock().await;
        let mut begun = Box::pin(fixture.tokens.begin(&fixture.shown, address(1)));
        assert!(futures_util::poll!(&mut begun).is_pending());
        *entry.token() = token(2);
        drop(writing);
        assert_eq!(begun.await, Err(Refusal::Revoked));
        assert_eq!(entry.token().usage, Usage::default());
        assert_eq!(fixture.state.machine_token("n").unwrap(), None);
    }

    #[tokio::test]
    async fn an_answer_that_is_delivered_in_full_while_a_use_is_recorded_stays_taken() {
        let fixture = Fixture::new(Window::default());
        let began = fixture.tokens.begin(&fixture.shown, address(1)).await.unwrap();
        let (entry, now) = (fixture.entry(), fixture.tokens.now());
        let before = entry.token().clone();
        fixture.tokens.mark_delivered(&fixture.shown, began);
        let used = Use::Begin(address(2), now);
        StateDirectory::record(&fixture.tokens, &entry, before, used).await;
        let usage = entry.token().usage.clone();
        assert!(usage.taken().is_some() && usage.addresses().contains(&address(2)), "{usage:?}");
    }

    #[tokio::test]
    async fn a_token_is_spent_also_if_that_cannot_be_stored_and_stored_at_the_next_request() {
        let window = Window(Duration::ZERO);
        let fixture = Fixture::new(window);
        let Fixture { tokens, shown, directory, .. } = &fixture;
        let began = tokens.begin(shown, address(1)).await.unwrap();
        tokens.mark_delivered(shown, began);
        let (machines, elsewhere) =
            (directory.path().join("machines"), directory.path().join("elsewhere"));
        std::fs::rename(&machines, &elsewhere).unwrap();
        std::fs::write(&machines, "").unwrap();
        assert_eq!(tokens.check(shown).await, Err(Refusal::Spent));
        assert_eq!(tokens.begin(shown, address(2)).await, Err(Refusal::Spent));
        std::fs::remove_file(&machines).unwrap();
        std::fs::rename(&elsewhere, &machines).unwrap();
        let stage = || fixture.stored().stage(Window::default(), tokens.now());
        assert_ne!(stage(), Stage::Spent);
        assert_eq!(tokens.check(shown).await, Err(Refusal::Spent));
        assert_eq!(stage(), Stage::Spent);
    }
}
