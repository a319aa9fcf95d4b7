//! Follows one secret with registry logins, and nothing else.

use kube::Client;
use model::objects::SecretName;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use super::report::Report;
use super::secrets;
use crate::source::secret_seen::SecretSeen;

/// The secret, followed.
#[derive(Debug)]
pub struct NamedSecret {
    name: SecretName,
    reports: mpsc::Receiver<Report>,
    _watch: AbortOnDropHandle<()>,
}

impl NamedSecret {
    /// Follows the secret from now on. Call it within a runtime.
    #[must_use]
    pub fn new(client: Client, name: SecretName) -> Self {
        let (sender, reports) = mpsc::channel(16);
        let watch = tokio::spawn(secrets::watch(name.clone(), client, sender));
        Self { name, reports, _watch: AbortOnDropHandle::new(watch) }
    }

    /// Which secret it is.
    #[must_use]
    pub fn name(&self) -> &SecretName {
        &self.name
    }

    /// Waits for the secret as it is, for each change of it, and for what keeps it from being seen.
    /// May be dropped and called again: no change is lost by that.
    pub async fn changed(&mut self) -> SecretSeen {
        loop {
            match self.reports.recv().await {
                Some(Report::Secret(_, seen)) => return seen,
                Some(_) => {}
                // The watch does not end before its reports' receiver.
                None => return std::future::pending().await,
            }
        }
    }
}
