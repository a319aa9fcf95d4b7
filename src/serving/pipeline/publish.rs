//! Publishes inputs: the steps after each change, common to all sources.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use model::access::Records;
use model::history::History;
use model::inputs::{Inputs, Problem};
use model::render::ExposedPlaces;
use telemetry::Reporting;
use time::OffsetDateTime;
use tokio::sync::watch;
use tracing::field::debug;

use crate::serving::answers::{Answers, PoolState};
use crate::serving::tls::serving_pair::ProfileFollower;

/// Served inputs, and what is known of tokens.
#[derive(Debug, Clone, Default)]
pub(crate) struct Published {
    /// Served inputs, once there are any.
    pub(crate) inputs: Option<Inputs>,
    /// Pools that have a pointer config of this server, with its file.
    pub(crate) pointer_configs: Vec<(String, PathBuf)>,
    /// Records of tokens, once they are known.
    pub(crate) records: Option<Records>,
    /// True if a pool cannot be served without the records.
    pub(crate) needs_tokens: bool,
    /// Number of changes of what machines get.
    pub(super) changes: u64,
    /// The same for those whose pools were rendered since, and their faults logged.
    pub(super) checked_changes: u64,
}

/// Follows what is published.
pub(crate) type Subscription = watch::Receiver<Arc<Published>>;

impl Published {
    #[cfg(test)]
    pub(in crate::serving) fn of(inputs: Inputs) -> Self {
        Self { inputs: Some(inputs), ..Self::default() }
    }

    /// Served inputs, once all is read.
    pub(crate) fn whole(&self) -> Option<&Inputs> {
        self.inputs.as_ref().filter(|inputs| !inputs.is_partial)
    }

    /// The same, once the pools were rendered, and their faults logged.
    pub(crate) fn checked(&self) -> Option<&Inputs> {
        self.whole().filter(|_| self.checked_changes == self.changes)
    }

    /// Pools that have a config, once all is read.
    pub(crate) fn pools(&self) -> Option<Arc<BTreeSet<String>>> {
        Some(Arc::new(self.whole()?.pools.keys().cloned().collect()))
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
    changes: u64,
    published: watch::Sender<Arc<Published>>,
}

impl Publisher {
    pub(crate) fn new(
        answers: Arc<Answers>,
        reporting: Reporting,
        profile: Option<ProfileFollower>,
        history: History,
    ) -> Self {
        let (known, warned, changes, published) = Default::default();
        Self { answers, reporting, history, profile, known, warned, changes, published }
    }

    /// Follows what is published, after each change.
    pub(crate) fn subscribe(&self) -> Subscription {
        self.published.subscribe()
    }

    /// Does the work that can wait until a change is served: renders what machines ask for, checks all pools, and records
    /// changes. Runs forever.
    pub(crate) fn after_changes(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut subscription = self.subscribe();
        let (answers, history) = (Arc::clone(&self.answers), self.history.clone());
        let published = self.published.clone();
        let (mut known, mut exposed) = (BTreeMap::new(), BTreeMap::new());
        async move {
            let is_unchecked =
                |it: &Arc<Published>| it.checked_changes != it.changes && it.inputs.is_some();
            // Of several changes, only the last one counts. The sender here lives as long as this.
            while let Ok(now) = subscription.wait_for(is_unchecked).await.map(|it| Arc::clone(&it))
            {
                let Some(inputs) = &now.inputs else { continue };
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
                    let rendered = pools.map(|pool| (Arc::clone(&pool.name), pool)).collect();
                    for change in changes(&known, &rendered) {
                        history.note(change, OffsetDateTime::now_utc());
                    }
                    known = rendered;
                    let found = answers.exposed_places();
                    found
                        .iter()
                        .filter(|(pool, it)| exposed.get(*pool) != Some(*it))
                        .for_each(|(pool, places)| warn_exposed(pool, places));
                    exposed = found;
                });
                published.send_modify(|latest| Arc::make_mut(latest).checked_changes = now.changes);
            }
        }
    }

    /// Serves `inputs` from this call on.
    pub(in crate::serving) fn publish(&mut self, inputs: &Inputs) {
        self.note_problems(&inputs.problems);
        self.note_warnings(&inputs.warnings);
        if let Some(profile) = &mut self.profile {
            profile.take(inputs.tls_profile.as_ref());
        }
        if self.answers.replace(inputs, SystemTime::now()) {
            self.changes += 1;
        }
    }

    /// Sends to subscribers what is served.
    pub(in crate::serving) fn notify(&self, now: Published) {
        let changes = self.changes;
        self.published.send_modify(|latest| {
            let checked_changes = latest.checked_changes;
            *latest = Arc::new(Published { changes, checked_changes, ..now });
        });
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
