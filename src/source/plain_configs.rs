//! Configs without manifests: `POOL.ign` and `POOL/*.ign` at the top of a directory, and `*.bu` in their place, which
//! Butane converts.
//!
//! Each is a MachineConfig of that pool, and the pool needs no object. Directories named `user-data` are skipped:
//! `serve` can keep its pointer configs there. A Butane file with a converted one next to it is the source of that one, and
//! is not read.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use model::inputs::Problem;
use model::objects::{MachineConfig, MachineConfigPool, Object, ROLE_LABEL, is_object_name};
use serde_json::json;
use serde_json::value::RawValue;

use super::butane::{Butane, NotConverted};
use super::conversions::Conversions;
use super::files::{Files, ReadError};
use super::manifest::{self, Manifest, check_unique_keys, config_warnings};
use super::merged_pools::Pools;
use super::object_set::{ObjectSet, Objects};

/// Directory of `serve`'s pointer configs, in its state directory.
const POINTERS: &str = "user-data";
/// Extensions of what a Butane file is converted to.
const CONVERTED: [&str; 4] = ["ign", "yaml", "yml", "json"];

/// Configs as last read, so that unchanged ones are the same value.
#[derive(Debug, Default)]
pub(super) struct PlainConfigs {
    configs: BTreeMap<PathBuf, PlainConfig>,
    butane: Butane,
    conversions: Conversions,
    /// Faults of files at the last look.
    problems: Vec<Problem>,
}

#[derive(Debug, Clone)]
struct PlainConfig {
    bytes: Bytes,
    config: Arc<MachineConfig>,
    /// The config, as the only object of its file.
    objects: Objects,
    /// Parts of it without effect.
    warnings: Vec<String>,
}

impl PlainConfigs {
    /// Creates a set without files, whose Butane files are converted by this program.
    pub(super) fn new(butane: Butane) -> Self {
        Self { butane, ..Self::default() }
    }

    /// Reads those of the files `paths` that changed. An unreadable file without a last good config becomes a config that
    /// cannot be merged: a machine must not get the rest of its pool's files alone.
    pub(super) fn read(
        &mut self,
        root: &Path,
        paths: &[PathBuf],
        (files, being_written): (&mut Files, &dyn Fn(&Path) -> bool),
    ) {
        self.problems.clear();
        let is_source = |path: &Path| {
            has_extension(path, "bu")
                && CONVERTED.iter().any(|it| paths.contains(&path.with_extension(it)))
        };
        let mut texts = Vec::new();
        let mut butane = Vec::new();
        for path in paths {
            if is_source(path) {
                self.configs.remove(path);
                continue;
            }
            let read = files.read_plain(path, being_written);
            let text = read.map_err(|ReadError { reason, .. }| reason);
            if let (Ok(text), true) = (&text, has_extension(path, "bu")) {
                butane.push((path.clone(), text.clone()));
            }
            texts.push((path, text));
        }
        self.convert(&butane, files);
        for (path, text) in texts {
            let Some(pool) = pool_of(root, path) else { continue };
            let place = path.display().to_string();
            let text = text.and_then(|text| match self.conversions.of(path) {
                None => Ok(text),
                Some(Ok(converted)) => Ok(converted.config.clone()),
                Some(Err(error)) => Err(error.reason().to_owned()),
            });
            let is_unconverted =
                matches!(self.conversions.of(path), Some(Err(NotConverted::Absent(_))));
            let last = self.configs.get(path);
            let read = text
                .and_then(|bytes| match last {
                    // One that never was readable has no bytes, like an empty file.
                    Some(last) if last.bytes == bytes && !bytes.is_empty() => Ok(last.clone()),
                    _ => PlainConfig::read(root, path, pool, &bytes, files.is_strict()),
                })
                // A file that was never readable must not keep a server from starting.
                .inspect_err(|reason| self.problems.push(Problem::part(&place, reason)));
            if !files.was_read(path) {
                continue;
            }
            // Without Butane, the file is none of the pool's.
            let unreadable =
                || (!is_unconverted).then(|| PlainConfig::unreadable(root, path, pool)).flatten();
            let plain = read.ok().or_else(|| last.cloned()).or_else(unreadable);
            if let Some(plain) = plain {
                self.configs.insert(path.clone(), plain);
            }
        }
    }

    /// Converts the Butane files among those that were read.
    fn convert(&mut self, butane: &[(PathBuf, Bytes)], files: &mut Files) {
        self.conversions.retain(|path| butane.iter().any(|(it, _)| it == path));
        let looked = self.conversions.look(&self.butane, butane);
        if looked.is_changed {
            files.note_change();
            files.is_unsaved = true;
        }
        if let Some(wait) = looked.again_in {
            files.again_in(wait);
        }
    }

    /// Discards the configs of files that are neither `present` nor `lost`.
    pub(super) fn retain(&mut self, present: &BTreeSet<&Path>, lost: &BTreeSet<PathBuf>) {
        self.configs.retain(|path, _| present.contains(&**path) || lost.contains(path));
    }

    /// The configs as the objects of their files.
    pub(super) fn objects(&self) -> impl Iterator<Item = (&Path, &Objects)> {
        self.configs.iter().map(|(path, plain)| (&**path, &plain.objects))
    }

    /// Creates the pools of the configs that are missing. Configs that `set` does not use make none.
    pub(super) fn add_pools(&self, root: &Path, set: &ObjectSet, pools: &mut Pools) {
        for (path, plain) in &self.configs {
            let used = set.machine_config(plain.config.name());
            let is_used = used.is_some_and(|used| Arc::ptr_eq(used, &plain.config));
            if let Some(pool) = pool_of(root, path).filter(|_| is_used) {
                let of_role = || Arc::new(MachineConfigPool::of_role(pool));
                pools.entry(pool.to_owned()).or_insert_with(of_role);
            }
        }
    }

    /// Faults of files at the last look.
    pub(super) fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// Files with a config, with its last good bytes.
    pub(super) fn files(&self) -> impl Iterator<Item = (&PathBuf, &Bytes)> {
        let valid = self.configs.iter().filter(|(_, plain)| !plain.bytes.is_empty());
        valid.map(|(path, plain)| (path, &plain.bytes))
    }

    /// Takes over the last good config of a file from an earlier process.
    pub(super) fn restore(&mut self, root: &Path, path: &Path, bytes: &Bytes) {
        let plain =
            pool_of(root, path).map(|pool| PlainConfig::read(root, path, pool, bytes, false));
        if let Some(Ok(plain)) = plain {
            self.configs.insert(path.to_owned(), plain);
        }
    }

    /// Parts of files without effect, and files whose configs are part of no pool.
    pub(super) fn warnings(
        &self,
        root: &Path,
        is_selected: impl Fn(&MachineConfig) -> bool,
    ) -> Vec<Problem> {
        let unused = self.configs.iter().filter(|(_, plain)| !is_selected(&plain.config));
        let warning = |(path, _): (&PathBuf, _)| {
            let pool = pool_of(root, path)?;
            let reason = format!(
                "is not in any config: MachineConfigPool {pool} names a configuration, or does not \
                    select {ROLE_LABEL}={pool}"
            );
            Some(Problem::whole(&path.display().to_string(), reason))
        };
        let of_configs = self
            .configs
            .iter()
            .flat_map(|(path, plain)| plain.warnings.iter().map(|it| (&**path, &**it)));
        let parts = of_configs
            .chain(self.conversions.messages())
            .map(|(path, it)| Problem::part(&path.display().to_string(), it));
        unused.filter_map(warning).chain(parts).collect()
    }
}

impl PlainConfig {
    fn new(bytes: Bytes, config: Arc<MachineConfig>, warnings: Vec<String>) -> Self {
        let objects = [Object::MachineConfig(Arc::clone(&config))].into();
        Self { bytes, config, objects, warnings }
    }

    fn read(
        root: &Path,
        path: &Path,
        pool: &str,
        bytes: &Bytes,
        is_strict: bool,
    ) -> Result<Self, String> {
        let (config, warnings) = if is_converted_manifest(path, bytes) {
            converted_manifest(pool, bytes)?
        } else {
            let config = Arc::new(machine_config(root, path, pool, bytes)?);
            let warnings = config.ignition().map(|text| config_warnings(&text)).unwrap_or_default();
            (config, warnings)
        };
        match warnings.first() {
            Some(first) if is_strict => Err(first.clone()),
            _ => Ok(Self::new(bytes.clone(), config, warnings)),
        }
    }

    /// A config that is none, in the place of one that cannot be read.
    fn unreadable(root: &Path, path: &Path, pool: &str) -> Option<Self> {
        let unreadable = RawValue::from_string(r#""unreadable""#.to_owned()).ok()?;
        let config = Arc::new(of_role(root, path, pool, &unreadable).ok()?);
        Some(Self::new(Bytes::new(), config, Vec::new()))
    }
}

/// Files with a config that are not read, because they are too deep or named for no pool.
pub(super) fn unread(root: &Path, paths: &[PathBuf]) -> Vec<Problem> {
    let is_config = |path: &&PathBuf| {
        let is_pointer = || path.components().any(|part| part.as_os_str() == POINTERS);
        let is_user_data = || path.as_path() == root.join("user-data.ign");
        has_extension(path, "ign") && !is_plain(root, path) && !is_pointer() && !is_user_data()
    };
    let reason = "is not read: configs are DIR/POOL.ign and DIR/POOL/*.ign, with a pool's name in lower case";
    let unread = paths.iter().filter(is_config);
    unread.map(|path| Problem::whole(&path.display().to_string(), reason)).collect()
}

/// Returns `true` if a file is a config without a manifest.
pub(super) fn is_plain(root: &Path, path: &Path) -> bool {
    pool_of(root, path).is_some()
}

/// Pool of a config file, `None` for other files.
fn pool_of<'a>(root: &Path, path: &'a Path) -> Option<&'a str> {
    if !has_extension(path, "ign") && !has_extension(path, "bu") {
        return None;
    }
    let mut above = path.strip_prefix(root).ok()?.components();
    let pool = match (above.next(), above.next(), above.next()) {
        (Some(_), None, _) => path.file_stem()?,
        (Some(_), Some(_), None) => path.parent()?.file_name()?,
        _ => return None,
    };
    pool.to_str().filter(|pool| is_object_name(pool) && *pool != POINTERS)
}

fn has_extension(path: &Path, wanted: &str) -> bool {
    path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case(wanted))
}

/// Returns `true` for the manifest of a MachineConfig, which Butane makes of its variant `openshift`.
fn is_converted_manifest(path: &Path, bytes: &[u8]) -> bool {
    has_extension(path, "bu") && !bytes.trim_ascii_start().starts_with(b"{")
}

/// The MachineConfig that Butane has made, with its parts without effect. It must be of the pool of its file.
fn converted_manifest(
    pool: &str,
    bytes: &[u8],
) -> Result<(Arc<MachineConfig>, Vec<String>), String> {
    let Manifest { objects, warnings, .. } =
        manifest::read(bytes).map_err(|error| error.to_string())?;
    let Some(Object::MachineConfig(config)) = objects.into_iter().next() else {
        return Err("Butane made neither an Ignition config nor a MachineConfig of it".to_owned());
    };
    let labels = config.labels().unwrap_or_default();
    let role = labels.get(ROLE_LABEL).and_then(Option::as_deref).unwrap_or_default();
    if role != pool {
        return Err(format!(
            "its label {ROLE_LABEL} is {role:?}, and the file is of pool {pool}: write {pool}, or move the file"
        ));
    }
    Ok((config, warnings))
}

/// Makes a MachineConfig of the pool's role, named after the file's path below `root`.
fn machine_config(
    root: &Path,
    path: &Path,
    pool: &str,
    bytes: &[u8],
) -> Result<MachineConfig, String> {
    let reported = |error: serde_json::Error| format!("is not JSON: {error}");
    let config: &RawValue = serde_json::from_slice(bytes).map_err(reported)?;
    if !config.get().trim_start().starts_with('{') {
        return Err("is not a JSON object".to_owned());
    }
    check_unique_keys(bytes).map_err(|error| error.to_string())?;
    of_role(root, path, pool, config).map_err(reported)
}

fn of_role(
    root: &Path,
    path: &Path,
    pool: &str,
    config: &RawValue,
) -> serde_json::Result<MachineConfig> {
    let name = path.strip_prefix(root).unwrap_or(path).display().to_string();
    let metadata = json!({"name": name, "labels": {ROLE_LABEL: pool}});
    // Both parts are JSON.
    let text = format!(r#"{{"metadata": {metadata}, "spec": {{"config": {config}}}}}"#);
    serde_json::from_str(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_config_belongs_to_the_pool_that_its_file_or_directory_is_named_for() {
        let root = Path::new("/srv/configs");
        for (file, pool) in [
            ("worker.ign", Some("worker")),
            ("worker/10-base.ign", Some("worker")),
            ("edge/site.IGN", Some("edge")),
            ("edge/site.bu", Some("edge")),
            ("edge/deep/site.ign", None),
            ("user-data/worker.ign", None),
            ("user-data.ign", None),
            ("Worker.ign", None),
            ("worker.json", None),
        ] {
            assert_eq!(pool_of(root, &root.join(file)), pool, "{file}");
        }
        assert_eq!(pool_of(root, Path::new("/srv/worker.ign")), None);
    }

    #[test]
    fn an_empty_file_is_reported_at_each_look() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("edge.ign");
        std::fs::write(&path, "").unwrap();
        let (mut configs, mut files) = (PlainConfigs::default(), Files::new(false));
        for _ in 0..2 {
            files.begin(std::time::SystemTime::now(), std::time::Duration::ZERO);
            configs.read(root.path(), std::slice::from_ref(&path), (&mut files, &|_| false));
            let problems = configs.problems();
            assert!(problems[0].place.ends_with("edge.ign"), "{problems:?}");
        }
    }

    #[test]
    fn a_file_becomes_a_machine_config_of_its_pools_role() {
        let root = Path::new("/srv");
        let read = |text: &[u8]| machine_config(root, &root.join("worker.ign"), "worker", text);
        assert!(read(b"{").unwrap_err().starts_with("is not JSON"));
        assert_eq!(read(b"null").unwrap_err(), "is not a JSON object");
        // Ignition would read both, and a machine of the merged pool get the second one's files alone.
        let twice = read(br#"{"storage": {"files": []}, "storage": {}}"#).unwrap_err();
        assert!(twice.starts_with("the key \"storage\" appears twice"), "{twice}");
        let config = read(br#"{"ignition": {"version": "3.4.0"}}"#).unwrap();
        assert_eq!(config.name(), "worker.ign");
        assert_eq!(config.labels().unwrap()[ROLE_LABEL].as_deref(), Some("worker"));
    }
}
