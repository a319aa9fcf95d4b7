//! What each pool answers, ready to send: bytes behind an atomically swapped pointer.
//!
//! A config is rendered when it is asked for first, in the version and the form that were asked
//! for, once for all who ask at the same time, and kept. When the inputs change, what has been asked
//! for before is rendered again ahead of the swap, so that no request waits for it; and where that
//! fails, the last good bytes stay. Versions that nobody asked for before are then rendered from the last
//! inputs that were good, so that an answer never depends on who asked when. A pool's answers share the
//! memory of what they have in common.

mod answer;
mod segments;

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, OnceLock};
use std::time::{Instant, SystemTime};

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use http::HeaderValue;
use tokio::sync::OnceCell;

pub use self::answer::{Answer, PENDING, Refusal};
pub use self::segments::Segments;

use self::answer::etag;
use crate::ignition::secrets::Secret;
use crate::ignition::{Form, SpecVersion};
use crate::inputs::{BOOTSTRAP_POOLS, Inputs, Mode, Problem};
use crate::parallel;
use crate::render::{self, CompressedContents, PoolInputs, Unselected};
use crate::telemetry::{Metrics, PoolLabel};

/// All pools' answers, now.
#[derive(Debug)]
pub struct Answers {
    table: ArcSwapOption<Table>,
    is_compact: bool,
    metrics: Arc<Metrics>,
}

#[derive(Debug)]
struct Table {
    mode: Mode,
    pools: HashMap<Arc<str>, Arc<Pool>>,
    /// The pools that nobody gets a config of without a proof that he may have it.
    enforced: BTreeSet<String>,
    problems: Vec<Problem>,
    warnings: Vec<Problem>,
}

type Outcome = Result<Arc<Answer>, Refusal>;

#[derive(Debug)]
struct Pool {
    name: Arc<str>,
    inputs: Result<PoolInputs, Unselected>,
    /// The newest inputs before these that rendered, for as long as these do not.
    last_good: Option<PoolInputs>,
    /// Whether the pool could not be rendered before this change.
    was_failing: bool,
    /// By [`Variant::index`].
    outcomes: [OnceCell<Outcome>; Variant::COUNT],
    /// The first body in each form, by [`Form::index`], which later ones share what they can with.
    bases: [OnceLock<Bytes>; Form::ALL.len()],
    /// Whether the pool's present inputs render, and what is secret in what they come to, once that is
    /// known.
    check: OnceLock<Result<Vec<Secret>, String>>,
}

/// What a pool's machines get.
#[derive(Debug)]
pub struct PoolState {
    /// The pool.
    pub name: Arc<str>,
    /// The machine config that is served: an older one while the present one cannot be rendered.
    pub configuration: Option<String>,
    /// Why its machines get nothing or something older.
    pub problem: Option<String>,
    /// The specs that are ready to send.
    pub versions: Vec<SpecVersion>,
}

/// What is rendered of a pool: there is one answer for each.
#[derive(Debug, Clone, Copy)]
struct Variant {
    version: SpecVersion,
    form: Form,
}

impl Variant {
    const COUNT: usize = SpecVersion::ALL.len() * Form::ALL.len();

    fn all() -> impl Iterator<Item = Self> {
        let forms = |version| Form::ALL.map(|form| Self { version, form });
        SpecVersion::ALL.into_iter().flat_map(forms)
    }

    fn index(self) -> usize {
        self.version.index() * Form::ALL.len() + self.form.index()
    }
}

impl Answers {
    /// No answers yet. Only where `is_compact` is there any other form than the plain one.
    #[must_use]
    pub fn new(is_compact: bool, metrics: Arc<Metrics>) -> Self {
        Self { table: ArcSwapOption::empty(), is_compact, metrics }
    }

    /// The answer for a machine of `pool` that speaks `version`, in the form that it can have.
    pub async fn answer(
        &self,
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
            if let Some(outcome) = pool.outcomes[variant.index()].get() {
                return outcome.clone();
            }
            Arc::clone(pool)
        };
        pool.first_answer(variant, &self.metrics).await
    }

    /// Whether there is a pool of this name, for labels.
    #[must_use]
    pub fn label(&self, pool: &str) -> PoolLabel {
        let table = self.table.load();
        let known = table.as_ref().and_then(|table| table.pools.get_key_value(pool));
        known.map_or(PoolLabel::Unknown, |(name, _)| PoolLabel::Known(Arc::clone(name)))
    }

    /// The pools by name, and what their machines get.
    #[must_use]
    pub fn pools(&self) -> Vec<PoolState> {
        let table = self.table.load();
        let pools = table.iter().flat_map(|table| table.pools.values());
        let mut pools: Vec<_> = pools.map(|pool| pool.state()).collect();
        pools.sort_by(|a, b| a.name.cmp(&b.name));
        pools
    }

    /// Whether there is anything to answer from: inputs were read, now or by an earlier process.
    #[must_use]
    pub fn have_inputs(&self) -> bool {
        self.table.load().is_some()
    }

    /// What keeps the server from being ready, one line each; nothing if all is well.
    #[must_use]
    pub fn unready(&self) -> Vec<String> {
        self.unready_lines(Problem::to_string, |_, reason| reason.to_owned())
    }

    /// The same for whoever may ask: which pools and objects, and nothing that is in one.
    #[must_use]
    pub fn unready_to_strangers(&self) -> Vec<String> {
        self.unready_lines(Problem::to_strangers, |pool, _| match &pool.inputs {
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
        if table.pools.is_empty() {
            lines.push("there are no pools".to_owned());
        }
        let pools = table.pools.values().filter_map(|pool| {
            let reason = match pool.check.get() {
                Some(Ok(_)) => return None,
                Some(Err(reason)) => pool.with_served(failed(pool, reason)),
                // What was rendered ahead of the swap is good; readiness must not blink.
                None if pool.is_serving() => return None,
                None => "is being rendered".to_owned(),
            };
            Some(format!("pool {}: {reason}", pool.name))
        });
        lines.extend(pools);
        lines.sort();
        lines
    }

    /// How many pools are known not to render.
    #[must_use]
    pub fn failing(&self) -> usize {
        let table = self.table.load();
        let pools = table.iter().flat_map(|table| table.pools.values());
        pools.filter(|pool| pool.failure().is_some()).count()
    }

    /// What is secret in the configs of pools that are not enforced, one line a pool. It is known
    /// once a pool has been checked, and costs nothing before or after.
    #[must_use]
    pub fn exposed(&self) -> Vec<String> {
        let table = self.table.load();
        let Some(table) = table.as_ref() else { return Vec::new() };
        let pools = table.pools.values().filter(|pool| !table.enforced.contains(&*pool.name));
        let mut lines: Vec<String> = pools
            .filter_map(|pool| {
                let secrets = pool.check.get()?.as_ref().ok()?;
                render::exposed_line(&pool.name, secrets)
            })
            .collect();
        lines.sort();
        lines
    }

    /// What has no effect in what is served, one line each.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let table = self.table.load();
        table.iter().flat_map(|table| &table.warnings).map(Problem::to_string).collect()
    }

    /// Makes `inputs` what is served from now on.
    ///
    /// Blocks while it renders what was asked for before; call it where that is allowed. Tells
    /// whether anything changed.
    pub fn publish(&self, inputs: &Inputs, now: SystemTime) -> bool {
        let old = self.table.load_full();
        let names: Vec<&String> = inputs.pools.keys().collect();
        let compressed = CompressedContents::default();
        let pools = parallel::map(&names, |name| {
            let old = old.as_ref().and_then(|table| table.pools.get(name.as_str()));
            let selected = render::select(inputs, name);
            let pool = Pool::next(name, selected, old, &compressed, &self.metrics);
            (Arc::clone(&pool.name), pool)
        });
        let table = Table {
            mode: inputs.mode,
            pools: pools.into_iter().collect(),
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

    /// Finds out which pools render and what is secret in them, for the readiness report. Blocks while it renders, one after
    /// the other: machines that ask meanwhile go first.
    pub fn check(&self) {
        // The table may be another one after each pool.
        while let Some(pool) = self.unchecked() {
            pool.check(&self.metrics);
        }
    }

    fn unchecked(&self) -> Option<Arc<Pool>> {
        let table = self.table.load();
        table.as_ref()?.pools.values().find(|pool| pool.check.get().is_none()).cloned()
    }
}

impl Table {
    fn same(&self, other: &Self) -> bool {
        let same_pool = |(name, pool): (&Arc<str>, &Arc<Pool>)| {
            other.pools.get(name).is_some_and(|other| Arc::ptr_eq(pool, other))
        };
        self.mode == other.mode
            && self.enforced == other.enforced
            && self.problems == other.problems
            && self.warnings == other.warnings
            && self.pools.len() == other.pools.len()
            && self.pools.iter().all(same_pool)
    }

    fn unknown(&self, pool: &str) -> Refusal {
        Refusal::Unselected(match self.mode {
            Mode::Bootstrap if !BOOTSTRAP_POOLS.contains(&pool) => Unselected::NotInBootstrap,
            _ => Unselected::UnknownPool,
        })
    }
}

impl Pool {
    /// The pool with what it serves from now on.
    fn next(
        name: &str,
        inputs: Result<PoolInputs, Unselected>,
        old: Option<&Arc<Self>>,
        compressed: &CompressedContents,
        metrics: &Metrics,
    ) -> Arc<Self> {
        if let Some(old) = old {
            let same = match (&old.inputs, &inputs) {
                (Ok(old), Ok(new)) => old.same(new),
                (Err(old), Err(new)) => old == new,
                _ => false,
            };
            if same {
                return Arc::clone(old);
            }
        }
        let was_failing = old.is_some_and(|old| !old.is_good(metrics));
        let last_good = old.filter(|_| !matches!(&inputs, Err(reason) if reason.is_meant()));
        let last_good = last_good.and_then(|old| match &old.inputs {
            Ok(inputs) if !was_failing => Some(inputs.clone()),
            _ => old.last_good.clone(),
        });
        let name = old.map_or_else(|| Arc::from(name), |old| Arc::clone(&old.name));
        let (outcomes, bases, check) = Default::default();
        let pool = Self { name, inputs, last_good, was_failing, outcomes, bases, check };
        for variant in Variant::all() {
            if let Some(last_good) = old.and_then(|old| old.good(variant)) {
                pool.replace(variant, last_good, compressed, metrics);
            }
        }
        Arc::new(pool)
    }

    fn state(&self) -> PoolState {
        let is_ready = |version: &SpecVersion| {
            Form::ALL
                .iter()
                .any(|form| self.good(Variant { version: *version, form: *form }).is_some())
        };
        let problem = self.failure();
        let served = match &problem {
            Some(_) => self.last_good.as_ref(),
            None => self.inputs.as_ref().ok(),
        };
        PoolState {
            name: Arc::clone(&self.name),
            configuration: served.map(|inputs| inputs.configuration.clone()),
            problem: problem.map(|reason| self.with_served(reason)),
            versions: SpecVersion::ALL.into_iter().filter(is_ready).collect(),
        }
    }

    /// Why the present inputs cannot be rendered, as far as that is known.
    fn failure(&self) -> Option<String> {
        match (&self.inputs, self.check.get()) {
            (Err(reason), _) => Some(reason.to_string()),
            (Ok(_), Some(Err(reason))) => Some(reason.clone()),
            (Ok(_), _) => None,
        }
    }

    /// `reason`, and which config machines get meanwhile.
    fn with_served(&self, reason: String) -> String {
        match &self.last_good {
            Some(inputs) => format!("{reason}; {} is served meanwhile", inputs.configuration),
            None => reason,
        }
    }

    /// Whether the present inputs render; it is found out where that is not known yet.
    fn is_good(&self, metrics: &Metrics) -> bool {
        if self.inputs.is_ok() && self.check.get().is_none() {
            self.check(metrics);
        }
        self.failure().is_none()
    }

    /// An answer from before, which names what cannot be rendered.
    fn pending(&self, last_good: &Answer) -> Arc<Answer> {
        let present = self.inputs.as_ref().ok().map(|inputs| inputs.configuration.as_str());
        let pending = present.and_then(|name| HeaderValue::from_str(name).ok());
        Arc::new(Answer { pending, ..last_good.clone() })
    }

    /// What is ready to send.
    fn good(&self, variant: Variant) -> Option<&Arc<Answer>> {
        self.outcomes[variant.index()].get()?.as_ref().ok()
    }

    /// Whether some version is ready to send.
    fn is_serving(&self) -> bool {
        Variant::all().any(|variant| self.good(variant).is_some())
    }

    /// Renders what was served before, and keeps the last good answer where that fails.
    fn replace(
        &self,
        variant: Variant,
        last_good: &Arc<Answer>,
        compressed: &CompressedContents,
        metrics: &Metrics,
    ) {
        let version = variant.version;
        let outcome = match &self.inputs {
            Ok(inputs) => match self.render(inputs, variant, compressed, metrics) {
                Ok(answer) => Ok(answer),
                Err(reason) => {
                    tracing::error!(
                        pool = %self.name, spec = %version, reason,
                        "cannot render the new config; the one before stays"
                    );
                    // The check is made here: the error is known.
                    let _ = self.check.set(Err(reason));
                    Ok(self.pending(last_good))
                }
            },
            Err(reason) if reason.is_meant() => return,
            Err(reason) => {
                tracing::error!(
                    pool = %self.name, spec = %version, %reason,
                    "nothing to render; the config before stays"
                );
                Ok(self.pending(last_good))
            }
        };
        // The cell is empty: this pool is not shared yet, and each variant comes once.
        let _ = self.outcomes[variant.index()].set(outcome);
    }

    /// Renders what nobody has asked for before.
    async fn first_answer(self: Arc<Self>, variant: Variant, metrics: &Arc<Metrics>) -> Outcome {
        let pool = Arc::clone(&self);
        let metrics = Arc::clone(metrics);
        let render = || async move {
            let work = tokio::task::spawn_blocking(move || pool.outcome(variant, &metrics));
            // The task is not cancelled, and a panic has ended the process.
            work.await.unwrap_or(Err(Refusal::Unrenderable(variant.version)))
        };
        self.outcomes[variant.index()].get_or_init(render).await.clone()
    }

    fn outcome(&self, variant: Variant, metrics: &Metrics) -> Outcome {
        let version = variant.version;
        let rendered = self.inputs.as_ref().map_err(|reason| reason.clone().into());
        let rendered = rendered.and_then(|inputs| {
            let compressed = CompressedContents::default();
            self.render(inputs, variant, &compressed, metrics).map_err(|reason| {
                tracing::error!(pool = %self.name, spec = %version, reason, "cannot render");
                Refusal::Unrenderable(version)
            })
        });
        // Whether a machine asked before the change makes no difference to what it gets after it.
        rendered.or_else(|refusal| {
            let plain = || self.good(Variant { form: Form::Plain, ..variant }).cloned();
            let before = || {
                let compressed = CompressedContents::default();
                let inputs = self.last_good.as_ref()?;
                let answer = self.render(inputs, variant, &compressed, metrics).ok()?;
                Some(self.pending(&answer))
            };
            before().or_else(plain).ok_or(refusal)
        })
    }

    fn check(&self, metrics: &Metrics) {
        let result = match &self.inputs {
            Ok(inputs) => {
                let newest = Variant { version: SpecVersion::NEWEST, form: Form::Plain };
                let rendered = self.body(inputs, newest, &CompressedContents::default(), metrics);
                rendered.and_then(|it| render::exposed(&it).map_err(|error| error.to_string()))
            }
            Err(reason) => Err(reason.to_string()),
        };
        match &result {
            Err(reason) => tracing::warn!(pool = %self.name, reason, "the pool is not ready"),
            Ok(_) if self.was_failing => {
                tracing::info!(pool = %self.name, "the pool is ready again");
            }
            Ok(_) => {}
        }
        // Another thread may have checked meanwhile, and found the same.
        let _ = self.check.set(result);
    }

    fn body(
        &self,
        inputs: &PoolInputs,
        Variant { version, form }: Variant,
        compressed: &CompressedContents,
        metrics: &Metrics,
    ) -> Result<Bytes, String> {
        let started = Instant::now();
        let body = render::render(inputs, version, form, compressed).map_err(|error| {
            metrics.render_failed(&self.name, version);
            error.to_string()
        })?;
        metrics.rendered(started.elapsed());
        Ok(body)
    }

    fn render(
        &self,
        inputs: &PoolInputs,
        variant: Variant,
        compressed: &CompressedContents,
        metrics: &Metrics,
    ) -> Result<Arc<Answer>, String> {
        let body = self.body(inputs, variant, compressed, metrics)?;
        let etag = etag(&body).map_err(|error| error.to_string())?;
        let base = self.bases[variant.form.index()].get_or_init(|| body.clone());
        let body = Segments::sharing(body, base);
        let label = PoolLabel::Known(Arc::clone(&self.name));
        let requests = metrics.requests(label, Some(variant.version), 200);
        let configuration = inputs.configuration.as_str().into();
        let (length, is_restricted) = (body.len().into(), inputs.logins.is_some());
        let pending = None;
        Ok(Arc::new(Answer { body, length, etag, configuration, pending, is_restricted, requests }))
    }
}

#[cfg(test)]
mod tests;
