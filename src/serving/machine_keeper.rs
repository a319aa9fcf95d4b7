//! Keeps the tokens and pointer configs of the machines that have an object.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use model::access::{KnownMachines, MachineToken};
use model::objects::FirstBootMachine;
use pki::Host;
use time::OffsetDateTime;
use tokio::time::Instant;

use super::machine_tokens::MachineTokens;
use super::token_set::known_machine;
use crate::files::watch::WatchedListing;
use crate::store::machine_files::{StoredMachines, WantedMachine};
use crate::store::state_directory::StateDirectory;
use crate::store::state_error::StateError;

/// Maximum number of machines that get a token at once, each with some writes: other changes wait meanwhile.
const MAX_AT_ONCE: usize = 50;
/// Wait after a failure.
const RETRY: Duration = Duration::from_secs(5);

type Machines = BTreeMap<String, Arc<FirstBootMachine>>;

/// Makes, arms and revokes the tokens of machines.
pub(crate) struct MachineKeeper {
    tokens: Arc<MachineTokens>,
    state: StateDirectory,
    host: Host,
    port: u16,
    /// Objects that are up to date on disk.
    kept: Machines,
    /// Machines whose stored token cannot be read.
    unreadable: BTreeMap<String, String>,
    is_loaded: bool,
    /// True while no object is there of the machines that an earlier process kept.
    is_elsewhere: bool,
    /// Requests of commands to arm tokens at the last look.
    requests: WatchedListing,
    retry_at: Option<Instant>,
}

impl MachineKeeper {
    /// Creates a keeper that has not looked yet. Its pointer configs send machines to `host`, at its `port` for TLS.
    pub(crate) fn new(
        tokens: Arc<MachineTokens>,
        state: StateDirectory,
        host: Host,
        port: u16,
    ) -> Self {
        Self {
            tokens,
            state,
            host,
            port,
            kept: BTreeMap::new(),
            unreadable: BTreeMap::new(),
            is_loaded: false,
            is_elsewhere: false,
            requests: WatchedListing::default(),
            retry_at: None,
        }
    }

    /// Brings the tokens up to date with the objects. Returns them, with faults for administrators, one line each. It may
    /// block.
    pub(super) fn keep(&mut self, machines: &Machines) -> (KnownMachines, Vec<String>) {
        self.retry_at = None;
        if !self.is_loaded {
            if let Err(error) = self.load(machines) {
                self.retry_at = Some(Instant::now() + RETRY);
                return (KnownMachines::default(), vec![error.to_string()]);
            }
            self.is_loaded = true;
        }
        self.requests.read(&self.state.arm_path());
        let mut attention = self.keep_present(machines);
        attention.extend(self.revoke_absent(machines));
        attention
            .extend(self.unreadable.iter().map(|(name, why)| format!("machine {name}: {why}")));
        self.tokens.set.report_shared();
        (self.known(machines), attention)
    }

    /// Reads the tokens of an earlier process.
    fn load(&mut self, machines: &Machines) -> Result<(), StateError> {
        let StoredMachines { tokens, errors } = self.state.machine_tokens()?;
        let mut current = tokens.iter().filter(|(_, token)| token.revoked.is_none()).peekable();
        // A typo in the directory's name must not revoke the tokens of all machines.
        self.is_elsewhere =
            current.peek().is_some() && current.all(|(name, _)| !machines.contains_key(name));
        self.unreadable =
            errors.into_iter().map(|(name, error)| (name, error.to_string())).collect();
        let found = tokens.into_iter().map(|(name, token)| (name, token.found()));
        self.tokens.load(found.collect());
        Ok(())
    }

    fn keep_present(&mut self, machines: &Machines) -> Vec<String> {
        let mut attention = Vec::new();
        let mut left = MAX_AT_ONCE;
        for (name, machine) in machines {
            if self.unreadable.contains_key(name) || self.is_kept(name, machine) {
                continue;
            }
            if left == 0 {
                self.retry_at = Some(Instant::now());
                break;
            }
            left -= 1;
            match self.keep_one(machine) {
                Ok(()) => {
                    self.kept.insert(name.clone(), Arc::clone(machine));
                }
                Err(error) => {
                    self.kept.remove(name);
                    self.retry_at = Some(Instant::now() + RETRY);
                    attention.push(format!("machine {name}: {error}"));
                    // The others would wait as long.
                    if matches!(error, StateError::Lock(_)) {
                        break;
                    }
                }
            }
        }
        attention
    }

    /// Returns `true` if nothing of a machine can have changed since it was kept.
    fn is_kept(&self, name: &str, machine: &Arc<FirstBootMachine>) -> bool {
        let is_same = self.kept.get(name).is_some_and(|kept| **kept == **machine);
        let command = || self.tokens.get(name).map(|token| token.armed.command);
        let is_asked = || {
            let path = self.state.arm_path().join(name);
            self.requests.contains(&path) && self.state.requested_arming(name).ok() != command()
        };
        is_same && self.state.machine_pointer_path(name).exists() && !is_asked()
    }

    fn keep_one(&self, machine: &FirstBootMachine) -> Result<(), StateError> {
        let name = machine.name();
        let wanted = WantedMachine { name, pool: &machine.spec.pool, rearm: machine.rearm() };
        let place = (&self.host, self.port);
        let now = OffsetDateTime::now_utc();
        self.tokens.change(name, |known| {
            let token = self.state.keep_machine(wanted, known, place, now)?;
            match known {
                None => tracing::info!(
                    machine = name,
                    pointer = %self.state.machine_pointer_path(name).display(),
                    "made a token for a machine"
                ),
                Some(known) if known.token != token.token => {
                    tracing::info!(machine = name, "replaced the token of a machine");
                }
                Some(known) if known.armed != token.armed => {
                    tracing::info!(machine = name, "armed the token of a machine again");
                }
                Some(_) => {}
            }
            Ok(Some(token))
        })
    }

    /// Revokes the tokens of machines whose object is gone.
    fn revoke_absent(&mut self, machines: &Machines) -> Vec<String> {
        self.kept.retain(|name, _| machines.contains_key(name));
        let names = self.tokens.names();
        if self.is_elsewhere && names.iter().any(|name| machines.contains_key(&**name)) {
            self.is_elsewhere = false;
        }
        let absent = names.into_iter().filter(|name| !machines.contains_key(&**name));
        if self.is_elsewhere {
            let count = absent.count();
            return vec![format!(
                "no FirstBootMachine found for any of the {count} machines with a token: the tokens are refused and not \
                 deleted, in case this is the wrong directory of manifests"
            )];
        }
        let now = OffsetDateTime::now_utc();
        absent.filter_map(|name| self.revoke(&name, now).err()).map(|it| it.to_string()).collect()
    }

    fn revoke(&self, name: &str, now: OffsetDateTime) -> Result<(), StateError> {
        let is_gone = self
            .tokens
            .get(name)
            .is_some_and(|token| token.revoked(now).is_some_and(|revoked| revoked == token));
        if is_gone {
            return Ok(());
        }
        self.tokens.change(name, |known| {
            let Some(revoked) = known.and_then(|known| known.revoked(now)) else {
                self.state.forget_machine(name)?;
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
    fn known(&self, machines: &Machines) -> KnownMachines {
        let mut known = Vec::new();
        for name in self.tokens.names() {
            let Some(token) = self.tokens.get(&name) else { continue };
            let MachineToken { pool, earlier, revoked, .. } = &token;
            let object = machines.get(&*name);
            let machine = |is_revoked| known_machine(&name, pool, object, is_revoked);
            known.extend(earlier.iter().map(|hash| (*hash, machine(true))));
            let is_revoked = revoked.is_some() || object.is_none();
            known.push((token.token.hash(), machine(is_revoked)));
        }
        known.into_iter().collect()
    }

    /// Waits until the machines must be looked at again: a command asks for it, or something could not be written.
    /// Forever without machines. It is cancel safe.
    pub(super) async fn due(&mut self) {
        match self.retry_at {
            Some(at) => tokio::time::sleep_until(at).await,
            None if self.kept.is_empty() => std::future::pending().await,
            None => self.requests.changed(&self.state.arm_path()).await,
        }
    }
}
