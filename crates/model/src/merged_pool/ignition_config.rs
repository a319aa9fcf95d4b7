//! Merges the Ignition configs of a pool.

use std::collections::HashSet;
use std::sync::Arc;

use data_encoding::HEXLOWER;
use ignition::spec3::File;
use ignition::{Config, MergeInput, Merged, SpecVersion, data_url};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256, Sha512};

use super::parsed::ParsedMachineConfig;
use super::unmergeable::{Conflict, Unmergeable};

/// Spec that the render controller writes. Configs that need a newer one are written in that.
const SPEC: SpecVersion = SpecVersion::V3_5;

/// A fault that keeps machines from booting, with the names of the MachineConfigs that cause it.
type NamedConflict = (Vec<String>, Conflict);

/// Merges the Ignition configs of a pool's MachineConfigs, given in their order.
pub(super) fn ignition_config(
    pool: &str,
    sources: &[&ParsedMachineConfig],
) -> Result<(Box<RawValue>, Option<NamedConflict>), Unmergeable> {
    let (sources, parts) = parts(sources)?;
    let mut config = merged(&parts).config()?;
    let conflict =
        if conflict(pool, &parts, &config).is_some() { fewest(pool, sources, parts) } else { None };
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
    let found = |parts: &[&MergeInput]| conflict(pool, parts, &merged(parts).config().ok()?);
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

/// The sources that have an Ignition config, with these.
pub(super) fn parts<'a>(
    sources: &[&'a ParsedMachineConfig],
) -> Result<(Vec<&'a ParsedMachineConfig>, Vec<&'a MergeInput>), Unmergeable> {
    let mut found = (Vec::new(), Vec::new());
    for source in sources {
        if let Some(part) = source.part()? {
            found.0.push(*source);
            found.1.push(part);
        }
    }
    Ok(found)
}

pub(super) fn merged<'a>(parts: &[&'a MergeInput]) -> Merged<'a> {
    ignition::merge(parts, SPEC)
}

/// Finds a fault of a config that is merged from these.
fn conflict(pool: &str, parts: &[&MergeInput], config: &Config) -> Option<Conflict> {
    if let Err(error) = config.check() {
        return Some(Conflict::Invalid(Arc::new(error)));
    }
    not_a_directory(config)
        .or_else(|| other_hash(parts, config))
        .or_else(|| no_contents(config))
        .or_else(|| fetches_itself(pool, config))
}

/// Finds a node below a file. Ignition notices it only when it writes the node.
fn not_a_directory(config: &Config) -> Option<Conflict> {
    let storage = &config.body().storage;
    let files: HashSet<&str> = storage.files.iter().map(|it| it.path.as_str()).collect();
    let directories = storage.directories.iter().map(|it| it.path.as_str());
    let links = storage.links.iter().map(|it| it.path.as_str());
    files.iter().copied().chain(directories).chain(links).find_map(|path| {
        let mut parents = path.match_indices('/').map(|(end, _)| &path[..end]);
        let parent = parents.find(|parent| files.contains(parent))?.to_owned();
        Some(Conflict::NotADirectory { path: path.to_owned(), parent })
    })
}

/// Finds a file whose contents come from another MachineConfig than their hash, and do not have it.
fn other_hash(parts: &[&MergeInput], config: &Config) -> Option<Conflict> {
    let has_alone = |path: &str| {
        parts.iter().any(|part| {
            let alone = merged(&[part]).config();
            alone.is_ok_and(|config| of_other_hash(&config).any(|it| it == path))
        })
    };
    of_other_hash(config).find(|path| !has_alone(path)).map(str::to_owned).map(Conflict::OtherHash)
}

/// Paths of files with contents that do not have their hash.
fn of_other_hash(config: &Config) -> impl Iterator<Item = &str> {
    let has_other = |file: &&File| {
        let contents = &file.contents;
        // Contents from elsewhere, or packed, are verified by the machine alone.
        let is_packed = contents.compression.as_deref().is_some_and(|it| !it.is_empty());
        let hash = contents.verification.hash.as_deref().filter(|_| !is_packed);
        let Some((function, expected)) = hash.and_then(|hash| hash.split_once('-')) else {
            return false;
        };
        let Some(Ok(bytes)) = contents.source.as_deref().map(data_url::decode) else {
            return false;
        };
        let found = match function {
            "sha512" => HEXLOWER.encode(&Sha512::digest(&bytes)),
            "sha256" => HEXLOWER.encode(&Sha256::digest(&bytes)),
            _ => return false,
        };
        found != expected
    };
    config.body().storage.files.iter().filter(has_other).map(|file| file.path.as_str())
}

fn no_contents(config: &Config) -> Option<Conflict> {
    let mut files = config.body().storage.files.iter();
    let file = files.find(|file| file.overwrite.is_none() && file.contents.source.is_none())?;
    Some(Conflict::NoContents(file.path.clone()))
}

/// Finds a reference to the pool's own config, by its path: a server has many names.
fn fetches_itself(pool: &str, config: &Config) -> Option<Conflict> {
    let referred = &config.body().ignition.config;
    let own = format!("/config/{pool}");
    let mut urls = referred
        .merge
        .iter()
        .chain([&referred.replace])
        .filter_map(|resource| resource.source.as_deref()?.split(['?', '#']).next());
    let url = urls.find(|url| url.trim_end_matches('/').ends_with(&own))?;
    Some(Conflict::FetchesItself(url.to_owned()))
}
