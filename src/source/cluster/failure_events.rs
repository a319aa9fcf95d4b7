//! Publishes reports of failed first boots as Events of their pools, where the service account is allowed to.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{DynamicObject, ListParams};
use kube::core::PartialObjectMeta;
use kube::runtime::events::EventType;
use kube::{Api, Client};
use kubernetes::ObjectName;
use kubernetes::events::Events;
use model::escape::escaped;
use model::ledger::FailureReport;
use tokio::sync::mpsc;

use super::kind::Kind;

/// Publishes each report of a machine of an existing pool, until the sender is gone. A failure is only logged.
pub(crate) async fn publish(
    client: Client,
    identity: String,
    mut reports: mpsc::Receiver<FailureReport>,
) {
    let pools = Kind::MachineConfigPool.api(&client);
    let events = Events::new(client, &identity);
    while let Some(FailureReport { pool, node, stage, image, message }) = reports.recv().await {
        let Some(found) = find(&pools, &pool).await else { continue };
        let object = ObjectName::pool(&pool);
        let object = object.reference(found.uid.as_deref().unwrap_or_default());
        let of = if image.is_empty() { String::new() } else { format!(" (image: {image})") };
        let note = format!(
            "node {node} reports that its first boot failed at stage {stage:?}: {message}{of}"
        );
        let note = escaped(&note);
        events.publish_about(EventType::Warning, "firstboot-failed", &object, &note).await;
    }
}

/// Metadata of the pool, whose name is a client's word. The server can list pools, and not get one.
async fn find(pools: &Api<PartialObjectMeta<DynamicObject>>, name: &str) -> Option<ObjectMeta> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.');
    if name.is_empty() || !name.chars().all(is_name) {
        return None;
    }
    let named = ListParams::default().fields(&format!("metadata.name={name}"));
    let found = pools.list_metadata(&named).await.ok()?.items.into_iter().next()?;
    Some(found.metadata)
}
