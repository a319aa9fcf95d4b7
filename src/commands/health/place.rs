//! A directory with its state directory, or a cluster: what `validate` and `certs check` judge.

use std::path::{Path, PathBuf};

use kubernetes::ControlError;
use kubernetes::client::ConnectError;
use model::inputs::Inputs;
use model::render::registries_without_ca;
use time::OffsetDateTime;

use super::finding::{Checked, Finding, Level, Source};
use super::overview::without_ca;
use super::reach::{Target, reach};
use crate::commands::certs::check::{CheckReport, Verdict};
use crate::commands::process::block_on;
use crate::commands::remark::Remark;
use crate::commands::rendering::read_usable;
use crate::commands::stores::exposure;
use crate::commands::stores::location::StateLocationFlags;
use crate::commands::stores::state_store::{ObservedState, StateStore};
use crate::commands::validate::Report;
use crate::source::Butane;

/// A directory or a cluster.
#[derive(Debug)]
pub(super) enum Place {
    Directory(PathBuf, Butane, StateLocationFlags),
    Cluster(StateLocationFlags),
}

/// Checks a directory or a cluster, and connects to the servers in its pointer configs.
pub(super) fn check(place: &Place, now: OffsetDateTime) -> Checked {
    let mut checked = Checked::default();
    let targets = match place {
        Place::Directory(directory, butane, state) => {
            of_directory(&mut checked, (directory, butane), state, now)
        }
        Place::Cluster(state) => of_cluster(&mut checked, state, now),
    };
    match block_on(reach(targets, now)) {
        Ok(findings) => checked.findings.extend(findings),
        Err(error) => checked.add_failure("servers", &error.into()),
    }
    checked
}

fn of_directory(
    checked: &mut Checked,
    (directory, butane): (&Path, &Butane),
    state: &StateLocationFlags,
    now: OffsetDateTime,
) -> Vec<Target> {
    let place = directory.display().to_string();
    let inputs = read_usable(directory.to_owned(), butane.clone()).map_err(|error| {
        let fix = "name the directory of manifests that `serve` reads, and make it readable";
        let what = format!("{error:#}");
        checked.findings.push(Finding::new((Source::Access, Level::Error), &place, &what, fix));
    });
    let inputs = inputs.ok();
    if let Some(inputs) = &inputs {
        checked.add_inputs(inputs, &place);
        for (host, pools) in registries_without_ca(inputs) {
            checked.findings.push(without_ca(&host, &pools.into_iter().collect::<Vec<_>>()));
        }
    }
    let store = match state.open() {
        Ok(store) => store,
        Err(error) => {
            let fix = "name the directory in which `serve` keeps its certificates with --state-dir, as a user who can \
                read it";
            let remark = Remark::of_line(&format!("{error:#}"), fix);
            let finding = Finding::of_remark((Source::Access, Level::Error), &remark);
            checked.findings.push(finding);
            return Vec::new();
        }
    };
    // The pools of manifests that are not all usable are not known.
    let is_usable = inputs.as_ref().is_some_and(|inputs| inputs.problems.is_empty());
    let seen = store.observe(is_usable.then_some(directory));
    let found = store.records().map(|records| {
        let found = inputs.as_ref().map(|it| exposure::of_inputs(it, &records.enforced));
        found.unwrap_or_default()
    });
    checked.add_certificates(seen, found, now, Level::Error)
}

fn of_cluster(
    checked: &mut Checked,
    state: &StateLocationFlags,
    now: OffsetDateTime,
) -> Vec<Target> {
    let store = match state.cluster() {
        Ok(store) => store,
        Err(error) => {
            checked.add_failure("cluster", &error);
            return Vec::new();
        }
    };
    let seen = store.observe(None);
    if let Err(error) = &seen
        && !is_judged(error)
    {
        // Nothing else would be answered either, after the same wait.
        checked.add_failure("cluster", error);
        return Vec::new();
    }
    match store.inputs() {
        Ok(inputs) => checked.add_inputs(&inputs, "the cluster"),
        Err(error) => checked.add_failure("pools of the cluster", &error),
    }
    let found = store.config_findings(None);
    checked.add_certificates(seen, found, now, Level::Warning)
}

/// Returns `true` if the API server answered.
fn is_judged(error: &anyhow::Error) -> bool {
    let api = error.chain().find_map(|it| it.downcast_ref::<ControlError>());
    api.is_none_or(ControlError::is_for_good)
}

impl Checked {
    /// A part that cannot be read.
    fn add_failure(&mut self, thing: &str, error: &anyhow::Error) {
        let what = format!("cannot be read: {error:#}");
        let is_api = error.chain().any(|it| it.is::<ControlError>() || it.is::<ConnectError>());
        let fix = if !is_api {
            "make what the reason names readable for this user, or restore it from a backup"
        } else if what.contains("forbidden") {
            "give this account the right that the reason names, or use an administrator's kubeconfig"
        } else {
            "check the kubeconfig and whether the API server answers, such as with `kubectl get --raw /readyz`"
        };
        self.findings.push(Finding::new((Source::Access, Level::Error), thing, &what, fix));
    }

    /// Adds the findings of `validate`.
    fn add_inputs(&mut self, inputs: &Inputs, place: &str) {
        let report = Report::of(inputs, false);
        self.counts.pools = report.pool_count();
        let faults = report.faults(place);
        let of = |level| move |it: &_| Finding::of_remark((Source::Manifests, level), it);
        self.findings.extend(faults.iter().map(of(Level::Error)));
        self.findings.extend(report.remarks().iter().map(of(Level::Warning)));
    }

    /// Adds the findings of `certs check`. Returns the servers in the pointer configs, with the level if they cannot be reached.
    fn add_certificates(
        &mut self,
        seen: anyhow::Result<ObservedState>,
        found: anyhow::Result<exposure::ConfigFindings>,
        now: OffsetDateTime,
        unreached: Level,
    ) -> Vec<Target> {
        let judged = seen.and_then(|seen| Ok((CheckReport::of(&seen, now)?, seen)));
        let (mut report, seen) = match judged {
            Ok(judged) => judged,
            Err(error) => {
                self.add_failure("certificates and pointer configs", &error);
                return Vec::new();
            }
        };
        self.counts.pointers = seen.pointers.len();
        report.add(found);
        let CheckReport { verdict, faults, warnings, left_alone, exposed, .. } = &report;
        let verdict = verdict.iter().filter_map(|verdict| match verdict {
            Verdict::Sum(_) => None,
            Verdict::Fault(remark) => Some(remark),
        });
        let of = |level| move |it: &_| Finding::of_remark((Source::Certificates, level), it);
        self.findings.extend(verdict.chain(faults).map(of(Level::Error)));
        let remarks = warnings.iter().chain(left_alone).chain(exposed);
        self.findings.extend(remarks.map(of(Level::Warning)));
        Target::of_state(&seen, unreached)
    }
}
