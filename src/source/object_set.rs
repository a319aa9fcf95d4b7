//! Objects of many files as one set, which is updated file by file: a change costs what its file costs.
//!
//! ```text
//! files of manifests ──┐
//! objects that are lost├─ update ──> by identity: the first holder is used ──> pools, MachineConfigs by labels, others
//! configs without one ─┘
//! ```
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;

use model::escape::{NAME, cut};
use model::inputs::Problem;
use model::merged_pool::ByLabels;
use model::objects::{
    FirstBootMachines, Labels, MachineConfig, MachineConfigPool, Object, ObjectKind,
};

/// Objects of a file.
pub(super) type Objects = Arc<[Object]>;

/// Places of objects. An object in an earlier one is used instead of one in a later one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Layer {
    /// Manifests.
    Manifests,
    /// Objects that manifests no longer have, and that are not removed.
    Lost,
    /// Configs without a manifest.
    Plain,
}

/// Objects of many files. Of two with the same identity, the first is used and the second is a problem.
#[derive(Debug, Default)]
pub(super) struct ObjectSet {
    files: BTreeMap<Layer, BTreeMap<Arc<Path>, Objects>>,
    holders: BTreeMap<Holder, Object>,
    /// Identities of objects that more than one place has.
    repeated: BTreeSet<Identity>,
    pub(super) pools: BTreeMap<String, Arc<MachineConfigPool>>,
    pub(super) machines: Arc<FirstBootMachines>,
    /// MachineConfigs that pools can be made of.
    pub(super) sources: Arc<ByLabels>,
    /// Results of the render controller.
    pub(super) rendered: BTreeMap<Arc<str>, Arc<MachineConfig>>,
    /// Objects of all other kinds.
    pub(super) others: BTreeMap<Identity, Object>,
    /// Objects that were looked at by all updates together.
    looked_at: u64,
}

/// Identity of an object among those of a directory.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Identity<Text = Arc<str>> {
    pub(super) kind: &'static str,
    pub(super) namespace: Text,
    pub(super) name: Text,
}

/// A place that has an object. They sort by identity, and then as they are used.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Holder {
    identity: Identity,
    layer: Layer,
    path: Arc<Path>,
    /// Position in the file.
    index: usize,
}

impl Identity<&str> {
    pub(super) fn to_owned(&self) -> Identity {
        let Self { kind, namespace, name } = *self;
        Identity { kind, namespace: namespace.into(), name: name.into() }
    }
}

impl Identity {
    /// A config without a manifest, by its file.
    pub(super) fn of_plain(path: &Path) -> Self {
        let name = path.display().to_string();
        Self { kind: "Ignition config", namespace: "".into(), name: name.into() }
    }

    fn of(object: &Object) -> Self {
        let identity = identity(object);
        match object {
            Object::MachineConfig(config) => Self {
                kind: identity.kind,
                namespace: "".into(),
                name: Arc::clone(config.shared_name()),
            },
            _ => identity.to_owned(),
        }
    }
}

impl ObjectSet {
    /// Replaces the files of a layer, given in the order of their paths. Files with the same objects as before cost
    /// nothing.
    pub(super) fn update<'a>(
        &mut self,
        layer: Layer,
        files: impl IntoIterator<Item = (&'a Path, &'a Objects)>,
    ) {
        let known = self.files.entry(layer).or_default();
        let changes = changes(known, files.into_iter().filter(|(_, objects)| !objects.is_empty()));
        let mut removed = Vec::new();
        for (path, objects) in &changes {
            let before = match objects {
                Some(objects) => known.insert(Arc::clone(path), Arc::clone(objects)),
                None => known.remove(path),
            };
            removed.extend(before.map(|before| (Arc::clone(path), before)));
        }
        let added = changes.into_iter().filter_map(|(path, objects)| Some((path, objects?)));
        let [removed, added] = [holders(layer, removed), holders(layer, added)];
        let all = removed.iter().chain(&added);
        let concerned: BTreeSet<Identity> =
            all.map(|(holder, _)| holder.identity.clone()).collect();
        let before: Vec<_> = concerned.iter().map(|it| self.used(it).cloned()).collect();
        self.looked_at += added.len() as u64;
        for (holder, _) in removed {
            self.holders.remove(&holder);
        }
        self.holders.extend(added);
        for (identity, before) in concerned.into_iter().zip(before) {
            let now = self.used(&identity).cloned();
            if before.as_ref().map(Object::address) != now.as_ref().map(Object::address) {
                if let Some(before) = before {
                    self.take_out(&identity, &before);
                }
                if let Some(now) = now {
                    self.put_in(&identity, &now);
                }
            }
            if self.all(&identity).nth(1).is_some() {
                self.repeated.insert(identity);
            } else {
                self.repeated.remove(&identity);
            }
        }
    }

    /// Objects that were looked at by all updates together.
    #[cfg(test)]
    pub(super) fn looked_at(&self) -> u64 {
        self.looked_at
    }

    fn all(&self, identity: &Identity) -> impl Iterator<Item = (&Holder, &Object)> {
        let first = Holder {
            identity: identity.clone(),
            layer: Layer::Manifests,
            path: Path::new("").into(),
            index: 0,
        };
        let identity = first.identity.clone();
        self.holders.range(first..).take_while(move |(holder, _)| holder.identity == identity)
    }

    fn used(&self, identity: &Identity) -> Option<&Object> {
        Some(self.all(identity).next()?.1)
    }

    /// The manifest with the object that is used, `None` if that is not of a manifest.
    pub(super) fn manifest_of(&self, identity: &Identity) -> Option<&Path> {
        let (holder, _) = self.all(identity).next()?;
        (holder.layer == Layer::Manifests).then_some(&*holder.path)
    }

    /// The manifests with the objects of a kind that are used, by the names of these, `None` for one that is not of a manifest.
    pub(super) fn manifests_of(&self, kind: &str) -> HashMap<&str, Option<&Path>> {
        let mut manifests = HashMap::new();
        for Holder { identity, layer, path, .. } in self.holders.keys() {
            if identity.kind == kind {
                let manifest = (*layer == Layer::Manifests).then_some(&**path);
                manifests.entry(&*identity.name).or_insert(manifest);
            }
        }
        manifests
    }

    /// Manifests with objects that are neither pools nor MachineConfigs, nor of a single machine.
    pub(super) fn files_of_others(&self) -> BTreeSet<&Path> {
        self.others.keys().filter_map(|identity| self.manifest_of(identity)).collect()
    }

    /// Returns `true` if a manifest has the object.
    pub(super) fn contains(&self, identity: &Identity) -> bool {
        self.manifest_of(identity).is_some()
    }

    /// The MachineConfig with this name.
    pub(super) fn machine_config(&self, name: &str) -> Option<&Arc<MachineConfig>> {
        let identity =
            Identity { kind: ObjectKind::MACHINE_CONFIG.name, namespace: "", name }.to_owned();
        self.used(&identity).and_then(as_kind!(MachineConfig))
    }

    fn put_in(&mut self, identity: &Identity, object: &Object) {
        match object {
            Object::MachineConfigPool(pool) => {
                self.pools.insert(pool.name().to_owned(), Arc::clone(pool));
            }
            Object::MachineConfig(config) if is_rendered(config) => {
                self.rendered.insert(Arc::clone(config.shared_name()), Arc::clone(config));
            }
            Object::MachineConfig(config) => Arc::make_mut(&mut self.sources).insert(config),
            Object::FirstBootMachine(machine) => {
                let machines = Arc::make_mut(&mut self.machines);
                machines.insert(machine.name().to_owned(), Arc::clone(machine));
            }
            object => {
                self.others.insert(identity.clone(), object.clone());
            }
        }
    }

    fn take_out(&mut self, identity: &Identity, object: &Object) {
        match object {
            Object::MachineConfigPool(pool) => {
                self.pools.remove(pool.name());
            }
            Object::MachineConfig(config) if is_rendered(config) => {
                self.rendered.remove(config.name());
            }
            Object::MachineConfig(config) => Arc::make_mut(&mut self.sources).remove(config),
            Object::FirstBootMachine(machine) => {
                Arc::make_mut(&mut self.machines).remove(machine.name());
            }
            _ => {
                self.others.remove(identity);
            }
        }
    }

    /// Objects that are not used, because another place has them.
    pub(super) fn problems(&self) -> Vec<Problem> {
        let repeated = self.repeated.iter().flat_map(|identity| {
            let mut all = self.all(identity).map(|(holder, _)| holder);
            let first = all.next();
            first.into_iter().flat_map(move |first| {
                // Another place is no fault of an object that is lost.
                let others = self.all(identity).skip(1).map(|(holder, _)| holder);
                others.filter_map(|other| problem(first, other))
            })
        });
        repeated.collect()
    }
}

/// Problem of an object in `other` that is not used, because `first` has it.
fn problem(first: &Holder, other: &Holder) -> Option<Problem> {
    let Identity { kind, namespace, name } = &other.identity;
    let place = other.path.display().to_string();
    match other.layer {
        Layer::Manifests => {
            let slash = if namespace.is_empty() { "" } else { "/" };
            let what = match &**name {
                "" => (*kind).to_owned(),
                name => format!("{kind} {}{slash}{name}", cut(namespace, NAME)),
            };
            let reason = format!("{what} is also in {}, which is used", first.path.display());
            Some(Problem::whole(&place, reason))
        }
        Layer::Lost => None,
        Layer::Plain => {
            let reason = format!("{kind} {name} has the same name; rename one of them");
            Some(Problem::part(&place, &reason))
        }
    }
}

/// The differences of the files `now`, in the order of their paths, from those `before`: new objects, or none of a
/// file that is gone.
fn changes<'a>(
    before: &BTreeMap<Arc<Path>, Objects>,
    now: impl Iterator<Item = (&'a Path, &'a Objects)>,
) -> Vec<(Arc<Path>, Option<Objects>)> {
    let mut changes = Vec::new();
    let mut before = before.iter().peekable();
    for (path, objects) in now {
        while let Some((gone, _)) = before.next_if(|(it, _)| &***it < path) {
            changes.push((Arc::clone(gone), None));
        }
        match before.next_if(|(it, _)| &***it == path) {
            Some((_, known)) if Arc::ptr_eq(known, objects) => {}
            Some((path, _)) => changes.push((Arc::clone(path), Some(Arc::clone(objects)))),
            None => changes.push((path.into(), Some(Arc::clone(objects)))),
        }
    }
    changes.extend(before.map(|(gone, _)| (Arc::clone(gone), None)));
    changes
}

fn holders(
    layer: Layer,
    files: impl IntoIterator<Item = (Arc<Path>, Objects)>,
) -> Vec<(Holder, Object)> {
    let of_file = |(path, objects): (Arc<Path>, Objects)| {
        let holder = |(index, object): (usize, &Object)| {
            let identity = Identity::of(object);
            (Holder { identity, layer, path: Arc::clone(&path), index }, object.clone())
        };
        objects.iter().enumerate().map(holder).collect::<Vec<_>>()
    };
    files.into_iter().flat_map(of_file).collect()
}

/// Returns `true` for a result of the render controller, which is no source of another one. It has no labels; with
/// labels, a MachineConfig is selected by them whatever its name is, as by the render controller.
fn is_rendered(config: &MachineConfig) -> bool {
    config.name().starts_with("rendered-") && config.labels().as_ref().is_none_or(Labels::is_empty)
}

/// Kind, namespace and name of an object. Singletons have only the kind.
pub(super) fn identity(object: &Object) -> Identity<&str> {
    let (namespace, name): (&str, &str) = match object {
        Object::MachineConfigPool(pool) => ("", pool.name()),
        Object::MachineConfig(config) => ("", config.name()),
        Object::ConfigMap(map) => (&map.metadata.namespace, &map.metadata.name),
        Object::Secret(secret) => (&secret.metadata.namespace, &secret.metadata.name),
        Object::ControllerConfig(_)
        | Object::Kubeconfig(_)
        | Object::ApiServer(_)
        | Object::ImageConfig(_) => ("", ""),
        // Files and tokens go by the name alone.
        Object::FirstBootMachine(machine) => ("", machine.name()),
        Object::MachineOsConfig(config) => ("", &config.metadata.name),
        Object::MachineOsBuild(build) => ("", &build.metadata.name),
        Object::Service(service) => (&service.metadata.namespace, &service.metadata.name),
        Object::Route(route) => (&route.metadata.namespace, &route.metadata.name),
    };
    let kind = match object {
        // `Config` says less.
        Object::Kubeconfig(_) => "kubeconfig",
        object => object.kind().name,
    };
    Identity { kind, namespace, name }
}
