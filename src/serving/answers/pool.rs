//! Answers of one pool, in each version and form that was requested.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use bytes::Bytes;
use http::HeaderValue;
use ignition::{Form, SpecVersion};
use model::render::{self, CompressedContents, PoolInputs, SelectError};
use secrets::Secret;
use telemetry::{Metrics, PoolLabel};
use tokio::sync::OnceCell;

use super::answer::{Answer, OverlayBase, Refusal, Variant, etag};
use super::segments::SharedSegments;

/// Number of earlier inputs that are kept without knowing in which versions they render: those of a burst of changes.
const UNCHECKED: usize = 16;

/// Next step for a config that cannot be rendered.
const RENDERABLE: &str = "correct the object that the reason names";

pub(super) type Outcome = Result<Arc<Answer>, Refusal>;

#[derive(Debug)]
pub(super) struct Pool {
    pub(super) name: Arc<str>,
    pub(super) inputs: Result<PoolInputs, SelectError>,
    /// Earlier inputs that are served where the present ones do not render, the newest first.
    before: Vec<Arc<EarlierInputs>>,
    /// True if the previous inputs could not be rendered.
    was_failing: bool,
    /// True if machines got an answer before these inputs.
    was_ready: bool,
    /// Variants that machines have asked for before these inputs.
    asked: Vec<Variant>,
    /// Number of the last request for the pool, among all. It outlives changes.
    last_request: Arc<AtomicU64>,
    /// Results by [`Variant::index`].
    pub(super) outcomes: [OnceCell<Outcome>; Variant::COUNT],
    /// Pieces that the bodies share.
    pieces: SharedSegments,
    /// Result of rendering the present inputs in the newest version, once it is known.
    pub(super) check: OnceLock<Result<RenderCheck, String>>,
    metrics: Arc<Metrics>,
}

/// Facts about inputs that render.
#[derive(Debug, Clone)]
pub(super) struct RenderCheck {
    /// Secrets in the rendered config.
    pub(super) secrets: Vec<Secret>,
    /// Oldest version in which they render. They also render in all newer ones.
    oldest: SpecVersion,
}

/// State of a pool's answers.
#[derive(Debug)]
pub(crate) struct PoolState {
    pub(crate) name: Arc<str>,
    /// Served MachineConfig: an older one if the present one cannot be rendered.
    pub(crate) configuration: Option<String>,
    /// Reason why its machines get nothing or an older config.
    pub(crate) problem: Option<String>,
    /// Specs that are ready to send.
    pub(crate) versions: Vec<SpecVersion>,
}

/// Configs of a pool in the newest spec, for people.
#[derive(Debug)]
pub(crate) struct PoolConfigs {
    /// Served machine config, rendered.
    pub(crate) served: Option<(String, Bytes)>,
    /// Machine config served before, rendered.
    pub(crate) before: Option<(String, Bytes)>,
}

/// Inputs before the present ones.
#[derive(Debug)]
struct EarlierInputs {
    inputs: PoolInputs,
    /// Oldest version in which they render, `None` if in none; empty until it is needed.
    oldest: OnceLock<Option<SpecVersion>>,
}

impl EarlierInputs {
    /// Renders them if it is unknown in which versions they render.
    fn oldest(&self) -> Option<SpecVersion> {
        *self.oldest.get_or_init(|| oldest(&self.inputs, &CompressedContents::default()))
    }
}

/// Oldest version in which the inputs render.
fn oldest(inputs: &PoolInputs, compressed: &CompressedContents) -> Option<SpecVersion> {
    let renders =
        |version: &SpecVersion| render::render(inputs, *version, Form::Plain, compressed).is_ok();
    SpecVersion::ALL.into_iter().find(renders)
}

impl Pool {
    /// Creates the pool's next state. It renders nothing that can wait.
    pub(super) fn next(
        name: &str,
        inputs: Result<PoolInputs, SelectError>,
        old: Option<&Arc<Self>>,
        metrics: &Arc<Metrics>,
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
        let was_failing = old.is_some_and(|old| old.is_failing());
        let last_request = old.map(|old| Arc::clone(&old.last_request)).unwrap_or_default();
        let is_meant = matches!(&inputs, Err(reason) if reason.is_meant());
        let old = old.filter(|_| !is_meant);
        let pool = Self {
            name: Arc::from(name),
            inputs,
            before: old.map(|old| old.earlier_inputs()).unwrap_or_default(),
            was_failing,
            was_ready: old.is_some_and(|old| old.is_ready()),
            asked: old.map(|old| old.asked()).unwrap_or_default(),
            last_request,
            outcomes: <_>::default(),
            pieces: SharedSegments::default(),
            check: OnceLock::new(),
            metrics: Arc::clone(metrics),
        };
        if pool.inputs.is_err() {
            // What is served instead is known from the first report on.
            pool.good_before().for_each(drop);
        }
        Arc::new(pool)
    }

    /// Bytes of the answers in memory.
    pub(super) fn held(&self) -> usize {
        self.pieces.held()
    }

    /// The same state without answers, which the next requests render.
    pub(super) fn without_answers(&self) -> Arc<Self> {
        Arc::new(Self {
            name: Arc::clone(&self.name),
            inputs: self.inputs.clone(),
            before: self.before.clone(),
            was_failing: self.was_failing,
            was_ready: self.is_ready(),
            asked: Vec::new(),
            last_request: Arc::clone(&self.last_request),
            outcomes: <_>::default(),
            pieces: SharedSegments::default(),
            check: self.check.clone(),
            metrics: Arc::clone(&self.metrics),
        })
    }

    /// Inputs that the next state may need: each may render in versions in which those ahead of it do not.
    fn earlier_inputs(&self) -> Vec<Arc<EarlierInputs>> {
        let present = self.inputs.as_ref().ok().map(|inputs| {
            let oldest = match self.check.get() {
                Some(checked) => OnceLock::from(checked.as_ref().ok().map(|it| it.oldest)),
                None => OnceLock::new(),
            };
            Arc::new(EarlierInputs { inputs: inputs.clone(), oldest })
        });
        let (mut needed, mut unchecked, mut reach) = (Vec::new(), 0, None);
        for earlier in present.iter().chain(&self.before) {
            if unchecked == UNCHECKED {
                earlier.oldest();
            }
            match earlier.oldest.get() {
                None => unchecked += 1,
                Some(Some(oldest)) if reach.is_none_or(|reach| *oldest < reach) => {
                    reach = Some(*oldest);
                }
                Some(_) => continue,
            }
            needed.push(Arc::clone(earlier));
        }
        needed
    }

    /// Earlier inputs that render, with the oldest version in which they do. Renders those of which this is unknown.
    fn good_before(&self) -> impl Iterator<Item = (&PoolInputs, SpecVersion)> {
        self.before.iter().filter_map(|it| Some((&it.inputs, it.oldest()?)))
    }

    /// Variants that machines have asked for, of these inputs or of earlier ones.
    fn asked(&self) -> Vec<Variant> {
        let was_asked = |variant: &Variant| match self.outcomes[variant.index()].get() {
            Some(outcome) => outcome.is_ok(),
            None => self.asked.contains(variant),
        };
        Variant::all().filter(was_asked).collect()
    }

    /// Notes a request, by its number among all.
    pub(super) fn requested(&self, number: u64) {
        self.last_request.store(number, Ordering::Relaxed);
    }

    pub(super) fn last_request(&self) -> u64 {
        self.last_request.load(Ordering::Relaxed)
    }

    pub(super) fn state(&self) -> PoolState {
        let is_ready = |version: &SpecVersion| {
            Form::ALL
                .iter()
                .any(|form| self.good(Variant { version: *version, form: *form }).is_some())
        };
        let failure = self.failure();
        let served = match &failure {
            Some(_) => self.good_before().next().map(|(inputs, _)| inputs),
            None => self.inputs.as_ref().ok(),
        };
        let problem = match failure {
            Some(reason) => Some(self.with_served(reason)),
            None => self.older_versions(),
        };
        PoolState {
            name: Arc::clone(&self.name),
            configuration: served.map(|inputs| inputs.configuration.clone()),
            problem,
            versions: SpecVersion::ALL.into_iter().filter(is_ready).collect(),
        }
    }

    /// Reason why the present inputs cannot be rendered, if known.
    pub(super) fn failure(&self) -> Option<String> {
        match (&self.inputs, self.check.get()) {
            (Err(reason), _) => Some(reason.to_string()),
            (Ok(_), Some(Err(reason))) => Some(reason.clone()),
            (Ok(_), _) => None,
        }
    }

    /// Adds the config that machines get meanwhile to `reason`.
    pub(super) fn with_served(&self, reason: String) -> String {
        match self.good_before().next() {
            Some((it, _)) => format!("{reason}; serving {} meanwhile", it.configuration),
            None => reason,
        }
    }

    /// The configs that people see.
    pub(super) fn configs(&self) -> PoolConfigs {
        let render = |inputs: &PoolInputs| {
            let compressed = CompressedContents::default();
            let body =
                render::render(inputs, SpecVersion::NEWEST, Form::Plain, &compressed).ok()?;
            Some((inputs.configuration.clone(), body))
        };
        let mut rendered =
            self.inputs.iter().chain(self.before.iter().map(|it| &it.inputs)).map(render);
        // Inputs that are not rendered have nothing to compare: machines get those before them.
        let served = rendered.find_map(|it| it);
        let before = rendered.find_map(|it| it);
        PoolConfigs { served, before }
    }

    /// Versions in which the present inputs cannot be rendered, while machines get an older config in them.
    fn older_versions(&self) -> Option<String> {
        let older = SpecVersion::ALL.into_iter().filter_map(|version| {
            let mut answers = Form::ALL.iter().filter_map(|form| {
                self.good(Variant { version, form: *form }).filter(|it| it.pending.is_some())
            });
            let configuration = &answers.next()?.configuration;
            Some(format!(
                "{configuration} is served in Ignition spec {version}, which cannot express it"
            ))
        });
        let lines: Vec<_> = older.collect();
        (!lines.is_empty()).then(|| lines.join("; "))
    }

    /// Returns `true` if the present inputs do not render; those before decide while it is unknown.
    fn is_failing(&self) -> bool {
        let is_unknown = self.inputs.is_ok() && self.check.get().is_none();
        if is_unknown { self.was_failing } else { self.failure().is_some() }
    }

    /// An earlier answer, marked with the configuration that cannot be rendered.
    fn pending(&self, last_good: &Answer) -> Arc<Answer> {
        let present = match &self.inputs {
            Ok(inputs) => &inputs.configuration,
            Err(SelectError::NoMachineConfig(name)) => name,
            Err(_) => "-",
        };
        let pending = HeaderValue::from_str(present).unwrap_or(HeaderValue::from_static("-"));
        Arc::new(Answer { pending: Some(pending), ..last_good.clone() })
    }

    /// The answer that is ready to send.
    fn good(&self, variant: Variant) -> Option<&Arc<Answer>> {
        self.outcomes[variant.index()].get()?.as_ref().ok()
    }

    /// Returns `true` if machines get an answer, as far as is known: of these inputs or of earlier ones.
    pub(super) fn is_ready(&self) -> bool {
        let is_checked = self.check.get().is_some_and(Result::is_ok);
        is_checked || self.was_ready || Variant::all().any(|variant| self.good(variant).is_some())
    }

    /// Renders a variant at its first request.
    pub(super) async fn first_answer(self: Arc<Self>, variant: Variant) -> Outcome {
        let pool = Arc::clone(&self);
        let render = || async move {
            let work = tokio::task::spawn_blocking(move || {
                pool.outcome(variant, &CompressedContents::default())
            });
            // The task is not cancelled, and a panic ends the process.
            work.await.unwrap_or(Err(Refusal::Unrenderable(variant.version)))
        };
        self.outcomes[variant.index()].get_or_init(render).await.clone()
    }

    /// Renders the present inputs, or else the newest earlier ones that render in this version.
    fn outcome(&self, variant: Variant, compressed: &CompressedContents) -> Outcome {
        let version = variant.version;
        let rendered = self.inputs.as_ref().map_err(|reason| reason.clone().into());
        let rendered = rendered.and_then(|inputs| {
            self.render(inputs, variant, compressed).map_err(|reason| {
                tracing::error!(
                    pool = %self.name, spec = %version, reason,
                    fix = RENDERABLE,
                    "cannot render the config"
                );
                Refusal::Unrenderable(version)
            })
        });
        rendered.or_else(|refusal| {
            let good = self.good_before().find(|(_, oldest)| *oldest <= version);
            let (good, _) = good.ok_or_else(|| refusal.clone())?;
            let before = self.render(good, variant, compressed);
            let before = before.map_err(|_| refusal.clone())?;
            tracing::error!(
                pool = %self.name, spec = %version, reason = %refusal, served = %before.configuration,
                fix = "correct what /readyz on the metrics address names for this pool",
                "serving the previous config"
            );
            Ok(self.pending(&before))
        })
    }

    /// Returns `true` unless [`refresh`](Self::refresh) has nothing to do.
    pub(super) fn is_stale(&self) -> bool {
        self.check.get().is_none() || self.to_render().next().is_some()
    }

    /// Variants that were asked for before, and not since.
    fn to_render(&self) -> impl Iterator<Item = Variant> {
        let is_missing = |it: &Variant| self.outcomes[it.index()].get().is_none();
        self.asked.iter().copied().filter(is_missing)
    }

    /// Does what [`next`](Self::next) has left for later: renders what machines ask for, and checks the inputs.
    pub(super) fn refresh(&self, compressed: &CompressedContents) {
        for variant in self.to_render() {
            // A machine that asks meanwhile has it rendered too.
            let _ = self.outcomes[variant.index()].set(self.outcome(variant, compressed));
        }
        if self.check.get().is_none() {
            self.check(compressed);
        }
    }

    fn check(&self, compressed: &CompressedContents) {
        let result = match &self.inputs {
            Ok(inputs) => self.checked(inputs, compressed),
            Err(reason) => Err(reason.to_string()),
        };
        match &result {
            Err(reason) => {
                // What is served instead is known before the fault is.
                self.good_before().for_each(drop);
                let fix = self.inputs.as_ref().err().map_or(RENDERABLE, SelectError::fix);
                tracing::warn!(
                    pool = %self.name,
                    reason,
                    fix,
                    "pool has no valid config"
                );
            }
            Ok(_) if self.was_failing => {
                tracing::info!(pool = %self.name, "pool has a valid config again");
            }
            Ok(_) => {}
        }
        // Another thread can have set the same result.
        let _ = self.check.set(result);
    }

    fn checked(
        &self,
        inputs: &PoolInputs,
        compressed: &CompressedContents,
    ) -> Result<RenderCheck, String> {
        let newest = Variant { version: SpecVersion::NEWEST, form: Form::Plain };
        let body = self.body(inputs, newest, compressed)?;
        let secrets = render::exposed(&body).map_err(|error| error.to_string())?;
        let oldest = oldest(inputs, compressed).unwrap_or(SpecVersion::NEWEST);
        Ok(RenderCheck { secrets, oldest })
    }

    fn body(
        &self,
        inputs: &PoolInputs,
        Variant { version, form }: Variant,
        compressed: &CompressedContents,
    ) -> Result<Bytes, String> {
        let started = Instant::now();
        let body = render::render(inputs, version, form, compressed).map_err(|error| {
            self.metrics.render_failed(&self.name, version);
            error.to_string()
        })?;
        self.metrics.render_seconds.observe(started.elapsed().as_secs_f64());
        Ok(body)
    }

    fn render(
        &self,
        inputs: &PoolInputs,
        variant: Variant,
        compressed: &CompressedContents,
    ) -> Result<Arc<Answer>, String> {
        let body = self.body(inputs, variant, compressed)?;
        let etag = etag(&body).map_err(|error| error.to_string())?;
        let body = self.pieces.segments(&body);
        let label = PoolLabel::Known(Arc::clone(&self.name));
        let requests = self.metrics.requests(label, Some(variant.version), 200);
        let configuration = inputs.configuration.as_str().into();
        let (length, is_restricted) = (body.len().into(), inputs.credentials.is_some());
        let base = Arc::new(OverlayBase::new(inputs, variant));
        Ok(Arc::new(Answer {
            body,
            length,
            etag,
            configuration,
            pending: None,
            is_restricted,
            requests,
            base,
        }))
    }
}
