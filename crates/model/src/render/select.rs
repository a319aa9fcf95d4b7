//! Selects the MachineConfig for a pool's next machine.

use std::sync::Arc;

use super::fetch_round::{fetch_round, fetches_in_words};
use super::image::layered_image;
use crate::inputs::{BOOTSTRAP_POOLS, Inputs, ServingMode, SharedInputs, served_configuration};
use crate::objects::MachineConfig;
use crate::refusal::RefusalCode;
use crate::registry_credentials::{Credentials, Unresolved};

/// The inputs that one pool's answers depend on, and no others: while they stay the same, so do the answers.
#[derive(Debug, Clone)]
pub struct PoolInputs {
    /// Rules for rendering.
    pub mode: ServingMode,
    /// MachineConfig that is served.
    pub machine_config: Arc<MachineConfig>,
    /// Name of the pool's configuration, by which machines know it.
    pub configuration: String,
    /// Pull spec of a layered image that was built for this pool and config.
    pub image: Option<String>,
    /// Registry credentials for the machine, if only clients with a proof can read its config.
    pub credentials: Option<Arc<Credentials>>,
    /// Values that all pools share.
    pub shared: Arc<SharedInputs>,
}

impl PoolInputs {
    /// Returns `true` if both give the same answers. Large values are compared by pointer.
    pub fn same(&self, other: &Self) -> bool {
        self.mode == other.mode
            && Arc::ptr_eq(&self.machine_config, &other.machine_config)
            && Arc::ptr_eq(&self.shared, &other.shared)
            && self.configuration == other.configuration
            && self.image == other.image
            && self.credentials == other.credentials
    }
}

/// Next step for pools whose configs lead back to themselves.
pub const FETCHES_FOREVER: &str =
    "remove one of these references from the Ignition configs of the pools";

/// Reasons why a pool has nothing to serve.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectError {
    /// The pool does not exist.
    #[error("no pool has this name")]
    UnknownPool,
    /// Only the control plane is served during bootstrap.
    #[error("only the pools master and arbiter are served during bootstrap")]
    NotInBootstrap,
    /// The pool names no rendered config yet.
    #[error("the pool has no rendered config yet")]
    NoConfiguration,
    /// The MachineConfig of the pool does not exist.
    #[error("MachineConfig {0} not found")]
    NoMachineConfig(String),
    /// The ControllerConfig does not exist, so a machine would miss its CAs.
    #[error("ControllerConfig machine-config-controller not found")]
    NoControllerConfig,
    /// The kubeconfig does not exist, so a machine could not join the cluster.
    #[error("cannot make the kubeconfig for new machines")]
    NoKubeconfig,
    /// The config leads back to itself by these pools, beginning and ending with this one.
    #[error("{}: machines would fetch forever", fetches_in_words(.0))]
    FetchesForever(Vec<String>),
    /// The registry credentials are not known. A machine without them would be stuck at its first image without
    /// fetching again; one that waits retries.
    #[error("{0}")]
    NoCredentials(#[from] Unresolved),
}

impl SelectError {
    /// Returns `true` if the pool itself has nothing to serve, instead of an object that it needs being unavailable.
    /// Only then is the last good answer dropped.
    pub fn is_meant(&self) -> bool {
        match self {
            Self::UnknownPool | Self::NotInBootstrap | Self::NoConfiguration => true,
            Self::NoMachineConfig(_)
            | Self::FetchesForever(_)
            | Self::NoControllerConfig
            | Self::NoKubeconfig
            | Self::NoCredentials(_) => false,
        }
    }

    /// Next step of an administrator.
    pub fn fix(&self) -> &'static str {
        match self {
            Self::FetchesForever(_) => FETCHES_FOREVER,
            _ => "correct the object that the reason names",
        }
    }

    /// Code of the answer.
    pub fn code(&self) -> RefusalCode {
        match self {
            Self::UnknownPool => RefusalCode::PoolUnknown,
            Self::NotInBootstrap => RefusalCode::NotInBootstrap,
            Self::NoConfiguration => RefusalCode::NoConfigYet,
            Self::NoMachineConfig(_) => RefusalCode::MachineConfigMissing,
            Self::NoControllerConfig => RefusalCode::ControllerConfigMissing,
            Self::NoKubeconfig => RefusalCode::KubeconfigMissing,
            Self::FetchesForever(_) => RefusalCode::FetchesForever,
            Self::NoCredentials(_) => RefusalCode::RegistryCredentialsMissing,
        }
    }
}

/// Selects the config that `pool` serves.
///
/// A pool with machines that run its new config (`status.updatedMachineCount > 0`) serves that one; until then the new
/// config is unproven, and the previous one is served. During `bootstrap` no machine runs the new one yet.
pub fn select(inputs: &Inputs, pool: &str) -> Result<PoolInputs, SelectError> {
    if inputs.mode == ServingMode::Bootstrap && !BOOTSTRAP_POOLS.contains(&pool) {
        return Err(SelectError::NotInBootstrap);
    }
    let pool = inputs.pools.get(pool).ok_or(SelectError::UnknownPool)?;
    let configuration = served_configuration(inputs.mode, pool);
    if configuration.is_empty() {
        return Err(SelectError::NoConfiguration);
    }
    let machine_config = inputs
        .machine_configs
        .get(configuration)
        .ok_or_else(|| SelectError::NoMachineConfig(configuration.to_owned()))?;
    if inputs.mode != ServingMode::Manifests && inputs.shared.controller_config.is_none() {
        return Err(SelectError::NoControllerConfig);
    }
    if inputs.mode == ServingMode::Cluster && inputs.shared.kubeconfig.is_none() {
        return Err(SelectError::NoKubeconfig);
    }
    if let Some(way) = fetch_round(inputs, pool.name()) {
        return Err(SelectError::FetchesForever(way));
    }
    let is_enforced = inputs.enforced.contains(pool.name());
    let credentials =
        if is_enforced { inputs.registry_credentials.credentials(pool)? } else { None };
    let image = layered_image(&inputs.layering, pool, configuration);
    Ok(PoolInputs {
        mode: inputs.mode,
        machine_config: Arc::clone(machine_config),
        configuration: configuration.to_owned(),
        image,
        credentials,
        shared: Arc::clone(&inputs.shared),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inputs::Layering;
    use crate::objects::MachineConfigPool;
    use serde_json::{Value, json};

    fn inputs(mode: ServingMode, pool: &Value) -> Inputs {
        let pool: MachineConfigPool = serde_json::from_value(pool.clone()).unwrap();
        let machine_config = |name: &str| {
            let config: MachineConfig =
                serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
            (name.to_owned(), Arc::new(config))
        };
        Inputs {
            mode,
            is_partial: false,
            pools: Arc::new([(pool.name().to_owned(), Arc::new(pool))].into()),
            machine_configs: Arc::new(["old", "new"].map(machine_config).into()),
            sources: Arc::default(),
            machines: Arc::default(),
            missing: crate::inputs::Missing::default(),
            machine_states: std::collections::BTreeMap::new(),
            layering: Layering::default(),
            shared: Arc::new(SharedInputs {
                controller_config: Some(crate::objects::ControllerConfig::default()),
                kubeconfig: Some("kubeconfig".into()),
                ..SharedInputs::default()
            }),
            tls_profile: None,
            enforced: std::collections::BTreeSet::new(),
            live_reads: 0,
            registry_credentials: crate::registry_credentials::RegistryCredentials::default(),
            problems: Vec::new(),
            warnings: Vec::new(),
        }
    }

    fn pool(name: &str, updated: u32) -> Value {
        json!({
            "metadata": {"name": name},
            "spec": {"configuration": {"name": "new"}},
            "status": {"configuration": {"name": "old"}, "updatedMachineCount": updated},
        })
    }

    #[test]
    fn a_pool_has_credentials_once_it_is_enforced_and_waits_for_them() {
        let mut inputs = inputs(ServingMode::Cluster, &pool("worker", 0));
        let credentials =
            |inputs: &Inputs| select(inputs, "worker").map(|selected| selected.credentials);
        let name: crate::objects::SecretName = "a/b".parse().unwrap();
        inputs.registry_credentials.secret = Some(name.clone());
        assert_eq!(credentials(&inputs), Ok(None));
        inputs.enforced = ["worker".to_owned()].into();
        let refused = credentials(&inputs).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "its registry credentials are unknown: Secret a/b has not been read"
        );
        assert!(!refused.is_meant(), "the last good config stays");
        let some = Some(Arc::new(Credentials::new()));
        inputs.registry_credentials.known = [(name, some.clone())].into();
        assert_eq!(credentials(&inputs), Ok(some));
    }

    fn selected(mode: ServingMode, pool: &Value, name: &str) -> Result<String, SelectError> {
        select(&inputs(mode, pool), name).map(|selected| selected.configuration)
    }

    #[test]
    fn a_new_config_is_served_once_a_machine_runs_it() {
        assert_eq!(selected(ServingMode::Cluster, &pool("worker", 0), "worker").unwrap(), "old");
        assert_eq!(selected(ServingMode::Cluster, &pool("worker", 1), "worker").unwrap(), "new");
    }

    #[test]
    fn bootstrap_serves_the_control_plane_at_the_status_configuration() {
        assert_eq!(selected(ServingMode::Bootstrap, &pool("master", 1), "master").unwrap(), "old");
        let refused = selected(ServingMode::Bootstrap, &pool("worker", 1), "worker");
        assert_eq!(refused, Err(SelectError::NotInBootstrap));
    }

    #[test]
    fn what_is_missing_is_named() {
        let empty = json!({"metadata": {"name": "p"}});
        assert_eq!(selected(ServingMode::Cluster, &empty, "q"), Err(SelectError::UnknownPool));
        assert_eq!(selected(ServingMode::Cluster, &empty, "p"), Err(SelectError::NoConfiguration));
        let dangling =
            json!({"metadata": {"name": "p"}, "status": {"configuration": {"name": "gone"}}});
        let refused = selected(ServingMode::Cluster, &dangling, "p");
        assert_eq!(refused, Err(SelectError::NoMachineConfig("gone".into())));
    }
}
