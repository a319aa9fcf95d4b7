//! Who gets configs: flags, what pools say, and tokens, put together each time one of them changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use model::access::{
    AccessMode, KnownTokens, Modes, Networks, Policy, Records, SignedTokens, Verifier,
};
use model::inputs::Inputs;
use model::overview::History;
use time::OffsetDateTime;
use tokio::sync::watch;

use super::token_cache::TokenCache;
use super::token_issuer::TokenIssuer;
use crate::telemetry::Metrics;
use crate::telemetry::Reporting;
use crate::telemetry::conditions::Conditions;
use model::access::ACCESS_ANNOTATION;

/// What flags say of access.
#[derive(Default)]
pub struct AccessSettings {
    /// How much it is restricted where a pool says nothing.
    pub mode: AccessMode,
    /// Whose signed tokens are accepted beside our own.
    pub issuer: Option<TokenIssuer>,
    /// Where what is known of tokens is kept, if anywhere.
    pub cache: Option<TokenCache>,
    /// Who keeps them, if this process does.
    pub keeper: Option<Box<dyn KeepTokens>>,
}

/// The one place in which rules of access change, and what is served with them.
pub struct Gate {
    mode: AccessMode,
    networks: Networks,
    policy: Arc<ArcSwap<Policy>>,
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
    fn keep(
        &mut self,
        wanted: &BTreeMap<String, AccessMode>,
        accept: &mut dyn FnMut(&Records),
    ) -> Kept;
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
    wanted: Wanted,
    inputs: Option<Inputs>,
    records: Option<Records>,
    verifiers: Vec<Arc<dyn Verifier>>,
}

/// What pools and flags ask for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Wanted {
    /// What is asked for each pool.
    modes: BTreeMap<String, AccessMode>,
    /// The pools whose annotation is not understood, and of which nothing is known from before.
    unclear: BTreeSet<String>,
}

impl Wanted {
    /// What is asked for the pools of which that is understood. The others are left as they are.
    fn understood(&self) -> BTreeMap<String, AccessMode> {
        let mut modes = self.modes.clone();
        modes.retain(|pool, _| !self.unclear.contains(pool));
        modes
    }
}

/// Makes inputs what is served. It may block.
pub(crate) type Publish = Box<dyn FnMut(&Inputs) + Send>;

impl Gate {
    /// A gate before anything was read. What it lets through is served by `publish`.
    pub(crate) fn new(
        settings: AccessSettings,
        networks: Networks,
        policy: Arc<ArcSwap<Policy>>,
        reporting: &Reporting,
        history: History,
        publish: Publish,
    ) -> Self {
        let AccessSettings { mode, issuer, cache, keeper } = settings;
        let verifiers = issuer.into_iter().map(|issuer| Arc::new(issuer.tokens) as _).collect();
        let records = cache.as_ref().and_then(TokenCache::load);
        let wanted = Wanted::default();
        let state = State { publish, keeper, wanted, inputs: None, records, verifiers };
        let (needs_tokens, known_tokens) = (watch::Sender::new(false), watch::Sender::default());
        let state = Mutex::new(state);
        let (degraded, metrics) =
            (reporting.status.degraded.clone(), Arc::clone(&reporting.metrics));
        Self {
            mode,
            networks,
            policy,
            degraded,
            metrics,
            history,
            needs_tokens,
            known_tokens,
            state,
        }
    }

    /// Serves `inputs` from now on.
    pub(crate) fn take_inputs(&self, inputs: &Inputs) {
        let mut state = self.state();
        state.inputs = Some(inputs.clone());
        self.apply(&mut state, true);
    }

    /// Whether it matters which tokens there are: not while all pools are open.
    pub(crate) fn needs_tokens(&self) -> watch::Receiver<bool> {
        self.needs_tokens.subscribe()
    }

    /// What is told of tokens from now on.
    pub(crate) fn known_tokens(&self) -> watch::Receiver<Option<Records>> {
        self.known_tokens.subscribe()
    }

    /// Whether tokens are known, from the cache or otherwise.
    pub(crate) fn knows_tokens(&self) -> bool {
        self.state().records.is_some()
    }

    /// Knows these tokens from now on.
    pub(crate) fn take_records(&self, records: Records) {
        let mut state = self.state();
        if self.learn(&mut state, records) {
            self.apply(&mut state, false);
        }
    }

    /// Whether this is news.
    fn learn(&self, state: &mut State, records: Records) -> bool {
        let records = records.following(state.records.as_ref(), &state.wanted.understood());
        if state.records.as_ref() == Some(&records) {
            return false;
        }
        self.known_tokens.send_replace(Some(records.clone()));
        state.records = Some(records);
        true
    }

    /// Accepts tokens that these keys have signed from now on.
    pub(crate) fn take_signed(&self, tokens: SignedTokens) {
        let mut state = self.state();
        state.verifiers = vec![Arc::new(tokens)];
        self.apply(&mut state, false);
    }

    /// Has the tokens looked at again, and tells when something will be due by itself.
    pub(crate) fn keep_tokens(&self) -> Option<OffsetDateTime> {
        let mut state = self.state();
        let Kept { records, requeue_at, .. } = self.keep(&mut state)?;
        if let Some(records) = records
            && self.learn(&mut state, records)
        {
            self.apply(&mut state, false);
        }
        requeue_at
    }

    /// Has the tokens looked at, if that is done here. A new token is accepted before anybody carries it;
    /// the modes stay as they are until all is in order.
    fn keep(&self, state: &mut State) -> Option<Kept> {
        let State { keeper, wanted, verifiers, .. } = state;
        let accept = &mut |records: &Records| {
            let modes = self.policy.load().modes.clone();
            self.policy.store(Arc::new(self.policy_of(modes, Some(records), verifiers)));
        };
        let kept = keeper.as_mut()?.keep(&wanted.understood(), accept);
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
            // Those that are known already are looked at again, by what is asked now.
            if let Some(records) = kept.or_else(|| state.records.clone()) {
                self.learn(state, records);
            }
        }
        let Wanted { modes: asked, unclear } = &wanted;
        let needs_tokens = asked.values().chain([&self.mode]).any(|mode| *mode != AccessMode::Off);
        self.needs_tokens.send_replace(needs_tokens || !unclear.is_empty());
        let modes = Modes::new(self.mode, asked, unclear, state.records.as_ref());
        let before = self.policy.load().modes.clone();
        let enforced = modes.enforced();
        self.tell(&before, &modes);
        let restricted = asked.iter().filter(|(_, asked)| **asked != AccessMode::Off);
        self.metrics.access_modes(
            restricted.map(|(pool, asked)| (&**pool, asked.label(), modes.of(pool).label())),
        );
        // What is for few is never rendered while many may have it.
        self.policy.store(Arc::new(self.policy_of(
            before.stricter(&modes),
            state.records.as_ref(),
            &state.verifiers,
        )));
        if are_inputs_new || enforced != inputs.enforced {
            let inputs = Inputs { enforced, ..inputs };
            (state.publish)(&inputs);
            state.inputs = Some(inputs);
        }
        self.policy.store(Arc::new(self.policy_of(
            modes,
            state.records.as_ref(),
            &state.verifiers,
        )));
    }

    fn policy_of(
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

    /// What each pool says of itself goes before the flag. What is not understood changes nothing; where
    /// nothing is known from before, it opens no pool and refuses nobody for good.
    fn read_wanted(&self, inputs: &Inputs, before: &Wanted, records: Option<&Records>) -> Wanted {
        let mut faults = Vec::new();
        let mut wanted = Wanted::default();
        // One that was enforced before this process began goes on to be.
        let was_enforced = |pool: &str| {
            let closed = records.map(|it| [&it.enforced, &it.contested, &it.unsure]);
            closed.into_iter().flatten().any(|closed| closed.contains(pool))
        };
        for (name, pool) in &inputs.pools {
            let mode = match pool.annotation(ACCESS_ANNOTATION).map(str::parse::<AccessMode>) {
                None => self.mode,
                Some(Ok(own)) => own,
                Some(Err(error)) => {
                    faults.push(format!("pool {name}: {ACCESS_ANNOTATION}: {error}"));
                    match before.modes.get(name).filter(|_| !before.unclear.contains(name)) {
                        Some(before) => *before,
                        None if was_enforced(name) => AccessMode::Enforce,
                        None => {
                            wanted.unclear.insert(name.clone());
                            self.mode
                        }
                    }
                }
            };
            wanted.modes.insert(name.clone(), mode);
        }
        self.degrade("access", &faults);
        wanted
    }

    fn tell(&self, before: &Modes, now: &Modes) {
        let held = now.held().map(|(pool, reason)| format!("pool {pool}: {reason}"));
        let held: Vec<_> = held.collect();
        self.degrade("access is audited and not enforced", &held);
        let waiting = now.waiting().map(|(pool, why)| {
            format!(
                "pool {pool}: {why}; until then, only a known token opens it, all others get 503"
            )
        });
        self.degrade("access is not known", &waiting.collect::<Vec<_>>());
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

#[cfg(test)]
mod tests;
