//! The loops of the node agent: they update the files after each change of the ConfigMap, the Secret or the files.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::time::{Duration, SystemTime};

use files::watch::{DirectoryWatch, Scanned};
use kubernetes::seen::ObjectSeen;
use model::objects::{ConfigMap, Secret, SecretName};
use model::{registry_ca, registry_credentials};
use tokio::time::MissedTickBehavior;

use super::health::{Health, SECRETS, map_name};
use super::reconciler::{Reconciler, Report};
use super::registry_cas::RegistryCas;
use super::registry_credentials::RegistryCredentials;

/// Interval between checks of the credentials file's stamp. The directory is kubelet's, with the volumes of all pods, so
/// it is not watched.
const LOOK: Duration = Duration::from_secs(5);

/// An object of the cluster that is watched.
pub trait WatchedObject<T>: Send {
    /// Waits for its present state, for each change, and for failures. It is cancel safe: no change is lost.
    fn changed(&mut self) -> impl Future<Output = ObjectSeen<T>> + Send;
}

/// Keeps the directory up to date with the merged ConfigMap, forever. It does nothing before the ConfigMap has been
/// read. Must be called within a runtime.
pub async fn follow(
    mut reconciler: Reconciler<RegistryCas>,
    mut map: impl WatchedObject<Result<ConfigMap, String>>,
    health: Health,
) {
    let mut watch = DirectoryWatch::new(vec![reconciler.path().to_owned()]);
    let mut entries: Option<registry_ca::Entries> = None;
    let (mut refused, mut problems) = (Vec::new(), BTreeMap::new());
    loop {
        tokio::select! {
            seen = map.changed() => match seen {
                ObjectSeen::Present(Ok(map)) => {
                    let read = registry_ca::read(&map);
                    let fix = "correct this entry of the ConfigMap";
                    log_refused(&read.refused, &mut refused, |entry| &entry.place, fix);
                    health.watched(Ok(&read));
                    entries = Some(read);
                }
                ObjectSeen::Absent => {
                    health.watched(Err("not found"));
                    tracing::warn!(
                        object = map_name(),
                        directory = %reconciler.path().display(),
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
                log_registry_cas(&report);
                health.registries_checked(&report, &problems);
                problems = report.problems;
            }
            Scanned::SETTLED
        });
    }
}

/// Keeps the file of registry credentials up to date with the Secret, forever. It does nothing before the Secret has
/// been read. Must be called within a runtime.
pub async fn follow_credentials(
    mut reconciler: Reconciler<RegistryCredentials>,
    name: SecretName,
    mut secret: impl WatchedObject<Secret>,
    health: Health,
) {
    let path = reconciler.path().display().to_string();
    let place = name.to_string();
    let mut entries: Option<registry_credentials::Entries> = None;
    let (mut refused, mut problems) = (Vec::new(), BTreeMap::new());
    let mut look = tokio::time::interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            seen = secret.changed() => match seen {
                ObjectSeen::Present(secret) => match registry_credentials::read(&secret) {
                    Ok(read) => {
                        let fix = "correct this entry of the Secret";
                        log_refused(&read.refused, &mut refused, |_| &place, fix);
                        health.secret(&place, Ok(&read));
                        entries = Some(read);
                    }
                    Err(reason) => health.secret(&place, Err(&reason)),
                },
                ObjectSeen::Absent => health.secret(&place, Err("not found")),
                ObjectSeen::Failed(failure) => {
                    health.metrics.watch_failures(SECRETS).inc();
                    health.secret(&place, Err(&format!("cannot be watched ({})", failure.reason)));
                }
            },
            _ = look.tick() => {}
        }
        if let Some(entries) = &entries {
            let report = reconciler.reconcile(entries, SystemTime::now());
            log_registry_credentials(&path, &report);
            health.credentials_checked(&report, &problems);
            problems = report.problems;
        }
    }
}

/// Logs refused entries that are not in `known`.
fn log_refused<'a, R: Display + PartialEq + Clone>(
    refused: &'a [R],
    known: &mut Vec<R>,
    place: impl Fn(&'a R) -> &'a str,
    fix: &str,
) {
    for entry in refused.iter().filter(|entry| !known.contains(entry)) {
        tracing::error!(
            place = place(entry),
            reason = entry.to_string(),
            fix,
            "ignored an entry, using the others"
        );
    }
    *known = refused.to_vec();
}

fn log_registry_cas(Report { written, adopted, removed, .. }: &Report) {
    for registry in written {
        tracing::info!(registry, "wrote a registry CA");
    }
    for registry in adopted {
        tracing::info!(registry, "found a registry CA that is up to date");
    }
    for registry in removed {
        tracing::info!(registry, "removed a registry CA");
    }
}

fn log_registry_credentials(path: &str, Report { written, adopted, removed, .. }: &Report) {
    for registry in written {
        tracing::info!(registry, path, "wrote registry credentials");
    }
    for registry in adopted {
        tracing::info!(registry, path, "found registry credentials that are up to date");
    }
    for registry in removed {
        tracing::info!(registry, path, "removed registry credentials");
    }
}
