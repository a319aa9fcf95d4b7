//! The loop of the node agent: it updates the directory after each change of the ConfigMap or the directory.

use std::collections::BTreeMap;
use std::time::SystemTime;

use model::objects::ConfigMap;
use model::registry_ca::{self, Entries, Refused};

use super::health::Health;
use super::health::map_name;
use super::reconciler::{Reconciler, Report};
use crate::files::watch::{DirectoryWatch, Scanned};
use crate::kubernetes::seen::ObjectSeen;
use crate::source::cluster::RegistryCaMap;

/// Keeps the directory up to date with the merged ConfigMap, forever. It does nothing before the ConfigMap has been
/// read. Must be called within a runtime.
pub async fn follow(mut reconciler: Reconciler, mut map: RegistryCaMap, health: Health) {
    let mut watch = DirectoryWatch::new(vec![reconciler.directory().to_owned()]);
    let mut entries: Option<Entries> = None;
    let mut reported = LoggedProblems::default();
    loop {
        tokio::select! {
            seen = map.changed() => match seen {
                ObjectSeen::Present(Ok(map)) => {
                    let read = reported.read(&map);
                    health.watched(Ok(&read));
                    entries = Some(read);
                }
                ObjectSeen::Absent => {
                    health.watched(Err("not found"));
                    tracing::warn!(
                        object = map_name(),
                        directory = %reconciler.directory().display(),
                        fix = "run machine-config-server controller, which writes the ConfigMap",
                        "ConfigMap of registry CAs not found, keeping the files on the node"
                    );
                }
                ObjectSeen::Present(Err(reason)) => health.watched(Err(&reason)),
                ObjectSeen::Failed(failure) => {
                    health.unwatched(&failure.reason, SystemTime::now());
                }
            },
            () = watch.changed() => {}
        }
        watch.scan(|_| {
            if let Some(entries) = &entries {
                let report = reconciler.reconcile(entries, SystemTime::now());
                log_done(&report);
                health.registries_checked(&report, &reported.problems);
                reported.problems = report.problems;
            }
            Scanned::Settled
        });
    }
}

/// Logged problems, so that each is logged once.
#[derive(Default)]
struct LoggedProblems {
    refused: Vec<Refused>,
    problems: BTreeMap<String, String>,
}

impl LoggedProblems {
    fn read(&mut self, map: &ConfigMap) -> Entries {
        let entries = registry_ca::read(map);
        for entry in entries.refused.iter().filter(|entry| !self.refused.contains(entry)) {
            let reason = entry.to_string();
            tracing::error!(
                place = entry.place,
                reason,
                fix = "correct this entry of the ConfigMap",
                "ignored an entry, using the others"
            );
        }
        self.refused.clone_from(&entries.refused);
        entries
    }
}

fn log_done(Report { written, adopted, removed, .. }: &Report) {
    for host in written {
        tracing::info!(registry = host.as_str(), "wrote a registry CA");
    }
    for host in adopted {
        tracing::info!(registry = host.as_str(), "found a registry CA that is up to date");
    }
    for host in removed {
        tracing::info!(registry = host.as_str(), "removed a registry CA");
    }
}
