//! The one value that decides what machines are served.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use crate::objects::{ControllerConfig, MachineConfig, MachineConfigPool};
use crate::registry_ca::RegistryHost;

/// Which of the reference server's two ways of choosing and rendering applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The first control-plane machines, before there is a cluster: pools `master` and `arbiter`
    /// only, always at their status' configuration.
    Bootstrap,
    /// A cluster, or a directory that stands for one.
    Cluster,
}

/// Everything that can change what a machine is served, at one moment.
///
/// Values are shared (`Arc`) from one moment to the next where they did not change, so that
/// comparing pointers tells which pools a change touches.
#[derive(Debug, Clone)]
pub struct Inputs {
    /// How configs are chosen and rendered.
    pub mode: Mode,
    /// The pools by name.
    pub pools: BTreeMap<String, Arc<MachineConfigPool>>,
    /// The machine configs by name.
    pub machine_configs: BTreeMap<String, Arc<MachineConfig>>,
    /// What all pools have in common.
    pub shared: Arc<Shared>,
    /// What could not be read, one entry a file or object. The values above are then the last
    /// good ones.
    pub problems: Vec<Problem>,
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

/// Something that could not be read, and what is done without it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// The file or the object.
    pub place: String,
    /// What is wrong with it, one line.
    pub reason: String,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.place, self.reason)
    }
}
