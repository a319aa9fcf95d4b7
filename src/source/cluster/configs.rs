//! Decides which MachineConfigs must be fetched.
//!
//! A cluster has hundreds of rendered MachineConfigs of 200 KB, and pools refer to a few of them. So only those are
//! fetched, by name, and a watch on the metadata of all reports changes. One watch suffices for any number of pools;
//! watches by name would need a connection each.
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::inputs::Problem;
use model::objects::MachineConfig;

use super::kind::Kind;
use super::report::{Change, WatchedObject};
use crate::source::manifest::config_warnings;

#[derive(Debug, Default)]
pub(super) struct Configs {
    wanted: BTreeMap<String, Config>,
    listing: Option<BTreeSet<String>>,
    is_listed: bool,
}

#[derive(Debug, Default)]
struct Config {
    /// Version of the last fetch.
    version: String,
    /// Last good object; `None` if it does not exist.
    object: Option<Arc<MachineConfig>>,
    problem: Option<String>,
    /// Parts of it without effect.
    warnings: Vec<String>,
    fetch: Fetch,
    /// True if it was fetched, or does not exist.
    is_known: bool,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum Fetch {
    #[default]
    Needed,
    UnderWay,
    /// The object has changed since the fetch was started.
    UnderWayAndNeeded,
    Done,
}

impl Config {
    fn changed(&mut self) {
        self.fetch = match self.fetch {
            Fetch::UnderWay | Fetch::UnderWayAndNeeded => Fetch::UnderWayAndNeeded,
            Fetch::Needed | Fetch::Done => Fetch::Needed,
        };
    }
}

impl Configs {
    /// Sets the names that pools refer to, and drops all others.
    pub(super) fn want(&mut self, names: &BTreeSet<String>) {
        self.wanted.retain(|name, _| names.contains(name));
        for name in names {
            self.wanted.entry(name.clone()).or_default();
        }
    }

    /// Applies an event of the watch on metadata.
    pub(super) fn apply(&mut self, change: Change) {
        match change {
            Change::ListBegins => self.listing = Some(BTreeSet::new()),
            Change::Listed(item) => {
                if self.wanted.contains_key(&item.name) {
                    self.listing.get_or_insert_default().insert(item.name.clone());
                    self.seen(&item);
                }
            }
            Change::ListEnds => {
                let listed = self.listing.take().unwrap_or_default();
                // The object is gone, or was not wanted yet when it was listed: fetch it to find out.
                let unlisted = self.wanted.iter_mut().filter(|(name, _)| !listed.contains(*name));
                unlisted.for_each(|(_, config)| config.changed());
                self.is_listed = true;
            }
            Change::Applied(item) => self.seen(&item),
            Change::Deleted(name) => {
                if let Some(config) = self.wanted.get_mut(&name) {
                    config.changed();
                }
            }
        }
    }

    fn seen(&mut self, item: &WatchedObject) {
        if let Some(config) = self.wanted.get_mut(&item.name)
            && config.version != item.version
        {
            config.changed();
        }
    }

    pub(super) fn is_listed(&self) -> bool {
        self.is_listed
    }

    /// Returns the names to fetch, and marks them as being fetched.
    pub(super) fn take_needed(&mut self) -> Vec<String> {
        let needed = self.wanted.iter_mut().filter(|(_, config)| config.fetch == Fetch::Needed);
        needed
            .map(|(name, config)| {
                config.fetch = Fetch::UnderWay;
                name.clone()
            })
            .collect()
    }

    /// Applies the result of a fetch, `None` if the object does not exist.
    pub(super) fn fetched(&mut self, name: &str, item: Option<WatchedObject>) {
        let Some(config) = self.wanted.get_mut(name) else { return };
        let again = config.fetch == Fetch::UnderWayAndNeeded;
        config.fetch = if again { Fetch::Needed } else { Fetch::Done };
        config.is_known = true;
        config.problem = None;
        let Some(WatchedObject { version, json: Some(json), .. }) = item else {
            config.version.clear();
            config.object = None;
            return;
        };
        if config.version == version {
            return;
        }
        config.version = version;
        match serde_json::from_str(json.get()) {
            Ok(object) => {
                let object: MachineConfig = object;
                config.warnings =
                    object.ignition().map(|text| config_warnings(&text)).unwrap_or_default();
                config.object = Some(Arc::new(object));
            }
            Err(error) => config.problem = Some(error.to_string()),
        }
    }

    /// Returns `true` if a name was fetched, or does not exist.
    pub(super) fn is_known(&self, name: &str) -> bool {
        self.wanted.get(name).is_some_and(|config| config.is_known)
    }

    pub(super) fn is_wanted(&self, name: &str) -> bool {
        self.wanted.contains_key(name)
    }

    pub(super) fn all_known(&self) -> bool {
        self.wanted.values().all(|config| config.is_known)
    }

    pub(super) fn objects(&self) -> BTreeMap<String, Arc<MachineConfig>> {
        self.held().into_iter().map(|config| (config.name().to_owned(), config)).collect()
    }

    pub(super) fn held(&self) -> Vec<Arc<MachineConfig>> {
        self.wanted.values().filter_map(|config| config.object.clone()).collect()
    }

    /// Restores MachineConfigs of an earlier server, which are used until they are fetched again.
    pub(super) fn restore(&mut self, configs: Vec<Arc<MachineConfig>>) {
        for object in configs {
            if let Some(config) = self.wanted.get_mut(object.name()) {
                config.object = Some(object);
            }
        }
        self.wanted.values_mut().for_each(|config| config.is_known = true);
        self.is_listed = true;
    }

    pub(super) fn warnings(&self) -> Vec<Problem> {
        let configs = self.wanted.iter().filter(|(_, config)| config.object.is_some());
        let warnings =
            configs.flat_map(|(name, config)| config.warnings.iter().map(move |it| (name, it)));
        warnings.map(|(name, it)| Problem::part(&Kind::MachineConfig.describe(name), it)).collect()
    }

    pub(super) fn problems(&self) -> impl Iterator<Item = Problem> {
        self.wanted.iter().filter_map(|(name, config)| {
            let reason = config.problem.as_ref()?;
            Some(Problem::whole(&Kind::MachineConfig.describe(name), &**reason))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use serde_json::value::to_raw_value;

    fn item(name: &str, version: &str) -> WatchedObject {
        let object = json!({"metadata": {"name": name, "resourceVersion": version}});
        WatchedObject {
            name: name.into(),
            version: version.into(),
            json: to_raw_value(&object).ok(),
        }
    }

    fn wanting(names: &[&str]) -> Configs {
        let mut configs = Configs::default();
        configs.want(&names.iter().map(|&name| name.to_owned()).collect());
        configs
    }

    #[test]
    fn only_what_is_wanted_is_fetched_and_each_version_once() {
        let mut configs = wanting(&["a"]);
        assert_eq!(configs.take_needed(), ["a"]);
        assert!(configs.take_needed().is_empty(), "it is under way");
        configs.fetched("a", Some(item("a", "1")));
        for name in ["a", "b"] {
            configs.apply(Change::Applied(item(name, "1")));
        }
        assert!(configs.take_needed().is_empty());
        configs.apply(Change::Applied(item("a", "2")));
        assert_eq!(configs.take_needed(), ["a"]);
        configs.fetched("b", Some(item("b", "1")));
        assert_eq!(configs.objects().keys().collect::<Vec<_>>(), ["a"]);
    }

    #[test]
    fn what_changes_while_it_is_fetched_is_fetched_again() {
        let mut configs = wanting(&["a"]);
        configs.take_needed();
        configs.apply(Change::Deleted("a".into()));
        assert!(configs.take_needed().is_empty(), "one at a time");
        configs.fetched("a", Some(item("a", "1")));
        assert_eq!(configs.take_needed(), ["a"]);
        configs.fetched("a", None);
        assert!(configs.is_known("a") && configs.objects().is_empty());
    }

    #[test]
    fn what_a_list_does_not_hold_is_looked_for() {
        let mut configs = wanting(&["a", "b"]);
        configs.take_needed();
        configs.fetched("a", Some(item("a", "1")));
        configs.fetched("b", Some(item("b", "1")));
        configs.apply(Change::ListBegins);
        configs.apply(Change::Listed(item("a", "1")));
        configs.apply(Change::ListEnds);
        assert_eq!(configs.take_needed(), ["b"]);
    }

    #[test]
    fn a_config_that_does_not_decode_leaves_the_last_good_one() {
        let mut configs = wanting(&["a"]);
        configs.fetched("a", Some(item("a", "1")));
        let broken = json!({"metadata": {"name": "a"}, "spec": {"fips": "yes"}});
        let broken = WatchedObject {
            name: "a".into(),
            version: "2".into(),
            json: to_raw_value(&broken).ok(),
        };
        configs.fetched("a", Some(broken));
        assert_eq!(configs.objects().len(), 1);
        let problem = configs.problems().next().unwrap().to_string();
        assert!(problem.starts_with("MachineConfig a: ") && problem.contains("yes"), "{problem}");
        configs.fetched("a", Some(item("a", "3")));
        assert_eq!(configs.problems().count(), 0);
    }

    #[test]
    fn what_is_no_longer_wanted_is_let_go() {
        let mut configs = wanting(&["a"]);
        configs.fetched("a", Some(item("a", "1")));
        configs.want(&["b".to_owned()].into());
        assert!(configs.objects().is_empty() && !configs.is_known("b"));
    }
}
