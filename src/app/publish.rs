//! From a source's inputs to answers: what is done for each change, wherever it comes from.

use std::sync::Arc;
use std::time::SystemTime;

use time::OffsetDateTime;
use tokio::sync::watch;

use crate::answers::Answers;
use crate::inputs::{Inputs, Problem, served_configuration};
use crate::overview::History;
use crate::telemetry::Metrics;

/// Told of the inputs that are served now, and on which ports. It may block.
pub type OnChange = Box<dyn FnMut(Ports, &Inputs) + Send>;

/// The ports that were bound.
#[derive(Debug, Clone, Copy)]
pub struct Ports {
    /// The one for TLS.
    pub secure: u16,
    /// The one without, if there is one.
    pub insecure: Option<u16>,
}

/// Makes inputs what is served.
pub(super) struct Publisher {
    answers: Arc<Answers>,
    metrics: Arc<Metrics>,
    known: Vec<Problem>,
    published: watch::Sender<Option<Inputs>>,
    history: History,
}

impl Publisher {
    pub(super) fn new(answers: Arc<Answers>, metrics: Arc<Metrics>, history: History) -> Self {
        let published = watch::Sender::new(None);
        Self { answers, metrics, known: Vec::new(), published, history }
    }

    /// What is served from time to time.
    pub(super) fn inputs(&self) -> watch::Receiver<Option<Inputs>> {
        self.published.subscribe()
    }

    /// What can wait until a change is served: `on_change` is called, and it is checked which pools
    /// render. Runs as long as the publisher is there.
    pub(super) fn after_changes(
        &self,
        ports: Ports,
        mut on_change: OnChange,
    ) -> impl Future<Output = ()> + Send + 'static {
        let mut published = self.published.subscribe();
        let answers = Arc::clone(&self.answers);
        async move {
            // Of several changes, the last is the one that counts.
            while published.changed().await.is_ok() {
                let Some(inputs) = published.borrow_and_update().clone() else { continue };
                tokio::task::block_in_place(|| {
                    on_change(ports, &inputs);
                    answers.check();
                });
            }
        }
    }

    /// Serves `inputs` from now on. Blocks while it renders.
    pub(super) fn publish(&mut self, inputs: &Inputs) {
        self.note_problems(&inputs.problems);
        if !self.answers.publish(inputs, SystemTime::now()) {
            return;
        }
        tracing::info!(
            pools = inputs.pools.len(),
            machine_configs = inputs.machine_configs.len(),
            problems = inputs.problems.len(),
            "inputs read"
        );
        let old = self.published.send_replace(Some(inputs.clone()));
        for change in changes(old.as_ref(), inputs) {
            self.history.note(change, OffsetDateTime::now_utc());
        }
    }

    fn note_problems(&mut self, problems: &[Problem]) {
        for problem in problems.iter().filter(|problem| !self.known.contains(problem)) {
            self.metrics.input_failures.inc();
            let Problem { place, reason, is_partial, .. } = problem;
            if *is_partial {
                tracing::error!(place, reason, "not used; all else in it is");
            } else {
                tracing::error!(place, reason, "cannot be used; what was read before stays");
            }
            self.history.note(problem.to_string(), OffsetDateTime::now_utc());
        }
        for problem in self.known.iter().filter(|problem| !problems.contains(problem)) {
            tracing::info!(place = problem.place, "in order again");
            let what = format!("{}: in order again", problem.place);
            self.history.note(what, OffsetDateTime::now_utc());
        }
        self.metrics.input_problems.set(problems.len().try_into().unwrap_or(i64::MAX));
        self.known = problems.to_vec();
    }
}

/// What is another machine config now, by pool.
fn changes(old: Option<&Inputs>, new: &Inputs) -> Vec<String> {
    let served = |inputs: &Inputs, pool: &String| {
        let found = inputs.pools.get(pool)?;
        Some(served_configuration(inputs.mode, found).to_owned())
    };
    let gone = old.iter().flat_map(|old| old.pools.keys());
    let gone = gone.filter(|pool| !new.pools.contains_key(*pool));
    let gone = gone.map(|pool| format!("pool {pool}: is gone"));
    let now = new.pools.keys().filter_map(|pool| {
        let (before, now) = (old.and_then(|old| served(old, pool)), served(new, pool)?);
        match before {
            Some(before) if before == now => None,
            Some(before) if !before.is_empty() => {
                Some(format!("pool {pool}: serves {now} in place of {before}"))
            }
            _ if now.is_empty() => Some(format!("pool {pool}: is there, and has no config yet")),
            _ => Some(format!("pool {pool}: serves {now}")),
        }
    });
    gone.chain(now).collect()
}
