//! The duties beside serving, on a cluster: observe, plan, apply one step, observe again.
//!
//! ```text
//!  watches ─wake─> observe ─> State ─> pki::plan ─> step ─> apply ─┐
//!                     ^       (value)    (pure)             (I/O)  │
//!                     └────────────────────────────────────────────┘
//! ```
//!
//! Watches only wake the loop; what it decides on is read anew each time, and every write has the
//! version that was read as its precondition. Whoever else writes the same objects comes first, or
//! is seen by the next look: nobody's change is lost, and the process may end after any write.

mod events;
mod infrastructure;
pub mod leader;
mod metrics;
pub mod registry_ca;
mod state;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt as _, pin_mut};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{
    ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams, Preconditions,
};
use kube::core::{GroupVersionKind, PartialObjectMeta};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::events::EventType;
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde_json::Value;
use time::OffsetDateTime;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use self::events::Events;
pub use self::infrastructure::Infrastructure;
pub use self::metrics::ControllerMetrics;
pub use self::state::{AUTHORITY, NAMESPACE, Pool, ROTATE, SERVING, State, UserData};
use self::state::{ROOT, ROOT_NAMESPACE, SERVING_COPY, copy_of, holds_pair};
use crate::pki::{Host, IssueError, MOST_STEPS, Next, Policy, Step, Write, next};
use crate::user_data::LeftAlone;

/// Secrets that are written at a time.
const WRITES: usize = 8;
/// Changes come in bursts; a look waits for this much quiet.
const QUIET: Duration = Duration::from_millis(50);
/// Without a change there is a look so often.
const RESYNC: Duration = Duration::from_secs(600);
/// The waits after a look that failed, doubled from the one to the other.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// What the controller is given.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where the secrets with user data are.
    pub user_data_namespace: String,
    /// Names of the server beside those that the cluster tells.
    pub hosts: Vec<Host>,
    /// How certificates are made.
    pub policy: Policy,
    /// This process' name, in events.
    pub identity: String,
}

/// Keeps the certificates and the user data of a cluster in order.
pub struct Controller {
    client: Client,
    settings: Settings,
    events: Events,
    metrics: Arc<ControllerMetrics>,
    /// Secrets that could not be written, with when to try again and how long to wait after that.
    refused: BTreeMap<String, (Instant, Duration)>,
    reported: BTreeSet<(String, &'static str)>,
}

/// Why a look came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The API server refused, or was not reached.
    #[error("{what}: {}", crate::kube_client::reason(error))]
    Api {
        /// The object.
        what: String,
        /// What came back.
        error: kube::Error,
    },
    /// A certificate cannot be issued.
    #[error(transparent)]
    Issue(#[from] IssueError),
    /// The plan finds no end.
    #[error("still not in order after {MOST_STEPS} steps")]
    Endless,
}

impl ControlError {
    /// Whether somebody else's write came first: the next look sees it.
    fn is_conflict(&self) -> bool {
        matches!(self, Self::Api { error: kube::Error::Api(status), .. } if status.code == 409)
    }
}

fn api_error(what: impl Into<String>) -> impl FnOnce(kube::Error) -> ControlError {
    let what = what.into();
    move |error| ControlError::Api { what, error }
}

impl Controller {
    /// A controller that has not looked yet.
    #[must_use]
    pub fn new(client: Client, settings: Settings, metrics: Arc<ControllerMetrics>) -> Self {
        let events = Events::new(client.clone(), &settings.identity);
        Self {
            client,
            settings,
            events,
            metrics,
            refused: BTreeMap::new(),
            reported: BTreeSet::new(),
        }
    }

    /// Keeps everything in order for ever.
    pub async fn run(mut self) {
        let (wake, mut wakes) = mpsc::channel(1);
        let mut watches = JoinSet::new();
        self.watch(&mut watches, &wake);
        let mut wait = FIRST_WAIT;
        loop {
            let next = match self.reconcile().await {
                Ok(requeue_at) => {
                    wait = FIRST_WAIT;
                    let due = requeue_at - OffsetDateTime::now_utc();
                    let due = if due.is_positive() { due.unsigned_abs() } else { FIRST_WAIT };
                    let retry = self.refused.values().map(|(time, _)| *time).min();
                    let by = Instant::now() + due.min(RESYNC);
                    retry.map_or(by, |retry| retry.min(by))
                }
                Err(error) => {
                    self.metrics.failures.inc();
                    tracing::error!(%error, "not in order; trying again");
                    let next = Instant::now() + wait;
                    wait = LONGEST_WAIT.min(wait * 2);
                    next
                }
            };
            // Whoever wakes it is there as long as the watches are.
            let _ = tokio::time::timeout_at(next, wakes.recv()).await;
            tokio::time::sleep(QUIET).await;
            while wakes.try_recv().is_ok() {}
        }
    }

    /// Brings everything in order, and tells when to look again.
    pub async fn reconcile(&mut self) -> Result<OffsetDateTime, ControlError> {
        for _ in 0..MOST_STEPS {
            let state = self.observe().await?;
            if self.retype(&state).await? {
                continue;
            }
            // One that was deleted, or mended by somebody else, has no next try.
            let duties = state.user_data_duties();
            self.refused.retain(|name, _| matches!(duties.get(name), Some(UserData::Write(_))));
            let now = Instant::now();
            let refused: BTreeSet<String> = self
                .refused
                .iter()
                .filter(|(_, (until, _))| *until > now)
                .map(|(name, _)| name.clone())
                .collect();
            let observed = state.observed(&refused);
            let now = OffsetDateTime::now_utc();
            let policy = self.settings.policy;
            let next = next(&observed, &policy, now, &mut || policy.algorithm.generate())?;
            self.report(duties).await;
            match next {
                Next::Settled { until } => {
                    self.metrics.observe(&observed, state.newest_trusted());
                    return Ok(until);
                }
                Next::Step { step, writes } => {
                    match self.carry_out(&step, writes, &state, now).await {
                        Err(error) if error.is_conflict() => {}
                        result => result?,
                    }
                }
            }
        }
        Err(ControlError::Endless)
    }

    /// Reads all objects that a plan depends on.
    pub async fn observe(&self) -> Result<State, ControlError> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), NAMESPACE);
        let maps: Api<ConfigMap> = Api::namespaced(self.client.clone(), NAMESPACE);
        let roots: Api<ConfigMap> = Api::namespaced(self.client.clone(), ROOT_NAMESPACE);
        let secret = |name: &'static str| {
            let secrets = secrets.clone();
            async move {
                secrets.get_opt(name).await.map_err(api_error(format!("Secret {NAMESPACE}/{name}")))
            }
        };
        let named =
            |what: &'static str| move |error| ControlError::Api { what: what.into(), error };
        let infrastructure = self
            .custom("config.openshift.io", "Infrastructure", "infrastructures")
            .get_opt("cluster")
            .await
            .map_err(named("Infrastructure cluster"))?;
        Ok(State {
            authority: secret(AUTHORITY).await?,
            bundle: maps
                .get_opt(AUTHORITY)
                .await
                .map_err(named("ConfigMap machine-config-server-ca"))?,
            serving: secret(SERVING).await?,
            serving_copy: secret(SERVING_COPY).await?,
            root: roots.get_opt(ROOT).await.map_err(named("ConfigMap kube-system/root-ca"))?,
            infrastructure: infrastructure
                .map(|object| Infrastructure::read(&object.data))
                .unwrap_or_default(),
            user_data: self.user_data().await?,
            pools: self.pools().await?,
            hosts: self.settings.hosts.clone(),
        })
    }

    async fn user_data(&self) -> Result<BTreeMap<String, Secret>, ControlError> {
        let namespace = &self.settings.user_data_namespace;
        let what = || format!("secrets of {namespace}");
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        let mut params = ListParams::default().limit(100);
        let mut found = BTreeMap::new();
        loop {
            let list = secrets.list(&params).await.map_err(api_error(what()))?;
            let next = list.metadata.continue_.clone().filter(|token| !token.is_empty());
            for secret in list.items {
                let name = secret.name_any();
                if name.ends_with("-user-data") || name.ends_with("-user-data-managed") {
                    found.insert(name, secret);
                }
            }
            match next {
                Some(token) => params.continue_token = Some(token),
                None => return Ok(found),
            }
        }
    }

    async fn pools(&self) -> Result<Vec<Pool>, ControlError> {
        let group = "machineconfiguration.openshift.io";
        let resource = resource(group, "MachineConfigPool", "machineconfigpools");
        let pools: Api<PartialObjectMeta<DynamicObject>> =
            Api::all_with(self.client.clone(), &resource);
        match pools.list(&ListParams::default()).await {
            Ok(list) => Ok(list
                .items
                .iter()
                .map(|pool| Pool { name: pool.name_any(), uid: pool.uid().unwrap_or_default() })
                .collect()),
            // A cluster without the kind has no pools.
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(Vec::new()),
            Err(error) => Err(ControlError::Api { what: "machineconfigpools".to_owned(), error }),
        }
    }

    fn custom(&self, group: &str, kind: &str, plural: &str) -> Api<DynamicObject> {
        Api::all_with(self.client.clone(), &resource(group, kind, plural))
    }

    /// Gives the serving pair's secret the right type, one write at a time: first a copy, then the
    /// old one goes, a new one comes from the copy, and the copy goes. Tells whether it wrote.
    async fn retype(&self, state: &State) -> Result<bool, ControlError> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), NAMESPACE);
        let copied = |name: &'static str| api_error(format!("Secret {NAMESPACE}/{name}"));
        let as_secret = |value: Value| serde_json::from_value::<Secret>(value).unwrap_or_default();
        let remove = async |serving: &Secret| {
            let params = kube::api::DeleteParams::default().preconditions(Preconditions {
                uid: serving.metadata.uid.clone(),
                resource_version: serving.metadata.resource_version.clone(),
            });
            secrets.delete(SERVING, &params).await.map(|_| ()).map_err(copied(SERVING))
        };
        match (&state.serving, &state.serving_copy) {
            (Some(serving), _) if state.needs_retyping() && !holds_pair(serving) => {
                tracing::warn!(
                    "the secret {SERVING} holds no pair, and has another type: made anew"
                );
                remove(serving).await?;
            }
            (Some(serving), None) if state.needs_retyping() => {
                let copy = as_secret(copy_of(serving, SERVING_COPY));
                secrets
                    .create(&PostParams::default(), &copy)
                    .await
                    .map_err(copied(SERVING_COPY))?;
            }
            (Some(serving), Some(copy)) if state.needs_retyping() => {
                if copy.data == serving.data {
                    remove(serving).await?;
                } else {
                    // Somebody has changed the pair since.
                    self.delete(&secrets, SERVING_COPY).await?;
                }
            }
            (None, Some(copy)) => {
                let serving = as_secret(copy_of(copy, SERVING));
                secrets.create(&PostParams::default(), &serving).await.map_err(copied(SERVING))?;
                tracing::info!("the secret of the serving pair has the type {}", state::TLS_TYPE);
            }
            (Some(_), Some(_)) => self.delete(&secrets, SERVING_COPY).await?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    async fn delete(&self, secrets: &Api<Secret>, name: &str) -> Result<(), ControlError> {
        match secrets.delete(name, &kube::api::DeleteParams::default()).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(error) => {
                Err(ControlError::Api { what: format!("Secret {NAMESPACE}/{name}"), error })
            }
        }
    }

    async fn carry_out(
        &mut self,
        step: &Step,
        writes: Vec<Write>,
        state: &State,
        now: OffsetDateTime,
    ) -> Result<(), ControlError> {
        let policy = self.settings.policy;
        let mut pointers = Vec::new();
        for write in writes {
            match write {
                Write::Authority(pair) => {
                    let object = state.authority_secret(&pair, &policy);
                    let is_there = state.authority.is_some();
                    self.put::<Secret>(NAMESPACE, AUTHORITY, is_there, object).await?;
                }
                Write::Bundle(pem) => {
                    let object = state.bundle_map(&pem);
                    let is_there = state.bundle.is_some();
                    self.put::<ConfigMap>(NAMESPACE, AUTHORITY, is_there, object).await?;
                }
                Write::Pointer { name, text } => pointers.push((name, text)),
                Write::Serving(pair) => {
                    let object = state.serving_secret(&pair, &policy);
                    self.put::<Secret>(NAMESPACE, SERVING, state.serving.is_some(), object).await?;
                }
            }
        }
        self.write_user_data(state, pointers).await;
        match step {
            Step::Authority(reason) => {
                let note = format!("made a new certificate authority: {reason}");
                self.tell(AUTHORITY, reason.label(), &note).await;
                self.metrics.rotated("authority", reason.label(), now);
            }
            Step::Bundle(_) => tracing::info!("wrote the bundle of certificate authorities"),
            Step::Pointers => {}
            Step::Serving(reason, _) => {
                let note = format!("issued a new serving pair: {reason}");
                self.tell(SERVING, reason.label(), &note).await;
                self.metrics.rotated("serving", reason.label(), now);
            }
        }
        Ok(())
    }

    /// Creates an object, or patches the one that was read.
    async fn put<K>(
        &self,
        namespace: &str,
        name: &str,
        is_there: bool,
        object: Value,
    ) -> Result<(), ControlError>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
        K: Clone + std::fmt::Debug + serde::Serialize + serde::de::DeserializeOwned,
    {
        put::<K>(&self.client, namespace, name, is_there, object)
            .await
            .map_err(api_error(format!("{} {namespace}/{name}", K::kind(&()))))
    }

    /// Writes all user data that is stale, some at a time. What is refused is tried again later and
    /// holds up nothing else.
    async fn write_user_data(&mut self, state: &State, writes: Vec<(String, Vec<u8>)>) {
        let namespace = self.settings.user_data_namespace.clone();
        let client = self.client.clone();
        let writes = writes.into_iter().map(|(name, text)| {
            let object = state.user_data_secret(&name, &text);
            let is_there = state.user_data.contains_key(&name);
            let (client, namespace) = (client.clone(), namespace.clone());
            async move {
                let result = put::<Secret>(&client, &namespace, &name, is_there, object).await;
                (name, result)
            }
        });
        let results: Vec<_> =
            futures_util::stream::iter(writes).buffer_unordered(WRITES).collect().await;
        for (name, result) in results {
            match result {
                Ok(()) => {
                    self.refused.remove(&name);
                    self.metrics.user_data_written.inc();
                    tracing::info!(secret = name, "its user data trusts the bundle now");
                    let note = "wrote the certificate authorities of the bundle into the user data";
                    self.events
                        .publish(EventType::Normal, "bundle", ("Secret", &namespace, &name), note)
                        .await;
                }
                // Somebody else's write came first; the next look sees it.
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(error) => {
                    let before = self.refused.get(&name).map(|(_, wait)| *wait);
                    let wait = before.map_or(FIRST_WAIT, |wait| LONGEST_WAIT.min(wait * 2));
                    let reason = crate::kube_client::reason(&error);
                    if before.is_none() {
                        tracing::error!(secret = name, reason, "cannot write the user data");
                        let note = format!("cannot write the user data: {reason}");
                        self.events
                            .publish(
                                EventType::Warning,
                                "refused",
                                ("Secret", &namespace, &name),
                                &note,
                            )
                            .await;
                    }
                    self.metrics.failures.inc();
                    self.refused.insert(name, (Instant::now() + wait, wait));
                }
            }
        }
    }

    /// Says once of each secret why it is left alone.
    async fn report(&mut self, duties: BTreeMap<String, UserData>) {
        let namespace = self.settings.user_data_namespace.clone();
        for (name, duty) in duties {
            let UserData::LeftAlone(reason) = duty else {
                for reason in LeftAlone::ALL {
                    self.reported.remove(&(name.clone(), reason.label()));
                }
                continue;
            };
            if self.reported.insert((name.clone(), reason.label())) {
                tracing::warn!(secret = name, %reason, "its user data is left alone");
                let note = format!("the user data is left alone: {reason}");
                self.events
                    .publish(EventType::Warning, "left-alone", ("Secret", &namespace, &name), &note)
                    .await;
            }
        }
    }

    async fn tell(&self, name: &str, reason: &str, note: &str) {
        tracing::info!(name, reason, "{note}");
        self.events.publish(EventType::Normal, reason, ("Secret", NAMESPACE, name), note).await;
    }

    /// Starts a watch on the metadata of everything that a plan depends on.
    fn watch(&self, watches: &mut JoinSet<()>, wake: &mpsc::Sender<()>) {
        let secrets = |namespace: &str| {
            Api::<PartialObjectMeta<Secret>>::namespaced(self.client.clone(), namespace)
        };
        let only = |name: &str| watcher::Config::default().fields(&format!("metadata.name={name}"));
        for name in [AUTHORITY, SERVING, SERVING_COPY] {
            watches.spawn(wake_on_change(secrets(NAMESPACE), only(name), wake.clone()));
        }
        let user_data = secrets(&self.settings.user_data_namespace);
        watches.spawn(wake_on_change(user_data, watcher::Config::default(), wake.clone()));
        for (namespace, name) in [(NAMESPACE, AUTHORITY), (ROOT_NAMESPACE, ROOT)] {
            let maps =
                Api::<PartialObjectMeta<ConfigMap>>::namespaced(self.client.clone(), namespace);
            watches.spawn(wake_on_change(maps, only(name), wake.clone()));
        }
        for (group, kind, plural, config) in [
            ("config.openshift.io", "Infrastructure", "infrastructures", only("cluster")),
            (
                "machineconfiguration.openshift.io",
                "MachineConfigPool",
                "machineconfigpools",
                watcher::Config::default(),
            ),
        ] {
            let objects: Api<PartialObjectMeta<DynamicObject>> =
                Api::all_with(self.client.clone(), &resource(group, kind, plural));
            watches.spawn(wake_on_change(objects, config, wake.clone()));
        }
    }
}

async fn put<K>(
    client: &Client,
    namespace: &str,
    name: &str,
    is_there: bool,
    mut object: Value,
) -> kube::Result<()>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    K: Clone + std::fmt::Debug + serde::Serialize + serde::de::DeserializeOwned,
{
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    if !is_there {
        let object: K = serde_json::from_value(object).map_err(kube::Error::SerdeError)?;
        return api.create(&PostParams::default(), &object).await.map(|_| ());
    }
    if let Some(fields) = object.as_object_mut() {
        // A secret's type cannot be changed.
        fields.remove("type");
    }
    api.patch(name, &PatchParams::default(), &Patch::Merge(&object)).await.map(|_| ())
}

/// Wakes the loop after each change, until the loop ends.
async fn wake_on_change<K>(api: Api<K>, config: watcher::Config, wake: mpsc::Sender<()>)
where
    K: Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned + Send + 'static,
{
    let events = watcher(api, config).default_backoff();
    pin_mut!(events);
    while let Some(event) = events.next().await {
        // A loop that has not looked since the last one is awake already.
        if event.is_ok() && matches!(wake.try_send(()), Err(mpsc::error::TrySendError::Closed(())))
        {
            return;
        }
    }
}

fn resource(group: &str, kind: &str, plural: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, "v1", kind), plural)
}
