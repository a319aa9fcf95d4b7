//! Reads of the objects that choose a pool's config, on request: watches can lag, and a server does not notice.
//!
//! Each read has a new connection: one that is open may be what hangs.

use std::path::PathBuf;
use std::time::Duration;

use kube::Client;
use kube::api::ListParams;
use kubernetes::client::{self, found, reason};
use tokio::sync::mpsc;

use super::kind::{Kind, RawObject};
use super::report::{LiveList, LiveRequest, Report, WatchedObject};

/// Kinds that choose a pool's MachineConfig and its image.
const KINDS: [Kind; 3] = [Kind::MachineConfigPool, Kind::MachineOsConfig, Kind::MachineOsBuild];
const TIMEOUT: Duration = Duration::from_secs(2);

/// Lists the objects as the API server stores them, and reports them.
pub(super) async fn read(
    kubeconfig: Option<PathBuf>,
    request: LiveRequest,
    reports: mpsc::Sender<Report>,
) {
    let read = tokio::time::timeout(TIMEOUT, lists(kubeconfig)).await;
    let read = read.unwrap_or_else(|_| Err(format!("no answer within {} s", TIMEOUT.as_secs())));
    // The receiver is gone when the server ends.
    let _ = reports.send(Report::Live(read, request)).await;
}

async fn lists(kubeconfig: Option<PathBuf>) -> Result<Vec<LiveList>, String> {
    let client = client::connect(kubeconfig).await.map_err(|error| error.to_string())?;
    let mut lists = Vec::new();
    for kind in KINDS {
        lists.extend(list(kind, &client).await.map_err(|error| reason(&error))?);
    }
    Ok(lists)
}

/// Lists a kind, without a resource version: the answer is not from the API server's cache.
async fn list(kind: Kind, client: &Client) -> kube::Result<Option<LiveList>> {
    let listed = found(kind.api::<RawObject>(client).list(&ListParams::default()).await)?;
    Ok(listed.map(|list| LiveList {
        kind,
        version: list.metadata.resource_version.unwrap_or_default(),
        items: list.items.into_iter().map(WatchedObject::from).collect(),
    }))
}
