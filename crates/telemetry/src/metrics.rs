//! Metrics of the server, in the OpenMetrics format of Prometheus.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use common::sync::lock;
use ignition::SpecVersion;
use model::ignition_version::IgnitionVersion;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::conditions::Status;
use super::connections::ConnectionMetrics;
use super::encode::{Label, encode};

/// Maximum number of stages that are values of a label, and length of one.
const MAX_STAGES: usize = 20;
const MAX_STAGE: usize = 40;

/// A pool as a label's value. All unknown names share one, so that requests for made-up pools cannot fill the memory.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum PoolLabel {
    Known(Arc<str>),
    Unknown,
}

impl EncodeLabelValue for PoolLabel {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), std::fmt::Error> {
        match self {
            Self::Known(name) => (&**name).encode(encoder),
            Self::Unknown => "<unknown>".encode(encoder),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    pool: PoolLabel,
    /// Requested spec, `none` if none could be served.
    spec: &'static str,
    status: u16,
}

/// A pool and other labels.
type PoolLabels<V, const N: usize> = ([(&'static str, PoolLabel); 1], [(&'static str, V); N]);

fn with_pool<V, const N: usize>(
    pool: PoolLabel,
    others: [(&'static str, V); N],
) -> PoolLabels<V, N> {
    ([("pool", pool)], others)
}

metrics! {
    /// All metrics of the server.
    #[derive(Debug)]
    pub struct Metrics {
        requests: Family<RequestLabels, Counter> = "requests":
            "Requests for a pool's config, by pool, Ignition spec version and status",
        access: Family<PoolLabels<&'static str, 2>, Counter> = "access":
            "Requests for configs of pools whose access is audited or enforced, by pool, mode in force, and \
            the reason for which they were accepted or refused",
        access_modes: Family<PoolLabels<&'static str, 2>, Gauge> = "access_mode":
            "1 for each pool whose access is audited or enforced, by requested mode and mode in force",
        old_ignition: Family<PoolLabels<&'static str, 1>, Counter> = "old_ignition_requests":
            "Requests of machines whose Ignition is older than their pool's oldest, by pool, and whether \
            they were held or only reported",
        oldest_ignition: Family<PoolLabels<String, 1>, Gauge> = "oldest_ignition":
            "1 for each pool of which machines are known, by the oldest version of Ignition among them",
        node_failures: Family<PoolLabels<String, 1>, Counter> = "node_failures":
            "Reports of machines whose first boot failed, by pool and stage",
        pub machine_tokens_shared: Gauge<i64, AtomicI64> = "machine_tokens_shared":
            "Machines whose token was used from several addresses, so that someone may have copied it",
        pub response_bytes: Counter = "response_bytes":
            "Bytes of configs handed to the network",
        pub render_seconds: Histogram = "render_duration_seconds":
            "Time to render one config in one version"
            => Histogram::new([0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0]),
        render_failures: Family<PoolLabels<&'static str, 1>, Counter> = "render_failures":
            "Configs that could not be rendered, by pool",
        waiting_machines: Family<[(&'static str, PoolLabel); 1], Gauge> = "approval_waiting_machines":
            "Machines that wait for approval, by pool",
        longest_wait: Family<[(&'static str, PoolLabel); 1], Gauge> = "approval_longest_wait_seconds":
            "Time since the first request of the machine that waits longest for approval, by pool",
        waiting_discarded: Counter = "approval_machines_forgotten":
            "Waiting machines that were removed from the list because it is full",
        pub certificate_expiry: Gauge = "certificate_expiry_timestamp_seconds":
            "Earliest time at which the serving certificate, or a CA sent with it, expires, in seconds since 1970",
        pub certificate_failures: Counter = "certificate_reload_failures":
            "Certificate and key files that could not be loaded",
        certificates_attention: Family<Label, Gauge> = "certificates_attention":
            "Faults of the certificates of this server that need an administrator: pointer configs that \
            cannot boot a machine, refused rotations, unusable certificates and keys",
        pub tokens_attention: Gauge<i64, AtomicI64> = "tokens_attention":
            "Faults of the tokens of this server that need an administrator: pointer configs without a \
            token of a pool with access mode enforce, unusable files, a clock that is behind",
        inputs_changed: Gauge = "inputs_changed_timestamp_seconds":
            "Time of the last change of the inputs, in seconds since 1970",
        inputs_age: Gauge<f64, AtomicU64> = "inputs_age_seconds":
            "Time since the inputs changed",
        pub input_problems: Gauge<i64, AtomicI64> = "input_problems":
            "Files or objects that cannot be read at present",
        pub input_failures: Counter = "input_failures":
            "Failed reads of files or objects",
        machines: Family<Label, Gauge> = "machines":
            "Machines in the boot ledger of this server, by state",
        machines_discarded: Counter = "machines_forgotten":
            "Machines that were removed from the boot ledger because it is full",
        watch_failures: Family<Label, Counter> = "watch_failures":
            "Failed lists, watches and fetches from the API server, by kind of object",
        stale_since: Gauge = "source_stale_since_timestamp_seconds":
            "Time since which the API server is unavailable, in seconds since 1970; 0 while it is available",
        pub cache_failures: Counter = "cache_failures":
            "Failed reads and writes of the cache of the inputs",
        /// Stages that machines have reported, which are values of a label.
        stages: Mutex<BTreeSet<String>>,
        /// Connections of machines, on both ports.
        pub connections: ConnectionMetrics,
        /// Connections of administrators, probes and Prometheus.
        pub administrators: ConnectionMetrics,
    }
}

impl Metrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        self.register_as("", registry);
        self.connections.register_as("", registry);
        self.administrators.register_administrators(registry);
    }

    /// The counter of requests with one outcome. Look it up once if the outcome repeats.
    pub fn requests(&self, pool: PoolLabel, spec: Option<SpecVersion>, status: u16) -> Counter {
        let spec = spec.map_or("none", SpecVersion::as_str);
        self.requests.get_or_create_owned(&RequestLabels { pool, spec, status })
    }

    pub fn access(&self, pool: PoolLabel, mode: &'static str, verdict: &'static str) {
        let labels = with_pool(pool, [("mode", mode), ("verdict", verdict)]);
        self.access.get_or_create(&labels).inc();
    }

    /// Counts a request of a machine whose Ignition is older than its pool's oldest.
    pub fn old_ignition(&self, pool: PoolLabel, action: &'static str) {
        self.old_ignition.get_or_create(&with_pool(pool, [("action", action)])).inc();
    }

    /// Records the machines of each pool that wait for approval, with the longest wait, and the number of those that were
    /// discarded so far.
    pub fn waiting_machines(
        &self,
        waiting: impl Iterator<Item = (PoolLabel, i64, Duration)>,
        discarded: u64,
    ) {
        self.waiting_machines.clear();
        self.longest_wait.clear();
        for (pool, machines, longest) in waiting {
            let labels = [("pool", pool)];
            let seconds = longest.as_secs().try_into().unwrap_or(i64::MAX);
            self.waiting_machines.get_or_create(&labels).inc_by(machines);
            let longest = self.longest_wait.get_or_create_owned(&labels);
            longest.set(longest.get().max(seconds));
        }
        self.waiting_discarded.inner().store(discarded, Ordering::Relaxed);
    }

    /// Counts a machine's report. Stages are clients' words: only some short ones become a label.
    pub fn node_failed(&self, pool: PoolLabel, stage: &str) {
        let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let is_plain = stage.len() <= MAX_STAGE && stage.chars().all(is_word);
        let mut stages = lock(&self.stages);
        let is_label = is_plain && (stages.contains(stage) || stages.len() < MAX_STAGES);
        let stage = if is_label { stage } else { "<other>" };
        stages.insert(stage.to_owned());
        drop(stages);
        let labels = with_pool(pool, [("stage", stage.to_owned())]);
        self.node_failures.get_or_create(&labels).inc();
    }

    /// Records the oldest Ignition of each pool's machines.
    pub fn oldest_ignition(&self, oldest: impl Iterator<Item = (PoolLabel, IgnitionVersion)>) {
        self.oldest_ignition.clear();
        for (pool, version) in oldest {
            let labels = with_pool(pool, [("version", version.to_string())]);
            self.oldest_ignition.get_or_create(&labels).set(1);
        }
    }

    /// Records the modes of pools, requested and in force.
    pub fn access_modes<'a>(
        &self,
        modes: impl Iterator<Item = (&'a str, &'static str, &'static str)>,
    ) {
        self.access_modes.clear();
        for (pool, asked, mode) in modes {
            let pool = PoolLabel::Known(pool.into());
            let labels = with_pool(pool, [("asked", asked), ("mode", mode)]);
            self.access_modes.get_or_create(&labels).set(1);
        }
    }

    pub fn render_failed(&self, pool: &Arc<str>, spec: SpecVersion) {
        let pool = PoolLabel::Known(Arc::clone(pool));
        let labels = with_pool(pool, [("spec", spec.as_str())]);
        self.render_failures.get_or_create(&labels).inc();
    }

    pub fn certificates_attention(&self, counts: &[(&'static str, i64)]) {
        for &(what, count) in counts {
            self.certificates_attention.get_or_create(&[("what", what)]).set(count);
        }
    }

    /// The counter of failed lists, watches and fetches of a kind (in the plural).
    pub fn watch_failures(&self, kind: &'static str) -> Counter {
        self.watch_failures.get_or_create_owned(&[("kind", kind)])
    }

    /// Records the time since which served configs may be out of date with the cluster.
    pub fn stale_since(&self, since: Option<SystemTime>) {
        let seconds = since.map_or(0, unix_seconds);
        self.stale_since.set(seconds.try_into().unwrap_or(i64::MAX));
    }

    /// Records the machines in the boot ledger, by state.
    pub fn machines(&self, counts: impl Iterator<Item = (&'static str, usize)>) {
        for (state, count) in counts {
            let count = count.try_into().unwrap_or(i64::MAX);
            self.machines.get_or_create(&[("state", state)]).set(count);
        }
    }

    /// Records the number of machines that the boot ledger has discarded.
    pub fn machines_discarded(&self, so_far: u64) {
        self.machines_discarded.inner().store(so_far, Ordering::Relaxed);
    }

    pub fn inputs_changed(&self, now: SystemTime) {
        self.inputs_changed.set(unix_seconds(now).try_into().unwrap_or(i64::MAX));
    }

    pub fn encode(&self, now: SystemTime) -> Result<String, std::fmt::Error> {
        let changed = u64::try_from(self.inputs_changed.get()).unwrap_or(0);
        if changed > 0 {
            let since = UNIX_EPOCH + Duration::from_secs(changed);
            let age = now.duration_since(since).unwrap_or_default();
            self.inputs_age.set(age.as_secs_f64());
        }
        encode(|registry| self.register(registry))
    }
}

/// Sinks for reports of a source, other than its inputs.
#[derive(Debug, Clone)]
pub struct Reporting {
    pub metrics: Arc<Metrics>,
    pub status: Status,
}

fn unix_seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |duration| duration.as_secs())
}
