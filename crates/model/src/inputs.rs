//! The one value that decides what machines are served.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;

use crate::escape::{REASON, cut, escaped};
use crate::objects::{
    ControllerConfig, Defect, MachineConfig, MachineConfigPool, MachineOsBuild, MachineOsConfig,
    Object, REGISTRY_NAMESPACE, TlsProfile,
};
use crate::registry_ca::RegistryHost;
use crate::registry_credentials::RegistryCredentials;

/// Which of the reference server's two ways of choosing and rendering applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServingMode {
    /// The first control-plane machines, before there is a cluster: pools `master` and `arbiter`
    /// only, always at their status' configuration.
    Bootstrap,
    /// A cluster that runs: which config a pool serves goes by how far it was rolled out.
    Cluster,
    /// A directory of manifests that stands for a cluster. It need not hold all that a cluster
    /// has: what is not there is left out of the configs.
    Manifests,
}

/// Everything that can change what a machine is served, at one moment.
///
/// Values are shared (`Arc`) from one moment to the next where they did not change, so that
/// comparing pointers tells which pools a change touches.
#[derive(Debug, Clone)]
pub struct Inputs {
    /// How configs are chosen and rendered.
    pub mode: ServingMode,
    /// The pools by name.
    pub pools: BTreeMap<String, Arc<MachineConfigPool>>,
    /// The machine configs by name.
    pub machine_configs: BTreeMap<String, Arc<MachineConfig>>,
    /// Which pools have images of their own.
    pub layering: Layering,
    /// What all pools have in common.
    pub shared: Arc<Shared>,
    /// The TLS profile that the cluster's administrators chose, where servers follow it.
    pub tls_profile: Option<TlsProfile>,
    /// Pools that are enforced: their configs have contents for machines with a proof only. Filled by
    /// [`Snapshot`](crate::snapshot::Snapshot), empty in what a source reads.
    pub enforced: BTreeSet<String>,
    /// The registry logins that machines of those pools get.
    pub registry_credentials: RegistryCredentials,
    /// What could not be read, one entry a file or object. The values above are then the last
    /// good ones.
    pub problems: Vec<Problem>,
    /// What is used as it is, and has something in it that has no effect: a field that nobody knows, say.
    pub warnings: Vec<Problem>,
}

/// What decides which pools' machines boot straight into an image that was built for them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Layering {
    /// MachineOSConfigs by name.
    pub os_configs: BTreeMap<String, MachineOsConfig>,
    /// MachineOSBuilds by name.
    pub os_builds: BTreeMap<String, MachineOsBuild>,
    /// The hosts of the cluster's own image registry, which a machine cannot reach before it is
    /// part of the cluster.
    pub registry_hosts: BTreeSet<String>,
}

impl Layering {
    /// Takes in an object that has to do with it; others are passed over.
    pub fn add(&mut self, object: &Object) {
        match object {
            Object::MachineOsConfig(config) => {
                self.os_configs.insert(config.metadata.name.clone(), config.clone());
            }
            Object::MachineOsBuild(build) => {
                self.os_builds.insert(build.metadata.name.clone(), build.clone());
            }
            Object::Service(service) if service.metadata.namespace == REGISTRY_NAMESPACE => {
                self.registry_hosts.insert(service.registry_host());
            }
            Object::Route(route)
                if route.metadata.namespace == REGISTRY_NAMESPACE && !route.host().is_empty() =>
            {
                self.registry_hosts.insert(route.host().to_owned());
            }
            _ => {}
        }
    }
}

/// What the rendered configs of all pools have in common.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Shared {
    /// The ControllerConfig's certificate authorities, `None` while there is no ControllerConfig.
    pub controller_config: Option<ControllerConfig>,
    /// The kubeconfig that new machines bootstrap with, as it is written to their disk.
    pub kubeconfig: Option<Bytes>,
    /// Certificate authorities (PEM) of image registries.
    pub registry_cas: BTreeMap<RegistryHost, Bytes>,
}

impl std::fmt::Debug for Shared {
    /// Leaves the kubeconfig out: it holds a token.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("controller_config", &self.controller_config)
            .field("kubeconfig", &self.kubeconfig.as_ref().map(|_| ".."))
            .field("registry_cas", &self.registry_cas.keys())
            .finish()
    }
}

/// The pools that `bootstrap` answers for; workers wait for the cluster.
pub const BOOTSTRAP_POOLS: [&str; 2] = ["master", "arbiter"];

/// The name of the machine config that `pool` serves, empty where it has none yet.
///
/// Where no node controller keeps the pool's status, there is only what the pool is set to.
#[must_use]
pub fn served_configuration(mode: ServingMode, pool: &MachineConfigPool) -> &str {
    let has_status = !pool.status_configuration().is_empty();
    match mode {
        ServingMode::Cluster | ServingMode::Manifests
            if pool.updated_machine_count() > 0 || !has_status =>
        {
            pool.spec_configuration()
        }
        _ => pool.status_configuration(),
    }
}

/// Something that could not be read, and what is done without it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// The file or the object.
    pub place: String,
    /// What is wrong with it, one line.
    pub reason: String,
    /// The field and what belongs there, without anything that is in it, where that is known.
    pub outline: Option<String>,
    /// Whether it is only a part that is refused, and all else in it is used.
    pub is_partial: bool,
}

impl Problem {
    /// A file or object that is not used at all. What there is too much of its name or of the reason
    /// is cut off.
    #[must_use]
    pub fn whole(place: &str, defect: impl Into<Defect>) -> Self {
        let Defect { reason, outline } = defect.into();
        let (place, reason) = (cut(place, REASON).into_owned(), cut(&reason, REASON).into_owned());
        let outline = outline.map(|outline| cut(&outline, REASON).into_owned());
        Self { place, reason, outline, is_partial: false }
    }

    /// A part of one that is not used.
    #[must_use]
    pub fn part(place: &str, reason: &str) -> Self {
        Self { is_partial: true, ..Self::whole(place, reason) }
    }

    /// What strangers may know of it: the name of the object or file, without the folder, and field
    /// and type where those are known.
    #[must_use]
    pub fn to_strangers(&self) -> String {
        let name = self.place.rsplit('/').next().unwrap_or_default();
        let extent = if self.is_partial { "a part of it" } else { "it" };
        match &self.outline {
            Some(outline) => format!("{}: {}", escaped(name), escaped(outline)),
            None => format!("{}: {extent} cannot be used", escaped(name)),
        }
    }
}

impl std::fmt::Display for Problem {
    /// One line.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", escaped(&self.place), escaped(&self.reason))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_is_one_line_of_bounded_length() {
        let problem = Problem::whole("a\n/b", "x".repeat(1 << 20));
        assert_eq!(problem.to_string(), format!("a\\n/b: {}…", "x".repeat(REASON)));
        assert!(!problem.is_partial && Problem::part("a", "b").is_partial);
    }
}
