//! The immutable value from which configs are rendered.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use serde::Serialize;

use crate::access::machine::MachineState;
use crate::escape::{REASON, cut, escaped};
use crate::merged_pool::{ByLabels, unused_setter};
use crate::objects::{
    ControllerConfig, FirstBootMachines, MachineConfig, MachineConfigPool, MachineOsBuild,
    MachineOsConfig, Object, ObjectDefect, REGISTRY_NAMESPACE, TlsProfile,
};
use crate::registry_ca::RegistryHost;
use crate::registry_credentials::RegistryCredentials;

/// Rules for choosing and rendering configs. The reference server has the first two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ServingMode {
    /// The first control-plane machines, before the cluster exists: only pools `master` and `arbiter`, with the
    /// configuration in their status.
    Bootstrap,
    /// A running cluster: a pool's configuration depends on the progress of its rollout.
    Cluster,
    /// A directory of manifests that replaces a cluster. Missing objects are omitted from configs.
    #[default]
    Manifests,
}

/// All inputs of rendered configs at one time.
///
/// Unchanged MachineConfigs and shared values are those of the previous inputs (`Arc`), so that comparing pointers
/// shows the pools that a change affects.
#[derive(Debug, Clone, Default)]
pub struct Inputs {
    /// Rules for choosing and rendering configs.
    pub mode: ServingMode,
    /// MachineConfigPools by name.
    pub pools: Arc<BTreeMap<String, Arc<MachineConfigPool>>>,
    /// True if there may be other pools, which have not been read yet.
    pub is_partial: bool,
    /// MachineConfigs that pools may serve, by name.
    pub machine_configs: Arc<BTreeMap<String, Arc<MachineConfig>>>,
    /// MachineConfigs of a directory that pools can be made of.
    pub sources: Arc<ByLabels>,
    /// Machines with a name, by it.
    pub machines: Arc<FirstBootMachines>,
    /// Objects that are missing from a directory; their last state is in the other fields.
    pub missing: Missing,
    /// States of their objects in a cluster, which has their tokens. Empty for a directory.
    pub machine_states: BTreeMap<String, Arc<MachineState>>,
    /// Layered images of pools.
    pub layering: Layering,
    /// Values that all pools share.
    pub shared: Arc<SharedInputs>,
    /// TLS profile of the cluster, if servers follow it.
    pub tls_profile: Option<TlsProfile>,
    /// Pools that are enforced: their configs may contain secrets for machines with a proof. Set by
    /// [`Snapshot`](crate::snapshot::Snapshot), empty in the result of a source.
    pub enforced: BTreeSet<String>,
    /// Number of reads of the pools, other than by watches, that these inputs include. It grows with each that found a
    /// change.
    pub live_reads: u64,
    /// Registry credentials for machines of enforced pools.
    pub registry_credentials: RegistryCredentials,
    /// Unreadable files or objects, one entry each. Their last good values are in the fields above.
    pub problems: Vec<Problem>,
    /// Parts of readable objects that have no effect, such as unknown fields.
    pub warnings: Vec<Problem>,
}

impl Inputs {
    /// Returns `true` if the objects that decide on access are the same in both.
    pub fn has_same_access(&self, other: &Self) -> bool {
        self.is_partial == other.is_partial
            && self.pools == other.pools
            && self.machines == other.machines
            && self.machine_states == other.machine_states
            && self.missing == other.missing
    }

    /// Reason why a pool cannot be served as it is written, if it has a problem.
    pub fn problem_of_pool(&self, pool: &str) -> Option<&str> {
        let is_of_pool = |it: &&Problem| it.place.strip_prefix("MachineConfigPool ") == Some(pool);
        self.problems.iter().find(is_of_pool).map(|problem| &*problem.reason)
    }
}

/// Objects that are [missing](crate::presence::Presence::Missing) from a directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Missing {
    /// Names of machines.
    pub machines: BTreeSet<String>,
    /// All missing objects, one entry for each kind and cause.
    pub reports: Vec<Problem>,
}

/// Objects that decide if machines of a pool boot straight into a layered image.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Layering {
    /// MachineOSConfigs by name.
    pub os_configs: BTreeMap<String, MachineOsConfig>,
    /// MachineOSBuilds by name.
    pub os_builds: BTreeMap<String, MachineOsBuild>,
    /// Hosts of the cluster's own image registry, which a machine cannot reach before it joins the cluster.
    pub registry_hosts: BTreeSet<String>,
}

impl Layering {
    /// Adds an object that concerns layering; others are ignored.
    pub fn add(&mut self, object: &Object) {
        match object {
            Object::MachineOsConfig(config) => {
                let config = MachineOsConfig::clone(config);
                self.os_configs.insert(config.metadata.name.clone(), config);
            }
            Object::MachineOsBuild(build) => {
                let build = MachineOsBuild::clone(build);
                self.os_builds.insert(build.metadata.name.clone(), build);
            }
            Object::Service(service) if service.metadata.namespace == REGISTRY_NAMESPACE => {
                self.registry_hosts.insert(service.registry_host());
            }
            Object::Route(route)
                if route.metadata.namespace == REGISTRY_NAMESPACE
                    && !route.spec.host.is_empty() =>
            {
                self.registry_hosts.insert(route.spec.host.clone());
            }
            _ => {}
        }
    }
}

/// Values that the rendered configs of all pools share.
#[derive(Clone, Default, PartialEq)]
pub struct SharedInputs {
    /// ControllerConfig with the cluster's CAs, `None` if it does not exist.
    pub controller_config: Option<ControllerConfig>,
    /// Bootstrap kubeconfig of new machines, as written to their disk.
    pub kubeconfig: Option<Bytes>,
    /// CAs of image registries in PEM.
    pub registry_cas: BTreeMap<RegistryHost, Bytes>,
}

impl std::fmt::Debug for SharedInputs {
    /// Omits the kubeconfig, which contains a token.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedInputs")
            .field("controller_config", &self.controller_config)
            .field("kubeconfig", &self.kubeconfig.as_ref().map(|_| ".."))
            .field("registry_cas", &self.registry_cas.keys())
            .finish()
    }
}

/// Pools that are served during bootstrap; workers wait for the cluster.
pub const BOOTSTRAP_POOLS: [&str; 2] = ["master", "arbiter"];

/// Name of the MachineConfig that `pool` serves, empty if it has none yet.
///
/// Without a node controller the pool has no status, and the spec decides.
pub fn served_configuration(mode: ServingMode, pool: &MachineConfigPool) -> &str {
    let has_status = !pool.status_configuration().is_empty();
    match mode {
        ServingMode::Cluster | ServingMode::Manifests
            if pool.status.updated_machine_count > 0 || !has_status =>
        {
            pool.spec_configuration()
        }
        _ => pool.status_configuration(),
    }
}

/// Annotations about merging of pools that name MachineConfigs which were not merged by them.
pub fn unused_setters(
    mode: ServingMode,
    pools: &BTreeMap<String, Arc<MachineConfigPool>>,
    machine_configs: &BTreeMap<String, Arc<MachineConfig>>,
) -> Vec<Problem> {
    let unused = pools.values().filter_map(|pool| {
        let served = machine_configs.get(served_configuration(mode, pool))?;
        let reason = unused_setter(pool, served)?;
        Some(Problem::part(&format!("MachineConfigPool {}", pool.name()), &reason))
    });
    unused.collect()
}

/// A fault of a file or object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Problem {
    /// Name of the file or object.
    pub place: String,
    /// Reason in one line.
    pub reason: String,
    /// Field and expected type, without values, if they are known.
    #[serde(skip)]
    pub outline: Option<String>,
    /// True if only a part is refused, and the rest is used.
    #[serde(skip)]
    pub is_partial: bool,
}

impl Problem {
    /// A file or object that is ignored as a whole. Long names and reasons are cut.
    pub fn whole(place: &str, defect: impl Into<ObjectDefect>) -> Self {
        let ObjectDefect { reason, outline } = defect.into();
        let (place, reason) = (cut(place, REASON).into_owned(), cut(&reason, REASON).into_owned());
        let outline = outline.map(|outline| cut(&outline, REASON).into_owned());
        Self { place, reason, outline, is_partial: false }
    }

    /// A part of a file or object that is ignored.
    pub fn part(place: &str, reason: &str) -> Self {
        Self { is_partial: true, ..Self::whole(place, reason) }
    }

    /// Description for unauthenticated clients: the name of the object or file without its directory, and field and
    /// type if they are known.
    pub fn for_unauthenticated(&self) -> String {
        let name = self.place.rsplit('/').next().unwrap_or_default();
        let extent = if self.is_partial { "a part of it" } else { "it" };
        match &self.outline {
            Some(outline) => format!("{}: {}", escaped(name), escaped(outline)),
            None => format!("{}: {extent} cannot be used", escaped(name)),
        }
    }
}

impl std::fmt::Display for Problem {
    /// Formats the problem as one line.
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
