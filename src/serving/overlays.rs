//! Configs of machines with an overlay: merged when they are asked for, and kept within a number of bytes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use arc_swap::ArcSwap;
use common::sync::lock;
use http::HeaderValue;
use ignition::{Form, SpecVersion};
use lru::LruCache;
use model::objects::{FirstBootMachine, FirstBootMachines};
use model::recovery::Recovery;
use telemetry::conditions::Status;
use telemetry::faults;
use tokio::sync::Semaphore;

use super::answers::Answer;

/// Maximum size of all configs with an overlay that are kept, in bytes.
const MAX_BYTES: usize = 16 << 20;
/// Maximum number of configs that are merged at a time, each with some megabytes of memory.
const MAX_MERGING: usize = 4;
/// Maximum number of machines whose overlay is reported; the last ones.
const MAX_REPORTED: usize = 20;

/// Objects of machines, with the configs that were merged from their overlays.
#[derive(Debug)]
pub(crate) struct Overlays {
    machines: ArcSwap<FirstBootMachines>,
    cache: Mutex<OverlayCache>,
    merging: Arc<Semaphore>,
    /// Reasons why overlays cannot be merged, by machine.
    failed: Mutex<BTreeMap<String, String>>,
    status: Status,
}

#[derive(Debug)]
struct OverlayCache {
    configs: LruCache<Key, MergedConfig>,
    bytes: usize,
}

/// Name of the machine, and the variant of its config, with the number of its form.
type Key = (Arc<str>, SpecVersion, usize);

/// A merged config, with what it was merged from.
#[derive(Debug)]
struct MergedConfig {
    answer: Arc<Answer>,
    object: Arc<FirstBootMachine>,
    of_pool: HeaderValue,
}

impl Overlays {
    /// Creates an empty set.
    pub(crate) fn new(status: Status) -> Self {
        let cache = OverlayCache { configs: LruCache::unbounded(), bytes: 0 };
        Self {
            machines: ArcSwap::default(),
            cache: Mutex::new(cache),
            merging: Arc::new(Semaphore::new(MAX_MERGING)),
            failed: Mutex::default(),
            status,
        }
    }

    /// Uses the overlays of these objects from this call on.
    pub(super) fn take(&self, machines: &FirstBootMachines) {
        if **self.machines.load() == *machines {
            return;
        }
        let before = self.machines.swap(Arc::new(machines.clone()));
        let mut failed = lock(&self.failed);
        // An overlay that was changed has not been merged yet.
        failed.retain(|name, _| machines.get(name) == before.get(name));
        self.report(&failed);
    }

    /// The answer for a machine, made of its pool's.
    ///
    /// # Errors
    /// The reason why the overlay cannot be merged, one line.
    pub(crate) async fn answer(
        self: &Arc<Self>,
        machine: &Arc<str>,
        of_pool: Arc<Answer>,
        (version, form): (SpecVersion, Form),
    ) -> Result<Arc<Answer>, String> {
        let object = self.machines.load().get(&**machine).cloned();
        let Some(object) = object.filter(|object| object.spec.overlay.is_some()) else {
            return Ok(of_pool);
        };
        let key = (Arc::clone(machine), version, form.index());
        let ready = |key: &Key, object| lock(&self.cache).get(key, object, &of_pool.etag);
        if let Some(answer) = ready(&key, &object) {
            return Ok(answer);
        }
        // The semaphore is never closed.
        let permit = Arc::clone(&self.merging).acquire_owned().await;
        if let Some(answer) = ready(&key, &object) {
            return Ok(answer);
        }
        // It goes on if the client disconnects: its permit is for the work, and the next request finds the result.
        let overlays = Arc::clone(self);
        let work = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            overlays.merge(key, object, &of_pool)
        });
        // The task is not cancelled, and a panic ends the process.
        work.await.unwrap_or_else(|error| Err(error.to_string()))
    }

    fn merge(
        &self,
        key: Key,
        object: Arc<FirstBootMachine>,
        of_pool: &Answer,
    ) -> Result<Arc<Answer>, String> {
        let merged = of_pool.with_overlay(&object);
        self.note(&key.0, &object, merged.as_ref().err());
        let answer = Arc::new(merged?);
        let of_pool = of_pool.etag.clone();
        lock(&self.cache)
            .insert(key, MergedConfig { answer: Arc::clone(&answer), object, of_pool });
        Ok(answer)
    }

    /// Reports if the overlay of a machine can be merged, unless its object has changed meanwhile.
    fn note(&self, machine: &str, object: &Arc<FirstBootMachine>, reason: Option<&String>) {
        let mut failed = lock(&self.failed);
        if self.machines.load().get(machine) != Some(object) {
            return;
        }
        let is_new = match reason {
            Some(reason) => {
                failed.insert(machine.to_owned(), reason.clone()).as_ref() != Some(reason)
            }
            None => failed.remove(machine).is_some(),
        };
        if !is_new {
            return;
        }
        if let Some(reason) = reason {
            tracing::error!(
                machine,
                reason,
                fix = Recovery::Retry.after("change the overlay of the FirstBootMachine"),
                "the overlay of a machine cannot be merged into its pool's config; it gets 503 until then"
            );
        }
        self.report(&failed);
    }

    fn report(&self, failed: &BTreeMap<String, String>) {
        let lines = failed.iter().take(MAX_REPORTED);
        let lines: Vec<_> = lines.map(|(name, why)| format!("machine {name}: {why}")).collect();
        faults::OVERLAYS.report_all(&self.status, &lines);
    }
}

impl OverlayCache {
    fn get(
        &mut self,
        key: &Key,
        object: &Arc<FirstBootMachine>,
        of_pool: &HeaderValue,
    ) -> Option<Arc<Answer>> {
        let merged = self.configs.get(key)?;
        let is_present = Arc::ptr_eq(&merged.object, object) && merged.of_pool == of_pool;
        is_present.then(|| Arc::clone(&merged.answer))
    }

    fn insert(&mut self, key: Key, merged: MergedConfig) {
        self.bytes += merged.answer.body.len();
        if let Some(before) = self.configs.put(key, merged) {
            self.bytes -= before.answer.body.len();
        }
        while self.bytes > MAX_BYTES
            && let Some((_, oldest)) = self.configs.pop_lru()
        {
            self.bytes -= oldest.answer.body.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use model::inputs::ServingMode;
    use serde_json::json;

    use super::*;
    use crate::serving::answers::Answers;
    use crate::serving::answers::tests::inputs;

    fn object(overlay: &serde_json::Value) -> Arc<FirstBootMachine> {
        let machine =
            json!({"metadata": {"name": "m"}, "spec": {"pool": "worker", "overlay": overlay}});
        Arc::new(serde_json::from_value(machine).unwrap())
    }

    async fn of_pool(config: &serde_json::Value) -> Arc<Answer> {
        let answers = Arc::new(Answers::new(true, Arc::default()));
        answers
            .replace(&inputs(ServingMode::Manifests, "rendered", config), SystemTime::UNIX_EPOCH);
        answers.answer("worker", SpecVersion::V3_4, Form::Plain).await.unwrap()
    }

    #[tokio::test]
    async fn an_overlay_that_was_changed_is_not_reported_any_more() {
        let config = json!({"ignition": {"version": "3.4.0"}});
        let with_file = json!({
            "ignition": {"version": "3.4.0"},
            "storage": {"files": [{"path": "/etc/a", "contents": {"source": "data:,a"}}]},
        });
        let of_pool = of_pool(&with_file).await;
        // An overlay replaces only those of its pool's files that `replaces` names.
        let (bad, good) = (object(&with_file), object(&config));
        let overlays = Overlays::new(Status::default());
        let name: Arc<str> = "m".into();
        let merge = |object: &Arc<FirstBootMachine>| {
            let key = (Arc::clone(&name), SpecVersion::V3_4, Form::Plain.index());
            overlays.merge(key, Arc::clone(object), &of_pool)
        };
        let take = |object: &Arc<FirstBootMachine>| {
            overlays.take(&[("m".to_owned(), Arc::clone(object))].into());
        };
        let is_reported = || !lock(&overlays.failed).is_empty();
        take(&bad);
        merge(&bad).unwrap_err();
        assert!(is_reported());
        take(&good);
        assert!(!is_reported(), "it has not been merged yet");
        // The merge of a client that has left ends later than the change.
        merge(&bad).unwrap_err();
        assert!(!is_reported());
        merge(&good).unwrap();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn an_overlay_is_merged_for_the_next_client_although_the_first_one_disconnects() {
        let config = json!({"ignition": {"version": "3.4.0"}});
        let of_pool = of_pool(&config).await;
        let variant = (SpecVersion::V3_4, Form::Plain);
        let overlays = Arc::new(Overlays::new(Status::default()));
        overlays.take(&[("m".to_owned(), object(&config))].into());
        let name = "m".into();
        {
            let mut first = Box::pin(overlays.answer(&name, of_pool, variant));
            // Mostly pending, and dropped then.
            let _ = futures_util::poll!(first.as_mut());
        }
        let merged = async {
            while lock(&overlays.cache).configs.is_empty() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), merged).await.unwrap();
    }
}
