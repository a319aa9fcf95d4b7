//! The loop for registry credentials: it updates the file after each change of the Secret or the file.

use std::time::{Duration, SystemTime};

use model::registry_credentials::{self, Entries, Refused};

use super::credential_keeper::{CredentialKeeper, CredentialReport};
use super::health::{Health, SECRETS};
use crate::kubernetes::seen::ObjectSeen;
use crate::source::cluster::NamedSecret;

/// Interval between checks of the file's stamp. The directory is kubelet's, with the volumes of all pods, so it is not
/// watched.
const LOOK: Duration = Duration::from_secs(5);

/// Keeps the file up to date with the Secret, forever. It does nothing before the Secret has been read. Must be called
/// within a runtime.
pub async fn follow_credentials(
    mut keeper: CredentialKeeper,
    mut secret: NamedSecret,
    health: Health,
) {
    let path = keeper.path().display().to_string();
    let place = secret.name().to_string();
    let mut entries: Option<Entries> = None;
    let mut refused = Vec::new();
    let mut look = tokio::time::interval(LOOK);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            seen = secret.changed() => match seen {
                ObjectSeen::Present(secret) => match registry_credentials::read(&secret) {
                    Ok(read) => {
                        log_refused(&place, &read.refused, &mut refused);
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
            let report = keeper.reconcile(entries, SystemTime::now());
            log_done(&path, &report);
            health.credentials_checked(&path, &report);
        }
    }
}

/// Logs refused entries that are not in `known`.
fn log_refused(place: &str, refused: &[Refused], known: &mut Vec<Refused>) {
    for entry in refused.iter().filter(|entry| !known.contains(entry)) {
        let reason = entry.to_string();
        tracing::error!(
            place,
            reason,
            fix = "correct this entry of the Secret",
            "ignored an entry, using the others"
        );
    }
    *known = refused.to_vec();
}

fn log_done(path: &str, CredentialReport { written, adopted, removed, .. }: &CredentialReport) {
    for registry in written {
        tracing::info!(registry = registry.as_str(), path, "wrote registry credentials");
    }
    for registry in adopted {
        let registry = registry.as_str();
        tracing::info!(registry, path, "found registry credentials that are up to date");
    }
    for registry in removed {
        tracing::info!(registry = registry.as_str(), path, "removed registry credentials");
    }
}
