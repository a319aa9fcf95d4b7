//! Merges the Ignition configs of a pool.

use std::sync::Arc;

use ignition::{Config, MergeInput, Merged, SpecVersion};
use serde_json::value::RawValue;

use super::argument_setter::ArgumentSetter;
use super::kernel_arguments::arguments_for_ignition;
use super::parsed::ParsedMachineConfig;
use super::unmergeable::{Conflict, Unmergeable};
use crate::fetched_pools::fetched_pool;

/// Spec that the render controller writes. Configs that need a newer one are written in that.
const SPEC: SpecVersion = SpecVersion::V3_5;

/// A fault that keeps machines from booting, with the names of the MachineConfigs that cause it.
type NamedConflict = (Vec<String>, Conflict);

/// Merges the Ignition configs of a pool's MachineConfigs, given in their order, with the kernel arguments that
/// Ignition sets.
pub(super) fn ignition_config(
    pool: &str,
    sources: &[&ParsedMachineConfig],
    setter: ArgumentSetter,
) -> Result<(Box<RawValue>, Option<NamedConflict>), Unmergeable> {
    let arguments = arguments_for_ignition(sources, setter)?;
    let (sources, parts) = parts(sources, &arguments)?;
    let mut config = merged(&parts).config()?;
    let conflict =
        if conflict(pool, &config).is_some() { fewest(pool, sources, parts) } else { None };
    config.finish_files();
    Ok((RawValue::from_string(config.write()?)?, conflict))
}

/// Finds the conflict of configs that conflict, and the names of the fewest that have it: shares of the configs, half
/// of them at first, are left out while the others conflict without them.
fn fewest(
    pool: &str,
    mut sources: Vec<&ParsedMachineConfig>,
    mut parts: Vec<&MergeInput>,
) -> Option<NamedConflict> {
    let found = |parts: &[&MergeInput]| conflict(pool, &merged(parts).config().ok()?);
    let mut share = parts.len().div_ceil(2);
    loop {
        let mut start = 0;
        while start < parts.len() {
            let end = parts.len().min(start + share);
            let others = [&parts[..start], &parts[end..]].concat();
            if found(&others).is_some() {
                parts = others;
                sources.drain(start..end);
            } else {
                start = end;
            }
        }
        if share == 1 {
            break;
        }
        share = share.div_ceil(2);
    }
    let names = sources.iter().map(|source| source.name().to_owned()).collect();
    Some((names, found(&parts)?))
}

/// The sources that have an Ignition config, with these, and then those with kernel arguments for Ignition.
pub(super) fn parts<'a>(
    sources: &[&'a ParsedMachineConfig],
    arguments: &'a [(&'a ParsedMachineConfig, MergeInput)],
) -> Result<(Vec<&'a ParsedMachineConfig>, Vec<&'a MergeInput>), Unmergeable> {
    let mut found = (Vec::new(), Vec::new());
    for source in sources {
        if let Some(part) = source.part()? {
            found.0.push(*source);
            found.1.push(part);
        }
    }
    for (source, part) in arguments {
        found.0.push(*source);
        found.1.push(part);
    }
    Ok(found)
}

pub(super) fn merged<'a>(parts: &[&'a MergeInput]) -> Merged<'a> {
    ignition::merge(parts, SPEC)
}

/// Finds a fault of a config that is merged from these.
fn conflict(pool: &str, config: &Config) -> Option<Conflict> {
    if let Err(error) = config.check() {
        return Some(Conflict::Invalid(Arc::new(error)));
    }
    let unwritable = config.check_writable().err().map(Conflict::Unwritable);
    unwritable.or_else(|| no_contents(config)).or_else(|| fetches_itself(pool, config))
}

/// Finds a file that overwrites with nothing.
fn no_contents(config: &Config) -> Option<Conflict> {
    let mut files = config.body().storage.files.iter();
    let file = files.find(|file| file.overwrite.is_none() && file.contents.source.is_none())?;
    Some(Conflict::NoContents(file.path.clone()))
}

/// Finds a reference to the pool's own config.
fn fetches_itself(pool: &str, config: &Config) -> Option<Conflict> {
    let referred = &config.body().ignition.config;
    let resources = referred.merge.iter().chain([&referred.replace]);
    let mut urls = resources.filter_map(|resource| resource.source.as_deref());
    let url = urls.find(|url| fetched_pool(url).as_deref() == Some(pool))?;
    // What follows can be a secret.
    let shown = url.split(['?', '#']).next().unwrap_or_default();
    Some(Conflict::FetchesItself(shown.to_owned()))
}
