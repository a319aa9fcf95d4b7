//! What an administrator, another tool or a clock does to a cluster's certificates: no machine that
//! could boot is locked out by it, and what is not done is told.

mod distrust;
mod handed_over;
mod moments;
mod own_ca;
mod refusals;

use std::path::Path;
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use ignition::{SpecVersion, pointer as pointer_config};
use pki::{Certificate, TrustHolder, locked_out};
use serde_json::{Value, json};
use time::OffsetDateTime;

use super::{
    ControlledCluster, Controller, ca, read, rsa_pair, secrets, serving, tls_secret, trusted,
    user_data, value,
};
use crate::support::book;
use crate::support::cluster::NAMESPACE;
use crate::support::command::Said;
use crate::support::openssl::sign_serving;
use crate::support::server::Server;
use crate::support::{wait_for, wait_until};

const DISTRUST: &str = "machineconfiguration.openshift.io/distrust-certificates";
const DISTRUSTED: &str = "BEGIN DISTRUSTED CERTIFICATE";

impl ControlledCluster {
    /// Writes annotations; `null` removes one.
    fn annotate(&self, path: &str, annotations: &Value) {
        self.cluster.patch(path, &json!({"metadata": {"annotations": annotations}}));
    }

    /// Waits until the controller has looked at everything as it is now: a new pool shows that.
    fn looked_at(&self, pool: &str) {
        self.pool(pool);
        self.object(&user_data(&format!("{pool}-user-data-managed")));
    }

    /// Waits until the log, an event, readiness, which stays 200, a metric and `certs check`, which
    /// fails, tell `text` of this kind.
    fn reported(&self, controller: &Controller, kind: &str, text: &str) {
        let logged = text.replace('"', "\\\"");
        wait_until("the log to tell", || controller.log().contains(&logged));
        wait_until("an event", || self.cluster.events().contains(text));
        let metric = format!("mcs_certificates_attention{{what=\"{kind}\"}} ");
        wait_for("the metric", || {
            let page = controller.metrics();
            let line = page.lines().find_map(|line| line.strip_prefix(&metric)).map(str::to_owned);
            line.filter(|count| count != "0")
        });
        wait_until("readiness to tell", || {
            let (status, lines) = controller.readiness();
            status == 200 && lines.starts_with("certificates: ")
        });
        self.certs(&["check"]).refused(&[text]);
    }

    /// Starts the controller, and waits until it has made what there has to be and tells nothing.
    fn start_healthy(&self) -> Controller {
        let controller = self.start(&[]);
        self.object(&user_data("worker-user-data-managed"));
        self.healthy(&controller);
        controller
    }

    /// Waits until nothing is told any more.
    fn healthy(&self, controller: &Controller) {
        self.settled();
        wait_until("readiness to be OK", || controller.readiness() == (200, String::new()));
    }

    /// The CAs of the bundle.
    fn trusted(&self) -> Vec<Certificate> {
        Certificate::read_all(self.bundle().as_bytes())
    }

    /// What the signing CA's secret holds besides.
    fn previous(&self) -> String {
        let secret = self.object(&ca());
        String::from_utf8(value(&secret, "previous-cas.pem")).expect("text")
    }

    /// An installation whose CA is known by its certificate alone, with a serving pair for these
    /// names. Returns a pointer config that trusts that CA.
    fn old_installation(&self, names: &str) -> String {
        let directory = self.directory.path();
        rsa_pair(directory, "root-ca");
        sign_serving(directory, &format!("subjectAltName={names}"));
        let in_directory = |file: &str| read(&directory.join(file));
        let pair = tls_secret(
            "machine-config-server-tls",
            "kubernetes.io/tls",
            &in_directory("tls.crt"),
            &in_directory("tls.key"),
            &json!({}),
        );
        self.cluster.create(&secrets(NAMESPACE), &pair);
        let root = in_directory("ca.crt");
        let map = json!({"metadata": {"name": "root-ca"}, "data": {"ca.crt": root}});
        self.cluster.create("/api/v1/namespaces/kube-system/configmaps", &map);
        let url = "https://localhost:22623/config/worker";
        let pointer = pointer_config(url, root.as_bytes(), SpecVersion::V3_1).to_string();
        self.make_user_data("worker-user-data", pointer.as_bytes());
        pointer
    }

    /// Whether a machine with this pointer config accepts what is to be served.
    fn boots(&self, pointer: &[u8]) -> bool {
        let holder = TrustHolder {
            name: "a machine".to_owned(),
            trusted: Certificate::read_all(&trusted(pointer)),
            hosts: Vec::new(),
        };
        locked_out(&self.chain(&serving()), &[holder], OffsetDateTime::now_utc()).is_empty()
    }

    /// Puts a pair into a secret as another tool does.
    fn put_pair(&self, path: &str, certificate: &[u8], key: &[u8]) {
        let data = json!({"tls.crt": BASE64.encode(certificate), "tls.key": BASE64.encode(key)});
        self.cluster.patch(path, &json!({"data": data}));
    }

    /// Runs a line of a shell, with kubectl and the binary at hand, as an administrator does.
    fn shell(&self, directory: &Path, line: &str) -> Said {
        let tools = std::env::var("KUBEBUILDER_ASSETS").expect("tests/run sets it");
        let own =
            Path::new(env!("CARGO_BIN_EXE_machine-config-server")).parent().expect("a folder");
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new("bash");
        command
            .args(["-o", "pipefail", "-ec", line])
            .current_dir(directory)
            .env("PATH", format!("{tools}:{}:{path}", own.display()))
            .env("KUBECONFIG", self.cluster.admin())
            .env("KUBECACHEDIR", self.cluster.kubectl_cache());
        Said::by(&mut command)
    }
}

/// The commands of a page of the book, as they are written there.
fn commands(page: &str) -> Vec<String> {
    book::commands(&book::page(page)).into_iter().map(|(command, _)| command).collect()
}

/// The pointer config with the port of the server under test.
fn to_server(pointer: &str, server: &Server) -> String {
    pointer.replace(":22623/", &format!(":{}/", server.secure().port()))
}
