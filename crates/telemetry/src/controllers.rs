//! Metrics of the controller.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicI64;

use model::pointer_config::LeftAlone;
use pki::{CertificateState, StoredPair, Warning};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use time::OffsetDateTime;

use super::connections::ConnectionMetrics;
use super::encode::{Label, encode};

/// Labels of an issued certificate: its kind, and the reason.
type RotationLabels = [(&'static str, &'static str); 2];
/// Name of the newest CA that a pointer config trusts.
type TrustLabel = [(&'static str, String); 1];

metrics! {
    /// All metrics of the controller.
    #[derive(Debug)]
    pub struct ControllerMetrics {
        expiry: Family<Label, Gauge> = "managed_certificate_expiry_timestamp_seconds":
            "Time at which the signing CA and the serving certificate expire, in seconds since 1970",
        rotations: Family<RotationLabels, Counter> = "rotations":
            "Signing CAs and serving certificates that were issued, by reason",
        last_rotation: Family<RotationLabels, Gauge> = "last_rotation_timestamp_seconds":
            "Time at which the last one was issued for this reason, in seconds since 1970",
        attention: Family<Label, Gauge> = "certificates_attention":
            "Faults of certificates that need an administrator: pointer configs that cannot boot a machine, \
            refused rotations, unusable certificates and keys",
        pointers: Family<TrustLabel, Gauge> = "pointers":
            "Pointer configs by the newest CA that they trust",
        pub leading: Gauge<i64, AtomicI64> = "leading":
            "1 while this process is the leader",
        pub user_data_written: Counter = "user_data_written":
            "Writes of user data",
        pub failures: Counter = "controller_failures":
            "Failed reconciliations and writes of the controller",
        watch_failures: Family<Label, Counter> = "watch_failures":
            "Failed or forbidden watches, by kind of object",
        pub tokens_attention: Gauge<i64, AtomicI64> = "tokens_attention":
            "Faults of tokens that need an administrator: user data without a token of a pool with access \
            mode enforce, a clock that is behind",
        pub pools_rendered: Counter = "pools_rendered":
            "Times that a pool was set to a rendered MachineConfig",
        pub rendered_restored: Counter = "rendered_restored":
            "Rendered MachineConfigs that another client changed or deleted, written again",
        pub pools_merged: Counter = "pools_merged":
            "Merges of the MachineConfigs of a pool",
        pub pools_attention: Gauge<i64, AtomicI64> = "pools_attention":
            "Pools that cannot be rendered: MachineConfigs that conflict, a MachineConfig that cannot be \
            written, another controller that renders",
        refused: Family<Label, Gauge> = "registry_ca_refused":
            "Refused entries of the ConfigMaps of registry CAs, by reason",
        left_alone: Family<Label, Gauge> = "user_data_left_alone":
            "Secrets whose user data is not updated, by reason",
        /// Connections of administrators, probes and Prometheus.
        pub connections: ConnectionMetrics,
    }
}

impl ControllerMetrics {
    pub fn encode(&self) -> Result<String, std::fmt::Error> {
        encode(|registry| self.register(registry))
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        self.connections.register_administrators(registry);
        self.register_as("", registry);
    }

    /// Records the observed state; `newest_trusted` has the newest CA of each pointer config.
    pub fn observe(&self, observed: &CertificateState, newest_trusted: Vec<String>) {
        for (what, pair) in [("authority", &observed.ca), ("serving", &observed.serving)] {
            let end = pair.as_ref().and_then(StoredPair::leaf);
            let end = end.map_or(0, |certificate| certificate.not_after.unix_timestamp());
            self.expiry.get_or_create(&[("what", what)]).set(end);
        }
        self.pointers.clear();
        for authority in newest_trusted {
            self.pointers.get_or_create(&[("authority", authority)]).inc();
        }
    }

    pub fn attention(&self, attention: &[Warning]) {
        for (what, count) in Warning::counts(attention) {
            self.attention.get_or_create(&[("what", what)]).set(count);
        }
    }

    pub fn registry_ca_refused(&self, counts: &BTreeMap<&'static str, i64>) {
        self.refused.clear();
        for (&reason, &count) in counts {
            self.refused.get_or_create(&[("reason", reason)]).set(count);
        }
    }

    /// Records the reasons why user data is not edited, one for each Secret.
    pub fn user_data_left_alone(&self, reasons: impl Iterator<Item = LeftAlone>) {
        let refusal = |reason: LeftAlone| [("reason", reason.label())];
        for reason in LeftAlone::ALL {
            self.left_alone.get_or_create(&refusal(*reason)).set(0);
        }
        for reason in reasons {
            self.left_alone.get_or_create(&refusal(reason)).inc();
        }
    }

    /// The counter of failed watches of a kind (in the plural).
    pub fn watch_failures(&self, kind: &'static str) -> Counter {
        self.watch_failures.get_or_create_owned(&[("kind", kind)])
    }

    pub fn rotated(&self, what: &'static str, reason: &'static str, now: OffsetDateTime) {
        let labels = [("what", what), ("reason", reason)];
        self.rotations.get_or_create(&labels).inc();
        self.last_rotation.get_or_create(&labels).set(now.unix_timestamp());
    }
}

/// Logs a warning about certificates; `object` is the file, object or certificate that has the fault.
pub fn log_attention(attention: &Warning, object: &str) {
    use tracing::{error, warn};
    let (what, fix, reason) = (attention.label(), attention.fix(), attention.to_string());
    match attention {
        Warning::Ca(_) => error!(what, object, reason, fix, "cannot use the signing CA"),
        Warning::Serving(_) | Warning::ServingExpired | Warning::External { .. } => {
            error!(what, object, reason, fix, "cannot use the serving certificate");
        }
        Warning::ClockBehind { .. } => {
            error!(what, object, reason, fix, "the clock is behind the newest signing CA");
        }
        Warning::WeakKey { .. } => error!(what, object, reason, fix, "a key in use is weak"),
        Warning::Refused(_) => {
            error!(what, object, reason, fix, "refused a change of the certificates");
        }
        Warning::Issuer { .. } => {
            error!(what, object, reason, fix, "the issuer does not issue a signing CA");
        }
        Warning::LockedOut(_) => {
            error!(what, object, reason, fix, "a pointer config cannot boot a machine");
        }
        Warning::Trust { .. } | Warning::TrustUnread { .. } => {
            error!(what, object, reason, fix, "omitted CAs from pointer configs");
        }
        Warning::OutOfReach { .. } => {
            warn!(what, object, reason, fix, "cannot update the CAs of a pointer config");
        }
        Warning::UserData { .. } => {
            warn!(what, object, reason, fix, "user data is too large for a platform");
        }
    }
}
