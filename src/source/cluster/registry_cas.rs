//! Follows the merged config map of the registries' authorities, and nothing else.

use kube::Client;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use super::kind::Kind;
use super::report::{Change, Item, Report};
use super::watching;
use crate::objects::{ConfigMap, Object};

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

    /// Waits for the config map as it is, and for each change of it; `None` where there is none.
    ///
    /// While the API server is away, or the map does not decode, there is nothing to tell. May be
    /// dropped and called again: no change is lost by that.
    pub async fn changed(&mut self) -> Option<ConfigMap> {
        loop {
            let Some(report) = self.reports.recv().await else {
                // The watch does not end before its reports' receiver.
                return std::future::pending().await;
            };
            match report {
                Report::Change(_, change) => match self.take(change) {
                    State::Present(map) => return Some(map),
                    State::Absent => return None,
                    State::Unknown => {}
                },
                Report::Failed(_, failure) => {
                    if !std::mem::replace(&mut self.is_failing, true) {
                        let reason = failure.reason;
                        tracing::error!(reason, "the config map cannot be watched; trying again");
                    }
                }
                Report::Fetched(..) | Report::FetchFailed(..) | Report::Connectivity(_) => {}
            }
        }
    }

    fn take(&mut self, change: Change) -> State {
        match change {
            Change::ListBegins => self.listed = None,
            Change::Listed(item) => self.listed = Some(item),
            Change::ListEnds => {
                if std::mem::take(&mut self.is_failing) {
                    tracing::info!("the config map is watched again");
                }
                return self.listed.take().map_or(State::Absent, |item| State::of(&item));
            }
            Change::Applied(item) => return State::of(&item),
            Change::Deleted(_) => return State::Absent,
        }
        State::Unknown
    }
}

/// What a change tells of the config map.
enum State {
    Present(ConfigMap),
    Absent,
    /// Nothing, or nothing that is understood.
    Unknown,
}

impl State {
    fn of(item: &Item) -> Self {
        match item.json.as_ref().map(|json| Kind::RegistryCas.decode(json)) {
            Some(Ok(Object::ConfigMap(map))) => Self::Present(map),
            Some(Err(error)) => {
                let reason = error.reason();
                tracing::error!(
                    reason,
                    "the config map cannot be read; what was read before stays"
                );
                Self::Unknown
            }
            _ => Self::Unknown,
        }
    }
}
