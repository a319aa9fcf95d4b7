//! Registry logins from a cluster: a real kube-apiserver, the source as the service account with the
//! rights that `deploy/` gives it, with and without the component `registry-auth`.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use machine_config_server::source::{Settings, cluster};
use serde_json::{Value, json};

use super::server::ServedCluster;
use crate::registry_auth::{
    CREDENTIAL, Followed, LoginSite, credentials, follows_its_secret, served,
};
use crate::support::cluster::{ACCOUNT, Cluster, NAMESPACE, overlay};
use crate::support::manifests::files;
use crate::support::proxy::{Proxy, Way};
use crate::support::rendered::POOLS;
use crate::support::wait_until;

const SECRETS: &str = "/api/v1/namespaces/openshift-config/secrets";
const DEFAULT: &str = "openshift-config/pull-secret";
const ANNOTATION: &str = "machineconfiguration.openshift.io/registry-auth";

/// A cluster with the pool `worker`, and the rights of these components.
fn cluster_with(components: &[&str]) -> ServedCluster {
    let site = ServedCluster::with_worker();
    if !components.is_empty() {
        let mine = overlay("deploy/openshift", components);
        let mine = mine.path().to_str().expect("text");
        site.cluster.apply(&["--force-conflicts", "-k", mine]);
    }
    site
}

impl ServedCluster {
    fn secret(&self, name: &str, text: &str) {
        self.cluster.create(
            SECRETS,
            &json!({
                "metadata": {"name": name}, "type": "kubernetes.io/dockerconfigjson",
                "data": {".dockerconfigjson": BASE64.encode(text)},
            }),
        );
    }

    fn annotate(&self, value: &Value) {
        let change = json!({"metadata": {"annotations": {ANNOTATION: value}}});
        self.cluster.patch(&format!("{POOLS}/worker"), &change);
    }

    fn cache(&self) -> PathBuf {
        self.directory.path().join("cache")
    }

    async fn follow(&self, address: SocketAddr, secret: Option<&str>) -> Followed {
        Followed::start(Settings::Cluster(cluster::Settings {
            kubeconfig: Some(self.cluster.account_kubeconfig(address)),
            apiserver_url: "https://api-int.example.com:6443".to_owned(),
            token_dir: self.token(),
            cache_dir: Some(self.cache()),
            machines: false,
            registry_credentials: secret.map(|name| name.parse().expect("a name")),
        }))
        .await
    }
}

impl LoginSite for ServedCluster {
    fn put(&self, text: &str) {
        let path = format!("{SECRETS}/pull-secret");
        if self.cluster.get(&path).is_none() {
            return self.secret("pull-secret", text);
        }
        let data = json!({"data": {".dockerconfigjson": BASE64.encode(text)}});
        self.cluster.patch(&path, &data);
    }

    fn remove(&self) {
        self.cluster.delete(&format!("{SECRETS}/pull-secret"));
    }
}

/// Whether a text is in any file of a folder.
fn holds(directory: &Path, text: &str) -> bool {
    files(directory).iter().any(|file| {
        let bytes = fs::read(directory.join(file)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).contains(text)
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clusters_credentials_are_served_within_a_second_of_each_change() {
    let site = cluster_with(&["deploy/components/registry-auth"]);
    let mut source = site.follow(site.cluster.address(), Some(DEFAULT)).await;
    source.until("the inputs", |inputs| inputs.pools.contains_key("worker")).await;
    follows_its_secret(&site, &mut source).await;

    // The pool has one of its own, which the server may read only then.
    site.secret("own", &credentials(&["own.example"]));
    site.annotate(&json!("openshift-config/own"));
    let place = "Secret openshift-config/own";
    wait_until("the missing right to be told", || {
        source.degraded().iter().any(|line| line.starts_with(place))
    });
    source.served_soon("worker", &["quay.io"]).await;
    let rights = "/apis/rbac.authorization.k8s.io/v1/namespaces/openshift-config";
    let role = json!({
        "metadata": {"name": "own"},
        "rules": [{"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["own"],
                   "verbs": ["list", "watch"]}],
    });
    site.cluster.create(&format!("{rights}/roles"), &role);
    let binding = json!({
        "metadata": {"name": "own"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "own"},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}],
    });
    site.cluster.create(&format!("{rights}/rolebindings"), &binding);
    let all = ["own.example", "quay.io"];
    source
        .until("the pool's own", |inputs| served(inputs, "worker").is_ok_and(|it| it == all))
        .await;
    wait_until("order", || source.degraded().is_empty());
    site.annotate(&json!("no name"));
    let refused = "its annotation machineconfiguration.openshift.io/registry-auth names no Secret: \
        expected NAMESPACE/NAME";
    source.until(refused, |inputs| served(inputs, "worker") == Err(refused.to_owned())).await;
    site.annotate(&Value::Null);
    source.served_soon("worker", &["quay.io"]).await;
    wait_until("the cache", || site.cache().join("objects.json").exists());
    assert!(!holds(&site.cache(), &BASE64.encode(credentials(&["quay.io"]))));
    assert!(!holds(&site.cache(), CREDENTIAL) && !holds(&site.cache(), "dockerconfigjson"));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_right_or_the_secret_machines_get_what_they_got_before() {
    let site = cluster_with(&[]);
    let mut source = site.follow(site.cluster.address(), Some(DEFAULT)).await;
    source.until("the inputs", |inputs| served(inputs, "worker") == Ok(vec![])).await;
    let line = source.degraded().join("\n");
    let reported = "Secret openshift-config/pull-secret: cannot be watched: ";
    assert!(line.starts_with(reported) && line.contains("forbidden"), "{line}");
    // One that was not told to look for it has nothing to tell.
    let mut quiet = site.follow(site.cluster.address(), None).await;
    quiet.until("the inputs", |inputs| served(inputs, "worker") == Ok(vec![])).await;
    assert!(quiet.degraded().is_empty(), "{:?}", quiet.degraded());

    let site = cluster_with(&["deploy/components/registry-auth"]);
    let mut source = site.follow(site.cluster.address(), Some(DEFAULT)).await;
    source.until("the inputs", |inputs| served(inputs, "worker") == Ok(vec![])).await;
    assert_eq!(
        source.degraded(),
        [
            "Secret openshift-config/pull-secret: not found; machines get no registry credentials from it"
        ]
    );
    site.secret("pull-secret", &credentials(&["quay.io"]));
    source.served_soon("worker", &["quay.io"]).await;
    assert!(source.degraded().is_empty(), "{:?}", source.degraded());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_started_while_the_api_server_is_away_has_enforced_pools_wait() {
    let site = cluster_with(&["deploy/components/registry-auth"]);
    site.secret("pull-secret", &credentials(&["quay.io"]));
    let mut source = site.follow(site.cluster.address(), Some(DEFAULT)).await;
    source
        .until("the logins", |inputs| served(inputs, "worker").is_ok_and(|it| !it.is_empty()))
        .await;
    wait_until("the cache", || site.cache().join("objects.json").exists());
    drop(source);

    let proxy = Proxy::to(site.cluster.address());
    proxy.set(Way::Cut);
    let mut source = site.follow(proxy.address(), Some(DEFAULT)).await;
    let inputs = source.until("the cache", |inputs| inputs.pools.contains_key("worker")).await;
    let waits = "its registry credentials are unknown: Secret openshift-config/pull-secret has not been read";
    assert_eq!(served(&inputs, "worker"), Err(waits.to_owned()));
    assert!(model::render::select(&inputs, "worker").is_ok(), "it is not enforced");
    proxy.set(Way::Open);
    source
        .until("the logins", |inputs| served(inputs, "worker") == Ok(vec!["quay.io".to_owned()]))
        .await;
}

#[test]
fn the_component_gives_the_right_to_one_secret_and_no_more() {
    let cluster = Cluster::openshift();
    let mine = overlay("deploy/openshift", &["deploy/components/registry-auth"]);
    cluster.apply(&["--force-conflicts", "-k", mine.path().to_str().expect("text")]);
    let given = &["list", "watch"][..];
    for (object, namespace, allowed) in [
        ("/secrets/pull-secret", "openshift-config", given),
        ("/secrets/other", "openshift-config", &[]),
        ("/secrets", "openshift-config", &[]),
        ("/secrets/pull-secret", NAMESPACE, &[]),
    ] {
        cluster.assert_may_only(ACCOUNT, object, namespace, allowed);
    }
    let path = format!("/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets/{ACCOUNT}");
    let deployed = cluster.get(&path).expect("the DaemonSet");
    let flags = &deployed["spec"]["template"]["spec"]["containers"][0]["args"];
    let flag = format!("--registry-auth={DEFAULT}");
    assert!(flags.as_array().expect("flags").contains(&json!(flag)), "{flags}");
}
