//! Configs that each machine's token must open.

use std::collections::BTreeMap;

use model::access::machine::TokenInUse as _;
use model::access::{Refusal, Token};
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::oracle::{HOUR, Presence};
use super::server::{Server, address_of};
use super::site::{Content, Id, ids, is_machine};

/// The token of a machine, with its use.
#[derive(Debug)]
struct ExpectedToken {
    token: Token,
    content: Content,
    /// Time of the last answer that is not known to be delivered in full.
    begun: Option<Instant>,
    /// Time of the first answer that was delivered in full.
    taken: Option<Instant>,
    revoked: Option<Instant>,
    /// True if a command has ended it.
    is_removed: bool,
    /// True if a command has asked for it to be armed.
    is_to_be_armed: bool,
    /// True if an earlier process made it, and this one has not seen its object.
    is_unseen: bool,
    earlier: Vec<Token>,
}

impl ExpectedToken {
    fn new(token: Token, content: Content) -> Self {
        Self {
            token,
            content,
            begun: None,
            taken: None,
            revoked: None,
            is_removed: false,
            is_to_be_armed: false,
            is_unseen: false,
            earlier: Vec::new(),
        }
    }

    fn is_spent(&self) -> bool {
        self.taken.is_some_and(|at| at.elapsed() >= HOUR)
    }

    fn arm(&mut self) {
        (self.begun, self.taken, self.is_to_be_armed) = (None, None, false);
    }
}

#[derive(Debug)]
pub(super) struct Tokens {
    machines: BTreeMap<Id, ExpectedToken>,
    restarted: Instant,
    /// Machines whose token was open since the last check.
    opened: Vec<Id>,
}

impl Tokens {
    pub(super) fn new() -> Self {
        Self { machines: BTreeMap::new(), restarted: Instant::now(), opened: Vec::new() }
    }

    pub(super) fn restart(&mut self, knows: impl Fn(Id) -> bool) {
        self.restarted = Instant::now();
        self.opened.clear();
        for (&id, token) in &mut self.machines {
            token.taken = token.taken.or(token.begun);
            token.is_unseen = token.revoked.is_none() && !knows(id);
        }
    }

    /// Names of machines with a token that nobody has revoked.
    pub(super) fn current(&self) -> Vec<Id> {
        let current = self.machines.iter().filter(|(_, token)| token.revoked.is_none());
        current.map(|(id, _)| *id).collect()
    }

    pub(super) fn ask_to_arm(&mut self, machine: Id) {
        self.machines.get_mut(machine).unwrap().is_to_be_armed = true;
    }

    pub(super) fn remove(&mut self, machine: Id) {
        if let Some(token) = self.machines.get_mut(machine) {
            token.revoked.get_or_insert_with(Instant::now);
            (token.is_removed, token.is_unseen) = (true, false);
        }
    }

    /// Follows what a server has revoked before it is killed.
    pub(super) fn take_revoked(&mut self, server: &Server, presence: impl Fn(Id) -> Presence) {
        for (&id, token) in &mut self.machines {
            let is_revoked = server.stored(id).is_some_and(|stored| stored.is_revoked());
            if is_revoked && presence(id) == Presence::Absent {
                token.revoked.get_or_insert_with(Instant::now);
            }
        }
    }

    /// A machine boots by its token, if that is open.
    pub(super) fn boot(&mut self, server: &Server, machine: Id, is_delivered: bool) {
        let Some(token) = self.machines.get_mut(machine) else { return };
        let Ok(shown) = server.judge(&token.token, token.content) else { return };
        let answer = server.tokens.begin(&shown, address_of(token.content));
        let began = Handle::current().block_on(answer).unwrap();
        if token.taken.is_none() {
            token.begun = Some(Instant::now());
        }
        if is_delivered {
            server.tokens.mark_delivered(&shown, began);
            token.taken.get_or_insert_with(Instant::now);
        }
    }

    /// Follows what the server has made of its inputs, and notes what is open.
    pub(super) fn note(&mut self, server: &Server) {
        for id in ids().filter(|id| is_machine(id)) {
            let is_missing = server.inputs.missing.machines.contains(id);
            if let Some(content) = server.served(id).filter(|_| !is_missing) {
                self.follow(server, id, content);
            }
            let Some(token) = self.machines.get(id) else { continue };
            if server.judge(&token.token, token.content).is_ok() {
                self.opened.push(id);
            }
            for earlier in &token.earlier {
                let judged = server.judge(earlier, token.content);
                assert!(judged.is_err(), "an earlier token of {id} is open");
            }
        }
    }

    fn follow(&mut self, server: &Server, id: Id, content: Content) {
        let stored = server.stored(id).unwrap_or_else(|| panic!("{id} has no token"));
        assert!(!stored.is_revoked(), "the token of {id} is revoked");
        assert_eq!(stored.pool, content.pool, "{id}");
        let found = self.machines.entry(id);
        let token = found.or_insert_with(|| ExpectedToken::new(stored.token.clone(), content));
        let is_late = token.revoked.is_some_and(|at| at.elapsed() >= HOUR);
        if is_late || token.is_removed || token.content.pool != content.pool {
            assert_ne!(stored.token, token.token, "{id} needs another token");
            token.earlier.push(std::mem::replace(&mut token.token, stored.token.clone()));
            token.arm();
        }
        assert_eq!(stored.token.hash().id(), token.token.hash().id(), "{id} has another token");
        if token.is_to_be_armed {
            token.arm();
        }
        (token.revoked, token.is_removed, token.is_unseen) = (None, false, false);
        token.content = content;
    }

    /// Checks the tokens against what is known of the machines, before and since.
    pub(super) fn check(
        &mut self,
        server: &Server,
        before: impl Fn(Id) -> Presence,
        since: impl Fn(Id) -> Presence,
    ) {
        let opened = std::mem::take(&mut self.opened);
        let is_late = self.restarted.elapsed() >= HOUR;
        for (&id, token) in &mut self.machines {
            let judged = server.judge(&token.token, token.content).map(|_| ());
            let stored = server.stored(id).unwrap_or_else(|| panic!("{id} has no token"));
            let presence = since(id);
            token.is_unseen &= presence == Presence::Absent && !is_late;
            let expected = match presence {
                Presence::Served(_) if token.is_spent() => Err(Refusal::Spent),
                Presence::Served(_) => Ok(()),
                Presence::Missing(_) if token.revoked.is_none() => Err(Refusal::MachineMissing),
                Presence::Absent if token.is_unseen => Err(Refusal::MachineMissing),
                Presence::Missing(_) | Presence::Absent => {
                    token.revoked.get_or_insert_with(Instant::now);
                    Err(Refusal::Revoked)
                }
            };
            assert_eq!(judged, expected, "the token of {id}, which is {presence:?}");
            let is_revoked = expected == Err(Refusal::Revoked);
            assert_eq!(stored.is_revoked(), is_revoked, "the stored token of {id}");
            if token.is_unseen {
                assert!(server.reports_unseen(id), "{id} is not reported");
            }
            let is_open = |presence| matches!(presence, Presence::Served(_));
            let may_open = is_open(before(id)) || is_open(presence);
            assert!(may_open || !opened.contains(&id), "the token of {id} was open for a moment");
        }
    }
}
