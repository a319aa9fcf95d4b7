//! The API of a cluster: a real kube-apiserver on a real etcd, separate for each test.
//!
//! No controller runs in it, so objects stay as a test creates them.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::cluster_template;
use super::http::{Client, Response};
use super::manifests::yaml_documents;
use super::pair::Pair;
use super::server::free_ports;
use super::{in_repository, wait_for};

const ADMIN: &str = "admin-token";
/// Namespace and service account of the server.
pub(crate) const NAMESPACE: &str = "openshift-machine-config-operator";
pub(crate) const ACCOUNT: &str = "machine-config-server";
/// Namespace of the registry CAs.
pub(crate) const MANAGED: &str = "openshift-config-managed";

/// A running API server with etcd, which end when the value is dropped.
pub(crate) struct Cluster {
    etcd: Child,
    api_server: Option<Child>,
    etcd_address: SocketAddr,
    address: SocketAddr,
    pair: Pair,
    directory: TempDir,
}

impl Cluster {
    /// Starts a cluster with only Kubernetes' own objects.
    pub(crate) fn empty() -> Self {
        Self::started(tempfile::tempdir().expect("a temporary folder"))
    }

    /// Starts a cluster from a template that `prepare` creates in an empty one. The template is created once for each
    /// name.
    pub(crate) fn prepared(name: &str, prepare: impl FnOnce(&Self)) -> Self {
        let store = cluster_template::store(name, |store| {
            let mut cluster = Self::empty();
            prepare(&cluster);
            cluster.kill_api_server();
            let etcd = Pid::from_child(&cluster.etcd);
            kill_process(etcd, Signal::TERM).expect("a process of this test");
            cluster.etcd.wait().expect("a child of this process");
            cluster_template::copy(&cluster.directory.path().join("etcd"), store);
        });
        let directory = tempfile::tempdir().expect("a temporary folder");
        cluster_template::copy(&store, &directory.path().join("etcd"));
        let cluster = Self::started(directory);
        cluster.serves_all_kinds();
        cluster
    }

    /// Starts a cluster on an etcd directory.
    fn started(directory: TempDir) -> Self {
        let [client, peer, address] = free_ports();
        let peer = format!("http://{peer}");
        let etcd = start(
            "etcd",
            directory.path(),
            &[
                "--name=test",
                &format!("--data-dir={}", directory.path().join("etcd").display()),
                "--unsafe-no-fsync",
                &format!("--listen-client-urls=http://{client}"),
                &format!("--advertise-client-urls=http://{client}"),
                &format!("--listen-peer-urls={peer}"),
                &format!("--initial-advertise-peer-urls={peer}"),
                &format!("--initial-cluster=test={peer}"),
            ],
        );
        let pair = Pair::make(directory.path(), "test API server");
        let key = rcgen::KeyPair::generate().expect("a key");
        for (name, pem) in
            [("accounts.key", key.serialize_pem()), ("accounts.pub", key.public_key_pem())]
        {
            fs::write(directory.path().join(name), pem).expect("a writable folder");
        }
        let tokens = format!("{ADMIN},admin,admin,system:masters\n");
        fs::write(directory.path().join("tokens"), tokens).expect("a writable folder");
        let mut cluster =
            Self { etcd, api_server: None, etcd_address: client, address, pair, directory };
        cluster.write_kubeconfig("admin", ADMIN, cluster.address);
        cluster.start_api_server();
        cluster
    }

    /// Starts a cluster with the objects of `deploy/kubernetes`, and no other kinds.
    pub(crate) fn kubernetes() -> Self {
        Self::prepared("kubernetes", |cluster| {
            cluster.apply(&["-k", in_repository("deploy/kubernetes").to_str().expect("text")]);
            cluster.serves_all_kinds();
            let configs = "/apis/machineconfiguration.openshift.io/v1/controllerconfigs";
            cluster.create(configs, &controller_config("kubelet CA"));
        })
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

    /// Waits until the API server serves every kind that has been defined.
    pub(crate) fn serves_all_kinds(&self) {
        let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let definitions = self.get(path).expect("all definitions");
        for definition in definitions["items"].as_array().expect("a list") {
            let spec = &definition["spec"];
            let [group, kinds] = [&spec["group"], &spec["names"]["plural"]];
            let [group, kinds] = [group, kinds].map(|name| name.as_str().expect("text"));
            let served = |version: &Value| {
                let version = version["name"].as_str().expect("text");
                let path = format!("/apis/{group}/{version}");
                let listed =
                    self.get(&path)?["resources"].as_array()?.iter().any(|it| it["name"] == kinds);
                (listed && self.get(&format!("{path}/{kinds}")).is_some()).then_some(())
            };
            for version in spec["versions"].as_array().expect("a list") {
                if version["served"] == true {
                    wait_for(&format!("{kinds}.{group}"), || served(version));
                }
            }
        }
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

    pub(crate) fn request(&self, method: &str, path: &str, kind: &str, body: &Value) -> Response {
        let body = body.to_string();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
             Authorization: Bearer {ADMIN}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let client = Client::tls(self.address, self.pair.pem.as_bytes());
        if method == "GET" {
            // It gives up without an answer where etcd is slow.
            return wait_for("an answer from the API server", || {
                client.exchange(request.as_bytes()).ok()
            });
        }
        client.exchange(request.as_bytes()).expect("an answer from the API server")
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
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token");
        let asked =
            json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
        let made = self.expect("POST", &path, "application/json", &asked).whole_json();
        let token = made["status"]["token"].as_str().expect("a token");
        self.write_kubeconfig(account, token, address);
        self.kubeconfig(account)
    }

    /// An object, `None` if it does not exist.
    pub(crate) fn get(&self, path: &str) -> Option<Value> {
        let response = self.request("GET", path, "application/json", &json!({}));
        match response.status {
            200 => Some(response.whole_json()),
            404 => None,
            _ => panic!("GET {path}: {response:?}"),
        }
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
                "certificate-authority": self.pair.certificate,
            }}],
            "users": [{"name": user, "user": {"token": token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": user}}],
            "current-context": "test",
        });
        fs::write(self.kubeconfig(user), kubeconfig.to_string()).expect("a writable folder");
    }

    /// Address of the API server.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Starts the API server and waits until it is ready.
    pub(crate) fn start_api_server(&mut self) {
        let in_directory = |name: &str| self.directory.path().join(name).display().to_string();
        let child = start(
            "kube-apiserver",
            self.directory.path(),
            &[
                &format!("--etcd-servers=http://{}", self.etcd_address),
                "--bind-address=127.0.0.1",
                "--advertise-address=127.0.0.1",
                &format!("--secure-port={}", self.address.port()),
                &format!("--tls-cert-file={}", self.pair.certificate.display()),
                &format!("--tls-private-key-file={}", self.pair.key.display()),
                &format!("--cert-dir={}", in_directory("certificates")),
                "--service-account-issuer=https://kubernetes.default.svc",
                &format!("--service-account-key-file={}", in_directory("accounts.pub")),
                &format!("--service-account-signing-key-file={}", in_directory("accounts.key")),
                "--service-cluster-ip-range=10.0.0.0/24",
                "--authorization-mode=RBAC",
                &format!("--token-auth-file={}", in_directory("tokens")),
                "--endpoint-reconciler-type=none",
            ],
        );
        self.api_server = Some(child);
        let client = Client::tls(self.address, self.pair.pem.as_bytes());
        let authorization = format!("Bearer {ADMIN}");
        wait_for("the API server to be ready", || {
            let answer = client.try_request("GET", "/readyz", &[("Authorization", &authorization)]);
            let ended = self.api_server.as_mut().map(Child::try_wait);
            if let Some(Ok(Some(status))) = ended {
                panic!("kube-apiserver ended with {status}:\n{}", self.log("kube-apiserver"));
            }
            answer.ok().filter(|response| response.status == 200)
        });
        // The default namespace is created a little later.
        wait_for("the default namespace", || {
            let path = "/api/v1/namespaces/default";
            let answer = self.request("GET", path, "application/json", &json!({}));
            (answer.status == 200).then_some(())
        });
    }

    /// The last lines of a program's log.
    fn log(&self, program: &str) -> String {
        let path = self.directory.path().join(format!("{program}.log"));
        let log = fs::read(path).expect("the log file");
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }

    /// Kills the API server, as a crash would.
    pub(crate) fn kill_api_server(&mut self) {
        let mut child = self.api_server.take().expect("a running API server");
        child.kill().expect("a process of this test");
        child.wait().expect("a child of this process");
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the API server's log:\n{}", self.log("kube-apiserver"));
        }
        for child in self.api_server.iter_mut().chain([&mut self.etcd]) {
            // It may have ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Path of kube-apiserver, kubectl or etcd.
fn binary(name: &str) -> PathBuf {
    let directory = std::env::var_os("KUBEBUILDER_ASSETS")
        .expect("KUBEBUILDER_ASSETS names no folder with kube-apiserver: run tests/run");
    Path::new(&directory).join(name)
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

fn start(name: &str, directory: &Path, flags: &[&str]) -> Child {
    let log = File::create(directory.join(format!("{name}.log"))).expect("a log file");
    Command::new(binary(name))
        .args(flags)
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("a second handle"))
        .stderr(log)
        .spawn()
        .unwrap_or_else(|error| panic!("{name}: {error}"))
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
