//! The watches of the kinds, as reports.

use kube::core::{ApiResource, DynamicResourceScope, PartialObjectMeta};
use kube::runtime::watcher::Event;
use kube::{Client, Resource, ResourceExt as _};
use kubernetes::watch::{Watch, WatchEvent};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;

use super::kind::{Kind, RawObject};
use super::report::{Change, Report, WatchedObject};

/// Reports events of the objects of `kind`, until the receiver is gone.
pub(super) async fn watch(kind: Kind, client: Client, reports: mpsc::Sender<Report>) {
    if kind == Kind::MachineConfig {
        let item = |object: PartialObjectMeta<RawObject>| WatchedObject {
            name: object.name_any(),
            version: object.resource_version().unwrap_or_default(),
            json: None,
        };
        let watch = Watch::new(kind.api(&client), kind.only()).of_metadata();
        report(kind, watch, &reports, item).await;
    } else {
        let watch = Watch::new(kind.api(&client), kind.only());
        report(kind, watch, &reports, |object: RawObject| object.into()).await;
    }
}

async fn report<K>(
    kind: Kind,
    mut watch: Watch<K>,
    reports: &mpsc::Sender<Report>,
    item: impl Fn(K) -> WatchedObject,
) where
    K: Resource<DynamicType = ApiResource, Scope = DynamicResourceScope>,
    K: Clone + std::fmt::Debug + DeserializeOwned + Send + 'static,
{
    let change = |change| Report::Change(kind, change);
    loop {
        let report = match watch.next().await {
            WatchEvent::Seen(Event::Init) => change(Change::ListBegins),
            WatchEvent::Seen(Event::InitApply(object)) => change(Change::Listed(item(object))),
            WatchEvent::Seen(Event::InitDone) => change(Change::ListEnds),
            WatchEvent::Seen(Event::Apply(object)) => change(Change::Applied(item(object))),
            WatchEvent::Seen(Event::Delete(object)) => change(Change::Deleted(object.name_any())),
            WatchEvent::Works => continue,
            WatchEvent::Failed(failure) => Report::Failed(kind, failure),
        };
        if reports.send(report).await.is_err() {
            return;
        }
    }
}
