//! Follows single Secrets by name.
//!
//! Their values are never cached on disk.

use k8s_openapi::api::core::v1;
use kube::{Api, Client, ResourceExt as _};
use kubernetes::seen::ObjectSeen;
use kubernetes::watch::ObjectWatch;
use model::objects::{Metadata, Secret, SecretName};
use tokio::sync::mpsc;

use super::report::Report;

pub struct NamedSecret {
    name: SecretName,
    watch: ObjectWatch<v1::Secret>,
}

impl NamedSecret {
    /// Creates a watch, which runs while [`Self::changed`] is awaited.
    pub fn new(client: Client, name: SecretName) -> Self {
        let secrets = Api::namespaced(client, &name.namespace);
        Self { watch: ObjectWatch::new(secrets, &name.name), name }
    }

    pub fn name(&self) -> &SecretName {
        &self.name
    }

    /// Waits for the Secret's present state, for each change, and for failures. It is cancel safe: no change is lost.
    pub async fn changed(&mut self) -> ObjectSeen<Secret> {
        self.watch.next().await.map(read)
    }
}

/// Reports the contents of `name` and each change, until the receiver is gone.
pub(super) async fn watch(name: SecretName, client: Client, reports: mpsc::Sender<Report>) {
    let mut secret = NamedSecret::new(client, name.clone());
    loop {
        let report = Report::Secret(name.clone(), secret.changed().await);
        if reports.send(report).await.is_err() {
            return;
        }
    }
}

fn read(secret: v1::Secret) -> Secret {
    let metadata =
        Metadata { name: secret.name_any(), namespace: secret.namespace().unwrap_or_default() };
    let data = secret.data.unwrap_or_default().into_iter();
    Secret::new(metadata, data.map(|(key, value)| (key, value.0)).collect())
}
