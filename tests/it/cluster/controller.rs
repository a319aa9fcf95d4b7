//! The controller in a cluster: a real kube-apiserver and etcd, the controller as its own service
//! account with the rights that `deploy/` gives it, and machines that boot by what it makes.

mod access;
mod administrators;
mod bundles;
mod duties;
mod external;
mod issued;
mod lockouts;
mod secret_types;

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::cluster::{Cluster, NAMESPACE};
use crate::support::contract::config;
use crate::support::http::Client;
use crate::support::in_repository;
use crate::support::machine::Machine;
use crate::support::openssl::{openssl, sign_serving};
use crate::support::pair::Pair;
use crate::support::rest::comes_to_rest;
use crate::support::server::{Server, binary, free_ports};
use crate::support::stopwatch::Stopwatch;
use crate::support::wait_for;

const ACCOUNT: &str = "machine-config-server-controller";
const USER_DATA_NAMESPACE: &str = "openshift-machine-api";
const POOLS: &str = "/apis/machineconfiguration.openshift.io/v1/machineconfigpools";
const CONFIGS: &str = "/apis/machineconfiguration.openshift.io/v1/machineconfigs";
const ROTATE: &str = "machineconfiguration.openshift.io/rotate-certificate";
const HANDLED: &str = "machineconfiguration.openshift.io/rotate-certificate-handled";
const NOT_AFTER: &str = "auth.openshift.io/certificate-not-after";

fn secrets(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/secrets")
}

fn authority() -> String {
    format!("{}/machine-config-server-ca", secrets(NAMESPACE))
}

fn serving() -> String {
    format!("{}/machine-config-server-tls", secrets(NAMESPACE))
}

fn bundle() -> String {
    format!("/api/v1/namespaces/{NAMESPACE}/configmaps/machine-config-server-ca")
}

fn user_data(name: &str) -> String {
    format!("{}/{name}", secrets(USER_DATA_NAMESPACE))
}

/// One value of a secret.
fn value(secret: &Value, key: &str) -> Vec<u8> {
    BASE64.decode(secret["data"][key].as_str().unwrap_or_default()).expect("base64")
}

/// A controller by its own account.
pub(super) fn started(cluster: &Cluster, folder: &Path, flags: &[&str]) -> Controller {
    let kubeconfig = cluster.kubeconfig_of(ACCOUNT, NAMESPACE, cluster.address());
    Controller::start(&kubeconfig, folder, flags)
}

/// A cluster for a controller.
struct Site {
    cluster: Cluster,
    folder: TempDir,
}

impl Site {
    fn new() -> Self {
        let cluster = Cluster::openshift_with_controller();
        let config = json!({
            "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
            "metadata": {"name": "rendered"},
            "spec": {"config": {"ignition": {"version": "3.4.0"}}},
        });
        cluster.create(CONFIGS, &config);
        let site = Self { cluster, folder: tempfile::tempdir().expect("a temporary folder") };
        site.pool("worker");
        site
    }

    fn pool(&self, name: &str) {
        let pool = json!({
            "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
            "metadata": {"name": name}, "spec": {},
        });
        self.cluster.create(POOLS, &pool);
        let status = json!({"status": {"configuration": {"name": "rendered"}}});
        self.cluster.patch(&format!("{POOLS}/{name}/status"), &status);
    }

    /// Starts the controller. The server's name is `localhost`, besides what the cluster says.
    fn start(&self, flags: &[&str]) -> Controller {
        started(&self.cluster, self.folder.path(), flags)
    }

    fn object(&self, path: &str) -> Value {
        wait_for(path, || self.cluster.get(path))
    }

    fn make_user_data(&self, name: &str, text: &[u8]) {
        let secret = json!({
            "metadata": {"name": name},
            "data": {"userData": BASE64.encode(text), "other": BASE64.encode("stays")},
        });
        self.cluster.create(&secrets(USER_DATA_NAMESPACE), &secret);
    }

    fn user_data(&self, name: &str) -> Vec<u8> {
        value(&self.object(&user_data(name)), "userData")
    }

    fn bundle(&self) -> String {
        let map = self.object(&bundle());
        map["data"]["ca-bundle.crt"].as_str().unwrap_or_default().to_owned()
    }

    /// The bundle's first certificate alone.
    fn newest(&self) -> String {
        let bundle = self.bundle();
        let end = "-----END CERTIFICATE-----\n";
        bundle.split_inclusive(end).next().expect("a certificate").to_owned()
    }

    fn certs(&self, arguments: &[&str]) -> std::process::Output {
        let mut command = binary();
        command.arg("certs").args(arguments).arg("--kubeconfig").arg(self.cluster.admin());
        command.output().expect("the built binary")
    }

    /// Whether the controller's account may do something: see [`Cluster::may`].
    fn may(&self, verb: &str, object: &str, namespace: &str) -> bool {
        self.cluster.may(ACCOUNT, verb, object, namespace)
    }

    /// Has a new authority made by a value that was not there before, and waits for it. Without
    /// force, one that is asked for within an hour of another is the same.
    fn rotate(&self, value: &str) {
        let before = self.bundle();
        let value = format!("{value} --force");
        let change = json!({"metadata": {"annotations": {ROTATE: value}}});
        self.cluster.patch(&authority(), &change);
        wait_for("a new bundle", || (self.bundle() != before).then_some(()));
        self.settled();
    }

    /// Waits until nothing is left to do.
    fn settled(&self) {
        wait_for("everything to be in order", || {
            self.certs(&["check"]).status.success().then_some(())
        });
    }

    fn serial(&self, path: &str) -> Vec<u8> {
        value(&self.object(path), "tls.crt")
    }
}

/// A running controller. It ends with this value.
pub(super) struct Controller {
    child: Child,
    log: PathBuf,
    metrics: SocketAddr,
}

impl Controller {
    fn start(kubeconfig: &Path, folder: &Path, flags: &[&str]) -> Self {
        Self::run(binary(), kubeconfig, folder, flags)
    }

    /// The same by a command that runs the binary.
    fn run(mut command: Command, kubeconfig: &Path, folder: &Path, flags: &[&str]) -> Self {
        let log = tempfile::NamedTempFile::new_in(folder).expect("a log file");
        let (file, log) = log.keep().expect("a log file that stays");
        let [metrics] = free_ports();
        let child = command
            .arg("controller")
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .args(["--host", "localhost", "--metrics-address", &metrics.to_string()])
            .args(flags)
            .stdin(Stdio::null())
            .stdout(file.try_clone().expect("a second handle"))
            .stderr(file)
            .spawn()
            .expect("the built binary");
        Self { child, log, metrics }
    }

    pub(super) fn log(&self) -> String {
        fs::read_to_string(&self.log).expect("the log")
    }

    fn metrics(&self) -> String {
        let client = Client::plain(self.metrics);
        assert_eq!(client.get("/healthz").status, 200);
        String::from_utf8(client.get("/metrics").body).expect("text")
    }

    /// The status and the lines of readiness. Nobody answers at first.
    pub(super) fn readiness(&self) -> (u16, String) {
        let Ok(answer) = Client::plain(self.metrics).try_request("GET", "/readyz", &[]) else {
            return (0, String::new());
        };
        (answer.status, String::from_utf8(answer.body).expect("text"))
    }

    /// How often watches of secrets failed.
    fn watch_failures(&self) -> u64 {
        let page = self.metrics();
        let metric = "mcs_watch_failures_total{kind=\"Secret\"} ";
        let line = page.lines().find_map(|line| line.strip_prefix(metric));
        line.map_or(0, |count| count.parse().expect("a count"))
    }

    fn is_active(&self) -> bool {
        self.log().contains("active identity=")
    }

    fn terminate(&mut self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).expect("a process of this test");
        let child = &mut self.child;
        let status = wait_for("the controller to end", || {
            child.try_wait().expect("a child of this process")
        });
        assert!(status.success(), "{}", self.log());
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        // It may have ended already; then there is nothing left to do.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("the controller's log:\n{}", self.log());
        }
    }
}

/// Ends what runs beside a test, also where the test fails.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Puts the serving pair's secret into files, as kubelet does: certificate first, then its key in
/// the same folder, each whole.
fn mount(site: &Site, pair: &Pair) {
    let secret = site.object(&serving());
    for (path, key) in [(&pair.key, "tls.key"), (&pair.certificate, "tls.crt")] {
        let next = path.with_extension("next");
        fs::write(&next, value(&secret, key)).expect("a writable folder");
        fs::rename(&next, path).expect("a rename");
    }
}

/// A server in the cluster with the pair that the controller made, and where that is mounted.
fn server(site: &Site) -> (Server, Pair) {
    let (server, pair) = server_at(site, site.cluster.address(), &[]);
    (server.until_ready(), pair)
}

/// The same with flags, reaching the API server at an address. Returns once it answers.
fn server_at(site: &Site, address: SocketAddr, flags: &[&str]) -> (Server, Pair) {
    let folder = tempfile::tempdir_in(site.folder.path()).expect("a new folder").keep();
    let pair = Pair::make(&folder, "localhost");
    mount(site, &pair);
    let token = folder.join("token");
    fs::create_dir(&token).expect("a new folder");
    fs::write(token.join("token"), "abcdef.0123456789abcdef").expect("a write");
    fs::write(token.join("ca.crt"), "CA").expect("a write");
    let kubeconfig = site.cluster.account_kubeconfig(address);
    (Server::in_cluster(&kubeconfig, &token, &pair, flags), pair)
}

/// A managed pointer config, with the port of the server under test.
fn pointer(site: &Site, server: &Server) -> String {
    let text = String::from_utf8(site.user_data("worker-user-data-managed")).expect("text");
    let port = server.secure().port().to_string();
    text.replace(":22623/", &format!(":{port}/"))
}

/// The authorities that user data trusts, PEM.
fn trusted(user_data: &[u8]) -> Vec<u8> {
    let config: Value = serde_json::from_slice(user_data).expect("JSON");
    let entries = &config["ignition"]["security"]["tls"]["certificateAuthorities"];
    crate::support::resource::bytes(&entries[0]).expect("contents")
}

#[test]
fn a_cluster_without_certificates_gets_all_that_a_machine_needs() {
    let site = Site::new();
    let controller = site.start(&[]);
    let managed = site.object(&user_data("worker-user-data-managed"));
    site.settled();
    for (path, kind) in [(authority(), "authority"), (serving(), "serving pair")] {
        let secret = site.object(&path);
        assert_eq!(secret["type"], "kubernetes.io/tls", "{kind}");
        let annotations = &secret["metadata"]["annotations"];
        for key in ["not-before", "not-after", "issuer"] {
            let key = format!("auth.openshift.io/certificate-{key}");
            assert!(annotations[&key].is_string(), "{kind}: {key} in {annotations}");
        }
        assert_eq!(annotations["certificates.openshift.io/refresh-period"], "70080h0m0s");
    }
    let hosts = site.object(&serving())["metadata"]["annotations"]
        ["auth.openshift.io/certificate-hostnames"]
        .clone();
    assert_eq!(hosts, "localhost");
    let pool = site.object(&format!("{POOLS}/worker"));
    assert_eq!(managed["metadata"]["ownerReferences"][0]["uid"], pool["metadata"]["uid"]);
    let label = "machineconfiguration.openshift.io/managed-ca-bundle-derived-from-configmap";
    assert_eq!(managed["metadata"]["labels"][label], "");
    assert_eq!(value(&managed, "disableTemplating"), b"true\n");
    let text: Value = serde_json::from_slice(&value(&managed, "userData")).expect("JSON");
    assert_eq!(text["ignition"]["version"], "3.1.0");

    let (server, _) = server(&site);
    Machine::new().boot(&pointer(&site, &server));

    // Metrics tell the same.
    let page = controller.metrics();
    for wanted in [
        "mcs_rotations_total{what=\"authority\",reason=\"missing\"} 1",
        "mcs_rotations_total{what=\"serving\",reason=\"missing\"} 1",
        "mcs_managed_certificate_expiry_timestamp_seconds{what=\"serving\"}",
        "mcs_pointers{authority=\"machine-config-server-ca@",
        "mcs_leading 1",
    ] {
        assert!(page.contains(wanted), "{wanted} in {page}");
    }

    // A pool that comes gets its own, and events tell what was done.
    site.pool("infra");
    site.object(&user_data("infra-user-data-managed"));
    let events = || site.cluster.kubectl(&["get", "events", "--all-namespaces", "-o", "json"]);
    wait_for("an event", || events().contains("made a new certificate authority").then_some(()));
}

#[test]
fn a_controller_comes_to_rest() {
    let site = Site::new();
    for number in 0..20 {
        site.pool(&format!("pool-{number}"));
    }
    let controller = site.start(&[]);
    site.object(&user_data("pool-19-user-data-managed"));
    site.settled();
    comes_to_rest(controller.child.id());
}

#[test]
fn rotations_that_are_asked_for_happen_once_while_machines_go_on_booting() {
    let site = Site::new();
    let _controller = site.start(&[]);
    site.object(&user_data("worker-user-data-managed"));
    site.settled();
    let (server, pair) = server(&site);
    let oldest = pointer(&site, &server);
    let oldest_ca = trusted(oldest.as_bytes());

    let stop = AtomicBool::new(false);
    let boots = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let _stopping = StopOnDrop(&stop);
        for _ in 0..3 {
            scope.spawn(|| {
                let old = Client::tls(server.secure(), &oldest_ca);
                while !stop.load(Ordering::SeqCst) {
                    assert_eq!(config(&old, "worker", "3.4.0").status, 200);
                    let now = trusted(&site.user_data("worker-user-data-managed"));
                    let new = Client::tls(server.secure(), &now);
                    assert_eq!(config(&new, "worker", "3.4.0").status, 200);
                    boots.fetch_add(2, Ordering::SeqCst);
                }
            });
        }
        let asked = |path: &str, change: &Value, path_of_new: &str| {
            let before = site.serial(path_of_new);
            site.cluster.patch(path, change);
            wait_for("a rotation", || (site.serial(path_of_new) != before).then_some(()));
            site.settled();
            let after = site.serial(path_of_new);
            mount(&site, &pair);
            let started = boots.load(Ordering::SeqCst);
            wait_for("machines to go on booting", || {
                (boots.load(Ordering::SeqCst) > started + 20).then_some(())
            });
            assert_eq!(site.serial(path_of_new), after, "once is enough");
        };
        let value = |value: &str| json!({"metadata": {"annotations": {ROTATE: value}}});
        let without_date = json!({"metadata": {"annotations": {NOT_AFTER: null}}});
        asked(&serving(), &value("first"), &serving());
        asked(&authority(), &value("first"), &authority());
        asked(&serving(), &without_date, &serving());
        // Within an hour one CA is enough, however it is asked for, but for who insists.
        let newest = site.serial(&authority());
        for change in [&without_date, &value("second")] {
            site.cluster.patch(&authority(), change);
            wait_for("the request to be answered", || {
                let annotations = site.object(&authority())["metadata"]["annotations"].clone();
                let is_dated = annotations[NOT_AFTER].is_string();
                (is_dated && annotations[HANDLED] == annotations[ROTATE]).then_some(())
            });
            site.settled();
            assert_eq!(site.serial(&authority()), newest);
        }
        asked(&authority(), &value("third --force"), &authority());
    });
    assert_eq!(site.bundle().matches("BEGIN CERTIFICATE").count(), 3);
    let machine = Machine::new();
    machine.boot(&oldest);

    // The command asks in the same way.
    let before = site.serial(&authority());
    assert!(site.certs(&["rotate", "--ca", "--force"]).status.success());
    wait_for("a rotation", || (site.serial(&authority()) != before).then_some(()));
    site.settled();
    let shown = String::from_utf8(site.certs(&["show"]).stdout).expect("text");
    assert!(shown.contains("older authority"), "{shown}");
    assert!(shown.contains("worker-user-data-managed: trusts the authority"), "{shown}");
}

/// A config that a machine set's user data may be, with one authority.
fn user_data_config(version: &str, source: &Value) -> Value {
    let fetch = if version.starts_with('2') { "append" } else { "merge" };
    json!({
        "ignition": {
            "version": version,
            "config": {fetch: [{"source": "https://localhost:22623/config/worker"}]},
            "security": {"tls": {"certificateAuthorities": [source]}},
        },
        "x-unknown": {"kept": [1, 2, 3]},
    })
}

#[test]
fn user_data_of_every_kind_follows_the_bundle_or_is_left_alone() {
    let site = Site::new();
    let controller = site.start(&[]);
    site.object(&user_data("worker-user-data-managed"));
    site.settled();
    let pem = site.newest();
    let plain =
        percent_encoding::percent_encode(pem.as_bytes(), percent_encoding::NON_ALPHANUMERIC);
    let gzip = {
        use std::io::Write as _;
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(pem.as_bytes()).expect("memory");
        BASE64.encode(encoder.finish().expect("memory"))
    };
    let sources = [
        ("plain", json!({"source": format!("data:,{plain}")})),
        ("base64", json!({"source": format!("data:;base64,{}", BASE64.encode(&pem))})),
        ("gzip", json!({"source": format!("data:;base64,{gzip}"), "compression": "gzip"})),
    ];
    let mut followed = Vec::new();
    for (kind, source) in &sources {
        for version in ["2.2.0", "3.1.0", "3.4.0"] {
            // Spec 2 has no compression, so that no machine boots from it.
            if *kind == "gzip" && version == "2.2.0" {
                continue;
            }
            let name = format!("{kind}-{}-user-data", version.replace('.', "-"));
            let text = user_data_config(version, source).to_string();
            site.make_user_data(&name, text.as_bytes());
            followed.push(name);
        }
    }
    for number in 0..190 {
        let name = format!("many-{number}-user-data");
        site.make_user_data(&name, user_data_config("3.1.0", &sources[1].1).to_string().as_bytes());
        followed.push(name);
    }
    let alone: BTreeMap<&str, &[u8]> = [
        ("cloud-init-user-data", &b"#cloud-config\npackages: [x]\n"[..]),
        ("windows-user-data", b"<powershell>\nWrite-Host x\n</powershell>\n"),
        ("array-user-data", b"[1, 2]"),
        ("broken-user-data", b"{\"ignition\": "),
        ("no-authority-user-data", b"{\"ignition\": {\"version\": \"3.1.0\"}}"),
    ]
    .into();
    for (name, text) in &alone {
        site.make_user_data(name, text);
    }
    site.make_user_data("unrelated", b"{}");
    let versions = || -> BTreeMap<String, String> {
        let list = site.cluster.get(&secrets(USER_DATA_NAMESPACE)).expect("a list");
        let items = list["items"].as_array().expect("items").iter();
        items
            .map(|secret| {
                let field =
                    |key: &str| secret["metadata"][key].as_str().expect("a string").to_owned();
                (field("name"), field("resourceVersion"))
            })
            .collect()
    };
    wait_for("what is left alone to be told", || {
        (controller.log().matches("its user data is left alone").count() == alone.len())
            .then_some(())
    });
    site.settled();
    let before = versions();

    let bundle_before = site.bundle();
    site.cluster.patch(&authority(), &json!({"metadata": {"annotations": {ROTATE: "now"}}}));
    wait_for("a new bundle", || (site.bundle() != bundle_before).then_some(()));
    let changed = Stopwatch::start();
    let is_followed = || {
        let after = versions();
        followed.iter().all(|name| after[name] != before[name])
    };
    wait_for("all to follow", || is_followed().then_some(()));
    changed.within(Duration::from_secs(2), format!("{} secrets", followed.len()));

    site.settled();
    let bundle = site.bundle();
    for name in &followed {
        let text = site.user_data(name);
        assert_eq!(trusted(&text), bundle.as_bytes(), "{name}");
        let config: Value = serde_json::from_slice(&text).expect("JSON");
        assert_eq!(config["x-unknown"]["kept"], json!([1, 2, 3]), "{name}");
    }
    for name in alone.keys().chain([&"unrelated"]) {
        assert_eq!(versions()[*name], before[*name], "{name} is left alone");
    }
    let told = controller.log().matches("its user data is left alone").count();
    assert_eq!(told, alone.len(), "each is told once");
    let secret = site.object(&user_data(&followed[0]));
    assert_eq!(value(&secret, "other"), b"stays");
}

/// An RSA authority and a pair that it signed, as OpenShift's installer and controller make them.
fn rsa_pair(folder: &Path, authority: &str) {
    openssl(folder, &["genrsa", "-traditional", "-out", "ca.key", "2048"]);
    let key = rcgen::KeyPair::from_pem(&read(&folder.join("ca.key"))).expect("an RSA key");
    let mut params = rcgen::CertificateParams::new(Vec::new()).expect("no names");
    params.distinguished_name = rcgen::DistinguishedName::new();
    // Longer than OpenSSL makes any, as the controller's are.
    params.distinguished_name.push(rcgen::DnType::CommonName, authority);
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.key_usages = vec![rcgen::KeyUsagePurpose::KeyCertSign];
    params.not_before = rcgen::date_time_ymd(2026, 1, 1);
    params.not_after = rcgen::date_time_ymd(2036, 1, 1);
    let certificate = params.self_signed(&key).expect("a certificate");
    fs::write(folder.join("ca.crt"), certificate.pem()).expect("a write");
    openssl(folder, &["genrsa", "-traditional", "-out", "tls.key", "2048"]);
    sign_serving(folder, "subjectAltName=DNS:localhost");
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).expect("a file")
}

fn tls_secret(name: &str, kind: &str, certificate: &str, key: &str, annotations: &Value) -> Value {
    json!({
        "metadata": {"name": name, "annotations": annotations},
        "type": kind,
        "data": {"tls.crt": BASE64.encode(certificate), "tls.key": BASE64.encode(key)},
    })
}

#[test]
fn what_the_reference_made_is_taken_over_without_a_write() {
    let site = Site::new();
    let folder = site.folder.path();
    let name = format!("{NAMESPACE}_machine-config-server-ca@1700000000");
    rsa_pair(folder, &name);
    let dates = json!({
        "auth.openshift.io/certificate-not-before": "2026-01-01T00:00:00Z",
        NOT_AFTER: "2036-01-01T00:00:00Z",
        "auth.openshift.io/certificate-issuer": name,
        "certificates.openshift.io/refresh-period": "70080h0m0s",
    });
    let in_folder = |file: &str| read(&folder.join(file));
    let kind = "kubernetes.io/tls";
    for (name, certificate, key) in [
        ("machine-config-server-ca", "ca.crt", "ca.key"),
        ("machine-config-server-tls", "tls.crt", "tls.key"),
    ] {
        let secret = tls_secret(name, kind, &in_folder(certificate), &in_folder(key), &dates);
        site.cluster.create(&secrets(NAMESPACE), &secret);
    }
    let map = json!({
        "metadata": {"name": "machine-config-server-ca"},
        "data": {"ca-bundle.crt": in_folder("ca.crt")},
    });
    site.cluster.create(&format!("/api/v1/namespaces/{NAMESPACE}/configmaps"), &map);
    let source = json!({
        "source": format!("data:text/plain;charset=utf-8;base64,{}", BASE64.encode(in_folder("ca.crt"))),
        "verification": {},
    });
    let mut managed = user_data_config("3.4.0", &source);
    managed["ignition"]["proxy"] = json!({});
    site.make_user_data("worker-user-data-managed", managed.to_string().as_bytes());
    site.make_user_data(
        "worker-user-data",
        user_data_config("2.2.0", &source).to_string().as_bytes(),
    );

    let paths = [
        authority(),
        serving(),
        bundle(),
        user_data("worker-user-data-managed"),
        user_data("worker-user-data"),
    ];
    let versions =
        || paths.clone().map(|path| site.object(&path)["metadata"]["resourceVersion"].clone());
    let before = versions();
    let controller = site.start(&[]);
    wait_for("the controller to be active", || controller.is_active().then_some(()));
    // A pool that comes shows that the controller has looked at everything.
    site.pool("infra");
    site.object(&user_data("infra-user-data-managed"));
    site.settled();
    assert_eq!(versions(), before, "{}", controller.log());
    // And its RSA key, in PKCS#1, signs the next authority.
    site.cluster.patch(&authority(), &json!({"metadata": {"annotations": {NOT_AFTER: null}}}));
    wait_for("a rotation", || (site.bundle().matches("BEGIN").count() == 2).then_some(()));
    site.settled();
    let chain = value(&site.object(&serving()), "tls.crt");
    fs::write(folder.join("chain"), chain).expect("a write");
    openssl(folder, &["verify", "-CAfile", "ca.crt", "-untrusted", "chain", "chain"]);
}

#[test]
fn an_opaque_pair_of_an_old_installation_gets_its_type_and_is_never_lost() {
    let site = Site::new();
    let folder = site.folder.path();
    rsa_pair(folder, "root-ca");
    let in_folder = |file: &str| read(&folder.join(file));
    let opaque = tls_secret(
        "machine-config-server-tls",
        "Opaque",
        &in_folder("tls.crt"),
        &in_folder("tls.key"),
        &json!({}),
    );
    site.cluster.create(&secrets(NAMESPACE), &opaque);
    let root = json!({"metadata": {"name": "root-ca"}, "data": {"ca.crt": in_folder("ca.crt")}});
    site.cluster.create("/api/v1/namespaces/kube-system/configmaps", &root);
    let source = json!({"source": format!("data:;base64,{}", BASE64.encode(in_folder("ca.crt")))});
    site.make_user_data(
        "worker-user-data",
        user_data_config("3.1.0", &source).to_string().as_bytes(),
    );

    let pair = in_folder("tls.crt").into_bytes();
    let copy = format!("{}/machine-config-server-tls-retype", secrets(NAMESPACE));
    let holds_pair =
        |path: &str| site.cluster.get(path).is_some_and(|secret| value(&secret, "tls.crt") == pair);
    // Killed at any moment: from before its first write to after its last, a little later each time.
    for round in 0..8_u64 {
        let controller = site.start(&[]);
        std::thread::sleep(Duration::from_millis(20 * round));
        drop(controller);
        // Its Lease would keep the next one waiting.
        let lease = "/apis/coordination.k8s.io/v1/namespaces/openshift-machine-config-operator/\
                     leases/machine-config-server-controller";
        if site.cluster.get(lease).is_some() {
            site.cluster.delete(lease);
        }
        assert!(holds_pair(&copy) || holds_pair(&serving()), "the pair is lost in round {round}");
    }
    let _controller = site.start(&[]);
    site.settled();
    let secret = site.object(&serving());
    assert_eq!(secret["type"], "kubernetes.io/tls");
    assert_eq!(value(&secret, "tls.crt"), pair, "the old pair stays until its own renewal");
    assert!(site.cluster.get(&copy).is_none(), "the copy is gone");
    assert_eq!(site.bundle().matches("BEGIN").count(), 2, "old and new are trusted");
    assert_eq!(trusted(&site.user_data("worker-user-data")), site.bundle().as_bytes());
}

#[test]
fn one_controller_is_active_and_another_takes_over() {
    let site = Site::new();
    let mut first = site.start(&[]);
    wait_for("the first one", || first.is_active().then_some(()));
    let mut second = site.start(&[]);
    site.settled();
    assert!(!second.is_active());

    // In order: at once.
    first.terminate();
    let ended = Stopwatch::start();
    wait_for("the second one", || second.is_active().then_some(()));
    ended.within(Duration::from_secs(5), "to take over from one that ended");

    // By a crash in the middle of a rotation: within the Lease, and the next one ends the work.
    let third = site.start(&[]);
    let before = site.serial(&authority());
    site.cluster.patch(&authority(), &json!({"metadata": {"annotations": {ROTATE: "now"}}}));
    wait_for("a new authority", || (site.serial(&authority()) != before).then_some(()));
    second.child.kill().expect("a process of this test");
    let killed = Stopwatch::start();
    wait_for("the third one", || third.is_active().then_some(()));
    killed.within(Duration::from_secs(20), "to take over from one that was killed");
    site.settled();
    assert_eq!(site.bundle().matches("BEGIN").count(), 2);
}

#[test]
fn objects_that_others_edit_meanwhile_lose_nothing() {
    let site = Site::new();
    let _controller = site.start(&[]);
    site.object(&user_data("worker-user-data-managed"));
    site.settled();
    let source = json!({"source": format!("data:;base64,{}", BASE64.encode(site.newest()))});
    site.make_user_data(
        "worker-user-data",
        user_data_config("3.1.0", &source).to_string().as_bytes(),
    );
    let path = user_data("worker-user-data");
    for round in 0..5 {
        let before = site.bundle();
        let value = format!("{round} --force");
        let asked = json!({"metadata": {"annotations": {ROTATE: value}}});
        site.cluster.patch(&authority(), &asked);
        for edit in 0..20 {
            let labels = json!({"metadata": {"labels": {format!("edit-{round}-{edit}"): "x"}}});
            site.cluster.patch(&path, &labels);
            site.cluster.patch(&authority(), &labels);
            site.cluster.patch(&bundle(), &labels);
        }
        wait_for("a new bundle", || (site.bundle() != before).then_some(()));
        site.settled();
    }
    for path in [path, authority(), bundle()] {
        let labels = site.object(&path)["metadata"]["labels"].clone();
        for round in 0..5 {
            for edit in 0..20 {
                assert_eq!(labels[format!("edit-{round}-{edit}")], "x", "{path}");
            }
        }
    }
    assert_eq!(trusted(&site.user_data("worker-user-data")), site.bundle().as_bytes());
    assert_eq!(site.bundle().matches("BEGIN").count(), 6);
}

#[test]
fn an_authority_that_is_due_is_renewed() {
    let site = Site::new();
    let folder = site.folder.path();
    let key = rcgen::KeyPair::generate().expect("a key");
    let mut params = rcgen::CertificateParams::new(Vec::new()).expect("no names");
    params.distinguished_name.push(rcgen::DnType::CommonName, "machine-config-server-ca@1");
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.key_usages = vec![rcgen::KeyUsagePurpose::KeyCertSign];
    // Nine years old, of ten.
    let now = time::OffsetDateTime::now_utc();
    params.not_before = now - time::Duration::days(9 * 365);
    params.not_after = now + time::Duration::days(365);
    let old = params.self_signed(&key).expect("a certificate").pem();
    let secret = tls_secret(
        "machine-config-server-ca",
        "kubernetes.io/tls",
        &old,
        &key.serialize_pem(),
        &json!({}),
    );
    site.cluster.create(&secrets(NAMESPACE), &secret);
    let source = json!({"source": format!("data:;base64,{}", BASE64.encode(&old))});
    let text = user_data_config("3.1.0", &source).to_string();
    site.make_user_data("worker-user-data", text.as_bytes());
    let controller = site.start(&[]);
    wait_for("a renewal", || controller.log().contains("it is due for renewal").then_some(()));
    site.settled();
    fs::write(folder.join("old"), &old).expect("a write");
    fs::write(folder.join("chain"), site.serial(&serving())).expect("a write");
    openssl(folder, &["verify", "-CAfile", "old", "-untrusted", "chain", "chain"]);
}

#[test]
fn the_controllers_account_may_do_its_work_and_nothing_else() {
    let site = Site::new();
    let own = "/secrets/machine-config-server-tls";
    let objects: [(&str, &str, &[&str]); 21] = [
        (own, NAMESPACE, &["get", "list", "watch", "create", "patch", "delete"]),
        (
            "/secrets/machine-config-server-ca",
            NAMESPACE,
            &["get", "list", "watch", "create", "patch"],
        ),
        (
            "/secrets/internal-release-image-tls",
            NAMESPACE,
            &["get", "list", "watch", "create", "patch"],
        ),
        (
            "/secrets/machine-config-server-access",
            NAMESPACE,
            &["get", "list", "watch", "create", "patch"],
        ),
        (
            "/secrets/machine-config-server-tokens",
            NAMESPACE,
            &["get", "list", "watch", "create", "patch"],
        ),
        // A name that is yet to be made cannot be told in a rule.
        ("/secrets/other", NAMESPACE, &["create"]),
        ("/secrets", NAMESPACE, &["create"]),
        ("/secrets", "kube-system", &[]),
        ("/secrets", USER_DATA_NAMESPACE, &["list", "watch", "create", "patch"]),
        ("/configmaps/root-ca", "kube-system", &["get", "list", "watch"]),
        ("/configmaps", "kube-system", &[]),
        ("/pods", NAMESPACE, &[]),
        ("/nodes", "", &[]),
        ("machineconfiguration.openshift.io/machineconfigs", "", &[]),
        ("machineconfiguration.openshift.io/machineconfigpools", "", &["list", "watch"]),
        (
            "machineconfiguration.openshift.io/internalreleaseimages/cluster",
            "",
            &["get", "list", "watch"],
        ),
        ("machineconfiguration.openshift.io/internalreleaseimages", "", &[]),
        ("config.openshift.io/pkis/cluster", "", &["get", "list", "watch"]),
        ("config.openshift.io/pkis", "", &[]),
        ("aro.openshift.io/clusters/cluster", "", &["get"]),
        ("rbac.authorization.k8s.io/roles", NAMESPACE, &[]),
    ];
    for (object, namespace, allowed) in objects {
        for verb in ["get", "list", "watch", "create", "update", "patch", "delete", "bind"] {
            let expected = allowed.contains(&verb);
            assert_eq!(
                site.may(verb, object, namespace),
                expected,
                "{verb} {object} in {namespace:?}"
            );
        }
    }
}

#[test]
fn a_rotation_whose_controller_is_killed_at_any_step_is_ended_by_the_next_one() {
    let site = Site::new();
    let folder = site.folder.path();
    let first = site.start(&[]);
    site.object(&user_data("worker-user-data-managed"));
    site.settled();
    drop(first);
    let lease = "/apis/coordination.k8s.io/v1/namespaces/openshift-machine-config-operator/leases/\
                 machine-config-server-controller";
    let mut handed = Vec::new();
    for round in 0..12_u64 {
        handed.push(trusted(&site.user_data("worker-user-data-managed")));
        let value = format!("round {round} --force");
        site.cluster.patch(&authority(), &json!({"metadata": {"annotations": {ROTATE: value}}}));
        // Its Lease would keep the next one waiting.
        site.cluster.delete(lease);
        let controller = site.start(&[]);
        wait_for("the controller to be active", || controller.is_active().then_some(()));
        std::thread::sleep(Duration::from_millis(8 * round));
        drop(controller);
        fs::write(folder.join("chain"), site.serial(&serving())).expect("a write");
        for pem in &handed {
            fs::write(folder.join("trusted"), pem).expect("a write");
            openssl(folder, &["verify", "-CAfile", "trusted", "-untrusted", "chain", "chain"]);
        }
    }
    site.cluster.delete(lease);
    let _last = site.start(&[]);
    site.settled();
    assert_eq!(trusted(&site.user_data("worker-user-data-managed")), site.bundle().as_bytes());
}

#[test]
fn a_secret_that_cannot_be_written_holds_up_no_other() {
    let site = Site::new();
    let controller = site.start(&[]);
    site.object(&user_data("worker-user-data-managed"));
    site.settled();
    let source = json!({"source": format!("data:;base64,{}", BASE64.encode(site.newest()))});
    let text = user_data_config("3.1.0", &source).to_string();
    for name in ["rejected-user-data", "worker-user-data"] {
        site.make_user_data(name, text.as_bytes());
    }
    let policies = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies";
    let bindings = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings";
    let policy = json!({
        "metadata": {"name": "reject"},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"],
                "resources": ["secrets"], "resourceNames": ["rejected-user-data"],
            }]},
            "validations": [{"expression": "false", "message": "not now"}],
        },
    });
    site.cluster.create(policies, &policy);
    let binding = json!({
        "metadata": {"name": "reject"},
        "spec": {"policyName": "reject", "validationActions": ["Deny"]},
    });
    site.cluster.create(bindings, &binding);
    let path = user_data("rejected-user-data");
    let mut tries = 0;
    wait_for("the policy to be in force", || {
        tries += 1;
        let change = json!({"metadata": {"labels": {"try": tries.to_string()}}});
        let answer = site.cluster.request("PATCH", &path, "application/merge-patch+json", &change);
        (answer.status == 422).then_some(())
    });
    let before = site.bundle();
    site.cluster.patch(&authority(), &json!({"metadata": {"annotations": {ROTATE: "now"}}}));
    wait_for("a new bundle", || (site.bundle() != before).then_some(()));
    let is_followed = |name: &str| trusted(&site.user_data(name)) == site.bundle().as_bytes();
    wait_for("the others to follow", || is_followed("worker-user-data").then_some(()));
    wait_for("the refusal to be told", || controller.log().contains("not now").then_some(()));
    let pair = || site.serial(&serving());
    let chain = || String::from_utf8(pair()).expect("text").matches("BEGIN").count();
    wait_for("the serving pair, which does not wait either", || (chain() == 2).then_some(()));
    assert!(!is_followed("rejected-user-data"));

    site.cluster.delete(&format!("{bindings}/reject"));
    wait_for("the last one to follow", || is_followed("rejected-user-data").then_some(()));
    site.settled();
}

#[test]
fn a_watch_that_is_forbidden_shows_at_once_and_heals() {
    let site = Site::new();
    let bindings =
        "/apis/rbac.authorization.k8s.io/v1/namespaces/openshift-machine-api/rolebindings";
    site.cluster.delete(&format!("{bindings}/{ACCOUNT}"));
    wait_for("the right to be gone", || {
        (!site.may("list", "/secrets", USER_DATA_NAMESPACE)).then_some(())
    });
    let controller = site.start(&[]);
    wait_for("the controller to be active", || controller.is_active().then_some(()));
    let active = Stopwatch::start();
    // Other watches may have failures of their own, while the API server starts.
    let lines = |what: &str| -> Vec<String> {
        let object = "object=Secret openshift-machine-api/*";
        let log = controller.log();
        let own = log.lines().filter(|line| line.contains(what) && line.contains(object));
        own.map(str::to_owned).collect()
    };
    let told = || lines("it cannot be watched; trying again");
    wait_for("the log to tell", || (!told().is_empty()).then_some(()));
    wait_for("the metric", || (controller.watch_failures() > 0).then_some(()));
    let named = "Secret openshift-machine-api/*: it cannot be watched: secrets is forbidden";
    let readiness = wait_for("readiness to tell", || {
        let (status, lines) = controller.readiness();
        (status == 503 && lines.contains("certificates: ")).then_some(lines)
    });
    active.within(Duration::from_secs(5), "what is forbidden");
    assert!(readiness.lines().any(|line| line.starts_with(named)), "{readiness}");
    for wanted in ["ERROR", "kind=\"Secret\"", "forbidden"] {
        assert!(told()[0].contains(wanted), "{wanted} in {:?}", told());
    }

    // It is told once, however often it fails; and one that waits for its turn is ready.
    let standby = site.start(&[]);
    wait_for("another try", || (controller.watch_failures() > 1).then_some(()));
    assert_eq!(told().len(), 1, "{:?}", told());
    let ready = (200, String::new());
    wait_for("the other one to be ready", || (standby.readiness() == ready).then_some(()));
    assert!(!standby.is_active());

    site.cluster.apply(&["-k", in_repository("deploy/controller").to_str().expect("text")]);
    wait_for("it to heal", || (controller.readiness() == ready).then_some(()));
    wait_for("the log to tell", || (lines("watched again").len() == 1).then_some(()));
    site.object(&user_data("worker-user-data-managed"));
}

#[test]
fn what_is_not_understood_is_told_and_nothing_is_written_over_it() {
    let site = Site::new();
    let map = json!({
        "metadata": {"name": "machine-config-server-ca"},
        "data": {"ca-bundel.crt": "a slip of a hand"},
    });
    site.cluster.create(&format!("/api/v1/namespaces/{NAMESPACE}/configmaps"), &map);
    let before = site.object(&bundle());
    let controller = site.start(&[]);
    let reason = format!(
        "certificates: ConfigMap {NAMESPACE}/machine-config-server-ca: it has no key ca-bundle.crt\n"
    );
    wait_for("readiness to tell", || {
        (controller.readiness() == (503, reason.clone())).then_some(())
    });
    assert_eq!(site.object(&bundle()), before);
    assert!(site.cluster.get(&authority()).is_none(), "nothing else is made either");
    let checked = site.certs(&["check"]);
    assert!(!checked.status.success());
    assert!(String::from_utf8_lossy(&checked.stderr).contains("no key ca-bundle.crt"));

    site.cluster.patch(&bundle(), &json!({"data": {"ca-bundel.crt": null, "ca-bundle.crt": ""}}));
    site.object(&user_data("worker-user-data-managed"));
    site.settled();
    wait_for("it to be ready", || (controller.readiness().0 == 200).then_some(()));
}

#[test]
fn previous_cas_under_their_old_key_are_taken_over_and_move_with_the_next_authority() {
    let site = Site::new();
    let mut first = site.start(&[]);
    site.object(&user_data("worker-user-data-managed"));
    site.settled();
    let oldest = site.bundle();
    site.rotate("first");
    first.terminate();
    let previous = site.object(&authority())["data"]["previous-cas.pem"].clone();
    assert!(previous.is_string());
    // As older releases have stored it.
    let renamed = json!({"data": {"previous-cas.pem": null, "lineage.pem": previous}});
    site.cluster.patch(&authority(), &renamed);

    let versions = || {
        [authority(), serving(), bundle()]
            .map(|path| site.object(&path)["metadata"]["resourceVersion"].clone())
    };
    let before = versions();
    let _second = site.start(&[]);
    // A pool that comes shows that the controller has looked at everything.
    site.pool("infra");
    site.object(&user_data("infra-user-data-managed"));
    site.settled();
    assert_eq!(versions(), before, "taking it over writes nothing");

    site.rotate("second");
    let data = site.object(&authority())["data"].clone();
    assert!(data["previous-cas.pem"].is_string() && data["lineage.pem"].is_null());
    // Both older authorities are still followed.
    let folder = site.folder.path();
    fs::write(folder.join("oldest"), &oldest).expect("a write");
    fs::write(folder.join("chain"), site.serial(&serving())).expect("a write");
    openssl(folder, &["verify", "-CAfile", "oldest", "-untrusted", "chain", "chain"]);
}
