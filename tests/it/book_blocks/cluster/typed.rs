//! Pages about a cluster in which nothing runs but what the page starts.

use super::super::walk::{PAGE, Page};

/// The overlay for the servers, as two pages show it.
const MINE: (&str, &str, &str) =
    ("mine/kustomization.yaml", "how-to/configure.md", "# mine/kustomization.yaml");

/// The change of it for a cluster that is not OpenShift.
const ON_KUBERNETES: &str = "sed -i 's|openshift # or ../deploy/kubernetes|kubernetes|; \
                             s|DaemonSet # or Deployment|Deployment|' mine/kustomization.yaml";

/// The overlay for the controller.
const CONTROLLERS: (&str, &str, &str) =
    ("controllers/kustomization.yaml", "how-to/controller.md", "# controllers/kustomization.yaml");

const NODES: (&str, &str, &str) =
    ("nodes/kustomization.yaml", "how-to/node-ca.md", "# nodes/kustomization.yaml");

/// A controller that keeps certificates, user data and tokens.
const CONTROLLER: &str = "machine-config-server controller --kubeconfig FILE --host mcs.example.com \
                          --access audit --metrics-address 127.0.0.1:9624";

/// A request that waits for its issuer.
const REQUEST: &str = r"
openssl req -newkey rsa:2048 -nodes -subj /CN=one -keyout one.key -out one.csr
kubectl apply -f - <<END
apiVersion: cert-manager.io/v1
kind: CertificateRequest
metadata: {name: one, namespace: openshift-machine-config-operator}
spec: {request: $(base64 -w 0 one.csr), issuerRef: {name: corporate}}
END
";

/// Ends the namespace that the page deletes, in place of the controller that would.
const FINALIZE: &str = r"(
namespace=/api/v1/namespaces/machine-config-server-node-ca
until kubectl get --raw $namespace | grep deletionTimestamp; do sleep 0.2; done
kubectl get --raw $namespace | jq '.spec.finalizers = []' | kubectl replace --raw $namespace/finalize -f -
) &";

pub(super) const PAGES: &[Page] = &[
    Page {
        name: "docs/src/how-to/configure.md",
        files: &[MINE],
        before: &[ON_KUBERNETES],
        exits: &[("kubectl diff", 1)],
        ..PAGE
    },
    Page {
        name: "docs/src/how-to/directory.md",
        before: &[
            "echo machine-config-server:x:950: >>/etc/group && mkdir /etc/machine-config-server && touch dump.yaml",
        ],
        ..PAGE
    },
    Page {
        name: "docs/src/how-to/kubernetes.md",
        files: &[MINE],
        before: &[ON_KUBERNETES],
        ..PAGE
    },
    Page {
        name: "docs/src/how-to/lost-key.md",
        before: &["machine-config-server serve ignition-fixtures"],
        between: &[(
            "machine-config-server certs rotate",
            "machine-config-server serve ignition-fixtures",
        )],
        ..PAGE
    },
    Page {
        name: "docs/src/how-to/controller.md",
        files: &[CONTROLLERS],
        between: &[("kubectl delete validatingadmissionpolicy", "kubectl apply -k controllers")],
        ..PAGE
    },
    Page { name: "docs/src/how-to/ca-from-issuer.md", ..PAGE },
    Page { name: "docs/src/how-to/external-certificate.md", ..PAGE },
    Page {
        name: "docs/src/how-to/enforce-tokens.md",
        files: &[
            ("manifests/worker.yaml", "tutorials/first-boot.md", "name: 50-motd"),
            CONTROLLERS,
            (
                "servers/kustomization.yaml",
                "how-to/enforce-tokens.md",
                "# servers/kustomization.yaml",
            ),
        ],
        between: &[
            (
                "curl -s http://127.0.0.1:8797/metrics",
                "curl -sk https://127.0.0.1:22623/config/worker -o /dev/null",
            ),
            ("machine-config-server tokens list", CONTROLLER),
        ],
        ..PAGE
    },
    Page {
        name: "docs/src/how-to/registry-credentials.md",
        files: &[("manifests/worker.yaml", "tutorials/first-boot.md", "name: 50-motd")],
        before: &[
            "mkdir -p /etc/mcs /etc/ssl/mcs && cp -r token /etc/mcs/bootstrap-token",
            "openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=localhost -addext subjectAltName=DNS:localhost \
                 -keyout /etc/ssl/mcs/tls.key -out /etc/ssl/mcs/tls.crt",
        ],
        ..PAGE
    },
    Page {
        name: "docs/src/how-to/upgrade.md",
        files: &[MINE, CONTROLLERS],
        before: &[ON_KUBERNETES, "sed -i s/0.1.0/0.2.0/ mine/kustomization.yaml"],
        exits: &[("kubectl diff", 1)],
        ..PAGE
    },
    Page { name: "docs/src/how-to/node-ca.md", files: &[NODES], ..PAGE },
    Page {
        name: "docs/src/how-to/monitor.md",
        files: &[MINE],
        before: &[
            ON_KUBERNETES,
            "printf 'components:\\n- ../deploy/components/monitoring\\n' >>mine/kustomization.yaml",
        ],
        ..PAGE
    },
    Page { name: "docs/src/how-to/firewall.md", ..PAGE },
    Page {
        name: "docs/src/how-to/issuer.md",
        files: &[(
            "controllers/kustomization.yaml",
            "how-to/issuer.md",
            "# controllers/kustomization.yaml",
        )],
        before: &["kubectl apply --server-side --force-conflicts -k controllers"],
        ..PAGE
    },
    Page { name: "docs/src/how-to/cmpv2-issuer.md", ..PAGE },
    Page {
        name: "docs/src/runbook/alerts.md",
        before: &[REQUEST],
        filled_in: &[("certificaterequest NAME", "certificaterequest one")],
        ..PAGE
    },
    Page {
        name: "docs/src/runbook/machines.md",
        before: &["machine-config-server serve ignition-fixtures --host localhost --host HOST"],
        between: &[
            ("machine-config-server certs check", "cp certs/user-data/worker.ign old.ign"),
            (
                "machine-config-server certs check",
                "machine-config-server serve ignition-fixtures --host localhost --host HOST --state-dir /var/lib/machine-config-server",
            ),
        ],
        filled_in: &[("/config/POOL", "/config/worker")],
        exits: &[("machine-config-server certs check", 1)],
        ..PAGE
    },
    Page {
        name: "docs/src/tutorials/openshift.md",
        files: &[(
            "mine/kustomization.yaml",
            "tutorials/openshift.md",
            "# mine/kustomization.yaml",
        )],
        before: &[
            "kubectl -n openshift-machine-config-operator create deployment machine-config-operator \
                   --image=registry.example.com/operator",
        ],
        between: &[(
            "curl -sk https://HOST:22623/healthz",
            "machine-config-server serve ignition-fixtures",
        )],
        exits: &[("kubectl diff", 1)],
        ..PAGE
    },
    Page {
        name: "docs/src/how-to/uninstall.md",
        files: &[NODES],
        before: &["kubectl apply -k nodes", FINALIZE],
        ..PAGE
    },
];
