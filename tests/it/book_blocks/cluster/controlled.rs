//! Pages about a cluster in which controller and server run already.

use tempfile::TempDir;

use super::super::walk::{PAGE, Page};
use crate::support::cluster::{Cluster, NAMESPACE};
use crate::support::logged::Logged;
use crate::support::server::{binary, make_token_directory};
use crate::support::wait_for;

/// The controller with all its parts, and a server with the certificate that it keeps. They end when the value is dropped.
pub(super) struct Running {
    _controller: Logged,
    _server: Logged,
    _directory: TempDir,
}

impl Running {
    pub(super) fn start(cluster: &Cluster) -> Self {
        let directory = tempfile::tempdir().expect("a temporary folder");
        let kubeconfig = cluster.admin();
        let mut controller = binary();
        controller.args(["controller", "--kubeconfig"]).arg(&kubeconfig);
        for host in ["mcs.example.com", "api-int.example.com", "HOST"] {
            controller.args(["--host", host]);
        }
        controller.args(["--metrics-address", "127.0.0.1:9624", "--access", "audit"]);
        let controller = Logged::start("the controller", &mut controller);
        let path = format!("/api/v1/namespaces/{NAMESPACE}/secrets/machine-config-server-tls");
        let secret = wait_for("the serving certificate", || cluster.get(&path));
        for key in ["tls.crt", "tls.key"] {
            use base64::Engine as _;
            let value = secret["data"][key].as_str().expect("text");
            let value = base64::engine::general_purpose::STANDARD.decode(value).expect("base64");
            std::fs::write(directory.path().join(key), value).expect("a writable folder");
        }
        make_token_directory(&directory.path().join("token"));
        let mut server = binary();
        server.args(["start", "--apiserver-url", "https://api-int.example.com:6443"]);
        server.arg("--kubeconfig").arg(&kubeconfig);
        server.arg("--cert").arg(directory.path().join("tls.crt"));
        server.arg("--key").arg(directory.path().join("tls.key"));
        server.arg("--bootstrap-token-dir").arg(directory.path().join("token"));
        server.args(["--metrics-address", "127.0.0.1:9623", "--access", "audit"]);
        let server = Logged::start("the server", &mut server);
        Self { _controller: controller, _server: server, _directory: directory }
    }
}

const SERVED: &str = "until curl -skf https://HOST:22623/readyz/serving; do sleep 0.1; done";

/// The object that names the administrator's registry CAs.
const IMAGE: &str = r#"kubectl apply -f - <<END
{"apiVersion": "config.openshift.io/v1", "kind": "Image", "metadata": {"name": "cluster"}}
END"#;

/// A directory that is served next to the cluster.
const DIRECTORY: &str = "machine-config-server serve ignition-fixtures --secure-port 0 --insecure-port 0 \
                         --state-dir /var/lib/machine-config-server";

/// The trust bundle of the cluster, and a pointer config.
const BUNDLE: &str = r"
kubectl -n openshift-machine-config-operator get configmap machine-config-server-ca \
    -o jsonpath='{.data.ca-bundle\.crt}' >ca.crt
kubectl -n openshift-machine-api get secret worker-user-data-managed -o jsonpath='{.data.userData}' | base64 -d >worker.ign
";

pub(super) const PAGES: &[Page] = &[
    Page { name: "docs/src/how-to/check.md", before: &[SERVED], ..PAGE },
    Page {
        name: "docs/src/runbook/index.md",
        before: &[SERVED],
        between: &[
            ("machine-config-server health /etc", DIRECTORY),
            ("curl -sS --cacert ca.crt", BUNDLE),
        ],
        filled_in: &[
            ("/config/POOL", "/config/worker"),
            ("health /etc/machine-config-server", "health ignition-fixtures"),
        ],
        ..PAGE
    },
    Page {
        name: "docs/src/how-to/cert-manager.md",
        before: &[SERVED],
        ..PAGE
    },
    Page { name: "docs/src/how-to/registry-cas.md", before: &[IMAGE], ..PAGE },
    Page {
        name: "docs/src/tutorials/registry-ca.md",
        files: &[("nodes/kustomization.yaml", "how-to/node-ca.md", "# nodes/kustomization.yaml")],
        before: &["kubectl -n openshift-config delete configmap registry-cas --ignore-not-found"],
        between: &[
            (
                "kubectl -n openshift-config create configmap registry-cas --from-file=mirror",
                "cat mirror-ca.crt certs/registry-mirror-next.crt >ca.crt",
            ),
            ("ls /etc/docker", "machine-config-server node-ca --kubeconfig FILE"),
        ],
        ..PAGE
    },
    Page { name: "docs/src/how-to/render-pools.md", ..PAGE },
    Page {
        name: "docs/src/how-to/restore.md",
        before: &[
            "machine-config-server serve ignition-fixtures --secure-port 0 --insecure-port 0",
            "until test -e certs/last-good/index.json; do sleep 0.1; done",
        ],
        ..PAGE
    },
    Page {
        name: "docs/src/how-to/rotate.md",
        before: &["machine-config-server serve ignition-fixtures --secure-port 0 --insecure-port 0"],
        ..PAGE
    },
    Page {
        name: "docs/src/how-to/distrust.md",
        before: &[
            "machine-config-server serve ignition-fixtures --secure-port 0 --insecure-port 0",
            "name=$(openssl x509 -in certs/ca.crt -noout -subject -nameopt RFC2253 | sed 's/.*CN=//')",
            "machine-config-server certs rotate --ca --force",
        ],
        filled_in: &[("machine-config-server-ca@1795287382-823b", "\"$name\"")],
        exits: &[
            ("machine-config-server certs distrust \"$name\" --yes", 0),
            ("machine-config-server certs distrust", 1),
        ],
        ..PAGE
    },
    Page {
        name: "docs/src/how-to/check-pointer.md",
        before: &[
            "machine-config-server serve ignition-fixtures --secure-port 22633 --insecure-port 0",
            "kubectl -n openshift-machine-api get secret worker-user-data-managed -o json |
                 jq '.metadata = {name: \"worker-user-data\", namespace: \"openshift-machine-api\"}' | kubectl apply -f -",
        ],
        filled_in: &[("localhost:22623", "localhost:22633")],
        ..PAGE
    },
    Page {
        name: "docs/src/how-to/render.md",
        before: &["machine-config-server serve ignition-fixtures --secure-port 0 --insecure-port 0"],
        ..PAGE
    },
    // The pool is enforced from here on.
    Page { name: "docs/src/reference/access.md", ..PAGE },
];
