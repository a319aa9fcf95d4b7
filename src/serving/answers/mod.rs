//! Answers of all pools, ready to send behind an atomically swapped pointer.
//!
//! A config is rendered at its first request in a version and form, once for all concurrent requests, and cached. A
//! change of the inputs is in force at once and renders nothing: the next request of a pool does, and what machines have
//! asked for before follows in the background. If a version cannot be rendered, the answer comes from the last inputs
//! that could be, even if they were not requested then. A pool's answers share common parts in memory.

mod answer;
mod pool;
mod segments;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use arc_swap::ArcSwapOption;
use common::parallel;
use telemetry::{Metrics, PoolLabel};

pub(crate) use self::answer::{Answer, PENDING, Refusal};

use ignition::{Form, SpecVersion};
use model::inputs::{BOOTSTRAP_POOLS, Inputs, Problem, ServingMode};
use model::render::{self, CompressedContents, ExposedPlaces, SelectError};
use secrets::Secret;

use self::answer::Variant;
use self::pool::Pool;
pub(crate) use self::pool::{PoolConfigs, PoolState};

/// Maximum size in bytes of the answers in memory. Past it, those of the pools that were asked for longest ago are dropped,
/// and rendered again for the next machine.
const MAX_HELD: usize = 32 << 20;

/// Present answers of all pools.
#[derive(Debug)]
pub struct Answers {
    table: ArcSwapOption<Table>,
    is_compact: bool,
    /// Number of requests so far.
    requests: AtomicU64,
    metrics: Arc<Metrics>,
}

#[derive(Debug, Clone)]
struct Table {
    mode: ServingMode,
    pools: HashMap<Arc<str>, Arc<Pool>>,
    /// True if there may be other pools, which have not been read yet.
    is_partial: bool,
    /// Pools that only clients with a proof get.
    enforced: BTreeSet<String>,
    problems: Vec<Problem>,
    warnings: Vec<Problem>,
}

impl Answers {
    /// Creates an empty set. Without `is_compact`, only the plain form is used.
    pub fn new(is_compact: bool, metrics: Arc<Metrics>) -> Self {
        Self { table: ArcSwapOption::empty(), is_compact, requests: AtomicU64::new(0), metrics }
    }

    /// The answer for a machine of `pool` that reads `version`, in the best possible form.
    pub(crate) async fn answer(
        self: &Arc<Self>,
        pool: &str,
        version: SpecVersion,
        form: Form,
    ) -> Result<Arc<Answer>, Refusal> {
        let form = if self.is_compact { form } else { Form::Plain };
        let variant = Variant { version, form };
        let pool = {
            let table = self.table.load();
            let table = table.as_ref().ok_or(Refusal::NotRead)?;
            let Some(pool) = table.pools.get(pool) else { return Err(table.unknown(pool)) };
            pool.requested(1 + self.requests.fetch_add(1, Ordering::Relaxed));
            if let Some(outcome) = pool.outcomes[variant.index()].get() {
                return outcome.clone();
            }
            Arc::clone(pool)
        };
        // A task of its own, which no client ends that disconnects: what it has rendered is there for the next one.
        let answers = Arc::clone(self);
        let first = tokio::spawn(async move {
            let answer = pool.first_answer(variant).await;
            answers.drop_oldest(MAX_HELD);
            answer
        });
        // It is not cancelled, and a panic ends the process.
        first.await.unwrap_or(Err(Refusal::Unrenderable(version)))
    }

    /// Drops answers if there are more than `most` bytes of them, down to three quarters of it.
    fn drop_oldest(&self, most: usize) {
        let Some(table) = self.table.load_full() else { return };
        let mut total: usize = table.pools.values().map(|pool| pool.held()).sum();
        if total <= most {
            return;
        }
        let mut pools: Vec<_> = table.pools.values().filter(|pool| pool.held() > 0).collect();
        pools.sort_by_key(|pool| pool.last_request());
        // The last one was just asked for.
        pools.pop();
        let oldest = pools.into_iter().take_while(|pool| {
            let is_over = total > most / 4 * 3;
            total = total.saturating_sub(pool.held());
            is_over
        });
        let dropped: Vec<_> = oldest.map(|pool| (pool, pool.without_answers())).collect();
        // Pools that have changed meanwhile stay as they are.
        self.table.rcu(|table| {
            let mut table = Table::clone(table.as_ref()?);
            for (before, now) in &dropped {
                if let Some(pool) = table.pools.get_mut(&before.name)
                    && Arc::ptr_eq(pool, before)
                {
                    *pool = Arc::clone(now);
                }
            }
            Some(Arc::new(table))
        });
    }

    /// Label of a pool in metrics, which is common to all unknown names.
    pub(crate) fn label(&self, pool: &str) -> PoolLabel {
        let table = self.table.load();
        let known = table.as_ref().and_then(|table| table.pools.get_key_value(pool));
        known.map_or(PoolLabel::Unknown, |(name, _)| PoolLabel::Known(Arc::clone(name)))
    }

    /// States of all pools, sorted by name.
    pub(crate) fn pools(&self) -> Vec<PoolState> {
        let table = self.table.load();
        let pools = table.iter().flat_map(|table| table.pools.values());
        let mut pools: Vec<_> = pools.map(|pool| pool.state()).collect();
        pools.sort_by(|a, b| a.name.cmp(&b.name));
        pools
    }

    pub(crate) fn has_pool(&self, pool: &str) -> bool {
        self.table.load().as_ref().is_some_and(|table| table.pools.contains_key(pool))
    }

    /// Renders the present and the former config of a pool in the newest spec; `None` if there is no such
    /// pool. Blocks while it renders.
    pub(crate) fn configs(&self, pool: &str) -> Option<PoolConfigs> {
        let table = self.table.load();
        let pool = Arc::clone(table.as_ref()?.pools.get(pool)?);
        Some(pool.configs())
    }

    /// Returns `true` if all pools were read, by this or an earlier process.
    pub(crate) fn have_inputs(&self) -> bool {
        self.table.load().as_ref().is_some_and(|table| !table.is_partial)
    }

    /// Reasons why the server is not ready, one line each; empty if it is ready.
    pub(crate) fn unready(&self) -> Vec<String> {
        self.unready_lines(Problem::to_string, |_, reason| reason.to_owned())
    }

    /// Reasons for unauthenticated clients: names of pools and objects, no contents.
    pub(crate) fn unready_for_unauthenticated(&self) -> Vec<String> {
        self.unready_lines(Problem::for_unauthenticated, |pool, _| match &pool.inputs {
            Ok(_) => "its config cannot be rendered".to_owned(),
            Err(unselected) => unselected.to_string(),
        })
    }

    fn unready_lines(
        &self,
        problem: impl Fn(&Problem) -> String,
        failed: impl Fn(&Pool, &str) -> String,
    ) -> Vec<String> {
        let table = self.table.load();
        let Some(table) = table.as_ref() else { return vec![Refusal::NotRead.to_string()] };
        let mut lines: Vec<String> = table.problems.iter().map(problem).collect();
        if table.is_partial {
            lines.push(Refusal::NotRead.to_string());
        } else if table.pools.is_empty() {
            lines.push("no pool found".to_owned());
        }
        let pools = table.pools.values().filter_map(|pool| {
            let reason = match pool.check.get() {
                Some(Ok(_)) => return None,
                Some(Err(reason)) => pool.with_served(failed(pool, reason)),
                // Earlier inputs are served if these cannot be, so that readiness does not flap.
                None if pool.is_ready() => return None,
                None => "is being rendered".to_owned(),
            };
            Some(format!("pool {}: {reason}", pool.name))
        });
        lines.extend(pools);
        lines.sort();
        lines
    }

    /// Number of pools that are known not to render.
    pub(crate) fn failing(&self) -> usize {
        let table = self.table.load();
        let pools = table.iter().flat_map(|table| table.pools.values());
        pools.filter(|pool| pool.failure().is_some()).count()
    }

    /// Secrets in the configs of pools that are not enforced, one line for each pool. They are known after the pool's
    /// check, and cost nothing otherwise.
    pub(crate) fn exposed(&self) -> Vec<String> {
        let mut lines = self.of_open_pools(render::exposed_line);
        lines.sort();
        lines
    }

    /// The places of these secrets by pool.
    pub(crate) fn exposed_places(&self) -> BTreeMap<String, ExposedPlaces> {
        let places =
            |pool: &str, secrets: &[Secret]| Some((pool.to_owned(), ExposedPlaces::of(secrets)?));
        self.of_open_pools(places).into_iter().collect()
    }

    /// The results of `read` with the name and the secrets of each pool that is not enforced, once they are known.
    fn of_open_pools<T>(&self, read: impl Fn(&str, &[Secret]) -> Option<T>) -> Vec<T> {
        let table = self.table.load();
        let Some(table) = table.as_ref() else { return Vec::new() };
        let pools = table.pools.values().filter(|pool| !table.enforced.contains(&*pool.name));
        pools
            .filter_map(|pool| read(&pool.name, &pool.check.get()?.as_ref().ok()?.secrets))
            .collect()
    }

    /// Parts of the served objects that have no effect, one line each.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let table = self.table.load();
        table.iter().flat_map(|table| &table.warnings).map(Problem::to_string).collect()
    }

    /// Serves `inputs` from this call on. Returns true if anything changed.
    pub(crate) fn replace(&self, inputs: &Inputs, now: SystemTime) -> bool {
        let old = self.table.load_full();
        let names: Vec<&String> = inputs.pools.keys().collect();
        let pools = parallel::map(&names, |name| {
            let old = old.as_ref().and_then(|table| table.pools.get(name.as_str()));
            let pool = Pool::next(name, render::select(inputs, name), old, &self.metrics);
            (Arc::clone(&pool.name), pool)
        });
        let table = Table {
            mode: inputs.mode,
            pools: pools.into_iter().collect(),
            is_partial: inputs.is_partial,
            enforced: inputs.enforced.clone(),
            problems: inputs.problems.clone(),
            warnings: inputs.warnings.clone(),
        };
        if old.is_some_and(|old| old.same(&table)) {
            return false;
        }
        self.table.store(Some(Arc::new(table)));
        self.metrics.inputs_changed(now);
        true
    }

    /// Renders what machines have asked for before the last changes, checks all pools for the readiness report, and
    /// searches them for secrets. Blocks while it does so pool by pool, the last requested ones first, so that requests
    /// go first.
    pub(crate) fn refresh(&self) {
        let compressed = CompressedContents::default();
        // The table can change after each pool.
        while let Some(pool) = self.stale() {
            pool.refresh(&compressed);
        }
    }

    fn stale(&self) -> Option<Arc<Pool>> {
        let table = self.table.load();
        let pools = table.as_ref()?.pools.values().filter(|pool| pool.is_stale());
        pools.max_by_key(|pool| pool.last_request()).cloned()
    }
}

impl Table {
    fn same(&self, other: &Self) -> bool {
        let same_pool = |(name, pool): (&Arc<str>, &Arc<Pool>)| {
            other.pools.get(name).is_some_and(|other| Arc::ptr_eq(pool, other))
        };
        self.mode == other.mode
            && self.is_partial == other.is_partial
            && self.enforced == other.enforced
            && self.problems == other.problems
            && self.warnings == other.warnings
            && self.pools.len() == other.pools.len()
            && self.pools.iter().all(same_pool)
    }

    fn unknown(&self, pool: &str) -> Refusal {
        if self.is_partial {
            return Refusal::NotRead;
        }
        Refusal::Unselected(match self.mode {
            ServingMode::Bootstrap if !BOOTSTRAP_POOLS.contains(&pool) => {
                SelectError::NotInBootstrap
            }
            _ => SelectError::UnknownPool,
        })
    }
}

#[cfg(test)]
pub(crate) mod tests;
