//! Kernel arguments of MachineConfigs as parts of an Ignition config, one entry for one, to be merged after the Ignition
//! configs: where one of these removes an argument, it is added again, as machine-config-daemon does.
//!
//! Source: Ignition's stage `kargs` gives each entry to the operating system's `ignition-kargs-helper`, as it is. An entry
//! with spaces is several arguments that stay together, and quotes are the kernel's. An entry that the machine has is not
//! added again.

use std::collections::{BTreeMap, BTreeSet};

use ignition::{Config, MergeInput};
use serde_json::json;

use super::argument_setter::ArgumentSetter;
use super::parsed::ParsedMachineConfig;
use super::unmergeable::{MachineConfigFault, Unmergeable};

/// Arguments whose place matters: the number of huge pages is for the size before it.
const PAIRED: [&str; 2] = ["hugepagesz=", "hugepages="];

/// Configs with the kernel arguments that Ignition sets, each with its MachineConfig.
///
/// An argument of several MachineConfigs is in the last of them, because the kernel takes the last of many.
pub(super) fn arguments_for_ignition<'a>(
    sources: &[&'a ParsedMachineConfig],
    setter: ArgumentSetter,
) -> Result<Vec<(&'a ParsedMachineConfig, MergeInput)>, Unmergeable> {
    if setter == ArgumentSetter::Daemon {
        return Ok(Vec::new());
    }
    let mut arguments = Vec::new();
    for source in sources {
        arguments.extend(entries(source)?.into_iter().map(|argument| (*source, argument)));
    }
    expect_pairs(&arguments)?;
    let mut seen = BTreeSet::new();
    let mut kept: Vec<_> =
        arguments.into_iter().rev().filter(|(_, argument)| seen.insert(*argument)).collect();
    kept.reverse();
    let of_one = kept.chunk_by(|(one, _), (other, _)| std::ptr::eq(*one, *other));
    let part = |of_one: &[(&'a ParsedMachineConfig, &str)]| {
        let (source, _) = *of_one.first()?;
        let arguments: Vec<_> = of_one.iter().map(|(_, argument)| argument).collect();
        let config = json!({
            "ignition": {"version": "3.3.0"}, "kernelArguments": {"shouldExist": arguments},
        });
        let part = Config::parse(&config.to_string()).and_then(|config| MergeInput::new(&config));
        Some(part.map(|part| (source, part)).map_err(Unmergeable::from))
    };
    of_one.filter_map(part).collect()
}

/// The entries of a MachineConfig, without spaces around them.
fn entries(source: &ParsedMachineConfig) -> Result<Vec<&str>, Unmergeable> {
    let mut entries = Vec::new();
    for (index, entry) in source.spec().kernel_arguments.iter().flatten().enumerate() {
        let entry = entry.trim();
        // A boot loader's configuration has them in one line.
        if entry.contains(char::is_control) {
            let fault = MachineConfigFault::ControlCharacter(index);
            return Err(Unmergeable::Faulty(source.name().to_owned(), fault));
        }
        if !entry.is_empty() {
            entries.push(entry);
        }
    }
    Ok(entries)
}

/// Refuses a repeated argument that has another meaning at another place, since Ignition sets it once.
fn expect_pairs(arguments: &[(&ParsedMachineConfig, &str)]) -> Result<(), Unmergeable> {
    let mut names: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (source, argument) in arguments {
        let is_single = !argument.contains(char::is_whitespace);
        if is_single && PAIRED.iter().any(|start| argument.starts_with(start)) {
            names.entry(argument).or_default().push(source.name());
        }
    }
    let repeated = names.into_iter().find(|(_, names)| names.len() > 1);
    let Some((argument, mut names)) = repeated else { return Ok(()) };
    names.dedup();
    let names = names.into_iter().map(str::to_owned).collect();
    Err(Unmergeable::RepeatedArgument(names, argument.to_owned()))
}
