//! The nodes of the cluster, for the boot ledger: whoever has fetched its config is to become one.
//!
//! Apart from what is served: nothing of a node changes a config, and a server that may not list nodes
//! serves all the same.

use std::net::IpAddr;
use std::time::Duration;

use futures_util::{StreamExt as _, pin_mut};
use k8s_openapi::api::core::v1;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt as _};
use model::ledger::{Node, NodeIndex, Nodes};
use time::OffsetDateTime;

use crate::backoff::Backoff;
use crate::kubernetes::client::reason;
use crate::telemetry::Reporting;
use crate::telemetry::conditions::{Condition, Status};

/// How long the API server is asked to keep a watch open.
const WATCH_SECONDS: u32 = 60;
/// Objects a page of a list: nodes are large.
const PAGE: u32 = 50;
/// The waits after failures.
const FIRST_WAIT: Duration = Duration::from_millis(200);
const LONGEST_WAIT: Duration = Duration::from_secs(30);

/// Keeps `roster` in step with the cluster, for ever; what keeps it from that is told and counted.
pub(super) async fn follow(client: Client, roster: NodeIndex, reporting: Reporting) {
    let Reporting { metrics, status: Status { degraded, .. } } = reporting;
    let mut backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT);
    loop {
        let config = watcher::Config::default().timeout(WATCH_SECONDS).page_size(PAGE);
        let events = watcher(Api::<v1::Node>::all(client.clone()), config);
        pin_mut!(events);
        let mut listed = Nodes::default();
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Init) => listed = Nodes::default(),
                Ok(Event::InitApply(node)) => listed.add(read(&node)),
                Ok(Event::InitDone) => {
                    roster.set(std::mem::take(&mut listed));
                    Condition::ok("nodes").note(&degraded);
                    backoff.reset();
                }
                Ok(Event::Apply(node)) => roster.change(|nodes| nodes.add(read(&node))),
                Ok(Event::Delete(node)) => roster.change(|nodes| nodes.remove(&node.name_any())),
                Err(error) => {
                    let error = reason(&error);
                    let failures = metrics.watch_failures("nodes");
                    Condition::failed("nodes", format!("cannot be watched: {error}"))
                        .counted_by(&failures)
                        .report_failure(&degraded, |_| {
                            tracing::warn!(
                                error,
                                "cannot watch nodes; the ledger does not know who has joined"
                            );
                        });
                    break;
                }
            }
        }
        tokio::time::sleep(backoff.next()).await;
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
