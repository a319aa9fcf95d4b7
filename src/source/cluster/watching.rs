//! One watch: a list, then every change, for as long as the server runs.
//!
//! Lists, resumption, expired versions and stalled connections are the library's work; here is
//! what is made of it: changes and failures as values, and the wait before the next try.

use std::time::Duration;

use futures_util::{StreamExt as _, pin_mut};
use kube::core::{ApiResource, DynamicResourceScope, PartialObjectMeta};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;

use super::client::reason;
use crate::backoff::Backoff;
use crate::source::cluster::kind::{Kind, Raw};
use crate::source::cluster::report::{Change, Failure, Item, Report};

/// How long the API server is asked to keep a watch open. What breaks a connection without telling
/// either side goes unnoticed no longer than this.
const WATCH_SECONDS: u32 = 60;
/// Objects a page of a list: bounds the memory that a list takes.
const PAGE: u32 = 50;
/// The waits after failures.
const FIRST_WAIT: Duration = Duration::from_millis(200);
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// Reports what happens to the objects of `kind`, until nobody receives reports any more.
///
/// After a failure everything is listed anew, so that the end of a list tells that all is well.
pub(super) async fn watch(kind: Kind, client: Client, reports: mpsc::Sender<Report>) {
    let mut backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT);
    loop {
        let ended = if kind == Kind::MachineConfig {
            watch_once(kind, &client, &reports, |object: PartialObjectMeta<Raw>| Item {
                name: object.name_any(),
                version: object.resource_version().unwrap_or_default(),
                json: None,
            })
            .await
        } else {
            watch_once(kind, &client, &reports, |object: Raw| object.into()).await
        };
        let Ended::Failed { after_list } = ended else { return };
        if after_list {
            backoff.reset();
        }
        tokio::time::sleep(backoff.next()).await;
    }
}

enum Ended {
    /// Nobody receives reports any more.
    Unheard,
    Failed {
        /// Whether a list was read to its end before.
        after_list: bool,
    },
}

async fn watch_once<K>(
    kind: Kind,
    client: &Client,
    reports: &mpsc::Sender<Report>,
    item: impl Fn(K) -> Item,
) -> Ended
where
    K: Resource<DynamicType = ApiResource, Scope = DynamicResourceScope>,
    K: Clone + std::fmt::Debug + DeserializeOwned + Send + 'static,
{
    let mut config = watcher::Config::default().timeout(WATCH_SECONDS).page_size(PAGE);
    if let Some(name) = kind.only() {
        config = config.fields(&format!("metadata.name={name}"));
    }
    let events = watcher(kind.api::<K>(client), config);
    pin_mut!(events);
    let mut after_list = false;
    while let Some(event) = events.next().await {
        let change = match event {
            Ok(Event::Init) => Change::ListBegins,
            Ok(Event::InitApply(object)) => Change::Listed(item(object)),
            Ok(Event::InitDone) => Change::ListEnds,
            Ok(Event::Apply(object)) => Change::Applied(item(object)),
            Ok(Event::Delete(object)) => Change::Deleted(object.name_any()),
            Err(error) => {
                let failed = Report::Failed(kind, failure(&error));
                let heard = reports.send(failed).await.is_ok();
                return if heard { Ended::Failed { after_list } } else { Ended::Unheard };
            }
        };
        after_list = after_list || matches!(change, Change::ListEnds);
        if reports.send(Report::Change(kind, change)).await.is_err() {
            return Ended::Unheard;
        }
    }
    Ended::Failed { after_list }
}

pub(super) fn failure(error: &watcher::Error) -> Failure {
    let status = match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status))
        | watcher::Error::WatchError(status) => Some(status),
        _ => None,
    };
    Failure {
        reason: status.map_or_else(|| reason(error), |status| status.message.clone()),
        is_absent: status.is_some_and(|status| status.code == 404),
        is_forbidden: status.is_some_and(|status| status.code == 403),
    }
}
