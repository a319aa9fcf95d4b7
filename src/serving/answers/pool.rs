//! Answers of one pool, in each version and form that was requested.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use bytes::Bytes;
use http::HeaderValue;
use ignition::secrets::Secret;
use ignition::{Form, SpecVersion};
use model::render::{self, CompressedContents, PoolInputs, SelectError};
use tokio::sync::OnceCell;

use super::answer::{Answer, OverlayBase, Refusal, Variant, etag};
use super::segments::SharedSegments;
use crate::telemetry::{Metrics, PoolLabel};

pub(super) type Outcome = Result<Arc<Answer>, Refusal>;

#[derive(Debug)]
pub(super) struct Pool {
    pub(super) name: Arc<str>,
    pub(super) inputs: Result<PoolInputs, SelectError>,
    /// Earlier inputs that rendered, the newest first: each in older versions than those ahead of it.
    good_before: Vec<RenderableInputs>,
    /// True if the previous inputs could not be rendered.
    was_failing: bool,
    /// Results by [`Variant::index`].
    pub(super) outcomes: [OnceCell<Outcome>; Variant::COUNT],
    /// Pieces that the bodies share.
    pieces: SharedSegments,
    /// Result of rendering the present inputs in the newest version, once it is known.
    pub(super) check: OnceLock<Result<RenderCheck, String>>,
    metrics: Arc<Metrics>,
}

/// Facts about inputs that render.
#[derive(Debug)]
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

#[derive(Debug, Clone)]
struct RenderableInputs {
    inputs: PoolInputs,
    /// Oldest version in which they render.
    oldest: SpecVersion,
}

impl Pool {
    /// Creates the pool's next state.
    pub(super) fn next(
        name: &str,
        inputs: Result<PoolInputs, SelectError>,
        old: Option<&Arc<Self>>,
        compressed: &CompressedContents,
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
        let was_failing = old.is_some_and(|old| !old.is_good());
        let is_meant = matches!(&inputs, Err(reason) if reason.is_meant());
        let old = old.filter(|_| !is_meant);
        let good_before = old.map(|old| old.good_inputs()).unwrap_or_default();
        let name = Arc::from(name);
        let (outcomes, pieces, check) = Default::default();
        let metrics = Arc::clone(metrics);
        let pool =
            Self { name, inputs, good_before, was_failing, outcomes, pieces, check, metrics };
        for variant in Variant::all().filter(|it| old.is_some_and(|old| old.good(*it).is_some())) {
            let outcome = pool.outcome(variant, compressed);
            // The cell is empty: this pool is not shared yet, and each variant is set once.
            let _ = pool.outcomes[variant.index()].set(outcome);
        }
        Arc::new(pool)
    }

    /// Good inputs of this pool for its next state.
    fn good_inputs(&self) -> Vec<RenderableInputs> {
        let mut all = Vec::new();
        if let (Ok(inputs), Some(Ok(checked))) = (&self.inputs, self.check.get()) {
            all.push(RenderableInputs { inputs: inputs.clone(), oldest: checked.oldest });
        }
        let oldest = all.first().map(|it| it.oldest);
        let older =
            self.good_before.iter().filter(|it| oldest.is_none_or(|oldest| it.oldest < oldest));
        all.extend(older.cloned());
        all
    }

    pub(super) fn state(&self) -> PoolState {
        let is_ready = |version: &SpecVersion| {
            Form::ALL
                .iter()
                .any(|form| self.good(Variant { version: *version, form: *form }).is_some())
        };
        let failure = self.failure();
        let served = match &failure {
            Some(_) => self.good_before.first().map(|it| &it.inputs),
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
        match self.good_before.first() {
            Some(it) => format!("{reason}; serving {} meanwhile", it.inputs.configuration),
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
            self.inputs.iter().chain(self.good_before.iter().map(|it| &it.inputs)).map(render);
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

    /// Returns `true` if the present inputs render; renders them if that is unknown.
    fn is_good(&self) -> bool {
        if self.inputs.is_ok() && self.check.get().is_none() {
            self.check();
        }
        self.failure().is_none()
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

    /// Returns `true` if a version is ready to send.
    pub(super) fn is_serving(&self) -> bool {
        Variant::all().any(|variant| self.good(variant).is_some())
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
                    fix = "correct the object that the reason names",
                    "cannot render the config"
                );
                Refusal::Unrenderable(version)
            })
        });
        rendered.or_else(|refusal| {
            let good = self.good_before.iter().find(|it| it.oldest <= version);
            let good = good.ok_or_else(|| refusal.clone())?;
            let before = self.render(&good.inputs, variant, compressed);
            let before = before.map_err(|_| refusal.clone())?;
            tracing::error!(
                pool = %self.name, spec = %version, reason = %refusal, served = %before.configuration,
                fix = "correct what /readyz on the metrics address names for this pool",
                "serving the previous config"
            );
            Ok(self.pending(&before))
        })
    }

    pub(super) fn check(&self) {
        let result = match &self.inputs {
            Ok(inputs) => self.checked(inputs),
            Err(reason) => Err(reason.to_string()),
        };
        match &result {
            Err(reason) => tracing::warn!(
                pool = %self.name,
                reason,
                fix = "correct the object that the reason names",
                "pool has no valid config"
            ),
            Ok(_) if self.was_failing => {
                tracing::info!(pool = %self.name, "pool has a valid config again");
            }
            Ok(_) => {}
        }
        // Another thread can have set the same result.
        let _ = self.check.set(result);
    }

    fn checked(&self, inputs: &PoolInputs) -> Result<RenderCheck, String> {
        let compressed = CompressedContents::default();
        let newest = Variant { version: SpecVersion::NEWEST, form: Form::Plain };
        let body = self.body(inputs, newest, &compressed)?;
        let secrets = render::exposed(&body).map_err(|error| error.to_string())?;
        let renders = |version: &SpecVersion| {
            render::render(inputs, *version, Form::Plain, &compressed).is_ok()
        };
        let oldest = SpecVersion::ALL.into_iter().find(renders).unwrap_or(SpecVersion::NEWEST);
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
