//! Who gets configs: flags, what pools say, and tokens, put together each time one of them changes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use time::OffsetDateTime;
use tokio::sync::watch;

use super::signed_issuer::SignedIssuer;
use super::token_cache::TokenCache;

use crate::access::{KnownTokens, Mode, Modes, Networks, Policy, Records, SignedTokens, Verifier};
use crate::conditions::Conditions;
use crate::controllers::certificates::ACCESS_ANNOTATION;
use crate::inputs::Inputs;
use crate::overview::History;
use crate::server::guard::Guard;
use crate::source::Reporting;
use crate::telemetry::Metrics;

/// What flags say of access.
#[derive(Default)]
pub struct AccessSettings {
    /// How much it is restricted where a pool says nothing.
    pub mode: Mode,
    /// Whose signed tokens are accepted beside our own.
    pub issuer: Option<SignedIssuer>,
    /// Where what is known of tokens is kept, if anywhere.
    pub cache: Option<TokenCache>,
    /// Who keeps them, if this process does.
    pub keeper: Option<Box<dyn KeepTokens>>,
}

/// The one place in which rules of access change, and what is served with them.
pub struct Gate {
    mode: Mode,
    networks: Networks,
    guard: Arc<Guard>,
    degraded: Conditions,
    metrics: Arc<Metrics>,
    history: History,
    needs_tokens: watch::Sender<bool>,
    known_tokens: watch::Sender<Option<Records>>,
    state: Mutex<State>,
}

/// Keeps tokens in order, where that is done by the process that serves: what is known of them is never
/// older than the pools.
pub trait KeepTokens: Send {
    /// Does what is due for these pools. What is known of tokens, unless that cannot be read, and when
    /// something will be due by itself. `accept` is given the tokens that pointer configs are about to
    /// carry.
    fn keep(&mut self, wanted: &BTreeMap<String, Mode>, accept: &mut dyn FnMut(&Records)) -> Kept;
}

/// What a look at the tokens came to.
#[derive(Debug, Default)]
pub struct Kept {
    /// What is known of them, `None` if that cannot be told.
    pub records: Option<Records>,
    /// When something will be due by itself, if anything will.
    pub requeue_at: Option<OffsetDateTime>,
    /// What an administrator should know, one line each.
    pub attention: Vec<String>,
}

struct State {
    publish: Publish,
    keeper: Option<Box<dyn KeepTokens>>,
    /// What is asked for each pool.
    wanted: BTreeMap<String, Mode>,
    inputs: Option<Inputs>,
    records: Option<Records>,
    verifiers: Vec<Arc<dyn Verifier>>,
}

/// Makes inputs what is served. It may block.
pub(super) type Publish = Box<dyn FnMut(&Inputs) + Send>;

impl Gate {
    /// A gate before anything was read. What it lets through is served by `publish`.
    pub(super) fn new(
        settings: AccessSettings,
        networks: Networks,
        guard: Arc<Guard>,
        reporting: &Reporting,
        history: History,
        publish: Publish,
    ) -> Self {
        let AccessSettings { mode, issuer, cache, keeper } = settings;
        let verifiers = issuer.into_iter().map(|issuer| Arc::new(issuer.tokens) as _).collect();
        let records = cache.as_ref().and_then(TokenCache::load);
        let wanted = BTreeMap::new();
        let state = State { publish, keeper, wanted, inputs: None, records, verifiers };
        let (needs_tokens, known_tokens) = (watch::Sender::new(false), watch::Sender::default());
        let state = Mutex::new(state);
        let (degraded, metrics) =
            (reporting.status.degraded.clone(), Arc::clone(&reporting.metrics));
        Self {
            mode,
            networks,
            guard,
            degraded,
            metrics,
            history,
            needs_tokens,
            known_tokens,
            state,
        }
    }

    /// Serves `inputs` from now on.
    pub(super) fn take_inputs(&self, inputs: &Inputs) {
        let mut state = self.state();
        state.inputs = Some(inputs.clone());
        self.apply(&mut state, true);
    }

    /// Whether it matters which tokens there are: not while all pools are open.
    pub(super) fn needs_tokens(&self) -> watch::Receiver<bool> {
        self.needs_tokens.subscribe()
    }

    /// What is told of tokens from now on.
    pub(super) fn known_tokens(&self) -> watch::Receiver<Option<Records>> {
        self.known_tokens.subscribe()
    }

    /// Whether tokens are known, from the cache or otherwise.
    pub(super) fn knows_tokens(&self) -> bool {
        self.state().records.as_ref().is_some_and(|records| *records != Records::default())
    }

    /// Knows these tokens from now on.
    pub(super) fn take_records(&self, records: Records) {
        let mut state = self.state();
        if state.records.as_ref() != Some(&records) {
            self.known_tokens.send_replace(Some(records.clone()));
            state.records = Some(records);
            self.apply(&mut state, false);
        }
    }

    /// Accepts tokens that these keys have signed from now on.
    pub(super) fn take_signed(&self, tokens: SignedTokens) {
        let mut state = self.state();
        state.verifiers = vec![Arc::new(tokens)];
        self.apply(&mut state, false);
    }

    /// Has the tokens looked at again, and tells when something will be due by itself.
    pub(super) fn keep_tokens(&self) -> Option<OffsetDateTime> {
        let mut state = self.state();
        let Kept { records, requeue_at, .. } = self.keep(&mut state)?;
        if let Some(records) = records.filter(|records| state.records.as_ref() != Some(records)) {
            state.records = Some(records);
            self.apply(&mut state, false);
        }
        requeue_at
    }

    /// Has the tokens looked at, if that is done here. A new token is accepted before anybody carries it;
    /// the modes stay as they are until all is in order.
    fn keep(&self, state: &mut State) -> Option<Kept> {
        let State { keeper, wanted, verifiers, .. } = state;
        let accept = &mut |records: &Records| {
            let modes = self.guard.policy.load().modes.clone();
            self.guard.policy.store(Arc::new(self.policy(modes, Some(records), verifiers)));
        };
        let kept = keeper.as_mut()?.keep(wanted, accept);
        self.degrade("tokens", &kept.attention);
        let count = kept.attention.len().try_into().unwrap_or(i64::MAX);
        self.metrics.tokens_attention.set(count);
        Some(kept)
    }

    fn apply(&self, state: &mut State, are_inputs_new: bool) {
        let Some(inputs) = state.inputs.clone() else { return };
        let wanted = self.read_wanted(&inputs, &state.wanted, state.records.as_ref());
        if wanted != state.wanted {
            state.wanted = wanted.clone();
            let kept = self.keep(state).and_then(|kept| kept.records);
            state.records = kept.or(state.records.take());
        }
        let needs_tokens = wanted.values().chain([&self.mode]).any(|mode| *mode != Mode::Off);
        self.needs_tokens.send_replace(needs_tokens);
        let modes = Modes::new(self.mode, &wanted, state.records.as_ref());
        let before = self.guard.policy.load().modes.clone();
        let enforced = modes.enforced();
        self.tell(&before, &modes);
        let restricted = wanted.iter().filter(|(_, asked)| **asked != Mode::Off);
        self.metrics.access_modes(
            restricted.map(|(pool, asked)| (&**pool, asked.label(), modes.of(pool).label())),
        );
        // What is for few is never rendered while many may have it.
        self.guard.policy.store(Arc::new(self.policy(
            before.stricter(&modes),
            state.records.as_ref(),
            &state.verifiers,
        )));
        if are_inputs_new || enforced != inputs.enforced {
            let inputs = Inputs { enforced, ..inputs };
            (state.publish)(&inputs);
            state.inputs = Some(inputs);
        }
        self.guard.policy.store(Arc::new(self.policy(
            modes,
            state.records.as_ref(),
            &state.verifiers,
        )));
    }

    fn policy(
        &self,
        modes: Modes,
        records: Option<&Records>,
        verifiers: &[Arc<dyn Verifier>],
    ) -> Policy {
        let tokens =
            records.map(|records| Arc::new(KnownTokens::new(records)) as Arc<dyn Verifier>);
        let verifiers = tokens.into_iter().chain(verifiers.iter().cloned()).collect();
        Policy { modes, networks: self.networks.clone(), verifiers }
    }

    /// What each pool says of itself goes before the flag. What is not understood changes nothing: who
    /// slips while writing opens no pool.
    fn read_wanted(
        &self,
        inputs: &Inputs,
        before: &BTreeMap<String, Mode>,
        records: Option<&Records>,
    ) -> BTreeMap<String, Mode> {
        let mut faults = Vec::new();
        // One that was enforced before this process began goes on to be.
        let kept = |pool: &str| {
            let is_enforced = records.is_some_and(|records| records.enforced.contains(pool));
            is_enforced.then_some(Mode::Enforce)
        };
        let wanted = inputs.pools.iter().map(|(name, pool)| {
            let own = pool.annotation(ACCESS_ANNOTATION).map(str::parse::<Mode>).transpose();
            let own = own.unwrap_or_else(|error| {
                faults.push(format!("pool {name}: {ACCESS_ANNOTATION}: {error}"));
                before.get(name).copied().or_else(|| kept(name))
            });
            (name.clone(), own.unwrap_or(self.mode))
        });
        let wanted = wanted.collect();
        self.degrade("access", &faults);
        wanted
    }

    fn tell(&self, before: &Modes, now: &Modes) {
        let held = now.held().map(|(pool, reason)| format!("pool {pool}: {reason}"));
        let held: Vec<_> = held.collect();
        self.degrade("access is audited and not enforced", &held);
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
        if let Some(reason) = self.degraded.set_all(thing, reasons) {
            tracing::warn!(reason, "{thing}");
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
