//! Keeps the tokens and pointer configs of the machines that have an object.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use common::schedule::Schedule;
use files::shared_watch::SharedWatch;
use files::stamp::FileStamp;
use files::watch::listing;
use model::access::machine::{KnownMachine, TokenInUse as _};
use model::access::{DirectoryToken, KnownMachines};
use model::escape::and_more;
use model::inputs::Missing;
use model::objects::{FirstBootMachine, FirstBootMachines};
use model::presence::unseen_due_in;
use pki::Host;
use time::OffsetDateTime;
use tokio::time::Instant;

use super::directory::DirectoryTokens;
use super::machine::known_machine;
use crate::store::machine_files::{StoredMachines, WantedMachine};
use crate::store::state_directory::StateDirectory;
use crate::store::state_error::StateError;

/// Maximum number of machines that get a token at once, each with some writes: other changes wait meanwhile.
const MAX_AT_ONCE: usize = 200;

/// Makes, arms and revokes the tokens of machines.
pub(crate) struct MachineReconciler {
    tokens: Arc<DirectoryTokens>,
    state: StateDirectory,
    host: Host,
    port: u16,
    /// Objects that are up to date on disk.
    up_to_date: FirstBootMachines,
    /// Machines whose stored token cannot be read.
    unreadable: BTreeMap<String, String>,
    is_loaded: bool,
    /// Machines that an earlier process kept, and whose object this one has not seen. Nothing says that they were
    /// removed.
    unseen: BTreeSet<String>,
    started: Instant,
    /// Commands ask to arm tokens or to remove machines, a pointer config was removed, something could not be written, or
    /// the hour is over after which unseen machines are removed.
    pub(in crate::serving) schedule: Schedule,
    /// Requests to arm tokens at the last look.
    requests: BTreeSet<PathBuf>,
}

impl MachineReconciler {
    /// Creates a reconciler that has not looked yet. Its pointer configs send machines to `host`, at its `port` for TLS.
    pub(crate) fn new(
        tokens: Arc<DirectoryTokens>,
        state: StateDirectory,
        host: Host,
        port: u16,
    ) -> Self {
        Self {
            tokens,
            state,
            host,
            port,
            up_to_date: BTreeMap::new(),
            unreadable: BTreeMap::new(),
            is_loaded: false,
            unseen: BTreeSet::new(),
            started: Instant::now(),
            schedule: Schedule::default(),
            requests: BTreeSet::new(),
        }
    }

    /// Follows what commands ask for.
    pub(crate) fn follow(&mut self, watch: &mut SharedWatch) {
        let requests = [self.state.arm_path(), self.state.removed_path()];
        let pointers = self.state.machine_pointers_path();
        // What is removed from this directory is made again.
        let names_changed = move || std::fs::metadata(&pointers).ok().map(|it| FileStamp::of(&it));
        let state = move || Some((requests.each_ref().map(|it| listing(it)), names_changed()));
        self.schedule = Schedule::of(watch.notify_of(state));
    }

    /// Brings the tokens up to date with the objects, those of `missing` ones only as far as a command removes them.
    /// Returns them, with faults for administrators, one line each. It may block.
    pub(in crate::serving) fn reconcile(
        &mut self,
        machines: &FirstBootMachines,
        missing: &Missing,
    ) -> (KnownMachines, Vec<String>) {
        self.schedule.wait(None);
        if !self.is_loaded {
            if let Err(error) = self.load() {
                self.schedule.retry();
                return (KnownMachines::default(), vec![error.to_string()]);
            }
            self.is_loaded = true;
        }
        self.read_again();
        self.requests = listing(&self.state.arm_path()).into_keys().collect();
        let mut attention = self.remove(machines);
        attention.extend(self.reconcile_present(machines, missing));
        attention.extend(self.revoke_absent(machines));
        attention
            .extend(self.unreadable.iter().map(|(name, why)| format!("machine {name}: {why}")));
        if let Some(wait) = self.unseen_due_in() {
            self.schedule.wait_at_most(wait);
        }
        self.tokens.report_shared();
        (self.known(machines, missing), attention)
    }

    /// Reads the tokens of an earlier process.
    fn load(&mut self) -> Result<(), StateError> {
        let StoredMachines { tokens, errors } = self.state.machine_tokens()?;
        let current = tokens.iter().filter(|(_, token)| token.revoked.is_none());
        self.unseen = current.map(|(name, _)| name.clone()).collect();
        self.unreadable =
            errors.into_iter().map(|(name, error)| (name, error.to_string())).collect();
        if !tokens.is_empty() {
            self.state.expect_removals()?;
        }
        let found = tokens.into_iter().map(|(name, token)| (name, token.found()));
        self.tokens.add(found);
        Ok(())
    }

    /// Reads the records again that could not be read: an administrator may have repaired one.
    fn read_again(&mut self) {
        let Self { state, tokens, unreadable, unseen, .. } = self;
        unreadable.retain(|name, why| {
            let read = tokens.change(name, |_| {
                let token = state.machine_token(name)?.map(DirectoryToken::found);
                if token.as_ref().is_some_and(|token| !token.is_revoked()) {
                    unseen.insert(name.clone());
                }
                Ok::<_, StateError>(token)
            });
            match &read {
                Ok(()) => {
                    tracing::info!(machine = name, "read the repaired record of a machine's token");
                }
                Err(error) => *why = error.to_string(),
            }
            read.is_err()
        });
        if !self.unreadable.is_empty() {
            self.schedule.retry();
        }
    }

    /// Revokes the tokens for good that commands have asked for, once the machines are gone from the manifests.
    fn remove(&mut self, machines: &FirstBootMachines) -> Vec<String> {
        let asked = match self.state.removals() {
            Ok(asked) => asked,
            Err(error) => return vec![error.to_string()],
        };
        let now = self.tokens.now().wall;
        let gone = asked.iter().filter(|name| !machines.contains_key(*name));
        let removed = gone.filter_map(|name| {
            let removed = self.tokens.change(name, |known| {
                let Some(known) = known else { return Ok(None) };
                let removed = known.removed(&self.state.fresh_token()?, now);
                self.state.write_machine_token(name, &removed)?;
                self.state.remove_machine_pointer(name)?;
                tracing::info!(machine = name, "removed a machine, and revoked its token for good");
                Ok::<_, StateError>(Some(removed))
            });
            self.up_to_date.remove(name);
            self.unseen.remove(name);
            removed.and_then(|()| self.state.note_removed(name)).err().map(|it| it.to_string())
        });
        let failed: Vec<_> = removed.collect();
        if !failed.is_empty() {
            self.schedule.retry();
        }
        failed
    }

    fn reconcile_present(
        &mut self,
        machines: &FirstBootMachines,
        missing: &Missing,
    ) -> Vec<String> {
        let present = machines.iter().filter(|(name, _)| !missing.machines.contains(*name));
        let (mut new, mut known) = (Vec::new(), Vec::new());
        for (name, machine) in present {
            self.unseen.remove(name);
            if self.unreadable.contains_key(name) || self.is_up_to_date(name, machine) {
                continue;
            }
            if new.len() + known.len() == MAX_AT_ONCE {
                self.schedule.wait_at_most(Duration::ZERO);
                break;
            }
            let is_new = self.tokens.get(name).is_none();
            if is_new { &mut new } else { &mut known }.push(machine);
        }
        let mut attention = Vec::new();
        let made = self.make_new(&new);
        let known = known.into_iter().map(|machine| (machine, None));
        for (machine, made) in made.into_iter().map(|(it, made)| (it, Some(made))).chain(known) {
            let made = made.unwrap_or_else(|| self.reconcile_one(machine));
            // The others would wait as long.
            let is_locked = matches!(made, Err(StateError::Lock(_)));
            self.note(machine, made, &mut attention);
            if is_locked {
                break;
            }
        }
        attention
    }

    /// Notes that a machine is up to date, or why it is not.
    fn note(
        &mut self,
        machine: &Arc<FirstBootMachine>,
        made: Result<(), StateError>,
        attention: &mut Vec<String>,
    ) {
        let name = machine.name();
        match made {
            Ok(()) => drop(self.up_to_date.insert(name.to_owned(), Arc::clone(machine))),
            Err(error) => {
                self.up_to_date.remove(name);
                self.schedule.retry();
                attention.push(format!("machine {name}: {error}"));
            }
        }
    }

    /// Makes the tokens of machines that have none. Returns the outcome of each, of the first one alone without a lock.
    fn make_new<'a>(
        &self,
        machines: &[&'a Arc<FirstBootMachine>],
    ) -> Vec<(&'a Arc<FirstBootMachine>, Result<(), StateError>)> {
        let Some(first) = machines.first() else { return Vec::new() };
        let wanted: Vec<_> = machines.iter().map(|machine| WantedMachine::of(machine)).collect();
        let now = self.tokens.now().wall;
        let made = match self.state.store_machines(&wanted, (&self.host, self.port), now) {
            Ok(made) => made,
            Err(error) => return vec![(first, Err(error))],
        };
        let mut tokens = Vec::new();
        let outcomes = machines.iter().zip(made).map(|(machine, made)| {
            let name = machine.name();
            let made = made.map(|token| {
                tracing::info!(
                    machine = name,
                    pointer = %self.state.machine_pointer_path(name).display(),
                    "made a token for a machine"
                );
                tokens.push((name.to_owned(), token));
            });
            (*machine, made)
        });
        let outcomes = outcomes.collect();
        self.tokens.add(tokens);
        outcomes
    }

    /// Returns `true` if nothing of a machine can have changed since it was kept.
    fn is_up_to_date(&self, name: &str, machine: &Arc<FirstBootMachine>) -> bool {
        let is_same = self.up_to_date.get(name).is_some_and(|kept| **kept == **machine);
        let command = || self.tokens.get(name).map(|token| token.armed.command);
        let is_asked = || {
            let path = self.state.arm_path().join(name);
            self.requests.contains(&path) && self.state.requested_arming(name).ok() != command()
        };
        is_same && self.state.machine_pointer_path(name).exists() && !is_asked()
    }

    fn reconcile_one(&self, machine: &FirstBootMachine) -> Result<(), StateError> {
        let name = machine.name();
        let wanted = WantedMachine::of(machine);
        let place = (&self.host, self.port);
        let now = self.tokens.now().wall;
        self.tokens.change(name, |known| {
            let token = self.state.store_machine(wanted, known, place, now)?;
            match known {
                Some(known) if known.token != token.token => {
                    tracing::info!(machine = name, "replaced the token of a machine");
                }
                Some(known) if known.revoked.is_some() && token.revoked.is_none() => {
                    tracing::info!(
                        machine = name,
                        "the object of a machine is back, with its token"
                    );
                }
                Some(known) if known.armed != token.armed => {
                    tracing::info!(machine = name, "armed the token of a machine again");
                }
                Some(_) | None => {}
            }
            Ok(Some(token))
        })
    }

    /// Revokes the tokens of machines whose object was removed. Those whose object was never seen wait.
    fn revoke_absent(&mut self, machines: &FirstBootMachines) -> Vec<String> {
        self.up_to_date.retain(|name, _| machines.contains_key(name));
        self.unseen.retain(|name| !machines.contains_key(name));
        if self.unseen_due_in().is_some_and(|wait| wait.is_zero()) {
            self.unseen.clear();
        }
        let names = self.tokens.names();
        let absent = names.into_iter().filter(|name| !machines.contains_key(&**name));
        let absent = absent.filter(|name| !self.unseen.contains(&**name));
        let now = self.tokens.now().wall;
        let failed = absent.filter_map(|name| self.revoke(&name, now).err());
        let failed: Vec<_> = failed.map(|it| it.to_string()).collect();
        failed.into_iter().chain(self.unseen_line()).collect()
    }

    /// Time until the machines count as removed whose object was never seen, if there are any.
    fn unseen_due_in(&self) -> Option<Duration> {
        unseen_due_in(!self.unseen.is_empty(), self.started.elapsed())
    }

    /// The machines without an object, in one line.
    fn unseen_line(&self) -> Option<String> {
        let first = self.unseen.first()?;
        let more = and_more(self.unseen.len() - 1);
        Some(format!(
            "machine {first}{more}: no FirstBootMachine found, possibly in the wrong directory of manifests; the token gets \
             503 until it is back, and is revoked after an hour; `machines remove` revokes it now"
        ))
    }

    fn revoke(&self, name: &str, now: OffsetDateTime) -> Result<(), StateError> {
        if self.tokens.get(name).is_some_and(|token| token.revoked(now).as_ref() == Some(&token)) {
            return Ok(());
        }
        self.tokens.change(name, |known| {
            let Some(revoked) = known.and_then(|known| known.revoked(now)) else {
                self.state.discard_machine(name)?;
                return Ok(None);
            };
            self.state.write_machine_token(name, &revoked)?;
            self.state.remove_machine_pointer(name)?;
            tracing::info!(
                machine = name,
                "revoked the token of a machine, whose object was removed"
            );
            Ok(Some(revoked))
        })
    }

    /// The tokens by their hashes.
    fn known(&self, machines: &FirstBootMachines, missing: &Missing) -> KnownMachines {
        let mut known = Vec::new();
        for name in self.tokens.names() {
            let Some(token) = self.tokens.get(&name) else { continue };
            let DirectoryToken { pool, earlier, revoked, .. } = &token;
            let object = machines.get(&*name);
            let machine = |is_revoked| known_machine(&name, pool, object, is_revoked);
            known.extend(earlier.iter().map(|hash| (*hash, machine(true))));
            let is_missing = missing.machines.contains(&*name) || self.unseen.contains(&*name);
            let machine = KnownMachine { is_missing, ..machine(revoked.is_some()) };
            known.push((token.token.hash(), machine));
        }
        known.into_iter().collect()
    }
}
