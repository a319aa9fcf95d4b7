//! From a source's inputs to answers: what is done for each change, wherever it comes from.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::SystemTime;

use crate::answers::Answers;
use crate::inputs::{Inputs, Problem};
use crate::telemetry::Metrics;

/// Told of the inputs that are served now, and on which ports.
pub(super) type OnChange = Box<dyn FnMut(Ports, &Inputs) + Send>;

/// The ports that were bound.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ports {
    pub(super) secure: u16,
    pub(super) insecure: Option<u16>,
}

/// Makes inputs what is served.
pub(super) struct Publisher {
    answers: Arc<Answers>,
    metrics: Arc<Metrics>,
    known: Vec<Problem>,
    changed: Sender<Inputs>,
}

impl Publisher {
    /// Starts the thread that does what can wait until a change is served: it calls `on_change`,
    /// and checks which pools render. It ends with this value.
    pub(super) fn new(
        answers: Arc<Answers>,
        metrics: Arc<Metrics>,
        ports: Ports,
        on_change: OnChange,
    ) -> io::Result<Self> {
        let (changed, after_change) = channel();
        let served = Arc::clone(&answers);
        std::thread::Builder::new()
            .name("after-change".to_owned())
            .spawn(move || after_changes(&after_change, &served, ports, on_change))?;
        Ok(Self { answers, metrics, known: Vec::new(), changed })
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
        // The thread ends after this value only; a panic ends the process.
        let _ = self.changed.send(inputs.clone());
    }

    fn note_problems(&mut self, problems: &[Problem]) {
        for problem in problems.iter().filter(|problem| !self.known.contains(problem)) {
            self.metrics.input_failures.inc();
            let Problem { place, reason, is_partial } = problem;
            if *is_partial {
                tracing::error!(place, reason, "not used; all else in it is");
            } else {
                tracing::error!(place, reason, "cannot be used; what was read before stays");
            }
        }
        for problem in self.known.iter().filter(|problem| !problems.contains(problem)) {
            tracing::info!(place = problem.place, "in order again");
        }
        self.metrics.input_problems.set(problems.len().try_into().unwrap_or(i64::MAX));
        self.known = problems.to_vec();
    }
}

fn after_changes(
    changes: &Receiver<Inputs>,
    answers: &Answers,
    ports: Ports,
    mut on_change: OnChange,
) {
    while let Ok(inputs) = changes.recv() {
        // Of several changes, the last is the one that counts.
        let inputs = changes.try_iter().last().unwrap_or(inputs);
        on_change(ports, &inputs);
        answers.check();
    }
}
