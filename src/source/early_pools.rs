//! Pools of a directory that machines ask for before all of it is read, after a restart.
//!
//! ```text
//!  index of the last good texts ─┐                    ┌─ a pool that is asked for: its files alone ─> partial inputs
//!                                ├─ nothing changed? ─┤
//!  stamps of all files ──────────┘                    └─ meanwhile: all files ────────────────────> inputs
//! ```
//!
//! A large directory takes a second to be read and merged. If no file has changed since the last process stored what it
//! served, the stored texts say all of it, and the index says which ones a pool's config is made of. Once any file has
//! changed, all are read first: a new one may concern each pool.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};

use common::hang::unless_hung;
use files::error::FileError;
use model::inputs::Inputs;
use telemetry::Reporting;
use tokio::sync::{mpsc, watch};

use super::directory::{Directory, Layout};
use super::files::RestoredFile;
use super::last_good::{Index, LastGood};
use super::listing::{digest_of_stamps, list};
use super::place::{Place, stored_root};

/// A directory at the start of a process.
pub(super) enum Opened {
    Read(Directory, Inputs),
    Unread(EarlyPools),
}

impl Opened {
    /// Reads a directory, unless it has not changed since an earlier process served it. If that takes too long, as on a
    /// mount that hangs, what that process has served is used meanwhile.
    pub(super) fn soon(layout: Layout) -> Result<Self, FileError> {
        let of_files = layout.clone();
        let read = |(directory, inputs)| Self::Read(directory, inputs);
        let open = move || match EarlyPools::open(&of_files) {
            Some(pools) => Ok(Self::Unread(pools)),
            None => Directory::read_settled(of_files).map(read),
        };
        unless_hung(open, || Some(Directory::hung(layout)?.map(read)))
    }
}

/// A directory that has not changed since an earlier process served it.
#[derive(Debug)]
pub struct EarlyPools {
    layout: Layout,
    root: PathBuf,
    last_good: LastGood,
    index: Index,
    /// The files that were read so far.
    directory: Directory,
    /// Pools that machines have asked for, with their files.
    asked: BTreeMap<String, BTreeSet<PathBuf>>,
    /// Names of pools that machines ask for.
    pub requests: Option<mpsc::Receiver<String>>,
}

impl EarlyPools {
    /// Compares a directory with its stored state. `None` if anything has changed, or is not known.
    pub(super) fn open(layout: &Layout) -> Option<Self> {
        let Layout::Tree { root, is_strict, memory: Some(memory), .. } = layout else {
            return None;
        };
        let last_good = LastGood::new(memory.last_good.clone());
        // The read of all files reports what is wrong with the index.
        let index = last_good.load_index().ok()??;
        let is_of_it = index.root.as_ref() == Some(&stored_root(root));
        let stored = index.stamps.filter(|_| is_of_it)?;
        let (listing, stamps) = list(root).ok()?;
        let stamped = listing.paths.iter().map(|path| &**path).zip(stamps);
        if digest_of_stamps(stamped, *is_strict) != stored {
            return None;
        }
        Some(Self {
            layout: layout.clone(),
            root: root.clone(),
            last_good,
            index,
            directory: Directory::new(layout.clone()),
            asked: BTreeMap::new(),
            requests: None,
        })
    }

    /// Sends the inputs of pools that are asked for until the whole directory is read, and follows that, forever.
    pub(super) async fn follow(
        mut self,
        inputs: watch::Sender<Option<Inputs>>,
        reporting: Reporting,
    ) {
        let mut requests = self.requests.take().unwrap_or_else(|| mpsc::channel(1).1);
        let layout = self.layout.clone();
        let mut reading = tokio::task::spawn_blocking(move || Directory::read_soon(layout));
        let read = loop {
            tokio::select! {
                Some(pool) = requests.recv() => {
                    let partial = tokio::task::block_in_place(|| self.read(pool));
                    partial.map(|partial| inputs.send_replace(Some(partial)));
                }
                read = &mut reading => break read,
            }
        };
        match read.unwrap_or_else(|panicked| resume_unwind(panicked.into_panic())) {
            Ok((directory, whole)) => {
                drop(self);
                inputs.send_replace(Some(whole));
                directory.follow(inputs, reporting).await;
            }
            // Only without what is stored, which was there a moment ago. The server ends with this task.
            Err(error) => tracing::error!(
                %error,
                fix = "restore the directory, or make it readable for this server",
                "cannot read the inputs"
            ),
        }
    }

    /// Inputs with this pool and those that were asked for before; `None` if it is one of them, or must be read with all.
    fn read(&mut self, pool: String) -> Option<Inputs> {
        let files = self.index.pools.get(&pool).filter(|_| !self.asked.contains_key(&pool))?;
        let known: BTreeSet<&PathBuf> = self.asked.values().flatten().collect();
        let files: BTreeSet<_> = self.index.shared.union(files).cloned().collect();
        let restored: Option<Vec<_>> =
            files.iter().filter(|path| !known.contains(path)).map(|it| self.restored(it)).collect();
        self.directory.files.restore(restored?);
        self.asked.insert(pool, files);
        Some(self.directory.partial_inputs(&self.root, &self.asked.keys().collect()))
    }

    fn restored(&self, path: &Path) -> Option<RestoredFile> {
        let stored = self.index.files.get(path).filter(|file| !file.is_plain)?;
        let place = Place {
            path: self.root.join(path),
            directory: stored.directory,
            text: Some(stored.text.clone()),
        };
        let bytes = self.last_good.text(&stored.text)?;
        let removed = stored.removed.clone();
        Some(RestoredFile { place, bytes, source: stored.source, is_plain: false, removed })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, SystemTime};

    use telemetry::conditions::Status;
    use tempfile::TempDir;

    use super::*;
    use crate::source::directory::Memory;

    const WORKER: &str = "worker.yaml";
    const SHARED: &str = "50-shared.yaml";

    /// A directory of manifests, beside what is stored of it.
    struct Site(TempDir);

    impl Site {
        /// A directory with two merged pools, one with a rendered config, one of a plain config, and a registry's CA.
        fn new() -> Self {
            let site = Self(tempfile::tempdir().unwrap());
            std::fs::create_dir(site.0.path().join("manifests")).unwrap();
            for pool in ["worker", "infra"] {
                site.write(&format!("{pool}.yaml"), &merged_pool(pool));
                site.write(
                    &format!("60-{pool}.yaml"),
                    &machine_config(&format!("60-{pool}"), pool),
                );
            }
            site.write(SHARED, &machine_config("50-shared", "worker"));
            let rendered = "kind: MachineConfigPool\nmetadata: {name: edge}\n\
                spec: {configuration: {name: rendered-edge}}\n";
            site.write("edge.yaml", rendered);
            site.write("rendered.yaml", &machine_config("rendered-edge", "edge"));
            site.write("plain.ign", r#"{"ignition": {"version": "3.4.0"}}"#);
            site
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.path().join("manifests").join(name)
        }

        fn write(&self, name: &str, text: &str) {
            std::fs::write(self.path(name), text).unwrap();
        }

        fn layout(&self) -> Layout {
            let memory = Memory {
                last_good: self.0.path().join("last-good"),
                removed: self.0.path().join("removed"),
            };
            Layout::Tree {
                root: self.0.path().join("manifests"),
                registry_credentials: None,
                is_strict: false,
                memory: Some(memory),
                butane: PathBuf::from("off").into(),
            }
        }

        /// Reads the directory, and stores it once each file is known by its stamp.
        fn stored(&self) -> Inputs {
            let (mut directory, inputs) = Directory::read(self.layout()).unwrap();
            let later = SystemTime::now() + Duration::from_secs(1);
            directory.scan(later, Duration::ZERO, &|_| false).unwrap();
            directory.save(&Status::default());
            inputs
        }
    }

    fn merged_pool(name: &str) -> String {
        format!(
            "kind: MachineConfigPool\nmetadata: {{name: {name}}}\nspec: {{machineConfigSelector: \
             {{matchLabels: {{machineconfiguration.openshift.io/role: {name}}}}}}}\n"
        )
    }

    fn machine_config(name: &str, role: &str) -> String {
        format!(
            "kind: MachineConfig\nmetadata: {{name: {name}, labels: \
             {{machineconfiguration.openshift.io/role: {role}}}}}\nspec: {{kernelArguments: [{name}]}}\n"
        )
    }

    /// Names of the configurations of pools.
    fn configurations(inputs: &Inputs) -> BTreeMap<&str, &str> {
        let pools = inputs.pools.iter();
        pools.map(|(name, pool)| (&**name, pool.spec_configuration())).collect()
    }

    #[test]
    fn a_pool_that_is_asked_for_is_what_it_is_in_the_whole() {
        let site = Site::new();
        let whole = site.stored();
        let mut early = EarlyPools::open(&site.layout()).expect("nothing has changed");
        assert!(early.read("plain".to_owned()).is_none(), "it has no manifest");
        assert!(early.read("other".to_owned()).is_none(), "there is no such pool");
        let mut expected = BTreeMap::new();
        for pool in ["worker", "edge", "infra"] {
            let partial = early.read(pool.to_owned()).expect("its files are stored");
            assert!(partial.is_partial);
            assert!(early.read(pool.to_owned()).is_none(), "it was read");
            expected.insert(pool, configurations(&whole)[pool]);
            assert_eq!(configurations(&partial), expected);
            // A merged one has the hash of its contents in its name.
            assert!(expected.values().all(|name| partial.machine_configs.contains_key(*name)));
        }
        let names = early.index.pools["worker"].iter().map(|path| path.display().to_string());
        assert_eq!(names.collect::<Vec<_>>(), [SHARED, "60-worker.yaml", WORKER]);
    }

    #[test]
    fn a_directory_in_which_anything_has_changed_is_read_first() {
        type Change = fn(&Site);
        let changes: [(&str, Change); 6] = [
            ("a new file", |site| site.write("70-worker.yaml", &machine_config("70", "worker"))),
            ("another text", |site| site.write(SHARED, &machine_config("50-shared", "infra"))),
            ("the same text again", |site| {
                site.write(SHARED, &machine_config("50-shared", "worker"));
            }),
            ("a file that is gone", |site| std::fs::remove_file(site.path(SHARED)).unwrap()),
            ("another name", |site| {
                std::fs::rename(site.path(SHARED), site.path("51-shared.yaml")).unwrap();
            }),
            ("a text that is not whole", |site| {
                let texts = site.0.path().join("last-good/texts");
                for text in std::fs::read_dir(texts).unwrap() {
                    std::fs::write(text.unwrap().path(), "half").unwrap();
                }
            }),
        ];
        for (what, change) in changes {
            let site = Site::new();
            site.stored();
            change(&site);
            let early = EarlyPools::open(&site.layout());
            let read = early.and_then(|mut early| early.read("worker".to_owned()));
            assert!(read.is_none(), "{what}");
        }
    }

    #[test]
    fn a_directory_with_a_file_that_is_not_valid_is_read_first() {
        let site = Site::new();
        site.write("broken.yaml", "kind: [");
        site.stored();
        assert!(EarlyPools::open(&site.layout()).is_none());
    }

    #[test]
    fn a_directory_that_was_served_by_other_rules_is_read_first() {
        let site = Site::new();
        site.stored();
        let mut layout = site.layout();
        let Layout::Tree { is_strict, .. } = &mut layout else { unreachable!() };
        *is_strict = true;
        assert!(EarlyPools::open(&layout).is_none());
    }

    #[test]
    fn a_pool_that_is_asked_for_is_sent_before_the_whole_is_read() {
        let site = Site::new();
        site.stored();
        let mut early = EarlyPools::open(&site.layout()).expect("nothing has changed");
        let (ask, requests) = mpsc::channel(1);
        early.requests = Some(requests);
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(2).max_blocking_threads(1).build().unwrap();
        // The whole is read on the only thread for such work, once that is free.
        let (free, held) = std::sync::mpsc::channel::<()>();
        runtime.spawn_blocking(move || held.recv());
        let (sender, mut inputs) = watch::channel(None);
        let reporting = Reporting { metrics: Arc::default(), status: Status::default() };
        runtime.spawn(early.follow(sender, reporting));
        runtime.block_on(async {
            ask.send("worker".to_owned()).await.unwrap();
            let is_part = |it: &Option<Inputs>| it.as_ref().is_some_and(|it| it.is_partial);
            inputs.wait_for(is_part).await.unwrap();
            drop(free);
            let is_whole = |it: &Option<Inputs>| it.as_ref().is_some_and(|it| !it.is_partial);
            let whole = inputs.wait_for(is_whole).await.unwrap();
            assert_eq!(whole.as_ref().map(|whole| whole.pools.len()), Some(4));
        });
        runtime.shutdown_background();
    }
}
