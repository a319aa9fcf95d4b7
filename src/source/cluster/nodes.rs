//! Follows the nodes of the cluster, for the boot ledger.
//!
//! They are watched separately from configs, which do not depend on them: a server without the permission serves all
//! the same.

use std::net::IpAddr;

use k8s_openapi::api::core::v1;
use kube::runtime::watcher::Event;
use kube::{Api, Client, ResourceExt as _};
use kubernetes::seen::Failure;
use kubernetes::watch::{Watch, WatchEvent};
use model::ledger::{Node, NodeIndex, Nodes};
use telemetry::Reporting;
use telemetry::faults;
use time::OffsetDateTime;

/// Keeps `index` up to date with the cluster, forever; failures are reported and counted.
pub(crate) async fn follow(client: Client, index: NodeIndex, reporting: Reporting) {
    let Reporting { metrics, status } = reporting;
    let mut watch = Watch::new(Api::<v1::Node>::all(client), None);
    let mut listed = Nodes::default();
    loop {
        match watch.next().await {
            WatchEvent::Seen(Event::Init) => listed = Nodes::default(),
            WatchEvent::Seen(Event::InitApply(node)) => listed.add(read(&node)),
            WatchEvent::Seen(Event::InitDone) => {
                index.set(std::mem::take(&mut listed));
                faults::NODES.clear(&status);
            }
            WatchEvent::Seen(Event::Apply(node)) => index.change(|nodes| nodes.add(read(&node))),
            WatchEvent::Seen(Event::Delete(node)) => {
                index.change(|nodes| nodes.remove(&node.name_any()));
            }
            WatchEvent::Works => {}
            WatchEvent::Failed(Failure { reason: error, .. }) => {
                let failures = metrics.watch_failures("nodes");
                faults::NODES.counted_by(&failures).report(&status, Some(&error));
            }
        }
    }
}

fn read(node: &v1::Node) -> Node {
    let addresses = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
    let addresses = addresses.filter_map(|it| it.address.parse::<IpAddr>().ok()).collect();
    let created = node.creation_timestamp().map(|time| time.0.as_second());
    let created = created.and_then(|seconds| OffsetDateTime::from_unix_timestamp(seconds).ok());
    Node {
        name: node.name_any(),
        created: created.unwrap_or(OffsetDateTime::UNIX_EPOCH),
        addresses,
    }
}
