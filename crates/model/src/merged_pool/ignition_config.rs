//! Merges the Ignition configs of a pool.

use std::collections::BTreeSet;
use std::sync::Arc;

use ignition::spec3::File;
use ignition::{Config, Merged, Part, SpecVersion};
use serde_json::value::RawValue;

use super::parsed::ParsedMachineConfig;
use super::unmergeable::{Conflict, Unmergeable};

/// Spec that the render controller writes. Configs that need a newer one are written in that.
const SPEC: SpecVersion = SpecVersion::V3_5;

/// An Ignition config merged from several.
pub(super) struct IgnitionConfig {
    pub(super) text: Box<RawValue>,
    /// Fault that keeps machines from booting, and the names of the MachineConfigs that cause it.
    pub(super) conflict: Option<(Vec<String>, Conflict)>,
}

/// Merges the Ignition configs of MachineConfigs, given in their order.
pub(super) fn ignition_config(
    sources: &[&ParsedMachineConfig],
) -> Result<IgnitionConfig, Unmergeable> {
    let (sources, parts) = parts(sources)?;
    let merged = merged(&parts);
    let mut config = merged.config()?;
    let conflict = conflict(&merged, &config).map(|(concerned, conflict)| {
        let named = concerned.into_iter().filter_map(|index| sources.get(index));
        (named.map(|source| source.name().to_owned()).collect(), conflict)
    });
    config.finish_files();
    Ok(IgnitionConfig { text: RawValue::from_string(config.write()?)?, conflict })
}

/// The sources that have an Ignition config, with these.
pub(super) fn parts<'a>(
    sources: &[&'a ParsedMachineConfig],
) -> Result<(Vec<&'a ParsedMachineConfig>, Vec<&'a Part>), Unmergeable> {
    let mut found = (Vec::new(), Vec::new());
    for source in sources {
        if let Some(part) = source.part()? {
            found.0.push(*source);
            found.1.push(part);
        }
    }
    Ok(found)
}

/// Merges Ignition configs with the pool's minimum spec.
pub(super) fn merged<'a>(parts: &[&'a Part]) -> Merged<'a> {
    ignition::merge(parts, SPEC)
}

fn conflict(merged: &Merged<'_>, config: &Config) -> Option<(BTreeSet<usize>, Conflict)> {
    if let Err(error) = config.check() {
        let concerned = merged.concerned(error.place().unwrap_or_default());
        return Some((concerned, Conflict::Invalid(Arc::new(error))));
    }
    let files = &config.body().storage.files;
    let has_nothing = |file: &File| file.overwrite.is_none() && file.contents.source.is_none();
    let index = files.iter().position(has_nothing)?;
    let concerned = merged.said_by(&format!("storage.files[{index}]"));
    Some((concerned, Conflict::NoContents { path: files[index].path.clone() }))
}
