//! The one place in which what is served changes.
//!
//! ```text
//!  source ─────────── inputs ──┐
//!  cluster's secret ─ records ─┼─> Snapshot ─> tightened policy ─> answers ─> policy ─> pointer configs
//!  issuer's file ──── keys ────┤   (pure)
//!  state directory ── tokens ──┘
//! ```
//!
//! Each part comes by a channel that holds its newest state; one task takes them in.

use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;
use model::access::{AccessMode, Modes, Policy, Records, SignedTokens, WantedModes};
use model::inputs::Inputs;
use model::overview::History;
use model::snapshot::{AccessRules, Known, Snapshot};
use time::OffsetDateTime;
use tokio::sync::watch;

use super::pointer_writer::PointerWriter;
use super::publish::{Publisher, Served};
use super::token_keeper::{Kept, TokenKeeper};
use crate::telemetry::Reporting;
use crate::telemetry::conditions::Condition;

/// Takes in changes, and publishes what they come to.
pub(crate) struct Pipeline {
    rules: AccessRules,
    known: Known,
    wanted: WantedModes,
    local: LocalState,
    publisher: Publisher,
    policy: Arc<ArcSwap<Policy>>,
    needs_tokens: watch::Sender<bool>,
    known_tokens: watch::Sender<Option<Records>>,
    reporting: Reporting,
    history: History,
}

/// What this process keeps in a state directory, where it does that.
#[derive(Default)]
pub(crate) struct LocalState {
    /// Keeps the tokens.
    pub(crate) keeper: Option<TokenKeeper>,
    /// Writes pointer configs.
    pub(crate) pointers: Option<PointerWriter>,
}

/// Where changes come from: the newest state of each part, `None` before it was read.
pub(crate) struct Changes {
    pub(crate) inputs: watch::Receiver<Option<Inputs>>,
    pub(crate) records: watch::Receiver<Option<Records>>,
    pub(crate) keys: watch::Receiver<Option<SignedTokens>>,
}

impl Pipeline {
    /// A pipeline before inputs were read. `known` is what an earlier process left of tokens, and the keys
    /// of another issuer. Requests are judged by `policy`.
    pub(crate) fn new(
        rules: AccessRules,
        known: Known,
        local: LocalState,
        policy: Arc<ArcSwap<Policy>>,
        publisher: Publisher,
    ) -> Self {
        let (reporting, history) = (publisher.reporting().clone(), publisher.history().clone());
        Self {
            rules,
            known,
            wanted: WantedModes::default(),
            local,
            publisher,
            policy,
            needs_tokens: watch::Sender::new(false),
            known_tokens: watch::Sender::default(),
            reporting,
            history,
        }
    }

    /// Takes in each change, for ever.
    pub(crate) async fn run(mut self, changes: Changes) {
        let Changes { mut inputs, mut records, mut keys } = changes;
        loop {
            // A sender that is gone sends nothing more.
            tokio::select! {
                Ok(()) = inputs.changed() => {
                    let inputs = inputs.borrow_and_update().clone();
                    tokio::task::block_in_place(|| inputs.map(|it| self.take_inputs(it)));
                }
                Ok(()) = records.changed() => {
                    let records = records.borrow_and_update().clone();
                    tokio::task::block_in_place(|| records.map(|it| self.take_records(it)));
                }
                Ok(()) = keys.changed() => {
                    let keys = keys.borrow_and_update().clone();
                    tokio::task::block_in_place(|| keys.map(|it| self.take_keys(it)));
                }
                () = TokenKeeper::due(self.local.keeper.as_mut()) => {
                    tokio::task::block_in_place(|| self.keep_tokens());
                }
                () = PointerWriter::due(self.local.pointers.as_ref()) => {
                    tokio::task::block_in_place(|| self.write_pointers());
                }
            }
        }
    }

    /// Serves `inputs` from now on.
    pub(crate) fn take_inputs(&mut self, inputs: Inputs) {
        self.known.inputs = Some(inputs);
        self.apply(true);
    }

    /// Knows these tokens from now on.
    fn take_records(&mut self, records: Records) {
        if self.learn(records) {
            self.apply(false);
        }
    }

    /// Accepts tokens that these keys have signed from now on.
    fn take_keys(&mut self, keys: SignedTokens) {
        self.known.signed = Some(keys);
        self.apply(false);
    }

    /// Has the tokens looked at again.
    pub(super) fn keep_tokens(&mut self) {
        if let Some(records) = self.keep() {
            self.take_records(records);
        }
    }

    /// Whether tokens matter.
    pub(crate) fn needs_tokens(&self) -> watch::Receiver<bool> {
        self.needs_tokens.subscribe()
    }

    /// What is known of tokens, each time it changes.
    pub(crate) fn known_tokens(&self) -> watch::Receiver<Option<Records>> {
        self.known_tokens.subscribe()
    }

    /// Whether these records are news.
    fn learn(&mut self, records: Records) -> bool {
        let records = records.following(self.known.records.as_ref(), &self.wanted.understood());
        if self.known.records.as_ref() == Some(&records) {
            return false;
        }
        self.known_tokens.send_replace(Some(records.clone()));
        self.known.records = Some(records);
        true
    }

    /// Has the tokens kept in order, if this process does that; what is known of them then. A new token is
    /// accepted before a pointer config carries it; the modes stay as they are until all is in order.
    fn keep(&mut self) -> Option<Records> {
        let Self { local, wanted, known, policy, rules, .. } = self;
        let accept = &mut |records: &Records| {
            let modes = policy.load().modes.clone();
            let signed = known.signed.clone();
            let known = Known { records: Some(records.clone()), signed, inputs: None };
            policy.store(Arc::new(known.policy(modes, rules)));
        };
        let Kept { records, attention } = local.keeper.as_mut()?.keep(&wanted.understood(), accept);
        self.degrade("tokens", &attention);
        let count = attention.len().try_into().unwrap_or(i64::MAX);
        self.reporting.metrics.tokens_attention.set(count);
        records
    }

    fn apply(&mut self, are_inputs_new: bool) {
        self.read_wanted();
        let Some(snapshot) = Snapshot::new(&self.known, &self.wanted, &self.rules) else { return };
        let before = self.policy.load().modes.clone();
        self.report(&before, &snapshot.policy.modes);
        self.policy.store(Arc::new(snapshot.tightened(&before)));
        let served = self.known.inputs.as_ref().map(|served| &served.enforced);
        let is_new = are_inputs_new || served != Some(&snapshot.inputs.enforced);
        let is_changed = is_new && self.publisher.publish(&snapshot.inputs);
        self.policy.store(Arc::new(snapshot.policy));
        self.known.inputs = Some(snapshot.inputs.clone());
        if is_changed {
            let pointer_configs = self.write_pointers();
            self.publisher.tell(Served { inputs: snapshot.inputs, pointer_configs });
        }
    }

    /// Has a pointer config for each pool that is served, where this process writes them.
    fn write_pointers(&mut self) -> Vec<(String, PathBuf)> {
        let Some(inputs) = &self.known.inputs else { return Vec::new() };
        let pointers = self.local.pointers.as_mut();
        pointers.map(|pointers| pointers.write(inputs.pools.keys())).unwrap_or_default()
    }

    /// Reads which modes pools ask for. Where that is new, the tokens are looked at by it.
    fn read_wanted(&mut self) {
        let Some(inputs) = &self.known.inputs else { return };
        let records = self.known.records.as_ref();
        let (wanted, faults) =
            WantedModes::read(&inputs.pools, self.rules.mode, &self.wanted, records);
        self.degrade("access", &faults);
        if wanted != self.wanted {
            self.wanted = wanted;
            let records = self.keep().or_else(|| self.known.records.clone());
            records.map(|records| self.learn(records));
        }
        self.needs_tokens.send_replace(self.wanted.need_tokens());
    }

    fn report(&self, before: &Modes, now: &Modes) {
        let held: Vec<_> =
            now.held().map(|(pool, reason)| format!("pool {pool}: {reason}")).collect();
        self.degrade("access is audited and not enforced", &held);
        let waiting = now.waiting().map(|(pool, why)| {
            format!(
                "pool {pool}: {why}; until then, only a known token opens it, all others get 503"
            )
        });
        self.degrade("access is not known", &waiting.collect::<Vec<_>>());
        let label = |(pool, asked): (_, AccessMode)| (pool, asked.label(), now.of(pool).label());
        self.reporting.metrics.access_modes(self.wanted.restricted().map(label));
        let (before, now) = (before.enforced(), now.enforced());
        let at = OffsetDateTime::now_utc();
        for pool in now.difference(&before) {
            tracing::info!(pool, "access is enforced");
            self.history.note(format!("pool {pool}: access is enforced"), at);
        }
        for pool in before.difference(&now) {
            tracing::info!(pool, "access is not enforced any more");
            self.history.note(format!("pool {pool}: access is not enforced any more"), at);
        }
    }

    fn degrade(&self, thing: &'static str, reasons: &[String]) {
        let condition = Condition::of_all(thing, reasons);
        condition.report_failure(&self.reporting.status.degraded, |reason| {
            tracing::warn!(reason, "{thing}");
        });
    }
}

#[cfg(test)]
mod tests;
