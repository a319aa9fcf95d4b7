//! A cluster's API: a kube-apiserver on an etcd, both children of this process on loopback ports.
//!
//! No controller runs in it, so that an object stays as it was made.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use http::Request;
use kube::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use rcgen::{CertificateParams, DnType, KeyPair, date_time_ymd};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::time::sleep;

use crate::machine::HOST;
use crate::servers::{Server, free_address};

const REPOSITORY: &str = env!("CARGO_MANIFEST_DIR");
const ADMIN: &str = "admin-token";
/// The namespace and the service account that servers run as.
const NAMESPACE: &str = "openshift-machine-config-operator";
const ACCOUNT: &str = "machine-config-server";
/// How long the API server may take to be ready.
const START: Duration = Duration::from_secs(120);

/// A running API server with its store.
pub(crate) struct Cluster {
    /// Asks as an administrator.
    pub(crate) client: Client,
    /// What the API server presents, and the servers under test as well.
    pub(crate) pair: Pair,
    /// The kubeconfig of the servers' own service account.
    pub(crate) kubeconfig: PathBuf,
    /// An administrator's kubeconfig.
    pub(crate) admin: PathBuf,
    // They end in this order.
    _api_server: Server,
    _etcd: Server,
}

impl Cluster {
    /// One with what `deploy/kubernetes` has.
    pub(crate) fn start(runtime: &Runtime, scratch: &Path) -> Result<Self> {
        let assets = assets()?;
        let pair = Pair::make(scratch)?;
        let etcd = start_etcd(&assets, scratch)?;
        let api_server = start_api_server(&assets, scratch, etcd.address, &pair)?;
        let admin = write_kubeconfig(scratch, "admin", ADMIN, api_server.address, &pair)?;
        let client = runtime.block_on(client(&admin))?;
        runtime.block_on(until_ready(&client)).with_context(|| {
            fs::read_to_string(scratch.join("kube-apiserver.log")).unwrap_or_default()
        })?;

        let kubectl = |arguments: &[&str]| kubectl(&assets, &admin, arguments);
        let manifests = format!("{REPOSITORY}/deploy/kubernetes");
        kubectl(&["apply", "--server-side", "-k", &manifests])?;
        let definitions = ["customresourcedefinitions", "--all", "--timeout=60s"];
        kubectl(&[&["wait", "--for=condition=Established"][..], &definitions].concat())?;
        let token = kubectl(&["create", "token", ACCOUNT, "--namespace", NAMESPACE])?;
        let kubeconfig =
            write_kubeconfig(scratch, ACCOUNT, token.trim(), api_server.address, &pair)?;
        Ok(Self { client, pair, kubeconfig, admin, _api_server: api_server, _etcd: etcd })
    }

    /// Makes an object in the collection at `path`.
    pub(crate) async fn create(&self, path: &str, object: &Value) -> Result<()> {
        self.send("POST", path, "application/json", object).await
    }

    /// Changes the fields that `change` names.
    pub(crate) async fn patch(&self, path: &str, change: &Value) -> Result<()> {
        self.send("PATCH", path, "application/merge-patch+json", change).await
    }

    async fn send(&self, method: &str, path: &str, kind: &str, body: &Value) -> Result<()> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("Content-Type", kind)
            .body(serde_json::to_vec(body)?)?;
        self.client.request_text(request).await.with_context(|| format!("{method} {path}"))?;
        Ok(())
    }
}

/// A self-signed pair, as files in PEM.
pub(crate) struct Pair {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

impl Pair {
    fn make(directory: &Path) -> Result<Self> {
        let key = KeyPair::generate()?;
        let names = [HOST, "localhost", "127.0.0.1"].map(str::to_owned);
        let mut params = CertificateParams::new(names)?;
        params.distinguished_name.push(DnType::CommonName, HOST);
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2119, 12, 31);
        let pair = Self { certificate: directory.join("tls.crt"), key: directory.join("tls.key") };
        fs::write(&pair.certificate, params.self_signed(&key)?.pem())?;
        fs::write(&pair.key, key.serialize_pem())?;
        Ok(pair)
    }
}

/// The folder with kube-apiserver, kubectl and etcd.
fn assets() -> Result<PathBuf> {
    let install = Command::new(format!("{REPOSITORY}/tests/kubernetes/install"))
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("tests/kubernetes/install")?;
    let said = String::from_utf8(install.stdout)?;
    ensure!(install.status.success(), "there is no API server to be had: {said}");
    Ok(PathBuf::from(said.trim()))
}

fn start_etcd(assets: &Path, scratch: &Path) -> Result<Server> {
    let [address, peer] = [free_address()?, free_address()?];
    let [client, peer] = [address, peer].map(|address| format!("http://{address}"));
    let mut command = Command::new(assets.join("etcd"));
    command
        .arg("--name=scale")
        .arg(format!("--data-dir={}", scratch.join("etcd").display()))
        // What a disk adds is not what is measured.
        .arg("--unsafe-no-fsync")
        .arg(format!("--listen-client-urls={client}"))
        .arg(format!("--advertise-client-urls={client}"))
        .arg(format!("--listen-peer-urls={peer}"))
        .arg(format!("--initial-advertise-peer-urls={peer}"))
        .arg(format!("--initial-cluster=scale={peer}"));
    Server::start(address, &mut command, &scratch.join("etcd.log"))
}

fn start_api_server(
    assets: &Path,
    scratch: &Path,
    etcd: SocketAddr,
    pair: &Pair,
) -> Result<Server> {
    let key = KeyPair::generate()?;
    let files = ["accounts.key", "accounts.pub", "tokens"].map(|name| scratch.join(name));
    let [accounts_key, accounts_pub, tokens] = &files;
    fs::write(accounts_key, key.serialize_pem())?;
    fs::write(accounts_pub, key.public_key_pem())?;
    fs::write(tokens, format!("{ADMIN},admin,admin,system:masters\n"))?;
    let address = free_address()?;
    let mut command = Command::new(assets.join("kube-apiserver"));
    command
        .arg(format!("--etcd-servers=http://{etcd}"))
        .args(["--bind-address=127.0.0.1", "--advertise-address=127.0.0.1"])
        .arg(format!("--secure-port={}", address.port()))
        .arg(format!("--tls-cert-file={}", pair.certificate.display()))
        .arg(format!("--tls-private-key-file={}", pair.key.display()))
        .arg(format!("--cert-dir={}", scratch.join("certificates").display()))
        .arg("--service-account-issuer=https://kubernetes.default.svc")
        .arg(format!("--service-account-key-file={}", accounts_pub.display()))
        .arg(format!("--service-account-signing-key-file={}", accounts_key.display()))
        .arg("--service-cluster-ip-range=10.0.0.0/24")
        .arg("--authorization-mode=RBAC")
        .arg(format!("--token-auth-file={}", tokens.display()))
        .arg("--endpoint-reconciler-type=none");
    Server::start(address, &mut command, &scratch.join("kube-apiserver.log"))
}

fn write_kubeconfig(
    scratch: &Path,
    user: &str,
    token: &str,
    address: SocketAddr,
    pair: &Pair,
) -> Result<PathBuf> {
    let kubeconfig = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "scale", "cluster": {
            "server": format!("https://{address}"),
            "certificate-authority": pair.certificate,
        }}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": "scale", "context": {"cluster": "scale", "user": user}}],
        "current-context": "scale",
    });
    let path = scratch.join(format!("{user}.kubeconfig"));
    fs::write(&path, kubeconfig.to_string())?;
    Ok(path)
}

async fn client(kubeconfig: &Path) -> Result<Client> {
    let options = KubeConfigOptions::default();
    let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await?;
    Ok(Client::try_from(config)?)
}

async fn until_ready(client: &Client) -> Result<()> {
    let deadline = Instant::now() + START;
    loop {
        match client.request_text(Request::get("/readyz").body(Vec::new())?).await {
            Err(_) if Instant::now() < deadline => sleep(Duration::from_millis(100)).await,
            last => return last.map(drop).context("the API server is not ready"),
        }
    }
}

/// What kubectl prints; it has to succeed.
fn kubectl(assets: &Path, kubeconfig: &Path, arguments: &[&str]) -> Result<String> {
    let output = Command::new(assets.join("kubectl"))
        .arg("--kubeconfig")
        .arg(kubeconfig)
        .args(arguments)
        .env("KUBECACHEDIR", kubeconfig.with_file_name("kubectl-cache"))
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()?;
    ensure!(output.status.success(), "kubectl {}", arguments.join(" "));
    Ok(String::from_utf8(output.stdout)?)
}
