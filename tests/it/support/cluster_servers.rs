//! kube-apiserver and etcd as processes. Their ids are in files, so that they can end with another process than the one
//! that started them.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::http::{Client, Response};
use super::pair::Pair;
use super::server::{free_ports, port_lock};
use super::{wait_for, wait_until};

/// Token of an administrator.
pub(super) const ADMIN: &str = "admin-token";
pub(super) const API_SERVER: &str = "kube-apiserver";
pub(super) const ETCD: &str = "etcd";
/// How long servers of an earlier test may take until they answer.
const SOON: Duration = Duration::from_secs(10);

/// An API server with its etcd.
#[derive(Serialize, Deserialize)]
pub(super) struct Servers {
    /// Whether they end when the value is dropped.
    #[serde(skip)]
    pub(super) owned: bool,
    /// Folder of their files, in which they run.
    pub(super) folder: PathBuf,
    pub(super) address: SocketAddr,
    /// Whether they run apart from this test's processes.
    apart: bool,
    /// Set while a later test can use them.
    pub(super) template: Option<Template>,
    etcd: SocketAddr,
    /// Further flags of the API server.
    flags: Vec<String>,
    /// Certificate of the API server.
    pem: String,
}

/// Contents of a store.
#[derive(Serialize, Deserialize)]
pub(super) struct Template {
    pub(super) name: String,
    /// Revision of etcd's store at which it had only these.
    pub(super) revision: String,
}

impl Servers {
    /// Starts both on the store `etcd` in this folder, if there is one.
    pub(super) fn start(folder: &Path, apart: bool) -> Self {
        Self::start_with(folder, apart, Vec::new())
    }

    /// Starts both, with further flags of the API server, of which the last one of a name counts.
    pub(super) fn start_with(folder: &Path, apart: bool, flags: Vec<String>) -> Self {
        let [etcd, peer, address] = free_ports();
        let folder = folder.canonicalize().expect("a folder");
        let key = rcgen::KeyPair::generate().expect("a key");
        for (name, text) in [
            ("accounts.key", key.serialize_pem()),
            ("accounts.pub", key.public_key_pem()),
            ("tokens", format!("{ADMIN},admin,admin,system:masters\n")),
        ] {
            fs::write(folder.join(name), text).expect("a writable folder");
        }
        let pem = Pair::make(&folder, "test API server").pem;
        let servers =
            Self { owned: true, apart, template: None, folder, address, etcd, flags, pem };
        servers.run(
            ETCD,
            &[
                "--name=test",
                "--data-dir=etcd",
                "--unsafe-no-fsync",
                "--max-txn-ops=100000",
                &format!("--listen-client-urls=http://{etcd}"),
                &format!("--advertise-client-urls=http://{etcd}"),
                &format!("--listen-peer-urls=http://{peer}"),
                &format!("--initial-advertise-peer-urls=http://{peer}"),
                &format!("--initial-cluster=test=http://{peer}"),
            ],
        );
        servers.start_api_server();
        servers
    }

    /// Starts the API server and waits until it is ready.
    pub(super) fn start_api_server(&self) {
        let own = [
            &*format!("--etcd-servers=http://{}", self.etcd),
            // A reset reads old revisions.
            "--etcd-compaction-interval=0",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            &format!("--secure-port={}", self.address.port()),
            "--tls-cert-file=tls.crt",
            "--tls-private-key-file=tls.key",
            "--cert-dir=certificates",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--service-account-key-file=accounts.pub",
            "--service-account-signing-key-file=accounts.key",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--authorization-mode=RBAC",
            "--token-auth-file=tokens",
            "--endpoint-reconciler-type=none",
        ];
        let flags: Vec<&str> =
            own.into_iter().chain(self.flags.iter().map(String::as_str)).collect();
        let client = Client::tls(self.address, self.pem.as_bytes());
        let authorization = format!("Bearer {ADMIN}");
        // On a busy machine, it takes longer to start than it allows itself, and ends.
        let mut starts = 0;
        wait_for("the API server to be ready", || {
            if process(&self.folder, API_SERVER).is_none() {
                assert!(starts < 3, "kube-apiserver ended:\n{}", self.log(API_SERVER));
                self.run(API_SERVER, &flags);
                starts += 1;
            }
            let answer = client.try_request("GET", "/readyz", &[("Authorization", &authorization)]);
            answer.ok().filter(|response| response.status == 200)
        });
        // The default namespace is created a little later.
        wait_for("the default namespace", || self.get("/api/v1/namespaces/default"));
    }

    fn run(&self, program: &str, flags: &[&str]) {
        let log = File::create(self.folder.join(format!("{program}.log"))).expect("a log file");
        let mut command = Command::new(binary(program));
        if self.apart {
            command.process_group(0);
        }
        #[expect(clippy::zombie_processes, reason = "its end is awaited by its id")]
        let child = command
            .args(flags)
            .current_dir(&self.folder)
            // No other process takes their ports as long as one of them has the lock open.
            .stdin(port_lock())
            .stdout(log.try_clone().expect("a second handle"))
            .stderr(log)
            .spawn()
            .unwrap_or_else(|error| panic!("{program}: {error}"));
        fs::write(id_file(&self.folder, program), child.id().to_string())
            .expect("a writable folder");
    }

    /// Returns `true` if both answer within seconds.
    pub(super) fn answer_soon(&self) -> bool {
        let client = Client::tls(self.address, self.pem.as_bytes()).patient_as_ignition();
        let authorization = format!("Bearer {ADMIN}");
        let started = Instant::now();
        while started.elapsed() < SOON {
            // It asks etcd too.
            let answer = client.try_request("GET", "/readyz", &[("Authorization", &authorization)]);
            if answer.is_ok_and(|response| response.status == 200) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        false
    }

    pub(super) fn run_both(&self) -> bool {
        [ETCD, API_SERVER].iter().all(|program| process(&self.folder, program).is_some())
    }

    /// Ends a program by a signal.
    pub(super) fn end_by(&self, program: &str, signal: Signal) {
        end_by(&self.folder, program, signal);
    }

    pub(super) fn certificate(&self) -> PathBuf {
        self.folder.join("tls.crt")
    }

    /// The last lines of a program's log.
    pub(super) fn log(&self, program: &str) -> String {
        let log = fs::read(self.folder.join(format!("{program}.log"))).expect("the log file");
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }

    /// Asks the API server as an administrator.
    pub(super) fn request(&self, method: &str, path: &str, kind: &str, body: &Value) -> Response {
        let client = Client::tls(self.address, self.pem.as_bytes());
        let headers = format!("Authorization: Bearer {ADMIN}\r\nContent-Type: {kind}\r\n");
        let request = request(method, path, &headers, body);
        if method == "GET" {
            // It gives up without an answer where etcd is slow, and with one while its cache of a kind is not filled.
            let client = client.patient_as_ignition();
            let is_filled = |response: &Response| response.status != 429;
            return wait_for("an answer from the API server", || {
                client.exchange(&request).ok().filter(is_filled)
            });
        }
        client.exchange(&request).expect("an answer from the API server")
    }

    /// An object, `None` if it does not exist.
    pub(super) fn get(&self, path: &str) -> Option<Value> {
        let response = self.request("GET", path, "application/json", &json!({}));
        match response.status {
            200 => Some(response.whole_json()),
            404 => None,
            _ => panic!("GET {path}: {response:?}"),
        }
    }

    /// Waits until the API server serves every kind that has been defined.
    pub(super) fn serves_all_kinds(&self) {
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

    /// Asks etcd: `action` is the last part of a path of its JSON gateway.
    pub(super) fn ask_etcd(&self, action: &str, body: &Value) -> Value {
        let path = format!("/v3/kv/{action}");
        let request = request("POST", &path, "", body);
        // All that it is asked can be asked again.
        let client = Client::plain(self.etcd);
        let answer = wait_for("an answer from etcd", || client.exchange(&request).ok());
        assert_eq!(answer.status, 200, "{action}: {answer:?}");
        answer.whole_json()
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        if self.owned {
            end_in(&self.folder);
        }
    }
}

/// Kills the servers of a folder, if there are any.
pub(super) fn end_in(folder: &Path) {
    for program in [API_SERVER, ETCD] {
        end_by(folder, program, Signal::KILL);
    }
}

fn end_by(folder: &Path, program: &str, signal: Signal) {
    let Some(id) = process(folder, program) else { return };
    // It may have ended just now, and it can be the child of an earlier test.
    let _ = kill_process(id, signal);
    let _ = waitpid(Some(id), WaitOptions::empty());
    wait_until("the end of a server", || process(folder, program).is_none());
}

fn id_file(folder: &Path, program: &str) -> PathBuf {
    folder.join(format!("{program}.pid"))
}

/// Process of a program that runs in this folder.
fn process(folder: &Path, program: &str) -> Option<Pid> {
    let id: i32 = fs::read_to_string(id_file(folder, program)).ok()?.parse().ok()?;
    // Another process can have the id by now.
    let runs_in = fs::read_link(format!("/proc/{id}/cwd")).ok()?;
    (runs_in == folder).then_some(Pid::from_raw(id)?)
}

fn request(method: &str, path: &str, headers: &str, body: &Value) -> Vec<u8> {
    let body = body.to_string();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    request.into_bytes()
}

/// Path of kube-apiserver, kubectl or etcd.
pub(super) fn binary(name: &str) -> PathBuf {
    let directory = std::env::var_os("KUBEBUILDER_ASSETS")
        .expect("KUBEBUILDER_ASSETS names no folder with kube-apiserver: run tests/run");
    Path::new(&directory).join(name)
}
