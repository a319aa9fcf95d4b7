//! Secrets that are followed by their names, apart from the kinds that a server always watches.
//!
//! What is in one is read here and handed on; it is never kept on disk with the rest.

use k8s_openapi::api::core::v1;
use kube::{Api, Client, ResourceExt as _};
use model::objects::{Metadata, Secret, SecretName};
use tokio::sync::mpsc;

use super::report::Report;
use crate::kubernetes::watch::{Cause, ObjectSeen, ObjectWatch};
use crate::source::secret_seen::SecretSeen;

/// A secret that is followed.
pub struct NamedSecret {
    name: SecretName,
    watch: ObjectWatch<v1::Secret>,
}

impl NamedSecret {
    /// The secret of this name. It is followed while somebody waits for what changes.
    #[must_use]
    pub fn new(client: Client, name: SecretName) -> Self {
        let secrets = Api::namespaced(client, &name.namespace);
        Self { watch: ObjectWatch::new(secrets, &name.name), name }
    }

    /// Which secret it is.
    #[must_use]
    pub fn name(&self) -> &SecretName {
        &self.name
    }

    /// Waits for the secret as it is, for each change of it, and for what keeps it from being seen.
    /// May be dropped and called again: no change is lost by that.
    pub async fn changed(&mut self) -> SecretSeen {
        match self.watch.next().await {
            ObjectSeen::Present(secret) => SecretSeen::Present(read(secret)),
            ObjectSeen::Absent => SecretSeen::Absent,
            ObjectSeen::Failed(failure) => SecretSeen::Unwatched {
                reason: failure.reason,
                is_forbidden: failure.cause == Cause::Forbidden,
            },
        }
    }
}

/// Reports what `name` holds, and each change of it, until nobody receives reports any more.
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
