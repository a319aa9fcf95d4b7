//! Merges the Ignition configs of a pool.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use data_encoding::HEXLOWER;
use ignition::spec3::File;
use ignition::{Config, Merged, Part, SpecVersion, data_url};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256, Sha512};

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
        let place = error.place().unwrap_or_default();
        let others = related(config, place);
        let concerned = if others.is_empty() {
            merged.concerned(place)
        } else {
            said_by_all(merged, others.iter().map(String::as_str).chain([node_of(place)]))
        };
        return Some((concerned, Conflict::Invalid(Arc::new(error))));
    }
    if let Some((places, conflict)) = not_a_directory(config).or_else(|| other_hash(merged, config))
    {
        return Some((said_by_all(merged, places.iter().map(String::as_str)), conflict));
    }
    let files = &config.body().storage.files;
    let has_nothing = |file: &File| file.overwrite.is_none() && file.contents.source.is_none();
    let index = files.iter().position(has_nothing)?;
    let concerned = merged.said_by(&format!("storage.files[{index}]"));
    Some((concerned, Conflict::NoContents { path: files[index].path.clone() }))
}

/// Numbers of the configs from which the values at these places come.
fn said_by_all<'a>(merged: &Merged<'_>, places: impl Iterator<Item = &'a str>) -> BTreeSet<usize> {
    places.flat_map(|place| merged.said_by(place)).collect()
}

/// The file, directory or link that a place is in.
fn node_of(place: &str) -> &str {
    place.split_once(']').map_or(place, |(before, _)| &place[..=before.len()])
}

/// Paths of all files, directories and links, with their places.
fn nodes(config: &Config) -> Vec<(String, &str)> {
    let storage = &config.body().storage;
    let files = storage.files.iter().map(|it| it.path.as_str()).enumerate();
    let directories = storage.directories.iter().map(|it| it.path.as_str()).enumerate();
    let links = storage.links.iter().map(|it| it.path.as_str()).enumerate();
    let place = |kind: &'static str| move |(i, path)| (format!("storage.{kind}[{i}]"), path);
    let files = files.map(place("files"));
    files.chain(directories.map(place("directories"))).chain(links.map(place("links"))).collect()
}

/// Places of the links above a node, and of the unit or drop-in that is written to its path.
fn related(config: &Config, place: &str) -> Vec<String> {
    let nodes = nodes(config);
    let node = node_of(place);
    let Some((_, path)) = nodes.iter().find(|(place, _)| place == node) else { return Vec::new() };
    let is_above = |(place, above): &&(String, &str)| {
        place.starts_with("storage.links") && is_below(path, above)
    };
    let links = nodes.iter().filter(is_above).map(|(place, _)| place.clone());
    let units = config.body().systemd.units.iter().enumerate().filter_map(|(i, unit)| {
        let of_unit = path.strip_prefix("/etc/systemd/system/")?.strip_prefix(&*unit.name)?;
        (of_unit.is_empty() || of_unit.starts_with(".d/")).then(|| format!("systemd.units[{i}]"))
    });
    links.chain(units).collect()
}

fn is_below(path: &str, above: &str) -> bool {
    path.strip_prefix(above).is_some_and(|rest| rest.starts_with('/'))
}

/// Finds a node below a file. Ignition notices it only when it writes the node.
fn not_a_directory(config: &Config) -> Option<(Vec<String>, Conflict)> {
    let nodes = nodes(config);
    let files: HashMap<&str, &String> = nodes
        .iter()
        .filter(|(place, _)| place.starts_with("storage.files"))
        .map(|(place, path)| (*path, place))
        .collect();
    nodes.iter().find_map(|(place, path)| {
        let mut parents = path.match_indices('/').map(|(end, _)| &path[..end]);
        let (parent, of_parent) = parents.find_map(|parent| files.get_key_value(parent))?;
        let conflict =
            Conflict::NotADirectory { path: (*path).to_owned(), parent: (*parent).to_owned() };
        Some((vec![(*of_parent).clone(), place.clone()], conflict))
    })
}

/// Finds a file whose contents come from another MachineConfig than their hash, and do not have it.
fn other_hash(merged: &Merged<'_>, config: &Config) -> Option<(Vec<String>, Conflict)> {
    config.body().storage.files.iter().enumerate().find_map(|(i, file)| {
        let contents = &file.contents;
        let (hash, source) = (contents.verification.hash.as_ref()?, contents.source.as_ref()?);
        let places = ["verification.hash", "source"]
            .map(|field| format!("storage.files[{i}].contents.{field}"));
        if merged.said_by(&places[0]) == merged.said_by(&places[1]) {
            return None;
        }
        // Contents from elsewhere, or packed, are verified by the machine alone.
        let is_packed = contents.compression.as_deref().is_some_and(|it| !it.is_empty());
        let bytes = data_url::decode(source).ok().filter(|_| !is_packed)?;
        let found = match hash.split_once('-')? {
            ("sha512", _) => format!("sha512-{}", HEXLOWER.encode(&Sha512::digest(&bytes))),
            ("sha256", _) => format!("sha256-{}", HEXLOWER.encode(&Sha256::digest(&bytes))),
            _ => return None,
        };
        let conflict = Conflict::OtherHash { path: file.path.clone() };
        (found != *hash).then(|| (places.to_vec(), conflict))
    })
}
