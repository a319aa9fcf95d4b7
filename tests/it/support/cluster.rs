//! The API of a cluster: a real kube-apiserver on a real etcd, which no other test uses at the same time.
//!
//! No controller runs in it, so objects stay as a test creates them.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::cluster_servers::{ADMIN, API_SERVER, ETCD, Servers, binary};
use super::http::Response;
use super::manifests::yaml_documents;
use super::{cluster_template, in_repository, shared_servers, wait_for};

/// Namespace and service account of the server.
pub(crate) const NAMESPACE: &str = "openshift-machine-config-operator";
pub(crate) const ACCOUNT: &str = "machine-config-server";
/// The Lease of the controller.
pub(crate) const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/openshift-machine-config-operator/leases/machine-config-server-controller";
/// Namespace of the registry CAs.
pub(crate) const MANAGED: &str = "openshift-config-managed";

/// All that may be done to objects.
const VERBS: [&str; 11] = [
    "get",
    "list",
    "watch",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
    "impersonate",
    "escalate",
    "bind",
];

/// A running API server with etcd, which end when the value is dropped, or are left to a later test.
///
/// Programs that use it end first: what they wrote later would be the next test's.
pub(crate) struct Cluster {
    servers: Servers,
    /// Files of this test.
    directory: TempDir,
}

impl Cluster {
    /// Starts a cluster with only Kubernetes' own objects.
    pub(crate) fn empty() -> Self {
        Self::own(|folder| Servers::start(folder, false))
    }

    /// Returns a cluster with a template that `prepare` creates in an empty one. The template is created once for each
    /// name. The servers can be those of an earlier test.
    pub(crate) fn prepared(name: &str, prepare: impl FnOnce(&Self)) -> Self {
        let start = Self::template(name, prepare);
        match shared_servers::take(name, |folder| start(folder, true)) {
            Some(servers) => Self::of(servers, tempfile::tempdir().expect("a temporary folder")),
            None => Self::own(|folder| start(folder, false)),
        }
    }

    /// Starts a cluster with a template, whose servers are in this thread's network.
    pub(crate) fn prepared_here(name: &str, prepare: impl FnOnce(&Self)) -> Self {
        let start = Self::template(name, prepare);
        Self::own(|folder| start(folder, false))
    }

    /// Starts a cluster with a template, whose servers are in this thread's network and have further flags of the API
    /// server.
    pub(crate) fn prepared_with(
        name: &str,
        flags: Vec<String>,
        prepare: impl FnOnce(&Self),
    ) -> Self {
        let store = Self::stored(name, prepare);
        Self::own(|folder| {
            cluster_template::copy(&store, &folder.join(ETCD));
            let servers = Servers::start_with(folder, false, flags);
            servers.serves_all_kinds();
            servers
        })
    }

    /// Returns what starts servers with a template in a folder, apart from this test's processes or not.
    fn template(name: &str, prepare: impl FnOnce(&Self)) -> impl Fn(&Path, bool) -> Servers {
        let store = Self::stored(name, prepare);
        move |folder, apart| {
            cluster_template::copy(&store, &folder.join(ETCD));
            let servers = Servers::start(folder, apart);
            servers.serves_all_kinds();
            servers
        }
    }

    /// The store of a template.
    fn stored(name: &str, prepare: impl FnOnce(&Self)) -> PathBuf {
        cluster_template::store(name, |store| {
            let cluster = Self::empty();
            prepare(&cluster);
            cluster.servers.end_by(API_SERVER, Signal::KILL);
            cluster.servers.end_by(ETCD, Signal::TERM);
            cluster_template::copy(&cluster.servers.folder.join(ETCD), store);
        })
    }

    fn own(start: impl FnOnce(&Path) -> Servers) -> Self {
        let directory = tempfile::tempdir().expect("a temporary folder");
        let folder = directory.path().join("servers");
        fs::create_dir(&folder).expect("a writable folder");
        Self::of(start(&folder), directory)
    }

    fn of(servers: Servers, directory: TempDir) -> Self {
        let cluster = Self { servers, directory };
        cluster.write_kubeconfig("admin", ADMIN, cluster.address());
        cluster
    }

    /// Starts a cluster with the objects of `deploy/kubernetes`, and no other kinds.
    pub(crate) fn kubernetes() -> Self {
        Self::prepared("kubernetes", Self::become_kubernetes)
    }

    /// Creates the objects of `deploy/kubernetes`.
    pub(crate) fn become_kubernetes(&self) {
        self.apply(&["-k", in_repository("deploy/kubernetes").to_str().expect("text")]);
        self.serves_all_kinds();
        let configs = "/apis/machineconfiguration.openshift.io/v1/controllerconfigs";
        self.create(configs, &controller_config("kubelet CA"));
    }

    /// Starts a cluster with the kinds that the server reads, by OpenShift's definitions if they are available, and the
    /// objects of `deploy/openshift`.
    pub(crate) fn openshift() -> Self {
        Self::prepared("openshift", Self::become_openshift)
    }

    /// Starts the same cluster with the objects of `deploy/controller`.
    pub(crate) fn openshift_with_controller() -> Self {
        Self::prepared("openshift-with-controller", |cluster| {
            cluster.become_openshift();
            cluster.apply(&["-k", in_repository("deploy/controller").to_str().expect("text")]);
        })
    }

    /// Creates the contents of [`Self::openshift`].
    pub(crate) fn become_openshift(&self) {
        let theirs = in_repository("../shared/conformance/crds");
        let definitions =
            if theirs.exists() { theirs } else { in_repository("deploy/kubernetes/crds") };
        self.apply(&["-f", definitions.to_str().expect("text")]);
        self.serves_all_kinds();
        let others = ["openshift-image-registry", "openshift-config", "openshift-machine-api"];
        for namespace in others.into_iter().chain([NAMESPACE, MANAGED]) {
            self.create("/api/v1/namespaces", &json!({"metadata": {"name": namespace}}));
        }
        self.apply(&["-k", in_repository("deploy/openshift").to_str().expect("text")]);
        self.create(
            "/apis/machineconfiguration.openshift.io/v1/controllerconfigs",
            &controller_config("kubelet CA"),
        );
    }

    /// Runs `kubectl apply --server-side`.
    pub(crate) fn apply(&self, arguments: &[&str]) {
        self.kubectl(&[&["apply", "--server-side"], arguments].concat());
    }

    /// The same with an administrator's directory that has a base and components of `deploy/`.
    pub(crate) fn apply_overlay(&self, base: &str, components: &[&str]) {
        self.apply(&["-k", overlay(base, components).path().to_str().expect("text")]);
    }

    /// The same with a text.
    pub(crate) fn apply_text(&self, text: &str) {
        let file = tempfile::NamedTempFile::new().expect("a file");
        fs::write(file.path(), text).expect("a writable file");
        self.apply(&["-f", file.path().to_str().expect("text")]);
    }

    /// Waits until the API server serves every kind that has been defined.
    pub(crate) fn serves_all_kinds(&self) {
        self.servers.serves_all_kinds();
    }

    /// Runs kubectl, and returns its output. It must succeed.
    pub(crate) fn kubectl(&self, arguments: &[&str]) -> String {
        self.try_kubectl(arguments).unwrap_or_else(|said| panic!("kubectl {arguments:?}: {said}"))
    }

    /// Runs kubectl, and returns its output or its error.
    fn try_kubectl(&self, arguments: &[&str]) -> Result<String, String> {
        self.kubectl_with(&self.kubeconfig("admin"), arguments, Stdio::null())
    }

    /// Runs kubectl with a kubeconfig and an object on standard input; returns its output or its error.
    pub(crate) fn kubectl_by(
        &self,
        kubeconfig: &Path,
        arguments: &[&str],
        object: &Value,
    ) -> Result<String, String> {
        let file = tempfile::NamedTempFile::new_in(&self.directory).expect("a file");
        fs::write(file.path(), object.to_string()).expect("a writable folder");
        let object = File::open(file.path()).expect("the file");
        self.kubectl_with(kubeconfig, arguments, object.into())
    }

    fn kubectl_with(
        &self,
        kubeconfig: &Path,
        arguments: &[&str],
        input: Stdio,
    ) -> Result<String, String> {
        let mut command = Command::new(binary("kubectl"));
        command.arg("--kubeconfig").arg(kubeconfig).args(arguments).stdin(input);
        command.env("KUBECACHEDIR", self.kubectl_cache());
        let output = command.output().expect("kubectl");
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }

    /// kubectl's cache of this API server. Another one can get the same address later.
    pub(crate) fn kubectl_cache(&self) -> PathBuf {
        self.directory.path().join("kubectl-cache")
    }

    /// Creates an object in the collection at `path`.
    pub(crate) fn create(&self, path: &str, object: &Value) {
        self.expect("POST", path, "application/json", object);
    }

    /// Changes the fields in `change`.
    pub(crate) fn patch(&self, path: &str, change: &Value) {
        self.expect("PATCH", path, "application/merge-patch+json", change);
    }

    /// Returns `true` if a service account in the operator's namespace has the permission `verb` for `GROUP/RESOURCE`,
    /// `GROUP/RESOURCE/NAME`, or `GROUP/RESOURCE//SUBRESOURCE`.
    pub(crate) fn may(&self, account: &str, verb: &str, object: &str, namespace: &str) -> bool {
        let parts: Vec<&str> = object.split('/').collect();
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": {
                "user": format!("system:serviceaccount:openshift-machine-config-operator:{account}"),
                "groups": ["system:authenticated"],
                "resourceAttributes": {
                    "verb": verb, "group": parts[0], "resource": parts[1],
                    "name": parts.get(2).copied().unwrap_or_default(), "namespace": namespace,
                    "subresource": parts.get(3).copied().unwrap_or_default(),
                },
            },
        });
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let response = self.request("POST", path, "application/json", &review);
        response.json()["status"]["allowed"] == true
    }

    /// Asserts that a service account has these permissions for an object, and no others.
    pub(crate) fn assert_may_only(
        &self,
        account: &str,
        object: &str,
        namespace: &str,
        allowed: &[&str],
    ) {
        for verb in VERBS {
            let may = self.may(account, verb, object, namespace);
            assert_eq!(may, allowed.contains(&verb), "{account}: {verb} {object} in {namespace:?}");
        }
    }

    pub(crate) fn delete(&self, path: &str) {
        self.expect("DELETE", path, "application/json", &json!({}));
    }

    fn expect(&self, method: &str, path: &str, kind: &str, body: &Value) -> Response {
        // A newly defined kind can lack its storage for a moment.
        let response = wait_for("the API server's storage", || {
            let response = self.request(method, path, kind, body);
            (response.status != 429).then_some(response)
        });
        assert!(response.status < 300, "{method} {path}: {response:?}");
        response
    }

    /// Deletes the Lease of a controller that was killed: the next one would wait for its end.
    pub(crate) fn drop_lease(&self) {
        self.delete(LEASE);
    }

    pub(crate) fn request(&self, method: &str, path: &str, kind: &str, body: &Value) -> Response {
        self.servers.request(method, path, kind, body)
    }

    /// A kubeconfig of the server's own service account, which reaches the API server at `address`.
    pub(crate) fn account_kubeconfig(&self, address: SocketAddr) -> PathBuf {
        self.kubeconfig_of(ACCOUNT, NAMESPACE, address)
    }

    /// A kubeconfig of a service account, which reaches the API server at `address`.
    pub(crate) fn kubeconfig_of(
        &self,
        account: &str,
        namespace: &str,
        address: SocketAddr,
    ) -> PathBuf {
        self.write_kubeconfig(account, &self.token_of(account, namespace), address);
        self.kubeconfig(account)
    }

    /// A token of a service account.
    pub(crate) fn token_of(&self, account: &str, namespace: &str) -> String {
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token");
        let asked =
            json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
        let made = self.expect("POST", &path, "application/json", &asked).whole_json();
        made["status"]["token"].as_str().expect("a token").to_owned()
    }

    /// An object, `None` if it does not exist.
    pub(crate) fn get(&self, path: &str) -> Option<Value> {
        self.servers.get(path)
    }

    pub(crate) fn events(&self) -> String {
        self.get("/api/v1/events").expect("a list").to_string()
    }

    /// A kubeconfig with all permissions.
    pub(crate) fn admin(&self) -> PathBuf {
        self.kubeconfig("admin")
    }

    fn kubeconfig(&self, user: &str) -> PathBuf {
        self.directory.path().join(format!("{user}.kubeconfig"))
    }

    fn write_kubeconfig(&self, user: &str, token: &str, address: SocketAddr) {
        let kubeconfig = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": {
                "server": format!("https://localhost:{}", address.port()),
                "certificate-authority": self.servers.certificate(),
            }}],
            "users": [{"name": user, "user": {"token": token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": user}}],
            "current-context": "test",
        });
        fs::write(self.kubeconfig(user), kubeconfig.to_string()).expect("a writable folder");
    }

    /// Address of the API server.
    pub(crate) fn address(&self) -> SocketAddr {
        self.servers.address
    }

    /// Folder of the API server's files, such as the keys of service accounts.
    pub(crate) fn folder(&self) -> &Path {
        &self.servers.folder
    }

    /// Starts the API server and waits until it is ready.
    pub(crate) fn start_api_server(&self) {
        self.servers.start_api_server();
    }

    /// Kills the API server, as a crash would.
    pub(crate) fn kill_api_server(&mut self) {
        self.servers.template = None;
        self.servers.end_by(API_SERVER, Signal::KILL);
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the API server's log:\n{}", self.servers.log(API_SERVER));
        } else {
            shared_servers::hand_on(&mut self.servers);
        }
    }
}

/// An administrator's directory with a base and components of `deploy/`.
pub(crate) fn overlay(base: &str, components: &[&str]) -> TempDir {
    let mine = tempfile::tempdir().expect("a temporary folder");
    // Kustomize requires relative paths of directories.
    let up = "../".repeat(mine.path().components().count() - 1);
    let path =
        |directory: &str| format!("{up}{}", &in_repository(directory).to_str().expect("text")[1..]);
    let kustomization = json!({
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [path(base)],
        "components": components.iter().map(|component| path(component)).collect::<Vec<_>>(),
    });
    let file = mine.path().join("kustomization.yaml");
    fs::write(file, kustomization.to_string()).expect("a writable folder");
    mine
}

/// Waits until the API server of `kubectl` serves every defined kind.
pub(crate) fn serves_all_kinds(kubectl: impl Fn(&[&str]) -> Result<String, String>) {
    let names = "jsonpath={.items[*].metadata.name}";
    wait_for("all kinds", || {
        let names = kubectl(&["get", "customresourcedefinitions", "-o", names]).ok()?;
        kubectl(&["get", &names.replace(' ', ",")]).ok()
    });
}

/// Objects that `kubectl apply -k` would send.
pub(crate) fn kustomized(base: &str, components: &[&str]) -> Vec<Value> {
    yaml_documents(&kustomize(overlay(base, components).path()))
}

/// Output of `kubectl kustomize` for a directory.
pub(crate) fn kustomize(directory: &Path) -> String {
    let output = Command::new(binary("kubectl")).arg("kustomize").arg(directory).output();
    let output = output.expect("kubectl");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {errors}", directory.display());
    String::from_utf8(output.stdout).expect("text")
}

/// A ControllerConfig with a CA of kubelet, and its required fields.
pub(crate) fn controller_config(kubelet_ca: &str) -> Value {
    use base64::Engine as _;
    let base64 = |text: &str| base64::engine::general_purpose::STANDARD.encode(text);
    json!({
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "ControllerConfig",
        "metadata": {"name": "machine-config-controller"},
        "spec": {
            "additionalTrustBundle": null,
            "baseOSContainerImage": "",
            "cloudProviderCAData": null,
            "cloudProviderConfig": "",
            "clusterDNSIP": "172.30.0.10",
            "dns": {
                "apiVersion": "config.openshift.io/v1", "kind": "DNS",
                "metadata": {"name": "cluster"}, "spec": {"baseDomain": "example.com"},
            },
            "images": {},
            "infra": {
                "apiVersion": "config.openshift.io/v1", "kind": "Infrastructure",
                "metadata": {"name": "cluster"}, "spec": {}, "status": {},
            },
            "ipFamilies": "IPv4",
            "kubeAPIServerServingCAData": base64(kubelet_ca),
            "network": {"mtuMigration": null},
            "proxy": {},
            "releaseImage": "quay.io/example/release",
            "rootCAData": base64("root CA"),
        },
    })
}
