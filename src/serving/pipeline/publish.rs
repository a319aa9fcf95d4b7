//! Publishes inputs: the steps after each change, common to all sources.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use model::inputs::{Inputs, Problem};
use model::render::ExposedPlaces;
use status::overview::History;
use telemetry::Reporting;
use time::OffsetDateTime;
use tokio::sync::watch;
use tracing::field::debug;

use crate::serving::answers::{Answers, PoolState};
use crate::serving::tls::serving_pair::ProfileFollower;

/// Served inputs, with their pointer configs.
#[derive(Debug)]
pub(crate) struct ServedInputs {
    pub(crate) inputs: Inputs,
    /// Pools that have a pointer config of this server, with its file.
    pub(crate) pointer_configs: Vec<(String, PathBuf)>,
}

impl ServedInputs {
    /// Pools that have a config; `None` before all of a directory is read.
    pub(crate) fn pools(&self) -> Option<Arc<BTreeSet<String>>> {
        let Inputs { pools, is_partial, .. } = &self.inputs;
        (!is_partial).then(|| Arc::new(pools.keys().cloned().collect()))
    }
}

pub(crate) struct Publisher {
    answers: Arc<Answers>,
    pub(crate) reporting: Reporting,
    pub(crate) history: History,
    /// Follower of the inputs' TLS profile, if servers use it.
    profile: Option<ProfileFollower>,
    known: Vec<Problem>,
    warned: Vec<Problem>,
    served: watch::Sender<Option<Arc<ServedInputs>>>,
    checked: watch::Sender<Option<Arc<ServedInputs>>>,
    live_reads: watch::Sender<u64>,
}

impl Publisher {
    pub(crate) fn new(
        answers: Arc<Answers>,
        reporting: Reporting,
        profile: Option<ProfileFollower>,
        history: History,
    ) -> Self {
        let (known, warned, served, checked, live_reads) = Default::default();
        Self { answers, reporting, history, profile, known, warned, served, checked, live_reads }
    }

    /// Served inputs, after each change.
    pub(crate) fn served(&self) -> watch::Receiver<Option<Arc<ServedInputs>>> {
        self.served.subscribe()
    }

    /// Served inputs whose pools were rendered, and their faults logged.
    pub(crate) fn checked(&self) -> watch::Receiver<Option<Arc<ServedInputs>>> {
        self.checked.subscribe()
    }

    /// [`Inputs::live_reads`] of the served inputs.
    pub(crate) fn live_reads(&self) -> watch::Receiver<u64> {
        self.live_reads.subscribe()
    }

    /// Does the work that can wait until a change is served: renders what machines ask for, checks all pools, and records
    /// changes. Runs as long as the publisher exists.
    pub(crate) fn after_changes(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut served = self.served.subscribe();
        let (answers, history) = (Arc::clone(&self.answers), self.history.clone());
        let checked = self.checked.clone();
        let (mut known, mut exposed) = (BTreeMap::new(), BTreeMap::new());
        async move {
            while served.changed().await.is_ok() {
                // Of several changes, only the last one counts.
                let Some(now_served) = served.borrow_and_update().clone() else { continue };
                let inputs = &now_served.inputs;
                tokio::task::block_in_place(|| {
                    answers.refresh();
                    tracing::info!(
                        pools = inputs.pools.len(),
                        partial = inputs.is_partial.then_some(true),
                        machine_configs = inputs.machine_configs.len(),
                        sources = Some(inputs.sources.count()).filter(|it| *it > 0),
                        problems = inputs.problems.len() + answers.failing(),
                        "read the inputs"
                    );
                    // The served state is known after rendering.
                    let pools = answers.pools().into_iter();
                    let now = pools.map(|pool| (Arc::clone(&pool.name), pool)).collect();
                    for change in changes(&known, &now) {
                        history.note(change, OffsetDateTime::now_utc());
                    }
                    known = now;
                    let found = answers.exposed_places();
                    found
                        .iter()
                        .filter(|(pool, it)| exposed.get(*pool) != Some(*it))
                        .for_each(|(pool, places)| warn_exposed(pool, places));
                    exposed = found;
                });
                checked.send_replace(Some(now_served));
            }
        }
    }

    /// Serves `inputs` from this call on, and returns true if that changes anything.
    pub(in crate::serving) fn publish(&mut self, inputs: &Inputs) -> bool {
        self.note_problems(&inputs.problems);
        self.note_warnings(&inputs.warnings);
        if let Some(profile) = &mut self.profile {
            profile.take(inputs.tls_profile.as_ref());
        }
        let is_changed = self.answers.publish(inputs, SystemTime::now());
        self.live_reads.send_replace(inputs.live_reads);
        is_changed
    }

    /// Sends the served inputs to subscribers.
    pub(in crate::serving) fn notify(&self, served: ServedInputs) {
        self.served.send_replace(Some(Arc::new(served)));
    }

    /// Logs each warning once, and again if it comes back.
    fn note_warnings(&mut self, warnings: &[Problem]) {
        for warning in warnings.iter().filter(|warning| !self.warned.contains(warning)) {
            let Problem { place, reason, .. } = warning;
            tracing::warn!(
                place,
                reason,
                fix = "correct or remove the field; --strict refuses it",
                "ignored a field without effect"
            );
        }
        self.warned = warnings.to_vec();
    }

    fn note_problems(&mut self, problems: &[Problem]) {
        for problem in problems.iter().filter(|problem| !self.known.contains(problem)) {
            self.reporting.metrics.input_failures.inc();
            let Problem { place, reason, is_partial, .. } = problem;
            if *is_partial {
                tracing::error!(
                    place,
                    reason,
                    fix = "correct or remove what the reason names",
                    "cannot use a part of the inputs, keeping the rest"
                );
            } else {
                tracing::error!(
                    place,
                    reason,
                    fix = "correct the file or object",
                    "cannot use an input, keeping what was read before"
                );
            }
            self.history.note(problem.to_string(), OffsetDateTime::now_utc());
        }
        for problem in self.known.iter().filter(|problem| !problems.contains(problem)) {
            tracing::info!(place = problem.place, "input is valid again");
            let what = format!("{}: valid again", problem.place);
            self.history.note(what, OffsetDateTime::now_utc());
        }
        self.reporting.metrics.input_problems.set(problems.len().try_into().unwrap_or(i64::MAX));
        self.known = problems.to_vec();
    }
}

/// Logs where a pool's config has secrets that unauthenticated clients can read.
fn warn_exposed(pool: &str, places: &ExposedPlaces) {
    let ExposedPlaces { files, units, users, others, more } = places;
    let named = |names: &Vec<String>| (!names.is_empty()).then(|| debug(names.clone()));
    tracing::warn!(
        %pool,
        files = named(files),
        units = named(units),
        users = named(users),
        others = named(others),
        more = (*more > 0).then_some(*more),
        fix = "enforce tokens: annotate the pool with \
            machineconfiguration.openshift.io/access=enforce, or use --access enforce",
        "served config contains secrets"
    );
}

type Pools = BTreeMap<Arc<str>, PoolState>;

/// Changes of the served pools, one line each.
fn changes(old: &Pools, new: &Pools) -> Vec<String> {
    let gone = old.keys().filter(|pool| !new.contains_key(*pool));
    let gone = gone.map(|pool| format!("pool {pool}: removed"));
    let now = new.iter().filter_map(|(pool, now)| {
        let before = old.get(pool);
        let change = change(before, now)?;
        Some(format!("pool {pool}: {change}"))
    });
    gone.chain(now).collect()
}

fn change(before: Option<&PoolState>, now: &PoolState) -> Option<String> {
    let served = |state: &PoolState| state.configuration.clone();
    let problem = before.and_then(|before| before.problem.as_ref());
    if let Some(reason) = &now.problem {
        return (problem != Some(reason)).then(|| reason.clone());
    }
    match (before.and_then(served), served(now)?) {
        (Some(before), now) if before != now => Some(format!("serves {now} instead of {before}")),
        (_, now) if problem.is_some() => Some(format!("ready again, serves {now}")),
        (None, now) => Some(format!("serves {now}")),
        (Some(_), _) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(configuration: Option<&str>, problem: Option<&str>) -> PoolState {
        PoolState {
            name: "worker".into(),
            configuration: configuration.map(str::to_owned),
            problem: problem.map(str::to_owned),
            versions: Vec::new(),
        }
    }

    #[test]
    fn what_is_noted_is_what_machines_get() {
        let (a, b) = (state(Some("a"), None), state(Some("b"), None));
        let failed = state(Some("a"), Some("b cannot be rendered; serving a meanwhile"));
        let empty = state(None, Some("the pool has no rendered config yet"));
        for (before, now, noted) in [
            (None, &a, Some("serves a")),
            (None, &empty, Some("the pool has no rendered config yet")),
            (Some(&empty), &a, Some("ready again, serves a")),
            (Some(&a), &a, None),
            (Some(&a), &b, Some("serves b instead of a")),
            (Some(&a), &failed, Some("b cannot be rendered; serving a meanwhile")),
            (Some(&failed), &failed, None),
            (Some(&failed), &a, Some("ready again, serves a")),
            (Some(&failed), &b, Some("serves b instead of a")),
        ] {
            assert_eq!(change(before, now).as_deref(), noted, "{before:?} {now:?}");
        }
    }
}
