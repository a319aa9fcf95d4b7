//! Collects the observed objects of a cluster, and derives the inputs from them, without I/O.
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use model::access::machine::MachineState;
use model::inputs::{
    Inputs, Layering, Missing, Problem, ServingMode, SharedInputs, served_configuration,
    unused_setters,
};
use model::objects::{
    FirstBootMachines, MachineConfig, MachineConfigPool, Object, ObjectDefect, SecretName,
};
use model::registry_ca::{self, Cas, Refused};
use serde_json::value::RawValue;

use super::cache::Snapshot;
use super::configs::Configs;
use super::kind::Kind;
use super::report::{Change, LiveList, WatchedObject};
use crate::source::credentials::SeenCredentials;

/// Number of pools that are read ahead of the others. It bounds what unauthenticated clients can ask for.
const AWAITED: usize = 1_000;

/// Last observed objects of the cluster.
#[derive(Debug, Default)]
pub(super) struct ClusterView {
    kinds: BTreeMap<Kind, Objects>,
    pub(super) configs: Configs,
    registries: Registries,
    pub(super) credentials: SeenCredentials,
    shared: Arc<SharedInputs>,
    /// Number of reads on request that have changed something.
    live_reads: u64,
    published: Option<Inputs>,
    /// True once all was read.
    is_complete: bool,
    /// Pools that machines ask for before, with the MachineConfig that is fetched ahead of others for them.
    awaited: BTreeMap<String, Option<String>>,
    /// True if pools may refer to other MachineConfigs than those wanted.
    are_pools_new: bool,
}

/// Last readable CAs of image registries.
#[derive(Debug, Default)]
struct Registries {
    cas: Cas,
    refused: Vec<Refused>,
}

#[derive(Debug, Default)]
struct Objects {
    by_name: BTreeMap<String, Entry>,
    /// Names in the list that is being read.
    listing: Option<BTreeSet<String>>,
    /// True if a list is complete, or there is none to read.
    is_read: bool,
}

#[derive(Debug)]
struct Entry {
    version: String,
    json: Box<RawValue>,
    object: Option<Object>,
    state: Option<Arc<MachineState>>,
    problem: Option<ObjectDefect>,
}

impl ClusterView {
    /// Creates an empty view for a server that reads the Secret `registry_credentials`.
    pub(super) fn new(registry_credentials: Option<SecretName>) -> Self {
        Self { credentials: SeenCredentials::new(registry_credentials), ..Self::default() }
    }

    pub(super) fn apply(&mut self, kind: Kind, change: Change) {
        if kind == Kind::MachineConfig {
            self.configs.apply(change);
            let objects = self.kinds.entry(kind).or_default();
            objects.is_read = objects.is_read || self.configs.is_listed();
            return;
        }
        let objects = self.kinds.entry(kind).or_default();
        match change {
            Change::ListBegins => objects.listing = Some(BTreeSet::new()),
            Change::Listed(item) => {
                objects.listing.get_or_insert_default().insert(item.name.clone());
                objects.insert(kind, item);
            }
            Change::ListEnds => {
                let listed = objects.listing.take().unwrap_or_default();
                objects.retain(kind, |name, _| listed.contains(name));
                objects.is_read = true;
            }
            Change::Applied(item) => {
                objects.insert_newer(kind, item);
            }
            Change::Deleted(deleted) => {
                objects.retain(kind, |name, _| name != deleted);
            }
        }
        match kind {
            Kind::MachineConfigPool => self.are_pools_new = true,
            Kind::RegistryCas => self.read_registries(),
            _ => {}
        }
    }

    /// Applies lists that were read apart from the watches, which may be ahead of them or behind. Returns `true` if they
    /// have something new.
    pub(super) fn read_live(&mut self, lists: Vec<LiveList>) -> bool {
        let mut is_changed = false;
        for LiveList { kind, version, items } in lists {
            is_changed |= self.kinds.entry(kind).or_default().learn(kind, &version, items);
        }
        self.are_pools_new |= is_changed;
        self.live_reads += u64::from(is_changed);
        is_changed
    }

    /// Notes that a machine asks for a pool while not all is read. Returns `true` if the pool itself must be fetched.
    pub(super) fn await_pool(&mut self, name: &str) -> bool {
        let is_full = self.awaited.len() == AWAITED;
        if self.is_complete || is_full || self.awaited.contains_key(name) {
            return false;
        }
        self.awaited.insert(name.to_owned(), None);
        !self.is_read(Kind::MachineConfigPool) && self.pool(name).is_none()
    }

    /// Applies a pool that was fetched because a machine asks for it; `None` if it does not exist.
    pub(super) fn pool_fetched(&mut self, item: Option<WatchedObject>) {
        let pools = self.kinds.entry(Kind::MachineConfigPool).or_default();
        self.are_pools_new |=
            item.is_some_and(|item| pools.insert_newer(Kind::MachineConfigPool, item));
    }

    /// MachineConfigs to fetch, which are marked as being fetched.
    pub(super) fn needed_configs(&mut self) -> Vec<String> {
        self.want_configs_of_new_pools();
        self.configs.take_needed()
    }

    /// MachineConfigs of awaited pools, each once: they are fetched ahead of the others.
    pub(super) fn hurried_configs(&mut self) -> Vec<String> {
        let mut awaited = std::mem::take(&mut self.awaited);
        let hurried = awaited.iter_mut().filter_map(|(name, hurried)| {
            let configuration = served_configuration(ServingMode::Cluster, self.pool(name)?);
            let is_new = hurried.as_deref() != Some(configuration);
            let is_waiting =
                self.configs.is_wanted(configuration) && !self.configs.is_known(configuration);
            (is_new && is_waiting).then(|| hurried.insert(configuration.to_owned()).clone())
        });
        let hurried = hurried.collect();
        self.awaited = awaited;
        hurried
    }

    /// Pools whose config was read, and the MachineConfigs. The others are as before, or left out.
    fn servable_pools(
        &self,
    ) -> (BTreeMap<String, Arc<MachineConfigPool>>, BTreeMap<String, Arc<MachineConfig>>) {
        let mut pools = BTreeMap::new();
        let mut machine_configs = self.configs.objects();
        for pool in self.pools() {
            if self.is_servable(pool) {
                pools.insert(pool.name().to_owned(), Arc::clone(pool));
                continue;
            }
            let Some(before) = &self.published else { continue };
            if let Some(pool) = before.pools.get(pool.name()) {
                let configuration = served_configuration(ServingMode::Cluster, pool);
                if let Some(config) = before.machine_configs.get(configuration) {
                    machine_configs
                        .entry(configuration.to_owned())
                        .or_insert_with(|| Arc::clone(config));
                }
                pools.insert(pool.name().to_owned(), Arc::clone(pool));
            }
        }
        (pools, machine_configs)
    }

    /// Returns `true` if all that pools share was read, and an awaited pool that is not served yet.
    fn has_awaited(&self) -> bool {
        let is_of_pools =
            |kind: &Kind| matches!(kind, Kind::MachineConfigPool | Kind::MachineConfig);
        let is_served =
            |name: &str| self.published.as_ref().is_some_and(|it| it.pools.contains_key(name));
        let is_new = |name: &String| {
            !is_served(name) && self.pool(name).is_some_and(|pool| self.is_servable(pool))
        };
        Kind::ALL.iter().all(|kind| is_of_pools(kind) || self.is_read(*kind))
            && self.awaited.keys().any(is_new)
    }

    /// Returns `true` if the config of a pool was read, or it has none.
    fn is_servable(&self, pool: &MachineConfigPool) -> bool {
        let configuration = served_configuration(ServingMode::Cluster, pool);
        configuration.is_empty() || self.configs.is_known(configuration)
    }

    fn pool(&self, name: &str) -> Option<&Arc<MachineConfigPool>> {
        let entry = self.kinds.get(&Kind::MachineConfigPool)?.by_name.get(name)?;
        entry.object.as_ref().and_then(as_kind!(MachineConfigPool))
    }

    /// Number of reads on request that have changed something, for [`Inputs::live_reads`].
    pub(super) fn live_reads(&self) -> u64 {
        self.live_reads
    }

    /// Marks a kind as missing in the cluster; returns true if that is new.
    pub(super) fn absent(&mut self, kind: Kind) -> bool {
        let absent = Objects { is_read: true, ..Objects::default() };
        let before = self.kinds.insert(kind, absent);
        !before.is_some_and(|before| before.is_read && before.by_name.is_empty())
    }

    /// Secrets with registry credentials that pools need.
    pub(super) fn wanted_secrets(&mut self) -> BTreeSet<SecretName> {
        let pools: Vec<_> = self.pools().cloned().collect();
        self.credentials.wanted(pools.iter().map(|pool| &**pool))
    }

    pub(super) fn is_read(&self, kind: Kind) -> bool {
        self.kinds.get(&kind).is_some_and(|objects| objects.is_read)
    }

    /// Names of unread kinds, without which there are no first inputs.
    pub(super) fn missing(&self) -> Vec<&'static str> {
        let unread = Kind::ALL.iter().filter(|kind| !self.is_read(**kind)).map(|kind| kind.name());
        let mut missing: Vec<_> = unread.collect();
        if missing.is_empty() && !self.configs.all_known() {
            missing.push("contents of machineconfigs");
        }
        missing
    }

    /// CAs of the API server in PEM, from the operator's ConfigMap.
    pub(super) fn cas(&self) -> Option<&[u8]> {
        let map = self.objects(Kind::KubeconfigData).find_map(as_kind!(ConfigMap))?;
        map.binary("ca-bundle.crt")
    }

    /// The inputs from the objects, `None` while some are missing. Pools that machines ask for come ahead of the
    /// others, as soon as they and what all share was read.
    ///
    /// A pool whose new MachineConfig is still being fetched keeps its previous one.
    pub(super) fn inputs(&mut self, kubeconfig: Option<&Bytes>) -> Option<Inputs> {
        self.want_configs_of_new_pools();
        if !self.is_complete {
            self.is_complete = self.missing().is_empty();
            if self.is_complete {
                self.awaited.clear();
            } else if !self.has_awaited() {
                return None;
            }
        }
        let (pools, machine_configs) = self.servable_pools();
        let controller_config =
            self.objects(Kind::ControllerConfig).find_map(as_kind!(ControllerConfig));
        let shared = SharedInputs {
            controller_config: controller_config.cloned().map(Arc::unwrap_or_clone),
            kubeconfig: kubeconfig.cloned(),
            registry_cas: self.registries.cas.clone(),
        };
        if *self.shared != shared {
            self.shared = Arc::new(shared);
        }
        let mut layering = Layering::default();
        for kind in [Kind::MachineOsConfig, Kind::MachineOsBuild, Kind::Service, Kind::Route] {
            self.objects(kind).for_each(|object| layering.add(object));
        }
        let mut warnings = self.configs.warnings();
        warnings.extend(unused_setters(ServingMode::Cluster, &pools, &machine_configs));
        let inputs = Inputs {
            mode: ServingMode::Cluster,
            pools: pools.into(),
            is_partial: !self.is_complete,
            machine_configs: machine_configs.into(),
            sources: Arc::default(),
            machines: self.machines().into(),
            missing: Missing::default(),
            machine_states: self.machine_states(),
            layering,
            shared: Arc::clone(&self.shared),
            tls_profile: self
                .objects(Kind::ApiServer)
                .filter_map(as_kind!(ApiServer))
                .find_map(|it| it.spec.tls_security_profile.clone()),
            enforced: BTreeSet::new(),
            live_reads: match &self.published {
                Some(before) if !self.configs.all_known() => before.live_reads,
                _ => self.live_reads,
            },
            registry_credentials: self.credentials.auth(),
            problems: self.problems(),
            warnings,
        };
        self.published = Some(inputs.clone());
        Some(inputs)
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        let objects = self.kinds.iter().map(|(kind, objects)| {
            let items = objects.by_name.values().map(|entry| entry.json.clone()).collect();
            (*kind, items)
        });
        Snapshot { objects: objects.collect(), machine_configs: self.configs.held() }
    }

    pub(super) fn restore(&mut self, snapshot: Snapshot) {
        for (kind, items) in snapshot.objects {
            let objects = self.kinds.entry(kind).or_default();
            for json in items {
                if let Some(item) = WatchedObject::read(&json) {
                    objects.insert(kind, item);
                }
            }
            objects.is_read = true;
        }
        // An earlier server may have served no machines with names.
        self.kinds.entry(Kind::FirstBootMachine).or_default().is_read = true;
        self.want_configs();
        self.read_registries();
        self.configs.restore(snapshot.machine_configs);
    }

    fn read_registries(&mut self) {
        let map = self.objects(Kind::RegistryCas).find_map(as_kind!(ConfigMap));
        let entries = map.map(|map| registry_ca::read(map)).unwrap_or_default();
        let cas = entries.or_last_good(&self.registries.cas);
        self.registries = Registries { cas, refused: entries.refused };
    }

    /// Lists of pools come object by object, and what they want is found once for many.
    fn want_configs_of_new_pools(&mut self) {
        if std::mem::take(&mut self.are_pools_new) {
            self.want_configs();
        }
    }

    fn want_configs(&mut self) {
        let wanted = self
            .pools()
            .flat_map(|pool| [pool.spec_configuration(), pool.status_configuration()])
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect();
        self.configs.want(&wanted);
    }

    fn objects(&self, kind: Kind) -> impl Iterator<Item = &Object> {
        let objects = self.kinds.get(&kind);
        objects.into_iter().flat_map(|o| o.by_name.values().filter_map(|e| e.object.as_ref()))
    }

    fn machines(&self) -> FirstBootMachines {
        self.objects(Kind::FirstBootMachine)
            .filter_map(as_kind!(FirstBootMachine))
            .map(|machine| (machine.name().to_owned(), Arc::clone(machine)))
            .collect()
    }

    fn machine_states(&self) -> BTreeMap<String, Arc<MachineState>> {
        let objects = self.kinds.get(&Kind::FirstBootMachine).into_iter();
        let entries = objects.flat_map(|objects| &objects.by_name);
        entries.filter_map(|(name, entry)| Some((name.clone(), entry.state.clone()?))).collect()
    }

    fn pools(&self) -> impl Iterator<Item = &Arc<MachineConfigPool>> {
        let objects = self.objects(Kind::MachineConfigPool);
        objects.filter_map(as_kind!(MachineConfigPool))
    }

    fn problems(&self) -> Vec<Problem> {
        let of_kind = |(kind, objects): (&Kind, &Objects)| -> Vec<Problem> {
            let problem = |(name, entry): (&String, &Entry)| {
                Some(Problem::whole(&kind.describe(name), entry.problem.clone()?))
            };
            objects.by_name.iter().filter_map(problem).collect()
        };
        let mut problems: Vec<Problem> = self.kinds.iter().flat_map(of_kind).collect();
        problems.extend(self.configs.problems());
        let refused = self.registries.refused.iter();
        problems.extend(refused.map(|entry| Problem::part(&entry.place, &entry.to_string())));
        problems.extend(self.credentials.problems());
        problems.sort();
        problems
    }
}

impl Objects {
    /// Removes objects that do not exist any longer, and returns true if there are any.
    fn retain(&mut self, kind: Kind, is_there: impl Fn(&str, &Entry) -> bool) -> bool {
        let mut is_changed = false;
        self.by_name.retain(|name, entry| {
            if is_there(name, entry) {
                return true;
            }
            is_changed = true;
            entry.problem = Some("was removed; its last contents are served".into());
            kind.outlives_deletion()
        });
        is_changed
    }

    /// Applies a list that was read apart from the watch, and returns true if it has something new.
    fn learn(&mut self, kind: Kind, version: &str, items: Vec<WatchedObject>) -> bool {
        let listed: BTreeSet<String> = items.iter().map(|item| item.name.clone()).collect();
        let mut is_changed = false;
        for item in items {
            is_changed |= self.insert_newer(kind, item);
        }
        let is_there =
            |name: &str, entry: &Entry| listed.contains(name) || is_newer(&entry.version, version);
        self.retain(kind, is_there) || is_changed
    }

    /// Applies an object unless a newer one is known, and returns true if it was applied: a watch and a read on request
    /// can each be behind the other.
    fn insert_newer(&mut self, kind: Kind, item: WatchedObject) -> bool {
        let known = self.by_name.get(&item.name);
        let is_new = known.is_none_or(|known| is_newer(&item.version, &known.version));
        if is_new {
            self.insert(kind, item);
        }
        is_new
    }

    fn insert(&mut self, kind: Kind, item: WatchedObject) {
        let Some(json) = item.json else { return };
        let last_good = self.by_name.remove(&item.name).and_then(|entry| entry.object);
        let (object, problem) = match (kind.decode(&json), last_good) {
            // A new status leaves the machine as it was.
            (Ok(Object::FirstBootMachine(new)), Some(Object::FirstBootMachine(before)))
                if new == before =>
            {
                (Some(Object::FirstBootMachine(before)), None)
            }
            (Ok(object), _) => (Some(object), None),
            (Err(error), last_good) => (last_good, Some(error.defect())),
        };
        let state = (kind == Kind::FirstBootMachine).then(|| MachineState::read(json.get()).ok());
        let state = state.flatten().map(Arc::new);
        let WatchedObject { name, version, .. } = item;
        self.by_name.insert(name, Entry { version, json, object, state, problem });
    }
}

/// Returns `true` if a resource version is later than another one. Those that are no numbers are taken as later.
fn is_newer(version: &str, than: &str) -> bool {
    match (version.parse::<u64>(), than.parse::<u64>()) {
        (Ok(version), Ok(than)) => version > than,
        _ => true,
    }
}

#[cfg(test)]
mod tests;
