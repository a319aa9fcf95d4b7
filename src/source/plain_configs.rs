//! Ignition configs without manifests: `POOL.ign` and `POOL/*.ign` at the top of a directory.
//!
//! Each is a MachineConfig of that pool, and the pool needs no object. Directories named `user-data` are skipped:
//! `serve` can keep its pointer configs there.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use model::inputs::Problem;
use model::objects::{MachineConfig, MachineConfigPool, ROLE_LABEL, is_object_name};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::files::{Files, ReadError};
use super::merged_pools::{MachineConfigs, Pools};

/// Directory of `serve`'s pointer configs, in its state directory.
const POINTERS: &str = "user-data";
/// Problem of a Butane file.
const BUTANE: &str =
    "is Butane, which is not read: convert it to a file *.ign with `butane --strict`";

/// Configs as last read, so that unchanged ones are the same value.
#[derive(Debug, Default)]
pub(super) struct PlainConfigs {
    configs: BTreeMap<PathBuf, (Bytes, Arc<MachineConfig>)>,
    pools: BTreeMap<String, Arc<MachineConfigPool>>,
}

impl PlainConfigs {
    /// Inserts the configs of these files, and creates missing pools.
    pub(super) fn resolve(
        &mut self,
        root: &Path,
        paths: &[PathBuf],
        (files, being_written): (&mut Files, &dyn Fn(&Path) -> bool),
        (pools, machine_configs): (&mut Pools, &mut MachineConfigs),
    ) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut last = std::mem::take(&mut self.configs);
        let mut local = std::mem::take(&mut self.pools);
        for path in paths {
            let Some(pool) = pool_of(root, path) else { continue };
            let place = path.display().to_string();
            if has_extension(path, "bu") {
                problems.push(Problem::part(&place, BUTANE));
                continue;
            }
            let last = last.remove(path);
            let read = files
                .read_plain(path, being_written)
                .map_err(|ReadError { reason, .. }| reason)
                .and_then(|bytes| match &last {
                    Some(last) if last.0 == bytes => Ok(last.clone()),
                    _ => Ok((bytes.clone(), Arc::new(machine_config(root, path, pool, &bytes)?))),
                })
                // A file that was never readable must not keep a server from starting.
                .inspect_err(|reason| problems.push(Problem::part(&place, reason)));
            let Some((bytes, config)) = read.ok().or(last) else { continue };
            machine_configs.insert(config.name().to_owned(), Arc::clone(&config));
            self.configs.insert(path.clone(), (bytes, config));
            let object = local.remove(pool).or_else(|| self.pools.get(pool).cloned());
            let object = object.unwrap_or_else(|| Arc::new(MachineConfigPool::of_role(pool)));
            pools.entry(pool.to_owned()).or_insert_with(|| Arc::clone(&object));
            self.pools.insert(pool.to_owned(), object);
        }
        problems
    }

    /// Files whose configs are part of no pool, by the names of the MachineConfigs that pools are made of.
    pub(super) fn unused(&self, root: &Path, selected: &BTreeSet<&str>) -> Vec<Problem> {
        let unused =
            self.configs.iter().filter(|(_, (_, config))| !selected.contains(config.name()));
        let warning = |(path, _): (&PathBuf, _)| {
            let pool = pool_of(root, path)?;
            let reason = format!(
                "is not in any config: MachineConfigPool {pool} names a configuration, or does not \
                    select {ROLE_LABEL}={pool}"
            );
            Some(Problem::whole(&path.display().to_string(), reason))
        };
        unused.filter_map(warning).collect()
    }
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

/// Makes a MachineConfig of the pool's role, named after the file's path below `root`.
fn machine_config(
    root: &Path,
    path: &Path,
    pool: &str,
    bytes: &[u8],
) -> Result<MachineConfig, String> {
    let reported = |error: serde_json::Error| format!("is not JSON: {error}");
    let config: &RawValue = serde_json::from_slice(bytes).map_err(reported)?;
    if let Some(url) = pointed_at(config, pool) {
        return Err(format!(
            "is a pointer config, which fetches {url}, and not the config of a pool"
        ));
    }
    let name = path.strip_prefix(root).unwrap_or(path).display().to_string();
    let metadata = json!({"name": name, "labels": {ROLE_LABEL: pool}});
    // Both parts are JSON.
    let text = format!(r#"{{"metadata": {metadata}, "spec": {{"config": {config}}}}}"#);
    serde_json::from_str(&text).map_err(reported)
}

/// URL of this pool's config that the config itself points to: served, it would make machines fetch in a loop.
fn pointed_at(config: &RawValue, pool: &str) -> Option<String> {
    let config: Value = serde_json::from_str(config.get()).ok()?;
    let referred = &config["ignition"]["config"];
    let lists =
        ["merge", "append"].map(|list| referred[list].as_array().cloned().unwrap_or_default());
    let all = lists.into_iter().flatten().chain([referred["replace"].clone()]);
    let mut sources = all.filter_map(|it| it["source"].as_str().map(str::to_owned));
    sources.find(|source| source.trim_end_matches('/').ends_with(&format!("/config/{pool}")))
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
    fn a_pointer_config_is_no_config_of_the_pool_that_it_leads_to() {
        let root = Path::new("/srv");
        let read =
            |text: &str| machine_config(root, &root.join("worker.ign"), "worker", text.as_bytes());
        let pointer = |url: &str| {
            json!({"ignition": {"version": "3.1.0", "config": {"merge": [{"source": url}]}}})
                .to_string()
        };
        let refused = read(&pointer("https://mcs.example.com:22623/config/worker")).unwrap_err();
        assert!(refused.contains("pointer config"), "{refused}");
        assert!(read("{").unwrap_err().starts_with("is not JSON"));
        let config = read(&pointer("https://configs.example.com/base.ign")).unwrap();
        assert_eq!(config.name(), "worker.ign");
        assert_eq!(config.labels().unwrap()[ROLE_LABEL], "worker");
    }
}
