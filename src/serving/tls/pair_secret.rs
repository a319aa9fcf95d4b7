//! Serves the certificate in the Secret until kubelet has mounted it.
//!
//! A pod that starts before the Secret exists gets an empty volume, and kubelet looks again after a minute or two.
//! Without this, no machine would boot during that time.

use std::path::Path;
use std::sync::Arc;

use kubernetes::seen::ObjectSeen;
use model::objects::Secret;
use telemetry::Reporting;
use telemetry::faults;

use super::policy::TlsPolicy;
use super::serving_pair::ActivePair;
use crate::serving::tls::{Pair, PairError};
use crate::source::cluster::NamedSecret;

/// Name of the Secret in metrics of failed watches.
const WATCHED: &str = "secrets/serving-pair";

/// Serves the Secret's contents until the certificate's files exist, which are used from then on. It never returns.
pub(crate) async fn until_mounted(
    mut secret: NamedSecret,
    active: Arc<ActivePair>,
    reporting: Reporting,
) {
    let place = secret.name().to_string();
    loop {
        let seen = tokio::select! {
            () = active.files() => break,
            seen = secret.changed() => seen,
        };
        let failures = seen.is_failed().then(|| reporting.metrics.watch_failures(WATCHED));
        let failure = match seen {
            ObjectSeen::Present(secret) => {
                let read = |policy: &TlsPolicy| read(&place, &secret, policy);
                active.take(read).err().map(|error| error.to_string())
            }
            ObjectSeen::Absent => None,
            ObjectSeen::Failed(failure) => Some(format!("cannot be watched: {}", failure.reason)),
        };
        faults::SERVING_PAIR_SECRET
            .of(&place)
            .counted_by(failures.as_ref())
            .report(&reporting.status, failure.as_deref());
    }
    faults::SERVING_PAIR_SECRET.of(&place).clear(&reporting.status);
    drop(secret);
    std::future::pending::<()>().await;
}

fn read(place: &str, secret: &Secret, policy: &TlsPolicy) -> Result<Pair, PairError> {
    let value = |key: &str| secret.value(key).unwrap_or_default();
    let name = |key: &str| format!("{place}: {key}");
    let (certificate, key) = (name("tls.crt"), name("tls.key"));
    Pair::parse(
        (Path::new(&certificate), value("tls.crt")),
        (Path::new(&key), value("tls.key")),
        policy,
    )
}
