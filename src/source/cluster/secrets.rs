//! The secrets with registry logins: watched by their names, which flags and pools give, and apart from
//! the kinds that a server always watches.
//!
//! What is in one is read here and handed on as logins; it is never kept on disk with the rest.

use std::time::Duration;

use futures_util::{StreamExt as _, pin_mut};
use k8s_openapi::api::core::v1;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt as _};
use model::objects::SecretName;
use model::objects::{Metadata, Secret};
use tokio::sync::mpsc;

use super::report::{Failure, Report};
use crate::backoff::Backoff;
use crate::source::cluster::watching::failure;
use crate::source::secret_seen::SecretSeen;

/// How long the API server is asked to keep a watch open.
const WATCH_SECONDS: u32 = 60;
/// The waits after failures.
const FIRST_WAIT: Duration = Duration::from_millis(200);
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// Reports what `name` holds, and each change of it, until nobody receives reports any more.
pub(super) async fn watch(name: SecretName, client: Client, reports: mpsc::Sender<Report>) {
    let mut backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT);
    let secrets = Api::<v1::Secret>::namespaced(client, &name.namespace);
    loop {
        let config = watcher::Config::default().timeout(WATCH_SECONDS);
        let events =
            watcher(secrets.clone(), config.fields(&format!("metadata.name={}", name.name)));
        pin_mut!(events);
        let mut listed = None;
        while let Some(event) = events.next().await {
            let mut is_failed = false;
            let seen = match event {
                Ok(Event::Init) => {
                    listed = None;
                    continue;
                }
                Ok(Event::InitApply(secret)) => {
                    listed = Some(secret);
                    continue;
                }
                Ok(Event::InitDone) => {
                    backoff.reset();
                    listed.take().map_or(SecretSeen::Absent, |it| SecretSeen::Present(read(it)))
                }
                Ok(Event::Apply(secret)) => SecretSeen::Present(read(secret)),
                Ok(Event::Delete(_)) => SecretSeen::Absent,
                Err(error) => {
                    is_failed = true;
                    let Failure { reason, is_forbidden, .. } = failure(&error);
                    SecretSeen::Unwatched { reason, is_forbidden }
                }
            };
            if reports.send(Report::Secret(name.clone(), seen)).await.is_err() {
                return;
            }
            if is_failed {
                break;
            }
        }
        tokio::time::sleep(backoff.next()).await;
    }
}

fn read(secret: v1::Secret) -> Secret {
    let metadata =
        Metadata { name: secret.name_any(), namespace: secret.namespace().unwrap_or_default() };
    let data = secret.data.unwrap_or_default().into_iter();
    Secret::new(metadata, data.map(|(key, value)| (key, value.0)).collect())
}
