//! Objects of many files as one set.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use model::escape::{NAME, cut};
use model::inputs::{Inputs, Problem};
use model::objects::Object;

/// Objects of many files. Of two with the same identity, the first is used and the second is a problem.
#[derive(Default)]
pub(super) struct ObjectSet<'a> {
    /// Pools, MachineConfigs, machines and problems.
    pub(super) inputs: Inputs,
    pub(super) others: Vec<&'a Object>,
    seen: HashMap<Identity<&'a str>, &'a Path>,
}

/// Identity of an object among those of a directory.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Identity<Text = String> {
    pub(super) kind: &'static str,
    pub(super) namespace: Text,
    pub(super) name: Text,
}

impl Identity<&str> {
    pub(super) fn to_owned(&self) -> Identity {
        let Self { kind, namespace, name } = *self;
        Identity { kind, namespace: namespace.to_owned(), name: name.to_owned() }
    }
}

impl Identity {
    fn as_ref(&self) -> Identity<&str> {
        let Self { kind, namespace, name } = self;
        Identity { kind, namespace, name }
    }

    /// A config without a manifest, by its file.
    pub(super) fn of_plain(path: &Path) -> Self {
        let name = path.display().to_string();
        Self { kind: "Ignition config", namespace: String::new(), name }
    }
}

impl<'a> ObjectSet<'a> {
    pub(super) fn contains(&self, identity: &Identity) -> bool {
        self.seen.contains_key(&identity.as_ref())
    }

    pub(super) fn add(&mut self, path: &'a Path, objects: &'a [Object]) {
        let Inputs { pools, machine_configs, machines, problems, .. } = &mut self.inputs;
        for object in objects {
            let identity = identity(object);
            if let Some(first) = self.seen.get(&identity) {
                let Identity { kind, namespace, name } = &identity;
                let slash = if namespace.is_empty() { "" } else { "/" };
                let what = match *name {
                    "" => (*kind).to_owned(),
                    name => format!("{kind} {}{slash}{name}", cut(namespace, NAME)),
                };
                let reason = format!("{what} is also in {}, which is used", first.display());
                problems.push(Problem::whole(&path.display().to_string(), reason));
                continue;
            }
            self.seen.insert(identity, path);
            match object {
                Object::MachineConfigPool(pool) => {
                    pools.insert(pool.name().to_owned(), Arc::clone(pool));
                }
                Object::MachineConfig(config) => {
                    machine_configs.insert(config.name().to_owned(), Arc::clone(config));
                }
                Object::FirstBootMachine(machine) => {
                    machines.insert(machine.name().to_owned(), Arc::clone(machine));
                }
                object => self.others.push(object),
            }
        }
    }
}

/// Kind, namespace and name of an object. Singletons have only the kind.
pub(super) fn identity(object: &Object) -> Identity<&str> {
    let (kind, namespace, name): (_, &str, &str) = match object {
        Object::MachineConfigPool(pool) => ("MachineConfigPool", "", pool.name()),
        Object::MachineConfig(config) => ("MachineConfig", "", config.name()),
        Object::ConfigMap(map) => ("ConfigMap", &map.metadata.namespace, &map.metadata.name),
        Object::Secret(secret) => ("Secret", &secret.metadata.namespace, &secret.metadata.name),
        Object::ControllerConfig(_) => ("ControllerConfig", "", ""),
        Object::Kubeconfig(_) => ("kubeconfig", "", ""),
        Object::ApiServer(_) => ("APIServer", "", ""),
        Object::ImageConfig(_) => ("Image", "", ""),
        // Files and tokens go by the name alone.
        Object::FirstBootMachine(machine) => ("FirstBootMachine", "", machine.name()),
        Object::MachineOsConfig(config) => ("MachineOSConfig", "", &config.metadata.name),
        Object::MachineOsBuild(build) => ("MachineOSBuild", "", &build.metadata.name),
        Object::Service(service) => {
            ("Service", &service.metadata.namespace, &service.metadata.name)
        }
        Object::Route(route) => ("Route", &route.metadata.namespace, &route.metadata.name),
    };
    Identity { kind, namespace, name }
}
