//! Kubernetes Events: what an administrator sees with `kubectl describe`.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};

use super::write::ObjectName;

/// Publishes events of this process.
pub(super) struct Events(Recorder);

impl Events {
    /// `identity` is this process' name.
    pub(super) fn new(client: Client, identity: &str) -> Self {
        let reporter = Reporter {
            controller: "machine-config-server".to_owned(),
            instance: Some(identity.to_owned()),
        };
        Self(Recorder::new(client, reporter))
    }

    /// Publishes an event about an object of the core API. That it does not arrive is no reason to
    /// stop.
    pub(super) async fn publish(
        &self,
        type_: EventType,
        reason: &str,
        object: &ObjectName,
        note: &str,
    ) {
        let event = Event {
            type_,
            reason: camel_case(reason),
            note: Some(note.to_owned()),
            action: "Reconcile".to_owned(),
            secondary: None,
        };
        let object = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some(object.kind.to_owned()),
            name: Some(object.name.clone()),
            namespace: Some(object.namespace.clone()),
            ..ObjectReference::default()
        };
        if let Err(error) = self.0.publish(&event, &object).await {
            tracing::debug!(%error, "an event was not published");
        }
    }
}

/// `newer-authority` as `NewerAuthority`, which is how events' reasons are written.
fn camel_case(word: &str) -> String {
    word.split('-')
        .map(|part| {
            let mut letters = part.chars();
            let first = letters.next().map(|letter| letter.to_ascii_uppercase());
            first.into_iter().chain(letters).collect::<String>()
        })
        .collect()
}
