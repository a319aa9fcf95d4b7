//! The loop for registry logins: whatever changes, the secret or the file, the file is brought in
//! step.

use std::time::{Duration, SystemTime};

use model::registry_credentials::{self, Entries, Refused};

use super::health::{Health, SECRETS};
use super::login_keeper::{LoginKeeper, LoginReport};
use crate::source::SecretSeen;
use crate::source::cluster::NamedSecret;

/// How often the file's stamp is looked at. The folder is kubelet's, with the volumes of all pods:
/// nothing watches what goes on in it.
const LOOK: Duration = Duration::from_secs(5);

/// Keeps the file in step with the secret, for ever. Before the secret has been read nothing is done.
/// Call it within a runtime.
pub async fn follow_logins(mut keeper: LoginKeeper, mut secret: NamedSecret, health: Health) {
    let path = keeper.path().display().to_string();
    let place = secret.name().to_string();
    let mut entries: Option<Entries> = None;
    let mut told = Told::default();
    let mut look = tokio::time::interval(LOOK);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            seen = secret.changed() => match seen {
                SecretSeen::Present(secret) => match registry_credentials::read(&secret) {
                    Ok(read) => {
                        told.refused(&place, &read.refused);
                        health.secret(&place, Ok(&read));
                        entries = Some(read);
                    }
                    Err(reason) => told.kept(&health, &place, &reason),
                },
                SecretSeen::Absent => told.kept(&health, &place, "is not there"),
                SecretSeen::Unwatched { reason, .. } => {
                    health.metrics.watch_failed(SECRETS);
                    told.kept(&health, &place, &format!("cannot be watched ({reason})"));
                }
            },
            _ = look.tick() => {}
        }
        if let Some(entries) = &entries {
            let report = keeper.reconcile(entries, SystemTime::now());
            health.logins_looked(&path, &report);
            told.report(&path, report);
        }
    }
}

/// What the log has been told, so that it is told once.
#[derive(Default)]
struct Told {
    refused: Vec<Refused>,
    kept: Option<String>,
    problem: Option<String>,
}

impl Told {
    fn refused(&mut self, place: &str, refused: &[Refused]) {
        self.kept = None;
        for entry in refused.iter().filter(|entry| !self.refused.contains(entry)) {
            let reason = entry.to_string();
            tracing::error!(place, reason, "not used; all else in it is");
        }
        self.refused = refused.to_vec();
    }

    fn kept(&mut self, health: &Health, place: &str, reason: &str) {
        health.secret(place, Err(reason));
        if self.kept.as_deref() != Some(reason) {
            tracing::error!(place, reason, "what is on the node is kept");
            self.kept = Some(reason.to_owned());
        }
    }

    fn report(&mut self, path: &str, report: LoginReport) {
        let LoginReport { written, adopted, removed, problem } = report;
        for (registries, done) in [
            (written, "login written"),
            (adopted, "login found in place"),
            (removed, "login removed"),
        ] {
            for registry in registries {
                tracing::info!(registry = registry.as_str(), path, "{done}");
            }
        }
        if problem != self.problem {
            if let Some(reason) = &problem {
                tracing::error!(path, reason, "not as it should be");
            } else {
                tracing::info!(path, "in order again");
            }
            self.problem = problem;
        }
    }
}
