//! Pages whose commands need no cluster: a directory of manifests, and this machine.

use std::fs;
use std::path::Path;

use super::shell::apart;
use super::walk::{PAGE, Page, Terminal, walk};
use crate::support::cmp_ca::{CmpCa, SECRET};
use crate::support::machine::Machine;

const SERVE: &str = "machine-config-server serve ignition-fixtures --host HOST";

/// A file of the first tutorial.
const WORKER: (&str, &str, &str) =
    ("manifests/worker.yaml", "tutorials/first-boot.md", "name: 50-motd");

/// The base directory of the reference server, with what the sample cluster has for the pool `worker`.
const BASE_DIRECTORY: &str = r"
cd ignition-fixtures
base=/etc/mcs/bootstrap
mkdir -p $base/{machine-pools,machine-configs,controller-config} /etc/kubernetes /etc/ssl/mcs
printf '%s\n' 'apiVersion: machineconfiguration.openshift.io/v1' 'kind: MachineConfigPool' 'metadata: {name: master}' \
    'status: {configuration: {name: rendered-master}}' >$base/machine-pools/master.yaml
printf '%s\n' 'apiVersion: machineconfiguration.openshift.io/v1' 'kind: MachineConfig' 'metadata: {name: rendered-master}' \
    'spec: {config: {ignition: {version: 3.4.0}}}' >$base/machine-configs/rendered-master.yaml
cp controller-config.yaml $base/controller-config/machine-config-controller.yaml
cp kubeconfig.yaml /etc/kubernetes/kubeconfig
openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=localhost -addext subjectAltName=DNS:localhost \
    -keyout /etc/ssl/mcs/tls.key -out /etc/ssl/mcs/tls.crt
";

/// A JWK set with the public key of RFC 7517, appendix A.1.
const KEYS: &str = r#"
echo '{"keys": [{"kty": "EC", "crv": "P-256", "kid": "a", "x": "MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4",
    "y": "4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM"}]}' >keys.json
"#;

/// A kubeconfig for the pool, and a unit with a password.
const SECRETS: &str = r#"
cp ignition-fixtures/{kubeconfig,controller-config}.yaml secrets
unit='{"name": "db.service", "contents": "[Service]\nEnvironment=DB_PASSWORD=9xGf27bQz\nExecStart=/bin/db\n"}'
echo '{"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
    "metadata": {"name": "60-db", "labels": {"machineconfiguration.openshift.io/role": "worker"}},
    "spec": {"config": {"ignition": {"version": "3.4.0"}, "systemd": {"units": ['"$unit"']}}}}' >secrets/db.json
"#;

pub(super) const PAGES: &[Page] = &[
    Page { name: "docs/src/README.md", files: &[WORKER], ..PAGE },
    Page {
        name: "README.md",
        filled_in: &[("cargo run --release -- ", "machine-config-server ")],
        ..PAGE
    },
    Page {
        name: "docs/src/tutorials/first-boot.md",
        files: &[WORKER],
        filled_in: &[("cargo run --release -- ", "machine-config-server ")],
        check: Some(boots),
        ..PAGE
    },
    Page { name: "docs/src/how-to/install.md", ..PAGE },
    Page { name: "docs/src/how-to/bootstrap.md", before: &[BASE_DIRECTORY], ..PAGE },
    Page {
        name: "docs/src/how-to/pools.md",
        files: &[("pools/worker.yaml", "how-to/pools.md", "name: 50-motd")],
        ..PAGE
    },
    Page { name: "docs/src/how-to/inspect.md", before: &[SERVE], ..PAGE },
    Page {
        name: "docs/src/how-to/named-tokens.md",
        before: &["machine-config-server serve ignition-fixtures"],
        ..PAGE
    },
    Page { name: "docs/src/how-to/networks.md", ..PAGE },
    Page { name: "docs/src/how-to/boot-images.md", before: &[SERVE], ..PAGE },
    Page {
        name: "docs/src/how-to/machine-names.md",
        files: &[WORKER],
        before: &["machine-config-server serve manifests"],
        ..PAGE
    },
    Page {
        name: "docs/src/how-to/approve-machines.md",
        files: &[
            WORKER,
            ("manifests/rack-7.yaml", "how-to/machine-names.md", "kind: FirstBootMachine"),
        ],
        before: &["machine-config-server serve manifests"],
        ..PAGE
    },
    Page {
        name: "docs/src/how-to/failed-boots.md",
        before: &[
            "machine-config-server serve ignition-fixtures --host localhost --failure-reports on",
            "curl -sk https://localhost:22623/config/worker -o /dev/null",
        ],
        ..PAGE
    },
    Page {
        name: "docs/src/how-to/signed-tokens.md",
        files: &[WORKER, ("rules.json", "how-to/signed-tokens.md", "confidential workers")],
        before: &[KEYS],
        ..PAGE
    },
    Page {
        name: "docs/src/how-to/status-page.md",
        before: &[
            SERVE,
            "curl -sk --interface 192.0.2.17 https://192.0.2.17:22623/config/worker -o /dev/null",
        ],
        ..PAGE
    },
    Page {
        name: "docs/src/how-to/cmp-enroll.md",
        before: &["cp \"$CMP_CA\" https-ca.crt; echo \"$CMP_SECRET\" >password"],
        filled_in: &[
            ("https://ca.example.com/", "https://localhost:$CMP_PORT/"),
            ("Servers CA", "issuing"),
        ],
        ..PAGE
    },
    Page { name: "docs/src/explanation/compact.md", before: &[SERVE], ..PAGE },
    Page { name: "docs/src/reference/http.md", before: &[SERVE], ..PAGE },
    Page { name: "docs/src/reference/metrics.md", before: &[SERVE], ..PAGE },
    Page {
        name: "docs/src/reference/secrets.md",
        files: &[("secrets/worker.yaml", "tutorials/first-boot.md", "name: 50-motd")],
        before: &[SECRETS, "machine-config-server serve secrets"],
        ..PAGE
    },
];

/// A machine boots from the tutorial's pointer config into what the page says.
fn boots(directory: &Path) {
    let config = fs::read(directory.join("worker.json")).expect("what curl has written");
    let config: serde_json::Value = serde_json::from_slice(&config).expect("a config");
    assert_eq!(config["ignition"]["version"], "3.4.0");
    let pointer = directory.join("certs/user-data/worker.ign");
    let pointer = fs::read_to_string(pointer).expect("a pointer config");
    let machine = Machine::new();
    machine.boot(&pointer);
    let motd = fs::read_to_string(machine.root().join("etc/motd")).expect("the file");
    assert_eq!(motd, "Welcome\n");
}

#[test]
fn the_commands_for_a_directory_do_what_their_pages_say() {
    apart(|| {
        let ca = CmpCa::start_tls();
        let directory = tempfile::tempdir().expect("a temporary folder");
        let root = directory.path().join("root.crt");
        fs::write(&root, ca.root()).expect("a writable folder");
        let variables = [
            ("CMP_PORT", ca.address().port().to_string()),
            ("CMP_CA", root.display().to_string()),
            ("CMP_SECRET", SECRET.to_owned()),
        ];
        let variables = variables.map(|(name, value)| (name.to_owned(), value)).into();
        walk(PAGES, &Terminal { variables, ..Terminal::default() });
    });
}
