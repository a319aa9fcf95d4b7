//! Machines with names in a cluster, for commands: their objects, from which the controller makes all else.

use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use controllers::NAMESPACE;
use controllers::certificates::managed_name;
use controllers::object_conditions::condition;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kubernetes::client::{self, found, reason};
use kubernetes::seen::ObjectSeen;
use kubernetes::watch::ObjectWatch;
use model::access::approval::{APPROVED_PREFIX, Subject, annotation_of, parse_granted_at};
use model::objects::{
    APPROVED_ANNOTATION, FIRST_BOOT_MACHINE_VERSION, ObjectKind, REARM_ANNOTATION,
};
use serde_json::{Map, Value, json};
use time::OffsetDateTime;
use tokio::time::timeout;

use crate::commands::stores::certificate_texts::date;
use crate::commands::stores::cluster::ClusterStore;

/// Maximum time for the controller to make a token.
const LONGEST: Duration = Duration::from_secs(30);
/// Time after which an approval of an address is removed from its pool, long after its end.
const REMOVED_AFTER: time::Duration = time::Duration::days(1);
const KIND: &str = ObjectKind::FIRST_BOOT_MACHINE.name;

impl ClusterStore {
    /// Creates a machine's object, and waits for its pointer config, which it returns.
    pub(in crate::commands) fn add_machine(&self, name: &str, spec: &Value) -> Result<Vec<u8>> {
        self.runtime.block_on(async {
            self.create(name, spec).await?;
            let ready = timeout(LONGEST, self.until_ready(name)).await;
            let missing = || {
                format!(
                    "{KIND} {NAMESPACE}/{name}: created, and the controller has made no token within {} s; run it with --first-boot-machines",
                    LONGEST.as_secs()
                )
            };
            ready.with_context(missing)??;
            self.pointer(name).await
        })
    }

    /// Has the controller arm a machine's token again.
    pub(in crate::commands) fn rearm_machine(&self, name: &str, value: &str) -> Result<()> {
        let change = json!({"metadata": {"annotations": {REARM_ANNOTATION: value}}});
        let (machines, params) = (self.machines(), PatchParams::default());
        self.write_present(name, machines.patch(name, &params, &Patch::Merge(&change)))
    }

    /// Deletes a machine's object.
    pub(in crate::commands) fn remove_machine(&self, name: &str) -> Result<()> {
        let (machines, params) = (self.machines(), DeleteParams::default());
        self.write_present(name, machines.delete(name, &params))
    }

    /// Makes a write of a machine's object, which must be there.
    fn write_present<T>(
        &self,
        name: &str,
        write: impl Future<Output = kube::Result<T>>,
    ) -> Result<()> {
        let written = found(self.runtime.block_on(write)).map_err(|error| failed(name, &error))?;
        written.map(drop).with_context(|| format!("machine {name} not found"))
    }

    /// Annotates the object that approves a machine, for all servers of the cluster.
    pub(in crate::commands) fn approve_machine(
        &self,
        subject: &Subject,
        now: OffsetDateTime,
    ) -> Result<()> {
        let (api, kind, name) = match subject {
            Subject::Named(name) => (self.machines(), KIND, name),
            Subject::At { pool, .. } => {
                let kind = ObjectKind::MACHINE_CONFIG_POOL;
                (client::api(&self.client, "", kind), kind.name, pool)
            }
        };
        let object = || format!("{kind} {name}");
        let mut annotations = Map::new();
        self.runtime.block_on(async {
            match subject {
                Subject::Named(_) => {
                    annotations.insert(APPROVED_ANNOTATION.to_owned(), date(now)?.into());
                }
                Subject::At { address, .. } => {
                    let known = api.get_metadata(name).await.with_context(object)?;
                    let known = known.metadata.annotations.unwrap_or_default();
                    let old = known.iter().filter(|(key, value)| is_old(key, value, now));
                    annotations.extend(old.map(|(key, _)| (key.clone(), Value::Null)));
                    annotations.insert(annotation_of(*address), date(now)?.into());
                }
            }
            let annotate = async |annotations: Map<String, Value>| {
                let patch = json!({"metadata": {"annotations": annotations}});
                let params = PatchParams::default();
                api.patch_metadata(name, &params, &Patch::Merge(patch)).await.with_context(object)
            };
            let created = annotate(annotations).await?.metadata.creation_timestamp;
            let created = created.map_or(now.unix_timestamp(), |it| it.0.as_second());
            // An approval from before the object was created has no effect: this machine's clock is behind.
            if matches!(subject, Subject::Named(_)) && now.unix_timestamp() < created {
                let created = date(OffsetDateTime::from_unix_timestamp(created)?)?;
                annotate(Map::from_iter([(APPROVED_ANNOTATION.to_owned(), created.into())]))
                    .await?;
            }
            Ok(())
        })
    }

    fn machines(&self) -> Api<DynamicObject> {
        client::api(&self.client, NAMESPACE, ObjectKind::FIRST_BOOT_MACHINE)
    }

    async fn create(&self, name: &str, spec: &Value) -> Result<()> {
        let object = json!({
            "apiVersion": FIRST_BOOT_MACHINE_VERSION, "kind": KIND,
            "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec,
        });
        let object: DynamicObject = serde_json::from_value(object)?;
        match self.machines().create(&PostParams::default(), &object).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 409 => {
                bail!("{KIND} {NAMESPACE}/{name}: the machine exists already")
            }
            Err(kube::Error::Api(status)) if status.code == 404 => {
                bail!(
                    "the cluster has no {KIND}s: apply deploy/components/first-boot-machines first"
                )
            }
            Err(error) => Err(failed(name, &error)),
        }
    }

    async fn until_ready(&self, name: &str) -> Result<()> {
        let mut watch = ObjectWatch::new(self.machines(), name);
        loop {
            let object = match watch.next().await {
                ObjectSeen::Present(object) => object,
                ObjectSeen::Absent => bail!("{KIND} {NAMESPACE}/{name}: was removed"),
                ObjectSeen::Failed(failure) => {
                    bail!("{KIND} {NAMESPACE}/{name}: {}", failure.reason)
                }
            };
            match condition(&object.data, "Ready") {
                Some(ready) if ready["status"] == "True" => return Ok(()),
                Some(ready) => {
                    let message = ready["message"].as_str().unwrap_or_default();
                    bail!("{KIND} {NAMESPACE}/{name}: created, and has no token: {message}")
                }
                None => {}
            }
        }
    }

    async fn pointer(&self, name: &str) -> Result<Vec<u8>> {
        let secrets = Api::<Secret>::namespaced(self.client.clone(), NAMESPACE);
        let secret = managed_name(name);
        let read = secrets.get(&secret).await;
        let read =
            read.map_err(|error| anyhow!("Secret {NAMESPACE}/{secret}: {}", reason(&error)))?;
        let text = read.data.and_then(|mut data| data.remove("userData"));
        text.map(|text| text.0)
            .with_context(|| format!("Secret {NAMESPACE}/{secret}: has no userData"))
    }
}

/// True for an approval of an address that ended long ago.
fn is_old(key: &str, value: &str, now: OffsetDateTime) -> bool {
    let at = parse_granted_at(value);
    key.starts_with(APPROVED_PREFIX) && at.is_ok_and(|at| now - at > REMOVED_AFTER)
}

fn failed(name: &str, error: &kube::Error) -> anyhow::Error {
    anyhow!("{KIND} {NAMESPACE}/{name}: {}", reason(error))
}
