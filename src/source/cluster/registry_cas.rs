//! Follows the merged config map of the registries' authorities, and nothing else.

use kube::Client;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use super::Report;
use super::kind::Kind;
use super::watching::{self, Change, Item};
use crate::objects::{ConfigMap, Object};

/// Tells of the config map as it is, `None` where there is none, and of each change, for ever.
///
/// While the API server is away, or the map does not decode, nothing is told. Call it within a
/// runtime.
pub async fn follow_registry_cas(client: Client, mut tell: impl FnMut(Option<&ConfigMap>)) {
    let (sender, mut reports) = mpsc::channel(16);
    let watch = watching::watch(Kind::RegistryCas, client, sender);
    let _watch = AbortOnDropHandle::new(tokio::spawn(watch));
    let mut listed = None;
    let mut is_failing = false;
    while let Some(report) = reports.recv().await {
        let change = match report {
            Report::Change(_, change) => change,
            Report::Failed(_, failure) => {
                if !is_failing {
                    let reason = failure.reason;
                    tracing::error!(reason, "the config map cannot be watched; trying again");
                }
                is_failing = true;
                continue;
            }
            Report::Fetched(..) | Report::FetchFailed(..) | Report::Connectivity(_) => continue,
        };
        match change {
            Change::ListBegins => listed = None,
            Change::Listed(item) => listed = Some(item),
            Change::ListEnds => {
                if is_failing {
                    tracing::info!("the config map is watched again");
                }
                is_failing = false;
                match listed.take() {
                    Some(item) => applied(item, &mut tell),
                    None => tell(None),
                }
            }
            Change::Applied(item) => applied(item, &mut tell),
            Change::Deleted(_) => tell(None),
        }
    }
}

fn applied(item: Item, tell: &mut impl FnMut(Option<&ConfigMap>)) {
    let Some(json) = item.json else { return };
    match Kind::RegistryCas.decode(&json) {
        Ok(Object::ConfigMap(map)) => tell(Some(&map)),
        Ok(_) => {}
        Err(error) => {
            let reason = error.reason();
            tracing::error!(reason, "the config map cannot be read; what was read before stays");
        }
    }
}
