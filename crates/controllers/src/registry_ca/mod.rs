//! Manages the merged ConfigMap of registry CAs.

mod objects;

use std::collections::{BTreeMap, BTreeSet};

use common::reconcile::Requeue;
use k8s_openapi::api::core::v1::ConfigMap as StoredMap;
use kube::Client;
use kube::runtime::events::EventType;
use kubernetes::ControlError;
use kubernetes::Health;
use kubernetes::apply::{Applied, apply, read, read_custom};
use kubernetes::events::Events;
use kubernetes::write::ObjectName;
use model::registry_ca::{
    ADMINISTRATOR_NAMESPACE, Administrators, MANAGED_NAMESPACE, MERGED_MAP, MergePlan,
    OPERATOR_MAP, Refused, RegistryCaMaps, plan,
};

use self::objects::{config_map, image, image_object, merged_write};
use super::runtime::Reconciler;

pub struct RegistryCaController {
    client: Client,
    events: Events,
    health: Health,
    /// Reported refused entries, and the missing ConfigMap.
    reported: BTreeSet<Refused>,
    missing: Option<String>,
}

impl RegistryCaController {
    /// Creates a controller that has not looked yet. `identity` is this process' name in events.
    pub fn new(client: Client, identity: &str, health: Health) -> Self {
        let events = Events::new(client.clone(), identity);
        Self { client, events, health, reported: BTreeSet::new(), missing: None }
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

    fn watched(&self) -> Vec<ObjectName> {
        vec![
            ObjectName::config_map(MANAGED_NAMESPACE, OPERATOR_MAP),
            ObjectName::config_map(MANAGED_NAMESPACE, MERGED_MAP),
            // The name can change.
            ObjectName::config_map(ADMINISTRATOR_NAMESPACE, "*"),
            image_object(),
        ]
    }

    async fn reconcile(&mut self) -> Result<Requeue, ControlError> {
        let found = read_custom(&self.client, &image_object()).await?;
        let image = found.map(|object| image(object.data)).transpose()?;
        let map = async |namespace, name| {
            read::<StoredMap>(&self.client, &ObjectName::config_map(namespace, name)).await
        };
        let named = image.as_ref().map(|it| it.spec.additional_trusted_ca.name.as_str());
        let administrators = match named {
            None | Some("") => None,
            Some(name) => map(ADMINISTRATOR_NAMESPACE, name).await?,
        };
        let operators = map(MANAGED_NAMESPACE, OPERATOR_MAP).await?;
        let merged = map(MANAGED_NAMESPACE, MERGED_MAP).await?;
        let [administrators, operators, as_read] =
            [&administrators, &operators, &merged].map(|map| map.as_ref().map(config_map));
        let planned = plan(RegistryCaMaps {
            administrators: Administrators::of(image.as_ref(), |_| administrators.as_ref()),
            operators: operators.as_ref(),
            merged: as_read.as_ref(),
        });
        if let Some(write) = merged_write(&planned.write, merged.as_ref())? {
            match apply::<StoredMap, _>(&self.client, &write).await? {
                Applied::Superseded => return Ok(Requeue::Now),
                Applied::Done => {
                    let registries = planned.cas.len();
                    tracing::info!(registries, "wrote the merged ConfigMap of registry CAs");
                    let note = format!("merged the CAs of {registries} registries");
                    self.events.publish(EventType::Normal, "merged", &write.object, &note).await;
                }
            }
        }
        self.report(planned).await;
        Ok(Requeue::Resync)
    }
}
