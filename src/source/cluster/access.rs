//! Follows the records of tokens that the controller publishes.
//!
//! They are read separately from configs: a server whose pools are open does not need them.

use kube::Client;
use kubernetes::seen::ObjectSeen;
use model::access::Records;
use model::objects::{OPERATOR_NAMESPACE, Secret, SecretName};
use telemetry::Reporting;
use telemetry::faults;
use tokio::sync::watch;

use super::secrets::NamedSecret;

/// Name of the Secret in metrics of failed watches.
const WATCHED: &str = "secrets/machine-config-server-access";

/// Sends every state of the records, forever; failures are reported and counted.
///
/// An unreadable or missing Secret keeps the previous state. Without a previous state nothing is known, which opens
/// nothing. `are_known` is true if there is one.
pub(crate) async fn follow(
    client: Client,
    mut are_known: bool,
    sender: watch::Sender<Option<Records>>,
    reporting: Reporting,
) {
    let name =
        SecretName { namespace: OPERATOR_NAMESPACE.to_owned(), name: Records::SECRET.to_owned() };
    let thing = name.to_string();
    let mut secret = NamedSecret::new(client, name);
    loop {
        let seen = secret.changed().await;
        let failures = seen.is_failed().then(|| reporting.metrics.watch_failures(WATCHED));
        let failure = match seen {
            ObjectSeen::Present(secret) => match read(&secret) {
                Ok(records) => {
                    are_known = true;
                    sender.send_replace(Some(records));
                    None
                }
                Err(reason) => Some(reason),
            },
            ObjectSeen::Absent if are_known => {
                Some("not found; the last tokens remain in use".to_owned())
            }
            ObjectSeen::Absent => Some(
                "not found: no tokens are known, and pools with access mode enforce answer 503; run the \
                 controller with --access"
                    .to_owned(),
            ),
            ObjectSeen::Failed(failure) => Some(format!("cannot be watched: {}", failure.reason)),
        };
        faults::TOKEN_RECORDS
            .of(&thing)
            .counted_by(failures.as_ref())
            .report(&reporting.status, failure.as_deref());
    }
}

fn read(secret: &Secret) -> Result<Records, String> {
    let key = Records::FILE;
    let json = secret.value(key).ok_or_else(|| format!("has no key {key}"))?;
    Records::read(json).map_err(|error| format!("{key}: {error}"))
}
