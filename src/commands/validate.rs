//! The command `validate`: checks each pool of a directory of manifests.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use ignition::{Form, SpecVersion};
use inspect::{Cause, KernelArguments};
use model::access::{AccessMode, BootRules, WantedModes};
use model::escape::escaped;
use model::inputs::{Inputs, Problem};
use model::merged_pool::{ArgumentSetter, has_contents_of_name};
use model::objects::{FirstBootMachine, MachineConfig, MachineConfigPool};
use model::render::{MergeBase, select, too_new_for_release};
use rendered_pools::LargeConfig;
use secrets::redacted;
use serde::{Deserialize, Serialize};
use table::{Color, TerminalStyle};

use super::print_json;
use super::process::terminal;
use super::remark::Remark;
use super::rendering::{ManifestFlags, read_usable, rendered};
use crate::store::pointer_files::MAX_POOL_BYTES;

#[derive(Debug, Args)]
pub(crate) struct ValidateSettings {
    /// Directory of manifests, YAML or JSON, any file names
    dir: PathBuf,
    /// Exit with 1 if a field has no effect: an unknown one, or one that is newer than the config's spec
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    manifests: ManifestFlags,
    /// Print JSON, for scripts
    #[arg(long)]
    json: bool,
}

/// A line if there is no pool.
const NO_POOL: &str = "no MachineConfigPool found: nothing would be served";
/// Next step if a part of an object has no effect.
const NO_EFFECT: &str = "correct what the line names, or remove it: it has no effect";

/// Note on a pool whose kernel arguments a machine may ignore.
const WITHOUT_DAEMON: &str = "a machine without machine-config-daemon ignores spec.kernelArguments; for Ignition to set \
                              them, annotate the pool with machine-config-server.io/kernel-arguments: ignition";
/// Note on a pool whose kernel arguments an old Ignition does not know.
const BEFORE_3_3: &str = "an Ignition that asks for a spec before 3.3 does not set kernel arguments; hold it with the \
                          annotation machine-config-server.io/min-ignition-version: 2.11.0:hold";

/// Result of `validate`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(in crate::commands) struct Report {
    is_valid: bool,
    pools: Vec<PoolReport>,
    /// Files and objects that are unusable as a whole or in part.
    problems: Vec<Fixable>,
    /// Parts without effect.
    warnings: Vec<Fixable>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct PoolReport {
    name: String,
    /// Served MachineConfig.
    configuration: Option<String>,
    /// Reason why machines get nothing.
    problem: Option<String>,
    /// Kernel arguments, without secrets, by who sets them.
    #[serde(skip_serializing_if = "Option::is_none")]
    kernel_arguments: Option<KernelArguments>,
    /// Remark about them, which is no fault.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'static str>,
    /// Next step of an administrator, and what machines need then.
    #[serde(skip)]
    fix: String,
}

/// A problem with the next step of an administrator.
#[derive(Debug, Serialize)]
struct Fixable {
    #[serde(flatten)]
    problem: Problem,
    #[serde(skip)]
    fix: &'static str,
}

/// Problems with one next step.
fn with_fix(
    problems: impl IntoIterator<Item = Problem>,
    fix: &'static str,
) -> impl Iterator<Item = Fixable> {
    problems.into_iter().map(move |problem| Fixable { problem, fix })
}

/// Prints the result. The exit code is 1 if the directory is not valid.
pub(crate) fn run(settings: ValidateSettings) -> anyhow::Result<ExitCode> {
    let ValidateSettings { dir, strict, manifests, json } = settings;
    let report = Report::of(&read_usable(dir, manifests.butane())?, strict);
    if json {
        print_json(&report)?;
    } else {
        terminal::print(&report.lines(terminal::style()));
    }
    Ok(if report.is_valid { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Report {
    pub(in crate::commands) fn of(inputs: &Inputs, is_strict: bool) -> Self {
        let pool = |(name, pool): (&String, &Arc<MachineConfigPool>)| {
            let rendered = rendered(inputs, name, SpecVersion::NEWEST);
            let selected = select(inputs, name).ok();
            let (config, cause) = (rendered.as_ref().ok(), rendered.as_ref().err());
            let served = config.zip(selected.as_ref());
            let arguments = served.and_then(|(config, it)| arguments(config, &it.machine_config));
            let note = served.zip(arguments.as_ref());
            PoolReport {
                name: name.clone(),
                problem: cause.map(Cause::to_string),
                note: note.and_then(|((_, it), found)| note_on(pool, &it.machine_config, found)),
                kernel_arguments: arguments,
                fix: cause.map(|it| it.recovery().after(it.remedy())).unwrap_or_default(),
                configuration: selected.map(|selected| selected.configuration),
            }
        };
        let pools: Vec<_> = inputs.pools.iter().map(pool).collect();
        // What is said of a pool is not said again.
        let is_said = |problem: &Problem| {
            let of_pool = problem.place.strip_prefix("MachineConfigPool ");
            let pool = pools.iter().find(|pool| of_pool == Some(&*pool.name));
            pool.and_then(|pool| pool.problem.as_ref())
                .is_some_and(|it| it.contains(&problem.reason))
        };
        let mut problems = problems(inputs);
        problems.retain(|it| !is_said(&it.problem));
        let warnings = warnings(inputs);
        let is_valid = !pools.is_empty()
            && pools.iter().all(|pool| pool.problem.is_none())
            && problems.is_empty()
            && (warnings.is_empty() || !is_strict);
        Self { is_valid, pools, problems, warnings }
    }

    /// Number of pools.
    pub(in crate::commands) fn pool_count(&self) -> usize {
        self.pools.len()
    }

    /// Reasons why a pool or a machine gets nothing, or a file cannot be used; `place` is the directory or cluster.
    pub(in crate::commands) fn faults(&self, place: &str) -> Vec<Remark> {
        let none = self.pools.is_empty().then(|| {
            let fix = "add the MachineConfigPools and their MachineConfigs, or name the directory that has them";
            Remark::new(place, NO_POOL, fix)
        });
        let pools = self.pools.iter().filter_map(|PoolReport { name, problem, fix, .. }| {
            let problem = problem.as_ref()?;
            let thing = format!("pool {name}");
            Some(Remark::new(&thing, format!("{thing}: {problem}"), fix))
        });
        none.into_iter().chain(pools).chain(self.problems.iter().map(Fixable::remark)).collect()
    }

    /// Parts without effect, and what will be a fault later.
    pub(in crate::commands) fn remarks(&self) -> Vec<Remark> {
        self.warnings.iter().map(Fixable::remark).collect()
    }

    /// Escaped lines in the style of the output.
    fn lines(&self, style: TerminalStyle) -> Vec<String> {
        let line = |ink, text: String| style.paint(ink, &escaped(&text));
        let mut lines = Vec::new();
        for PoolReport { name, configuration, problem, kernel_arguments, note, .. } in &self.pools {
            let configuration = configuration.as_deref().unwrap_or_default();
            lines.push(match problem {
                Some(problem) => line(Color::Bad, format!("pool {name}: {problem}")),
                None => line(Color::Good, format!("pool {name}: OK, serves {configuration}")),
            });
            let arguments = kernel_arguments.iter().filter_map(KernelArguments::in_words);
            let arguments = arguments.map(|it| format!("pool {name}: kernel arguments {it}"));
            let notes = note.iter().map(|note| format!("note: pool {name}: {note}"));
            lines.extend(arguments.chain(notes).map(|text| escaped(&text).into_owned()));
        }
        if self.pools.is_empty() {
            lines.push(line(Color::Bad, NO_POOL.to_owned()));
        }
        lines.extend(self.problems.iter().map(|it| line(Color::Bad, it.problem.to_string())));
        let warnings = self.warnings.iter();
        lines.extend(warnings.map(|it| line(Color::Notable, format!("warning: {}", it.problem))));
        lines
    }
}

/// Kernel arguments of a pool's machines, by its config in the newest spec; `None` without any.
fn arguments(config: &[u8], machine_config: &MachineConfig) -> Option<KernelArguments> {
    #[derive(Default, Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    struct Own {
        should_exist: Vec<String>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Config {
        #[serde(default)]
        kernel_arguments: Own,
    }
    // A rendered config is one that can be read.
    let ignition = serde_json::from_slice::<Config>(config).ok()?.kernel_arguments.should_exist;
    let daemon = machine_config.spec.kernel_arguments.iter().flatten();
    let shown = |argument: &String| redacted(argument).into_owned();
    let found = KernelArguments {
        ignition: ignition.iter().map(shown).collect(),
        machine_config_daemon: daemon.map(shown).collect(),
    };
    (found != KernelArguments::default()).then_some(found)
}

/// Remark about the kernel arguments of a pool that is merged here, where its annotation decides who sets them.
///
/// It is no warning: nothing in a directory shows whether machines have machine-config-daemon.
fn note_on(
    pool: &MachineConfigPool,
    machine_config: &MachineConfig,
    found: &KernelArguments,
) -> Option<&'static str> {
    if !has_contents_of_name(machine_config) {
        return None;
    }
    match ArgumentSetter::of(pool).ok()? {
        None if !found.machine_config_daemon.is_empty() => Some(WITHOUT_DAEMON),
        Some(ArgumentSetter::Ignition) if !found.ignition.is_empty() => Some(BEFORE_3_3),
        _ => None,
    }
}

impl Fixable {
    fn remark(&self) -> Remark {
        Remark::new(&self.problem.place, self.problem.to_string(), self.fix)
    }
}

/// Files and objects that are unusable as a whole or in part.
fn problems(inputs: &Inputs) -> Vec<Fixable> {
    let unread =
        "correct this file or object; until then it is served as it was read last, or not at all";
    let overlays = "correct the overlay or the pool in the FirstBootMachine";
    let names = "give the pool a shorter name";
    with_fix(inputs.problems.clone(), unread)
        .chain(with_fix(overlay_problems(inputs), overlays))
        .chain(with_fix(long_names(inputs), names))
        .collect()
}

fn warnings(inputs: &Inputs) -> Vec<Fixable> {
    let annotations = "correct the annotation, or remove it";
    let release = "lower the spec of the MachineConfig, or update the cluster first";
    let large =
        "make the pool's MachineConfigs smaller, such as by files that machines fetch later";
    with_fix(inputs.warnings.clone(), NO_EFFECT)
        .chain(with_fix(annotation_faults(inputs), annotations))
        .chain(with_fix(too_new_for_release(inputs), release))
        .chain(with_fix(large_configs(inputs), large))
        .collect()
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
