//! Registry logins from a directory: which machines get them, and what keeps them from it.

use std::fs;
use std::path::Path;
use std::time::Duration;

use ignition::{Form, SpecVersion};
use machine_config_server::source::directory::Layout;
use machine_config_server::source::{Butane, Settings, Source};
use model::inputs::{Inputs, Problem};
use model::render::{self, CompressedContents};
use serde_json::{Value, json};
use telemetry::Reporting;
use telemetry::conditions::Status;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use crate::support::DEADLINE;
use crate::support::manifests::{self, machine_config, replace};
use crate::support::stopwatch::Stopwatch;

pub(crate) const CREDENTIAL: &str = "c2VjcmV0OnBhc3N3b3Jk";
const DEFAULT: &str = "openshift-config/pull-secret";
const PATH: &str = "/var/lib/kubelet/config.json";

/// The contract's limit for a change to be served.
pub(crate) const SOON: Duration = Duration::from_secs(1);

/// The text of a file with logins to these registries.
pub(crate) fn credentials(registries: &[&str]) -> String {
    let entries = registries.iter().map(|name| ((*name).to_owned(), json!({"auth": CREDENTIAL})));
    json!({"auths": entries.collect::<serde_json::Map<_, _>>()}).to_string()
}

/// The registries that a pool's machines can log in to, once it is enforced; the reason if there is
/// no config for them.
pub(crate) fn served(inputs: &Inputs, pool: &str) -> Result<Vec<String>, String> {
    let mut inputs = inputs.clone();
    inputs.enforced = [pool.to_owned()].into();
    let file = file(&inputs, pool)?;
    let file: Option<Value> = file.map(|text| serde_json::from_str(&text).expect("JSON"));
    let auths = file.as_ref().and_then(|file| file["auths"].as_object());
    Ok(auths.into_iter().flatten().map(|(name, _)| name.clone()).collect())
}

/// The file that a pool's machines get.
fn file(inputs: &Inputs, pool: &str) -> Result<Option<String>, String> {
    let selected = render::select(inputs, pool).map_err(|error| error.to_string())?;
    let compressed = CompressedContents::default();
    let rendered = render::render(&selected, SpecVersion::NEWEST, Form::Plain, &compressed);
    let config: Value =
        serde_json::from_slice(&rendered.map_err(|error| error.to_string())?).expect("JSON");
    let mut files = config["storage"]["files"].as_array().expect("files").iter();
    let Some(file) = files.find(|file| file["path"] == PATH) else { return Ok(None) };
    assert_eq!(file["mode"], 0o600);
    let source = file["contents"]["source"].as_str().expect("a source");
    let text = source.strip_prefix("data:,").expect("a data URL");
    Ok(Some(percent_encoding::percent_decode_str(text).decode_utf8().expect("UTF-8").into_owned()))
}

/// A source that is followed, and what it published last.
pub(crate) struct Followed {
    published: watch::Receiver<Option<Inputs>>,
    status: Status,
    /// It ends with this value.
    _following: AbortOnDropHandle<()>,
}

impl Followed {
    pub(crate) async fn start(settings: Settings) -> Self {
        let (sender, published) = watch::channel(None);
        let status = Status::default();
        let reporting = Reporting { metrics: std::sync::Arc::default(), status: status.clone() };
        let (source, first) = Source::open(settings).await.expect("a source");
        sender.send_replace(first);
        let following = tokio::spawn(source.follow(sender, reporting));
        Self { published, status, _following: AbortOnDropHandle::new(following) }
    }

    /// What the log, `Debug` and administrators could be told.
    pub(crate) fn reported(&self) -> String {
        let inputs = self.published.borrow();
        let problems = inputs.iter().flat_map(|inputs| &inputs.problems);
        let problems: Vec<_> = problems.map(ToString::to_string).collect();
        let (not_ready, degraded) = (self.status.not_ready.lines(), self.status.degraded.lines());
        format!(
            "{}\n{}\n{}\n{inputs:?}",
            problems.join("\n"),
            not_ready.join("\n"),
            degraded.join("\n")
        )
    }

    /// What administrators are told of secrets. Of other kinds the API server prepares the storage in
    /// its own time, and their watches tell of that.
    pub(crate) fn degraded(&self) -> Vec<String> {
        let lines = self.status.degraded.lines();
        lines.into_iter().filter(|line| line.starts_with("Secret ")).collect()
    }

    /// Waits until what is published is as expected.
    pub(crate) async fn until(&mut self, what: &str, is_so: impl Fn(&Inputs) -> bool) -> Inputs {
        let waiting = self.published.wait_for(|inputs| inputs.as_ref().is_some_and(&is_so));
        let found = tokio::time::timeout(DEADLINE, waiting).await;
        let found = found.map(|found| found.expect("a source that goes on").clone());
        found.ok().flatten().unwrap_or_else(|| panic!("{what}: {}", self.reported()))
    }

    /// Waits until machines get logins to these registries, which may take a second.
    pub(crate) async fn served_soon(&mut self, pool: &str, registries: &[&str]) {
        let changed = Stopwatch::start();
        let what = format!("{pool} to have {registries:?}");
        let inputs =
            self.until(&what, |inputs| served(inputs, pool).is_ok_and(|found| found == registries));
        let inputs = inputs.await;
        changed.within(SOON, &what);
        assert_eq!(file(&Inputs { enforced: [].into(), ..inputs }, pool), Ok(None));
        assert!(!self.reported().contains(CREDENTIAL), "{}", self.reported());
    }
}

/// A directory or a cluster with the Secret of [`DEFAULT`].
pub(crate) trait LoginSite {
    /// Gives the Secret this text, and makes it if it is not there.
    fn put(&self, text: &str);
    fn remove(&self);
}

/// Has the Secret of a source change in all ways. It is not there before.
pub(crate) async fn follows_its_secret(site: &(impl LoginSite + ?Sized), source: &mut Followed) {
    site.put(&credentials(&["quay.io"]));
    source.served_soon("worker", &["quay.io"]).await;
    let last = ["new.example", "quay.io"];
    site.put(&credentials(&last));
    source.served_soon("worker", &last).await;
    assert!(source.degraded().is_empty(), "{:?}", source.degraded());

    // What is not understood leaves what was good. An API server wants JSON.
    site.put(&json!({"auths": CREDENTIAL}).to_string());
    let problem =
        "Secret openshift-config/pull-secret: key \".dockerconfigjson\": has no object `auths`";
    let has = |text: &'static str| {
        move |inputs: &Inputs| inputs.problems.iter().any(|it| it.to_string() == text)
    };
    let inputs = source.until(problem, has(problem)).await;
    let for_unauthenticated: Vec<_> =
        inputs.problems.iter().map(Problem::for_unauthenticated).collect();
    assert_eq!(for_unauthenticated, ["pull-secret: it cannot be used"]);
    source.served_soon("worker", &last).await;
    // So does its loss. It comes back empty.
    site.remove();
    let gone = "Secret openshift-config/pull-secret: was removed; its last registry credentials are served";
    source.until(gone, has(gone)).await;
    source.served_soon("worker", &last).await;
    site.put(&credentials(&[]));
    source.served_soon("worker", &[]).await;
    site.put(&credentials(&["quay.io"]));
    source.served_soon("worker", &["quay.io"]).await;
}

/// A folder of manifests.
impl LoginSite for Path {
    fn put(&self, text: &str) {
        replace(self, "all.json", secret(DEFAULT, text));
    }

    fn remove(&self) {
        fs::remove_file(self.join("all.json")).expect("a file");
    }
}

fn secret(name: &str, text: &str) -> Value {
    let (namespace, name) = name.split_once('/').expect("a namespace");
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson",
        "metadata": {"name": name, "namespace": namespace},
        "stringData": {".dockerconfigjson": text},
    })
}

/// Two pools, the second with a secret of its own.
fn manifests() -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a temporary folder");
    for (pool, annotations) in [
        ("worker", json!(null)),
        ("edge", json!({"machineconfiguration.openshift.io/registry-auth": "edge/logins"})),
    ] {
        let mut object = manifests::pool(pool, "rendered");
        object["metadata"]["annotations"] = annotations;
        replace(directory.path(), &format!("{pool}.json"), object);
    }
    let config = machine_config("rendered", &json!({"ignition": {"version": "3.4.0"}}));
    replace(directory.path(), "config.json", config);
    directory
}

fn settings(directory: &Path, secret: Option<&str>) -> Settings {
    let registry_auth = secret.map(|name| name.parse().expect("a name"));
    Settings::Directory(Layout::Tree {
        root: directory.to_owned(),
        registry_credentials: registry_auth,
        is_strict: false,
        memory: None,
        butane: Butane::default(),
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn machines_of_enforced_pools_get_a_directorys_credentials_and_each_change_of_them() {
    let directory = manifests();
    replace(directory.path(), "own.json", secret("edge/logins", &credentials(&["edge.example"])));
    let mut source = Followed::start(settings(directory.path(), Some(DEFAULT))).await;
    follows_its_secret(directory.path(), &mut source).await;
    source.served_soon("edge", &["edge.example", "quay.io"]).await;
    directory.path().put(&credentials(&["new.example"]));
    source.served_soon("edge", &["edge.example", "new.example"]).await;
}

#[tokio::test]
async fn no_secret_is_read_that_was_not_asked_for_and_one_that_is_missing_is_reported() {
    let directory = manifests();
    replace(directory.path(), "all.json", secret(DEFAULT, &credentials(&["quay.io"])));
    replace(directory.path(), "own.json", secret("edge/logins", &credentials(&["edge.example"])));
    let (_, inputs) = Source::open(settings(directory.path(), None)).await.expect("a source");
    let inputs = inputs.expect("inputs");
    assert_eq!((served(&inputs, "worker"), served(&inputs, "edge")), (Ok(vec![]), Ok(vec![])));

    let (_, inputs) =
        Source::open(settings(directory.path(), Some("a/b"))).await.expect("a source");
    let inputs = inputs.expect("inputs");
    assert_eq!(served(&inputs, "worker"), Ok(vec![]));
    assert_eq!(served(&inputs, "edge"), Ok(vec!["edge.example".to_owned()]));
    let reported: Vec<_> = inputs.problems.iter().map(ToString::to_string).collect();
    assert_eq!(reported, ["Secret a/b: not found; machines get no registry credentials from it"]);
}

#[tokio::test]
async fn the_values_of_a_secret_that_does_not_decode_are_told_to_nobody() {
    let directory = manifests();
    let data = json!({".dockerconfigjson": "?SECRET?"});
    for (data, reported) in [
        (data, "cannot be read"),
        (json!({".dockerconfigjson": ["SECRET"]}), "data..dockerconfigjson: expected a string"),
        (json!("SECRET"), "data: expected a mapping"),
    ] {
        let object = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": "pull-secret", "namespace": "openshift-config"}, "data": data,
        });
        replace(directory.path(), "all.json", object);
        let opened = Source::open(settings(directory.path(), Some(DEFAULT))).await;
        let inputs = opened.expect("a directory").1.expect("its inputs");
        let problems: Vec<_> = inputs.problems.iter().map(ToString::to_string).collect();
        let problems = problems.join("; ");
        assert!(problems.contains(reported) && !problems.contains("SECRET"), "{problems}");
    }
}
