//! Publishes Kubernetes Events, which `kubectl describe` shows.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};

use super::write::ObjectName;

/// Maximum length of a note in bytes.
const MAX_BYTES: usize = 1024;

pub struct Events {
    client: Client,
    reporter: Reporter,
}

impl Events {
    /// Creates a publisher; `identity` is the name of this process.
    pub fn new(client: Client, identity: &str) -> Self {
        let reporter = Reporter {
            controller: "machine-config-server".to_owned(),
            instance: Some(identity.to_owned()),
        };
        Self { client, reporter }
    }

    /// Publishes an event about an object. A failure is only logged.
    pub async fn publish(&self, type_: EventType, reason: &str, object: &ObjectName, note: &str) {
        self.publish_about(type_, reason, &object.reference(""), note).await;
    }

    /// Publishes an event about an object with its UID. One of the whole cluster has its events in the namespace `default`.
    pub async fn publish_about(
        &self,
        type_: EventType,
        reason: &str,
        object: &ObjectReference,
        note: &str,
    ) {
        let event = Event {
            type_,
            reason: camel_case(reason),
            note: Some(shortened(note)),
            action: "Reconcile".to_owned(),
            secondary: None,
        };
        // A new recorder for each event: one recorder merges events with the same reason, even if their notes differ.
        let recorder = Recorder::new(self.client.clone(), self.reporter.clone());
        if let Err(error) = recorder.publish(&event, object).await {
            tracing::debug!(%error, "cannot publish an event");
        }
    }
}

/// Cuts a note to the length that the API server accepts.
fn shortened(note: &str) -> String {
    if note.len() <= MAX_BYTES {
        return note.to_owned();
    }
    let end = "...";
    let begins = note.char_indices().map(|(index, _)| index);
    let kept = begins.take_while(|index| *index <= MAX_BYTES - end.len()).last();
    format!("{}{end}", &note[..kept.unwrap_or_default()])
}

/// Converts `newer-authority` to `NewerAuthority`, the form of reasons in Events.
fn camel_case(word: &str) -> String {
    word.split('-')
        .map(|part| {
            let mut letters = part.chars();
            let first = letters.next().map(|letter| letter.to_ascii_uppercase());
            first.into_iter().chain(letters).collect::<String>()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_as_long_as_it_may_be() {
        let fits = "x".repeat(MAX_BYTES);
        assert_eq!(shortened(&fits), fits);
        let many = "\u{e4}".repeat(MAX_BYTES);
        let short = shortened(&many);
        assert!(short.len() <= MAX_BYTES && short.len() > MAX_BYTES - 5);
        assert!(short.ends_with("\u{e4}..."));
    }
}
