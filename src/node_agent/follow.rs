//! The loop of the node agent: it updates the directory after each change of the ConfigMap or the directory.

use std::collections::BTreeMap;
use std::time::SystemTime;

use model::objects::ConfigMap;
use model::registry_ca::{self, Entries, MANAGED_NAMESPACE, MERGED_MAP, Refused};

use super::Health;
use super::reconciler::{Reconciler, Report};
use crate::files::watch::{DirectoryWatch, Scanned};
use crate::source::cluster::{MapSeen, RegistryCaMap};

/// Keeps the directory up to date with the merged ConfigMap, forever. It does nothing before the ConfigMap has been
/// read. Must be called within a runtime.
pub async fn follow(mut reconciler: Reconciler, mut map: RegistryCaMap, health: Health) {
    let mut watch = DirectoryWatch::new(vec![reconciler.directory().to_owned()]);
    let mut entries: Option<Entries> = None;
    let mut reported = Reported::default();
    loop {
        tokio::select! {
            seen = map.changed() => match seen {
                MapSeen::Present(map) => {
                    let read = reported.read(&map);
                    health.watched(Ok(&read));
                    entries = Some(read);
                }
                MapSeen::Absent => {
                    health.watched(Err("is not there"));
                    tracing::warn!(
                        directory = %reconciler.directory().display(),
                        "ConfigMap {MANAGED_NAMESPACE}/{MERGED_MAP} is not there; \
                         what is on the node is kept"
                    );
                }
                MapSeen::Unreadable(reason) => health.watched(Err(&reason)),
                MapSeen::Unwatched(reason) => health.unwatched(&reason, SystemTime::now()),
            },
            () = watch.changed() => {}
        }
        watch.scan(|_| {
            if let Some(entries) = &entries {
                let report = reconciler.reconcile(entries, SystemTime::now());
                log_done(&report);
                health.looked(&report, &reported.problems);
                reported.problems = report.problems;
            }
            Scanned::Settled
        });
    }
}

/// Logged problems, so that each is logged once.
#[derive(Default)]
struct Reported {
    refused: Vec<Refused>,
    problems: BTreeMap<String, String>,
}

impl Reported {
    fn read(&mut self, map: &ConfigMap) -> Entries {
        let entries = registry_ca::read(map);
        for entry in entries.refused.iter().filter(|entry| !self.refused.contains(entry)) {
            let reason = entry.to_string();
            tracing::error!(place = entry.place, reason, "not used; all else in it is");
        }
        self.refused.clone_from(&entries.refused);
        entries
    }
}

fn log_done(Report { written, adopted, removed, .. }: &Report) {
    for (hosts, done) in
        [(written, "CA written"), (adopted, "CA found in place"), (removed, "CA removed")]
    {
        for host in hosts {
            tracing::info!(registry = host.as_str(), "{done}");
        }
    }
}
