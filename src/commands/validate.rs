//! The command `validate`: checks each pool of a directory of manifests.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use ignition::{Form, SpecVersion};
use model::access::{AccessMode, BootRules, WantedModes};
use model::escape::escaped;
use model::inputs::{Inputs, Problem};
use model::objects::FirstBootMachine;
use model::render::{MergeBase, select};
use model::table::{Color, TerminalStyle};
use serde::Serialize;

use super::rendering::{read_usable, rendered};
use super::{print_line, terminal};

#[derive(Debug, Args)]
pub(crate) struct ValidateSettings {
    /// Directory of manifests, YAML or JSON, any file names
    dir: PathBuf,
    /// Exit with 1 if a field has no effect: an unknown one, or one that is newer than the config's spec
    #[arg(long)]
    strict: bool,
    /// Print JSON, for scripts
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    is_valid: bool,
    pools: Vec<PoolReport>,
    /// Files and objects that are unusable as a whole or in part.
    problems: Vec<Finding>,
    /// Parts without effect.
    warnings: Vec<Finding>,
}

#[derive(Debug, Serialize)]
struct PoolReport {
    name: String,
    /// Served MachineConfig.
    configuration: Option<String>,
    /// Reason why machines get nothing.
    problem: Option<String>,
}

#[derive(Debug, Serialize)]
struct Finding {
    place: String,
    reason: String,
}

/// Prints the result; returns true if the directory is valid.
pub(crate) fn run(settings: ValidateSettings) -> anyhow::Result<bool> {
    let ValidateSettings { dir, strict, json } = settings;
    let report = Report::of(&read_usable(dir)?, strict);
    if json {
        print_line(&serde_json::to_string(&report)?);
    } else {
        terminal::print(&report.lines(terminal::style()));
    }
    Ok(report.is_valid)
}

impl Report {
    fn of(inputs: &Inputs, is_strict: bool) -> Self {
        let pools: Vec<_> = inputs.pools.keys().map(|pool| PoolReport::of(inputs, pool)).collect();
        let lines = |problems: &[Problem]| problems.iter().map(Finding::of).collect::<Vec<_>>();
        let (mut problems, mut warnings) = (lines(&inputs.problems), lines(&inputs.warnings));
        problems.extend(overlay_problems(inputs));
        warnings.extend(annotation_faults(inputs));
        let is_valid = !pools.is_empty()
            && pools.iter().all(|pool| pool.problem.is_none())
            && problems.is_empty()
            && (warnings.is_empty() || !is_strict);
        Self { is_valid, pools, problems, warnings }
    }

    /// Escaped lines in the style of the output.
    fn lines(&self, style: TerminalStyle) -> Vec<String> {
        let line = |ink, text: String| style.paint(ink, &escaped(&text));
        let mut lines = Vec::new();
        for PoolReport { name, configuration, problem } in &self.pools {
            let configuration = configuration.as_deref().unwrap_or_default();
            lines.push(match problem {
                Some(problem) => line(Color::Bad, format!("pool {name}: {problem}")),
                None => line(Color::Good, format!("pool {name}: OK, serves {configuration}")),
            });
        }
        if self.pools.is_empty() {
            let text = "no MachineConfigPool found: nothing would be served";
            lines.push(line(Color::Bad, text.to_owned()));
        }
        let problems = self.problems.iter();
        lines.extend(problems.map(|it| line(Color::Bad, format!("{}: {}", it.place, it.reason))));
        let warning = |it: &Finding| format!("warning: {}: {}", it.place, it.reason);
        lines.extend(self.warnings.iter().map(|it| line(Color::Notable, warning(it))));
        lines
    }
}

impl PoolReport {
    fn of(inputs: &Inputs, pool: &str) -> Self {
        let configuration = select(inputs, pool).ok().map(|selected| selected.configuration);
        let problem = rendered(inputs, pool, SpecVersion::NEWEST).err();
        Self {
            name: pool.to_owned(),
            configuration,
            problem: problem.map(|cause| cause.to_string()),
        }
    }
}

/// Annotations of pools about access and machines that are not understood.
fn annotation_faults(inputs: &Inputs) -> impl Iterator<Item = Finding> {
    let (pools, off) = (&inputs.pools, AccessMode::Off);
    let (_, modes) = WantedModes::read(pools, off, &WantedModes::default(), None);
    let (_, rules) = BootRules::read(pools, None, &BootRules::default());
    let line = |fault: String| {
        let (place, reason) = fault.split_once(": ").unwrap_or(("annotations", &fault));
        Finding { place: place.to_owned(), reason: reason.to_owned() }
    };
    modes.into_iter().chain(rules).map(line)
}

/// Overlays that cannot be merged into the configs of their pools.
fn overlay_problems(inputs: &Inputs) -> Vec<Finding> {
    let variant = (SpecVersion::NEWEST, Form::Plain);
    let base = |pool: &String| MergeBase::new(&select(inputs, pool).ok()?, variant).ok();
    let of_pools: BTreeMap<_, _> = inputs.pools.keys().map(|pool| (pool, base(pool))).collect();
    let problem = |machine: &Arc<FirstBootMachine>| {
        let place = format!("FirstBootMachine {}", machine.name());
        let Some(of_pool) = of_pools.get(&machine.spec.pool) else {
            return Some(Finding {
                place,
                reason: format!("there is no pool {}", machine.spec.pool),
            });
        };
        // A pool that cannot be rendered is reported already.
        let (of_pool, overlay) = (of_pool.as_ref()?, machine.spec.overlay.as_ref()?);
        let merged = of_pool.with(overlay.as_str(), &machine.spec.replaces);
        Some(Finding { place, reason: merged.err()?.to_string() })
    };
    inputs.machines.values().filter_map(problem).collect()
}

impl Finding {
    fn of(problem: &Problem) -> Self {
        Self { place: problem.place.clone(), reason: problem.reason.clone() }
    }
}
