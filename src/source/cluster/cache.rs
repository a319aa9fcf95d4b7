//! Caches inputs on disk, so that a server can start and serve while the API server is unavailable.
//!
//! ```text
//! DIR/objects.json              all objects but machine configs, by their kind's name
//! DIR/machine-configs/NAME.json the machine configs that pools refer to
//! ```
//!
//! MachineConfigs are written before the objects that refer to them and removed after, and files are replaced
//! atomically: whenever the process dies, the files on disk are complete. The token and registry credentials are never
//! written: Secrets are not among the cached kinds.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use files::bounded::{entries_if_there, read_if_there};
use files::error::FileError;
use files::owners::Reader;
use files::replace::{self, PRIVATE};
use model::objects::MachineConfig;
use serde::Deserialize;
use serde_json::value::RawValue;
use telemetry::{Reporting, faults};
use tokio::sync::watch;

use super::kind::Kind;
use crate::source::manifest::check_json;
use crate::store::newest;

#[derive(Debug, Default)]
pub(super) struct Snapshot {
    pub(super) objects: BTreeMap<Kind, Vec<Box<RawValue>>>,
    pub(super) machine_configs: Vec<Arc<MachineConfig>>,
}

/// Contents that an earlier server has left.
#[derive(Debug, Default)]
pub(super) struct Loaded {
    pub(super) snapshot: Snapshot,
    /// MachineConfigs that cannot be read.
    pub(super) unread: Vec<FileError>,
}

#[derive(Debug)]
pub(super) struct Cache {
    directory: PathBuf,
    /// MachineConfigs on disk, compared by pointer.
    written: HashMap<String, Arc<MachineConfig>>,
    /// Files that cannot be read; they stay until they are written.
    unread: HashSet<PathBuf>,
}

impl Cache {
    pub(super) fn new(directory: PathBuf) -> Self {
        Self { directory, written: HashMap::new(), unread: HashSet::new() }
    }

    fn objects(&self) -> PathBuf {
        self.directory.join("objects.json")
    }

    fn machine_configs(&self) -> PathBuf {
        self.directory.join("machine-configs")
    }

    /// Reads the files of an earlier server, `None` if there are none. A MachineConfig that cannot be read is left out.
    pub(super) fn load(&mut self) -> Result<Option<Loaded>, FileError> {
        let path = self.objects();
        let Some(bytes) = read_if_there(&path)? else { return Ok(None) };
        let mut lists: BTreeMap<String, Vec<Box<RawValue>>> = parse(&path, &bytes)?;
        let mut loaded = Loaded::default();
        for &kind in Kind::ALL {
            if let Some(list) = lists.remove(kind.name()) {
                loaded.snapshot.objects.insert(kind, list);
            }
        }
        for entry in list(&self.machine_configs())? {
            match read_if_there(&entry)
                .and_then(|bytes| bytes.map(|it| parse(&entry, &it)).transpose())
            {
                Ok(config) => loaded.snapshot.machine_configs.extend(config.map(Arc::new)),
                Err(error) => {
                    loaded.unread.push(error);
                    self.unread.insert(entry);
                }
            }
        }
        Ok(Some(loaded))
    }

    /// Writes each newest snapshot until the sender is gone.
    pub(super) async fn flush(
        mut self,
        snapshots: watch::Receiver<Arc<Snapshot>>,
        Reporting { metrics, status }: Reporting,
    ) {
        let save = |snapshot: &Snapshot| self.save(snapshot);
        newest::flush(faults::CACHE, snapshots, &metrics, &status, save).await;
    }

    /// Writes changes since the last write.
    fn save(&mut self, snapshot: &Snapshot) -> Result<(), FileError> {
        let directory = self.machine_configs();
        replace::create_directory(&directory, Reader::Directory)?;
        for config in &snapshot.machine_configs {
            let name = config.name();
            if self.written.get(name).is_some_and(|written| Arc::ptr_eq(written, config)) {
                continue;
            }
            let path = directory.join(format!("{name}.json"));
            let json = serde_json::to_vec(&**config).map_err(FileError::at(&path))?;
            replace::replace(&path, &json, PRIVATE, Reader::Itself)?;
            self.unread.remove(&path);
            self.written.insert(name.to_owned(), Arc::clone(config));
        }
        let path = self.objects();
        let lists = snapshot.objects.iter().map(|(kind, list)| (kind.name(), list));
        let json = serde_json::to_vec(&lists.collect::<BTreeMap<_, _>>());
        replace::replace(&path, &json.map_err(FileError::at(&path))?, PRIVATE, Reader::Itself)?;

        let names = snapshot.machine_configs.iter().map(|config| OsStr::new(config.name()));
        let names: HashSet<_> = names.collect();
        let is_kept = |path: &Path| names.contains(path.file_stem().unwrap_or_default());
        let is_stale = |path: &PathBuf| !is_kept(path) && !self.unread.contains(path);
        for path in list(&directory)?.iter().filter(|path| is_stale(path)) {
            std::fs::remove_file(path).map_err(FileError::at(path))?;
        }
        self.written.retain(|name, _| is_kept(&directory.join(format!("{name}.json"))));
        Ok(())
    }
}

/// The entries of a directory with names that this program gives; none if it does not exist.
fn list(directory: &Path) -> Result<Vec<PathBuf>, FileError> {
    let mut paths = entries_if_there(directory)?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    Ok(paths)
}

fn parse<'a, T: Deserialize<'a>>(path: &Path, bytes: &'a [u8]) -> Result<T, FileError> {
    let text = std::str::from_utf8(bytes).map_err(|error| FileError::other(path, error))?;
    check_json(text).map_err(|error| FileError::other(path, error))?;
    serde_json::from_str(text).map_err(FileError::at(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use serde_json::value::to_raw_value;

    fn config(name: &str, file: &str) -> Arc<MachineConfig> {
        let config = json!({
            "apiVersion": "machineconfiguration.openshift.io/v1",
            "kind": "MachineConfig",
            "metadata": {"name": name},
            "spec": {"config": {"ignition": {"version": "3.4.0"}, "x": file}},
        });
        Arc::new(serde_json::from_value(config).unwrap())
    }

    fn snapshot(configs: &[Arc<MachineConfig>]) -> Snapshot {
        let pool = to_raw_value(&json!({"metadata": {"name": "worker"}})).unwrap();
        Snapshot {
            objects: [(Kind::MachineConfigPool, vec![pool])].into(),
            machine_configs: configs.to_vec(),
        }
    }

    #[test]
    fn what_was_saved_is_loaded_and_no_more() {
        let directory = tempfile::tempdir().unwrap();
        let mut cache = Cache::new(directory.path().join("cache"));
        assert!(cache.load().unwrap().is_none());
        cache.save(&snapshot(&[config("a", "1"), config("b", "1")])).unwrap();
        cache.save(&snapshot(&[config("a", "2")])).unwrap();
        let loaded = cache.load().unwrap().unwrap().snapshot;
        let pools = &loaded.objects[&Kind::MachineConfigPool];
        assert_eq!(pools[0].get(), r#"{"metadata":{"name":"worker"}}"#);
        let configs: Vec<_> = loaded.machine_configs.iter().filter_map(|c| c.ignition()).collect();
        assert_eq!(configs, [r#"{"ignition":{"version":"3.4.0"},"x":"2"}"#]);
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let many = format!("{{\"pools\":[{}0]}}", "0,".repeat(3_000_000));
        for (text, reason) in [("{", "EOF"), ("", "EOF"), (&many, "more than 2000000 values")] {
            std::fs::write(directory.path().join("objects.json"), text).unwrap();
            let mut cache = Cache::new(directory.path().to_owned());
            let error = cache.load().unwrap_err().to_string();
            assert!(error.contains("objects.json: ") && error.contains(reason), "{error}");
        }
    }

    #[test]
    fn a_machine_config_that_cannot_be_read_is_named_and_left_until_it_is_written() {
        let directory = tempfile::tempdir().unwrap();
        let new = || Cache::new(directory.path().to_owned());
        new().save(&snapshot(&[config("a", "1"), config("b", "1"), config("c", "1")])).unwrap();
        let path = |name: &str| directory.path().join("machine-configs").join(name);
        std::fs::write(path("a.json"), "").unwrap();
        std::fs::write(path("b.json"), "{\"metadata\": {\"na").unwrap();
        std::fs::create_dir(path("d.json")).unwrap();
        std::fs::write(path("theirs.yaml"), "of another program").unwrap();
        let mut cache = new();
        let loaded = cache.load().unwrap().unwrap();
        let mut errors: Vec<_> = loaded.unread.iter().map(ToString::to_string).collect();
        errors.sort();
        let names = ["a.json: ", "b.json: ", "d.json: "];
        assert!(errors.iter().zip(names).all(|(error, name)| error.contains(name)), "{errors:?}");
        let configs = loaded.snapshot.machine_configs;
        assert_eq!(
            (errors.len(), configs.iter().map(|it| it.name()).collect::<Vec<_>>()),
            (3, vec!["c"])
        );
        cache.save(&snapshot(&configs)).unwrap();
        assert_eq!(std::fs::read_to_string(path("a.json")).unwrap(), "");
        cache.save(&snapshot(&[config("a", "2")])).unwrap();
        assert!(std::fs::read_to_string(path("a.json")).unwrap().contains("3.4.0"));
        cache.save(&snapshot(&[])).unwrap();
        assert!(!path("a.json").exists() && !path("c.json").exists() && path("b.json").exists());
        assert!(path("theirs.yaml").exists(), "no other program's file is removed");
    }
}
