//! Follows the merged config map of the registries' authorities, and nothing else.

use kube::Client;
use model::objects::{ConfigMap, Object};
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use super::kind::Kind;
use super::report::{Change, Item, Report};
use crate::source::cluster::watching;

/// The config map, followed.
#[derive(Debug)]
pub struct RegistryCaMap {
    reports: mpsc::Receiver<Report>,
    _watch: AbortOnDropHandle<()>,
    /// What the list that is being read holds.
    listed: Option<Item>,
    is_failing: bool,
}

impl RegistryCaMap {
    /// Follows the config map from now on. Call it within a runtime.
    #[must_use]
    pub fn new(client: Client) -> Self {
        let (sender, reports) = mpsc::channel(16);
        let watch = tokio::spawn(watching::watch(Kind::RegistryCas, client, sender));
        Self { reports, _watch: AbortOnDropHandle::new(watch), listed: None, is_failing: false }
    }

    /// Waits for the config map as it is, for each change of it, and for what keeps it from being
    /// seen. May be dropped and called again: no change is lost by that.
    pub async fn changed(&mut self) -> MapSeen {
        loop {
            let Some(report) = self.reports.recv().await else {
                // The watch does not end before its reports' receiver.
                return std::future::pending().await;
            };
            match report {
                Report::Change(_, change) => {
                    if let Some(seen) = self.take(change) {
                        return seen;
                    }
                }
                Report::Failed(_, failure) => {
                    let reason = failure.reason;
                    if !std::mem::replace(&mut self.is_failing, true) {
                        tracing::error!(reason, "the config map cannot be watched; trying again");
                    }
                    return MapSeen::Unwatched(reason);
                }
                Report::Secret(..)
                | Report::Fetched(..)
                | Report::FetchFailed(..)
                | Report::Connectivity(_) => {}
            }
        }
    }

    fn take(&mut self, change: Change) -> Option<MapSeen> {
        match change {
            Change::ListBegins => self.listed = None,
            Change::Listed(item) => self.listed = Some(item),
            Change::ListEnds => {
                if std::mem::take(&mut self.is_failing) {
                    tracing::info!("the config map is watched again");
                }
                return self.listed.take().map_or(Some(MapSeen::Absent), |item| MapSeen::of(&item));
            }
            Change::Applied(item) => return MapSeen::of(&item),
            Change::Deleted(_) => return Some(MapSeen::Absent),
        }
        None
    }
}

/// What is seen of the config map.
#[derive(Debug)]
pub enum MapSeen {
    /// It is there.
    Present(ConfigMap),
    /// The API server has none.
    Absent,
    /// It does not decode, for this reason.
    Unreadable(String),
    /// It cannot be watched, for this reason; trying again goes on.
    Unwatched(String),
}

impl MapSeen {
    fn of(item: &Item) -> Option<Self> {
        match Kind::RegistryCas.decode(item.json.as_ref()?) {
            Ok(Object::ConfigMap(map)) => Some(Self::Present(map)),
            Err(error) => {
                let reason = error.defect().reason;
                tracing::error!(
                    reason,
                    "the config map cannot be read; what was read before stays"
                );
                Some(Self::Unreadable(reason))
            }
            Ok(_) => None,
        }
    }
}
