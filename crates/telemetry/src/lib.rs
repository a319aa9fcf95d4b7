//! Logs, metrics and readiness.
#![forbid(unsafe_code)]
// Only the program and its tests use this library: a comment is for what a name does not say.
#![allow(missing_docs)]

/// Declares a struct of metrics, each with its name and help, from which its registration follows.
macro_rules! metrics {
    ($(#[$about:meta])* pub struct $metrics:ident {
        $($(#[$doc:meta])* $vis:vis $field:ident: $type:ty
            $(= $name:literal: $help:literal)? $(=> $new:expr)?,)*
    }) => {
        $(#[$about])*
        pub struct $metrics {
            $($(#[$doc])* $vis $field: $type,)*
        }

        impl Default for $metrics {
            fn default() -> Self {
                Self { $($field: metrics!(@new $($new)?),)* }
            }
        }

        impl $metrics {
            /// Registers the metrics, with `whose` before each help.
            pub(super) fn register_as(&self, whose: &str, registry: &mut Registry) {
                $($(registry.register($name, whose.to_owned() + $help, self.$field.clone());)?)*
            }
        }
    };
    (@new) => { Default::default() };
    (@new $new:expr) => { $new };
}

pub mod conditions;
mod connections;
mod controllers;
mod encode;
pub mod faults;
mod json_lines;
mod log_rate_limiter;
mod logs;
mod many;
mod metrics;
mod node_agent;

pub use connections::ConnectionMetrics;
pub use controllers::ControllerMetrics;
pub use controllers::log_attention;
pub use log_rate_limiter::LogRateLimiter;
pub use logs::wait_until_written;
pub use logs::{LogFormat, Logs, init as init_logs};
pub use many::{listed, log_token_steps};
pub use metrics::{Metrics, PoolLabel, Reporting};
pub use node_agent::NodeCaMetrics;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ignition::SpecVersion;
    use model::ledger::Failed;
    use model::pointer_config::LeftAlone;
    use pki::CertificateState;
    use time::OffsetDateTime;

    use prometheus_client::registry::Registry;

    use super::encode::encode;
    use super::*;

    /// Counts one of each, because families without members are not written.
    fn with_connections(connections: &ConnectionMetrics) {
        connections.shed("full");
        connections.handshake_failed(Failed::Timeout);
        connections.proxy_header_failed("absent");
    }

    fn of_server() -> Metrics {
        let metrics = Metrics::default();
        metrics.requests(PoolLabel::Unknown, Some(SpecVersion::V3_0), 200).inc();
        metrics.access(PoolLabel::Unknown, "audit", "missing");
        metrics.access_modes([("p", "audit", "audit")].into_iter());
        metrics.render_failed(&"p".into(), SpecVersion::V3_0);
        metrics.old_ignition(PoolLabel::Unknown, "held");
        metrics.machines([("joined", 1)].into_iter());
        let version = "2.14.0".parse().unwrap();
        metrics.oldest_ignition([(PoolLabel::Unknown, version)].into_iter());
        let waits = std::time::Duration::from_secs(9);
        metrics.waiting_machines([(PoolLabel::Unknown, 1, waits)].into_iter(), 0);
        metrics.node_failed(PoolLabel::Unknown, "pull");
        metrics.certificates_attention(&[("a", 1)]);
        metrics.watch_failures("secrets").inc();
        with_connections(&metrics.connections);
        with_connections(&metrics.administrators);
        metrics
    }

    fn of_controllers() -> ControllerMetrics {
        let metrics = ControllerMetrics::default();
        metrics.observe(&CertificateState::default(), vec!["a".to_owned()]);
        metrics.rotated("authority", "due", OffsetDateTime::UNIX_EPOCH);
        metrics.attention(&[]);
        metrics.registry_ca_refused(&BTreeMap::from([("a", 1)]));
        metrics.user_data_left_alone([LeftAlone::Foreign].into_iter());
        metrics.watch_failures("secrets").inc();
        with_connections(&metrics.connections);
        metrics
    }

    fn of_node() -> NodeCaMetrics {
        let metrics = NodeCaMetrics::default();
        metrics.entries_refused(["a"].into_iter());
        metrics.watch_failures("configmaps").inc();
        with_connections(&metrics.connections);
        metrics
    }

    /// The help texts of all written metrics, by name.
    fn helps(register: impl Fn(&mut Registry)) -> BTreeMap<String, String> {
        let mut registry = Registry::default();
        register(&mut registry);
        let registered = format!("{registry:?}").matches("Descriptor {").count();
        let text = encode(register).unwrap();
        let helps = text.lines().filter_map(|line| line.strip_prefix("# HELP ")?.split_once(' '));
        let helps: BTreeMap<_, _> =
            helps.map(|(name, help)| (name.to_owned(), help.to_owned())).collect();
        assert_eq!(helps.len(), registered, "all have to be counted once above: {text}");
        helps
    }

    #[test]
    fn each_metric_has_a_sentence_of_its_own_for_help() {
        let (server, controllers, node) = (of_server(), of_controllers(), of_node());
        let helps = [
            helps(|registry| server.register(registry)),
            helps(|registry| controllers.register(registry)),
            helps(|registry| node.register(registry)),
        ];
        let mut names = BTreeMap::new();
        for (name, help) in helps.into_iter().flatten() {
            assert!(!help.contains("  "), "{name}: doubled spaces: {help}");
            let sentence = help.strip_suffix('.');
            assert!(sentence.is_some_and(|it| !it.ends_with(['.', ' '])), "{name}: {help}");
            let other = names.entry(help).or_insert_with(|| name.clone());
            // Another program may have the same metric.
            assert_eq!(*other, name, "one help for two");
        }
    }
}
