//! Reads the objects that rendered pools depend on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use controllers::NAMESPACE;
use controllers::metadata_cache::AllMetadata;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::api::DynamicObject;
use kubernetes::apply::{list_custom, read, read_custom};
use kubernetes::{ControlError, Malformed, ObjectName};
use model::merged_pool::has_contents_of_name;
use model::objects::{ControllerConfig, LabelSelector, MachineConfig, ObjectKind};

use super::objects::{Pool, is_own, is_source, machine_config, pool};

/// MachineConfigs that are read at the same time.
const AT_ONCE: usize = 16;

fn controller_config_object() -> ObjectName {
    ObjectName::new(ObjectKind::CONTROLLER_CONFIG, "", "machine-config-controller")
}

/// The machine config operator's controller, which renders pools too.
fn operator_object() -> ObjectName {
    ObjectName::new(ObjectKind::DEPLOYMENT, NAMESPACE, "machine-config-controller")
}

/// Objects whose changes call for another look, except for MachineConfigs.
pub(super) fn watched() -> Vec<ObjectName> {
    vec![ObjectName::pool("*"), controller_config_object(), operator_object()]
}

/// Fails where the machine config operator renders the pools. Scaled down to nothing, it does not.
pub(super) async fn expect_no_operator(client: &Client) -> Result<(), ControlError> {
    let object = operator_object();
    let deployment = read::<Deployment>(client, &object).await?;
    let replicas = |it: Deployment| it.spec.and_then(|spec| spec.replicas).unwrap_or(1);
    match deployment.map(replicas) {
        None | Some(0) => Ok(()),
        Some(_) => Err(ControlError::RenderedBy(object)),
    }
}

/// All pools, and the malformed ones separately.
pub(super) async fn read_pools(
    client: &Client,
) -> Result<(Vec<Pool>, Vec<Malformed>), ControlError> {
    let (mut pools, mut malformed) = (Vec::new(), Vec::new());
    for object in list_custom(client, &ObjectName::pool("*")).await? {
        match pool(object) {
            Ok(pool) => pools.push(pool),
            Err(error) => malformed.push(error),
        }
    }
    Ok((pools, malformed))
}

/// ControllerConfig, which has the cluster's images, if there is one.
pub(super) async fn read_controller_config(
    client: &Client,
) -> Result<Option<ControllerConfig>, ControlError> {
    let object = controller_config_object();
    let found = read_custom(client, &object).await?;
    let read = found.map(|found| serde_json::from_value(found.data)).transpose();
    Ok(read.map_err(|error| object.malformed(error.to_string()))?)
}

/// Values from the contents of MachineConfigs, by name, with the version that was read. Each is read once a change.
pub(super) struct ReadConfigs<T>(BTreeMap<String, (String, T)>);

/// Rendered MachineConfigs, by whether their contents were changed since they got their name.
pub(super) type Contents = ReadConfigs<bool>;

/// The MachineConfigs that pools may be made of, or the reason why one is malformed.
pub(super) type Sources = ReadConfigs<Result<Arc<MachineConfig>, String>>;

impl<T> Default for ReadConfigs<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T> ReadConfigs<T> {
    /// Reads the wanted ones that are new or changed, some at a time, and discards all others.
    async fn update_wanted(
        &mut self,
        client: &Client,
        all: &AllMetadata,
        is_wanted: impl Fn(&str, &ObjectMeta) -> bool,
        keep: impl Fn(DynamicObject) -> T,
    ) -> Result<(), ControlError> {
        self.0.retain(|name, _| all.get(name).is_some_and(|metadata| is_wanted(name, metadata)));
        let changed = all.iter().filter(|(name, metadata)| {
            let known = self.0.get(*name).map(|(version, _)| version.as_str());
            let is_known = known.is_some() && known == metadata.resource_version.as_deref();
            is_wanted(name, metadata) && !is_known
        });
        let keep = &keep;
        let reads = changed.map(async |(name, _)| {
            let object = read_custom(client, &ObjectName::machine_config(name)).await?;
            Ok::<_, ControlError>(object.map(|object| {
                let version = object.metadata.resource_version.clone().unwrap_or_default();
                (name.clone(), (version, keep(object)))
            }))
        });
        let read: Vec<_> = stream::iter(reads).buffer_unordered(AT_ONCE).try_collect().await?;
        // The metadata will show the deletion of those that are gone.
        self.0.extend(read.into_iter().flatten());
        Ok(())
    }
}

impl Contents {
    /// Reads those of `named` that are new or changed, and discards all others.
    pub(super) async fn update(
        &mut self,
        client: &Client,
        all: &AllMetadata,
        named: &BTreeSet<String>,
    ) -> Result<(), ControlError> {
        let is_wanted =
            |name: &str, metadata: &ObjectMeta| named.contains(name) && is_own(name, metadata);
        let is_changed =
            |object| !machine_config(object).is_ok_and(|config| has_contents_of_name(&config));
        self.update_wanted(client, all, is_wanted, is_changed).await
    }

    pub(super) fn discard(&mut self, name: &str) {
        self.0.remove(name);
    }

    pub(super) fn is_changed(&self, name: &str) -> bool {
        self.0.get(name).is_some_and(|(_, is_changed)| *is_changed)
    }
}

impl Sources {
    /// Reads those that are new or changed, and discards those that are gone.
    pub(super) async fn update(
        &mut self,
        client: &Client,
        all: &AllMetadata,
    ) -> Result<(), ControlError> {
        let read = |object| machine_config(object).map(Arc::new);
        self.update_wanted(client, all, is_source, read).await
    }

    pub(super) fn machine_configs(&self) -> impl Iterator<Item = &Arc<MachineConfig>> {
        self.0.values().filter_map(|(_, it)| it.as_ref().ok())
    }

    /// Reason that a pool cannot be merged: a selected MachineConfig is malformed.
    pub(super) fn unread(&self, selector: &LabelSelector, all: &AllMetadata) -> Option<String> {
        let unread = self.0.iter().filter_map(|(name, (_, it))| Some((name, it.as_ref().err()?)));
        let mut selected = unread.filter(|(name, _)| {
            let labels = all.get(*name).and_then(|metadata| metadata.labels.clone());
            let labels = labels.unwrap_or_default().into_iter().map(|(key, it)| (key, Some(it)));
            selector.check().is_ok() && selector.matches(Some(&labels.collect()))
        });
        selected.next().map(|(name, reason)| format!("MachineConfig {name}: {reason}"))
    }
}
