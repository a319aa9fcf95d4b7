//! Manages the merged ConfigMap of registry CAs.

mod objects;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::ConfigMap as StoredMap;
use kube::Client;
use kube::api::ApiResource;
use kube::runtime::events::EventType;
use model::objects::{ConfigMap, ImageConfig};
use model::registry_ca::{
    ADMINISTRATOR_NAMESPACE, Administrators, MANAGED_NAMESPACE, MERGED_MAP, MergePlan,
    OPERATOR_MAP, Refused, RegistryCaMaps, plan,
};

use self::objects::{config_map, image, image_object, merged_write};
use super::runtime::{self, Reconciler, Requeue, Watched};
use crate::kubernetes::ControlError;
use crate::kubernetes::Health;
use crate::kubernetes::apply::{Applied, apply, read, read_custom};
use crate::kubernetes::client::resource;
use crate::kubernetes::events::Events;
use crate::kubernetes::write::ObjectName;

/// Keeps the merged ConfigMap up to date.
pub(crate) struct RegistryCaController {
    client: Client,
    events: Events,
    health: Health,
    /// Reported refused entries, and the missing ConfigMap.
    reported: BTreeSet<Refused>,
    missing: Option<String>,
}

/// The objects as last read.
struct RegistryCaObjects {
    image: Option<ImageConfig>,
    administrators: Option<ConfigMap>,
    operators: Option<ConfigMap>,
    merged: Option<StoredMap>,
}

impl RegistryCaController {
    /// Creates a controller that has not looked yet. `identity` is this process' name in events.
    pub(crate) fn new(client: Client, identity: &str, health: Health) -> Self {
        let events = Events::new(client.clone(), identity);
        Self { client, events, health, reported: BTreeSet::new(), missing: None }
    }

    /// Runs forever. Returns the error that ended it.
    pub(crate) async fn run(self) -> ControlError {
        let (client, health) = (self.client.clone(), self.health.clone());
        runtime::run(self, &client, &health).await
    }

    async fn observe(&self) -> Result<RegistryCaObjects, ControlError> {
        let found = read_custom(&self.client, &image_object(), &images()).await?;
        let image = found.map(|object| image(object.data)).transpose()?;
        let map = async |namespace, name| {
            read::<StoredMap>(&self.client, &ObjectName::config_map(namespace, name)).await
        };
        let administrators = match image.as_ref().map(ImageConfig::additional_trusted_ca) {
            None | Some("") => None,
            Some(name) => map(ADMINISTRATOR_NAMESPACE, name).await?,
        };
        Ok(RegistryCaObjects {
            administrators: administrators.as_ref().map(config_map),
            operators: map(MANAGED_NAMESPACE, OPERATOR_MAP).await?.as_ref().map(config_map),
            merged: map(MANAGED_NAMESPACE, MERGED_MAP).await?,
            image,
        })
    }

    /// Reports that the merged ConfigMap was written.
    async fn report_written(&self, merged: &ObjectName, registries: usize) {
        tracing::info!(registries, "wrote the merged ConfigMap of registry CAs");
        let note = format!("merged the CAs of {registries} registries");
        self.events.publish(EventType::Normal, "merged", merged, &note).await;
    }

    /// Reports each refused entry, and a missing ConfigMap, once.
    async fn report(&mut self, planned: MergePlan) {
        let refused: BTreeSet<Refused> = planned.refused.into_iter().collect();
        let mut counts: BTreeMap<&'static str, i64> = BTreeMap::new();
        for entry in &refused {
            *counts.entry(entry.reason.label()).or_default() += 1;
        }
        self.health.metrics.registry_ca_refused(&counts);
        for entry in refused.difference(&self.reported) {
            tracing::error!(
                place = entry.place,
                reason = %entry,
                fix = "correct or remove this key of the ConfigMap",
                "refused a registry CA"
            );
            let path = entry.place.trim_start_matches("ConfigMap ");
            let (namespace, name) = path.split_once('/').unwrap_or((MANAGED_NAMESPACE, path));
            let object = ObjectName::config_map(namespace, name);
            let reason = entry.reason.label();
            self.events.publish(EventType::Warning, reason, &object, &entry.to_string()).await;
        }
        for entry in self.reported.difference(&refused) {
            tracing::info!(place = entry.place, key = entry.key, "registry CA is valid again");
        }
        self.reported = refused;
        if planned.missing != self.missing {
            if let Some(name) = &planned.missing {
                let reason = "not found, although Image cluster names it; its last registry CAs remain in use";
                let object = ObjectName::config_map(ADMINISTRATOR_NAMESPACE, name);
                tracing::error!(
                    place = %object,
                    fix = "create the ConfigMap, or remove spec.additionalTrustedCA of Image cluster",
                    "ConfigMap of registry CAs not found, keeping its last contents"
                );
                self.events.publish(EventType::Warning, "missing", &object, reason).await;
            }
            self.missing = planned.missing;
        }
    }
}

impl Reconciler for RegistryCaController {
    const SUBJECT: &'static str = "registry CAs";

    fn watched(&self) -> Vec<Watched> {
        let map =
            |namespace, name| Watched::core::<StoredMap>(ObjectName::config_map(namespace, name));
        vec![
            map(MANAGED_NAMESPACE, OPERATOR_MAP),
            map(MANAGED_NAMESPACE, MERGED_MAP),
            // The name can change.
            map(ADMINISTRATOR_NAMESPACE, "*"),
            Watched::custom(image_object(), images()),
        ]
    }

    async fn reconcile(&mut self) -> Result<Requeue, ControlError> {
        let RegistryCaObjects { image, administrators, operators, merged } = self.observe().await?;
        let as_read = merged.as_ref().map(config_map);
        let planned = plan(RegistryCaMaps {
            administrators: Administrators::of(image.as_ref(), |_| administrators.as_ref()),
            operators: operators.as_ref(),
            merged: as_read.as_ref(),
        });
        if let Some(write) = merged_write(&planned.write, merged.as_ref())? {
            match apply::<StoredMap, _>(&self.client, &write).await? {
                Applied::Superseded => return Ok(Requeue::Now),
                Applied::Done => {
                    self.report_written(&write.object, planned.cas.len()).await;
                }
            }
        }
        self.report(planned).await;
        Ok(Requeue::Resync)
    }
}

fn images() -> ApiResource {
    resource("config.openshift.io", "v1", "Image", "images")
}
