//! The command `validate`: checks each pool of a directory of manifests.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use ignition::{Form, SpecVersion};
use model::access::{AccessMode, BootRules, WantedModes};
use model::escape::escaped;
use model::inputs::{Inputs, Problem};
use model::objects::FirstBootMachine;
use model::render::{MergeBase, fetch_rounds, select, too_new_for_release};
use model::rendered_pools::LargeConfig;
use model::table::{Color, TerminalStyle};
use serde::Serialize;

use super::print_json;
use super::process::terminal;
use super::rendering::{read_usable, rendered};
use crate::store::pointer_files::MAX_POOL_BYTES;

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
    problems: Vec<Problem>,
    /// Parts without effect.
    warnings: Vec<Problem>,
}

#[derive(Debug, Serialize)]
struct PoolReport {
    name: String,
    /// Served MachineConfig.
    configuration: Option<String>,
    /// Reason why machines get nothing.
    problem: Option<String>,
}

/// Prints the result. The exit code is 1 if the directory is not valid.
pub(crate) fn run(settings: ValidateSettings) -> anyhow::Result<ExitCode> {
    let ValidateSettings { dir, strict, json } = settings;
    let report = Report::of(&read_usable(dir)?, strict);
    if json {
        print_json(&report)?;
    } else {
        terminal::print(&report.lines(terminal::style()));
    }
    Ok(if report.is_valid { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Report {
    fn of(inputs: &Inputs, is_strict: bool) -> Self {
        let pool = |pool: &String| PoolReport {
            name: pool.clone(),
            configuration: select(inputs, pool).ok().map(|selected| selected.configuration),
            problem: rendered(inputs, pool, SpecVersion::NEWEST).err().map(|it| it.to_string()),
        };
        let pools: Vec<_> = inputs.pools.keys().map(pool).collect();
        let (mut problems, mut warnings) = (inputs.problems.clone(), inputs.warnings.clone());
        problems.extend(overlay_problems(inputs));
        problems.extend(long_names(inputs));
        problems.extend(fetch_rounds(inputs).iter().map(|round| in_a_round(round)));
        // What is said of a pool is not said again.
        let is_said = |problem: &Problem| {
            let of_pool = problem.place.strip_prefix("MachineConfigPool ");
            let pool = pools.iter().find(|pool| of_pool == Some(&*pool.name));
            pool.and_then(|pool| pool.problem.as_ref())
                .is_some_and(|it| it.contains(&problem.reason))
        };
        problems.retain(|problem| !is_said(problem));
        warnings.extend(annotation_faults(inputs));
        warnings.extend(too_new_for_release(inputs));
        warnings.extend(large_configs(inputs));
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
        lines.extend(self.problems.iter().map(|it| line(Color::Bad, it.to_string())));
        let warnings = self.warnings.iter();
        lines.extend(warnings.map(|it| line(Color::Notable, format!("warning: {it}"))));
        lines
    }
}

/// Pools that fetch each other, beginning and ending with the same one.
fn in_a_round(pools: &[String]) -> Problem {
    let place = pools.first().map(|first| format!("MachineConfigPool {first}"));
    let round = pools.join(", which fetches ").replacen(", which fetches ", " fetches ", 1);
    let reason = format!("{round}: machines would fetch forever");
    problem(&place.unwrap_or_default(), reason)
}

/// Pools whose name is too long for a pointer config, without which no machine gets their config.
fn long_names(inputs: &Inputs) -> impl Iterator<Item = Problem> {
    let long = inputs.pools.keys().filter(|pool| pool.len() > MAX_POOL_BYTES);
    let reason = format!(
        "its name has more than {MAX_POOL_BYTES} bytes, too many for the file of a pointer config"
    );
    long.map(move |pool| problem(&format!("MachineConfigPool {pool}"), reason.clone()))
}

/// Annotations of pools about access and machines that are not understood.
fn annotation_faults(inputs: &Inputs) -> impl Iterator<Item = Problem> {
    let (pools, off) = (&inputs.pools, AccessMode::Off);
    let (_, modes) = WantedModes::read(pools, off, &WantedModes::default(), None);
    let (_, rules) = BootRules::read(pools, None, &BootRules::default());
    let line = |fault: String| {
        let (place, reason) = fault.split_once(": ").unwrap_or(("annotations", &fault));
        problem(place, reason.to_owned())
    };
    modes.into_iter().chain(rules).map(line)
}

/// Configs of pools that a cluster cannot store, or soon cannot. A directory is served all the same.
fn large_configs(inputs: &Inputs) -> impl Iterator<Item = Problem> {
    let large = |pool: &String| {
        let selected = select(inputs, pool).ok()?;
        let large = LargeConfig::of(&selected.machine_config)?;
        let reason = format!("MachineConfig {}: {large}", selected.configuration);
        Some(problem(&format!("MachineConfigPool {pool}"), reason))
    };
    inputs.pools.keys().filter_map(large)
}

/// Overlays that cannot be merged into the configs of their pools.
fn overlay_problems(inputs: &Inputs) -> Vec<Problem> {
    let variant = (SpecVersion::NEWEST, Form::Plain);
    let base = |pool: &String| MergeBase::new(&select(inputs, pool).ok()?, variant).ok();
    let of_pools: BTreeMap<_, _> = inputs.pools.keys().map(|pool| (pool, base(pool))).collect();
    let of_machine = |machine: &Arc<FirstBootMachine>| {
        let place = format!("FirstBootMachine {}", machine.name());
        let Some(of_pool) = of_pools.get(&machine.spec.pool) else {
            return Some(problem(&place, format!("there is no pool {}", machine.spec.pool)));
        };
        // A pool that cannot be rendered is reported already.
        let (of_pool, overlay) = (of_pool.as_ref()?, machine.spec.overlay.as_ref()?);
        let merged = of_pool.with(overlay.as_str(), &machine.spec.replaces);
        Some(problem(&place, merged.err()?.to_string()))
    };
    inputs.machines.values().filter_map(of_machine).collect()
}

/// A problem with its whole reason: what is expected comes last.
fn problem(place: &str, reason: String) -> Problem {
    Problem { place: place.to_owned(), reason, outline: None, is_partial: true }
}
