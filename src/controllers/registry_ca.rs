//! The merged config map of the image registries' certificate authorities, kept current.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap as Map;
use kube::api::{ObjectMeta, PostParams};
use kube::runtime::events::EventType;
use kube::runtime::watcher;
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::events::Events;
use super::{
    ControlError, ControllerMetrics, FIRST_WAIT, LONGEST_WAIT, QUIET, RESYNC, api_error, resource,
    wake_on_change,
};
use crate::objects::{ConfigMap, ImageConfig};
use crate::registry_ca::{
    ADMINISTRATOR_NAMESPACE, Administrators, Contents, MANAGED_NAMESPACE, MERGED_MAP, MergePlan,
    OPERATOR_MAP, Refused, RegistryCaMaps, Write, plan,
};

/// Keeps the merged config map current.
pub struct RegistryCas {
    client: Client,
    events: Events,
    metrics: Arc<ControllerMetrics>,
    /// What was told already: entries that are refused, and a map that is missing.
    told: BTreeSet<Refused>,
    missing: Option<String>,
}

/// The config maps, as they were read last.
#[derive(Default)]
struct Maps {
    image: Option<ImageConfig>,
    administrators: Option<ConfigMap>,
    operators: Option<ConfigMap>,
    merged: Option<Map>,
}

impl RegistryCas {
    /// One that has not looked yet. `identity` is this process' name.
    #[must_use]
    pub fn new(client: Client, identity: &str, metrics: Arc<ControllerMetrics>) -> Self {
        let events = Events::new(client.clone(), identity);
        Self { client, events, metrics, told: BTreeSet::new(), missing: None }
    }

    /// Keeps the map current for ever.
    pub async fn run(mut self) {
        let (wake, mut wakes) = mpsc::channel(1);
        let mut watches = JoinSet::new();
        self.watch(&mut watches, &wake);
        let mut wait = FIRST_WAIT;
        loop {
            let next = match self.reconcile().await {
                Ok(()) => {
                    wait = FIRST_WAIT;
                    RESYNC
                }
                // Somebody else's write came first.
                Err(error) if error.is_conflict() => QUIET,
                Err(error) => {
                    self.metrics.failures.inc();
                    tracing::error!(%error, "the registries' CAs are not merged; trying again");
                    let next = wait;
                    wait = LONGEST_WAIT.min(wait * 2);
                    next
                }
            };
            // Whoever wakes it is there as long as the watches are.
            let _ = tokio::time::timeout_at(Instant::now() + next, wakes.recv()).await;
            tokio::time::sleep(QUIET).await;
            while wakes.try_recv().is_ok() {}
        }
    }

    async fn reconcile(&mut self) -> Result<(), ControlError> {
        let maps = self.observe().await?;
        let merged = maps.merged.as_ref().and_then(read);
        let planned = plan(RegistryCaMaps {
            administrators: Administrators::of(maps.image.as_ref(), |_| {
                maps.administrators.as_ref()
            }),
            operators: maps.operators.as_ref(),
            merged: merged.as_ref(),
        });
        self.write(&planned, maps.merged).await?;
        self.tell(planned).await;
        Ok(())
    }

    async fn observe(&self) -> Result<Maps, ControlError> {
        let images: Api<kube::api::DynamicObject> =
            Api::all_with(self.client.clone(), &resource("config.openshift.io", "Image", "images"));
        let image = images.get_opt("cluster").await.map_err(api_error("Image cluster"))?;
        let image: Option<ImageConfig> =
            image.and_then(|object| serde_json::from_value(object.data).ok());
        let get = async |namespace: &str, name: &str| {
            let maps: Api<Map> = Api::namespaced(self.client.clone(), namespace);
            let what = format!("ConfigMap {namespace}/{name}");
            maps.get_opt(name).await.map_err(api_error(what))
        };
        let named = image.as_ref().map(ImageConfig::additional_trusted_ca).unwrap_or_default();
        let administrators =
            if named.is_empty() { None } else { get(ADMINISTRATOR_NAMESPACE, named).await? };
        Ok(Maps {
            administrators: administrators.as_ref().and_then(read),
            operators: get(MANAGED_NAMESPACE, OPERATOR_MAP).await?.as_ref().and_then(read),
            merged: get(MANAGED_NAMESPACE, MERGED_MAP).await?,
            image,
        })
    }

    async fn write(&self, planned: &MergePlan, merged: Option<Map>) -> Result<(), ControlError> {
        let maps: Api<Map> = Api::namespaced(self.client.clone(), MANAGED_NAMESPACE);
        let failed = || api_error(format!("ConfigMap {MANAGED_NAMESPACE}/{MERGED_MAP}"));
        let params = PostParams::default();
        match &planned.write {
            Write::Nothing => return Ok(()),
            Write::Create(contents) => {
                let map = with_contents(
                    Map {
                        metadata: ObjectMeta {
                            name: Some(MERGED_MAP.to_owned()),
                            ..ObjectMeta::default()
                        },
                        ..Map::default()
                    },
                    contents,
                );
                maps.create(&params, &map).await.map_err(failed())?;
            }
            // The version that was read goes along, as does everything that is not its contents.
            Write::Update(contents) => {
                let map = with_contents(merged.unwrap_or_default(), contents);
                maps.replace(MERGED_MAP, &params, &map).await.map_err(failed())?;
            }
        }
        let registries = planned.authorities.len();
        tracing::info!(registries, "wrote the merged config map of registry CAs");
        let note = format!("merged the CAs of {registries} registries");
        let object = ("ConfigMap", MANAGED_NAMESPACE, MERGED_MAP);
        self.events.publish(EventType::Normal, "merged", object, &note).await;
        Ok(())
    }

    /// Tells once of each entry that it is refused, and that a map is missing.
    async fn tell(&mut self, planned: MergePlan) {
        let refused: BTreeSet<Refused> = planned.refused.into_iter().collect();
        let mut counts: BTreeMap<&'static str, i64> = BTreeMap::new();
        for entry in &refused {
            *counts.entry(entry.reason.label()).or_default() += 1;
        }
        self.metrics.registry_ca_refused(&counts);
        for entry in refused.difference(&self.told) {
            tracing::error!(place = entry.place, reason = %entry, "a registry's CA is refused");
            let path = entry.place.trim_start_matches("ConfigMap ");
            let (namespace, name) = path.split_once('/').unwrap_or((MANAGED_NAMESPACE, path));
            let object = ("ConfigMap", namespace, name);
            let reason = entry.reason.label();
            self.events.publish(EventType::Warning, reason, object, &entry.to_string()).await;
        }
        for entry in self.told.difference(&refused) {
            tracing::info!(place = entry.place, key = entry.key, "in order again");
        }
        self.told = refused;
        if planned.missing != self.missing {
            if let Some(name) = &planned.missing {
                let reason = "it is named by Image cluster and is not there; what it held stays";
                tracing::error!(
                    place = format!("ConfigMap {ADMINISTRATOR_NAMESPACE}/{name}"),
                    reason
                );
                let object = ("ConfigMap", ADMINISTRATOR_NAMESPACE, name.as_str());
                self.events.publish(EventType::Warning, "missing", object, reason).await;
            }
            self.missing = planned.missing;
        }
    }

    fn watch(&self, watches: &mut JoinSet<()>, wake: &mpsc::Sender<()>) {
        let maps = |namespace: &str| {
            Api::<kube::core::PartialObjectMeta<Map>>::namespaced(self.client.clone(), namespace)
        };
        let only = |name: &str| watcher::Config::default().fields(&format!("metadata.name={name}"));
        for name in [OPERATOR_MAP, MERGED_MAP] {
            watches.spawn(wake_on_change(maps(MANAGED_NAMESPACE), only(name), wake.clone()));
        }
        // Which one it is may change.
        let all = watcher::Config::default();
        watches.spawn(wake_on_change(maps(ADMINISTRATOR_NAMESPACE), all, wake.clone()));
        let images: Api<kube::api::DynamicObject> =
            Api::all_with(self.client.clone(), &resource("config.openshift.io", "Image", "images"));
        watches.spawn(wake_on_change(images, only("cluster"), wake.clone()));
    }
}

/// A config map as the rules read it. What the API server has stored can be read.
fn read(map: &Map) -> Option<ConfigMap> {
    serde_json::to_value(map).and_then(serde_json::from_value).ok()
}

fn with_contents(map: Map, contents: &Contents) -> Map {
    let contents: Value = json!(contents);
    let read: Map = serde_json::from_value(contents).unwrap_or_default();
    Map { data: read.data, binary_data: read.binary_data, ..map }
}
