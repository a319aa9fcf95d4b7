//! A node, and beside it the folders that the book has an administrator make.

use std::fs;
use std::io::Write as _;
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::book::{self, with};
use crate::support::manifests::write;
use crate::support::node::Node;
use crate::support::{in_repository, wait_for};

pub(super) const NAMESPACE: &str = "openshift-machine-config-operator";
/// What machines call the server, as the examples do.
pub(super) const HOST: &str = "mcs.example.com";
/// The address of the Service's load balancer.
pub(super) const BALANCER: &str = "192.0.2.23";

/// A node with folders of an administrator's own. Both end with this value.
pub(super) struct NodeWithFolders {
    pub(super) node: Node,
    directory: TempDir,
}

impl NodeWithFolders {
    /// One to which nothing has been applied.
    pub(super) fn empty() -> Self {
        let directory = tempfile::tempdir().expect("a temporary folder");
        let copied = Command::new("cp")
            .arg("--recursive")
            .args([&in_repository("deploy"), directory.path()])
            .status()
            .expect("cp");
        assert!(copied.success());
        Self { node: Node::start(), directory }
    }

    /// One that serves the sample cluster by `deploy/kubernetes`, with a pair that `deploy/controller` has
    /// made, to machines that reach the balancer by its name.
    pub(super) fn kubernetes() -> Self {
        let site = Self::empty();
        let node = &site.node;
        let servers = example("how-to/configure.md", "# mine/kustomization.yaml");
        let servers = with(&servers, "../deploy/openshift # or ", "");
        site.apply("mine", &with(&servers, "DaemonSet # or ", ""));
        node.serves_all_kinds();
        site.apply_text(&bootstrapper());
        node.apply(&json!({
            "apiVersion": "config.openshift.io/v1", "kind": "Image", "metadata": {"name": "cluster"},
        }));
        let controller = example("how-to/controller.md", "value: --host=mcs.example.com");
        site.apply("controllers", &format!("resources:\n- ../deploy/controller\n{controller}"));

        site.apply_sample();

        let status = json!({"status": {"loadBalancer": {"ingress": [{"ip": BALANCER}]}}});
        node.kubectl(&[
            "patch",
            "service/machine-config-server",
            "--subresource=status",
            "--type=merge",
            &format!("--patch={status}"),
            "-n",
            NAMESPACE,
        ]);
        node.inside(|| {
            let mut hosts = fs::File::options().append(true).open("/etc/hosts").expect("the file");
            writeln!(hosts, "{BALANCER} {HOST}").expect("a writable file");
        });
        for name in ["machine-config-server-controller", "machine-config-server"] {
            site.rolled_out(&format!("deployment/{name}"));
        }
        site
    }

    /// helm, with the chart in this repository and these values. The release is apart from what it makes.
    pub(super) fn helm(&self, arguments: &[&str], values: &Value) {
        let helm = std::env::var("HELM").expect("HELM: run tests/run");
        write(self.directory.path(), "values.json", values);
        let file = self.directory.path().join("values.json");
        let chart = in_repository("deploy/chart/machine-config-server");
        let [chart, file] = [&chart, &file].map(|path| path.to_str().expect("text"));
        let (verb, rest) = arguments.split_at(2);
        let with = [chart, "--namespace", "default", "--values", file];
        self.node.run(&[&[helm.as_str()], verb, &with, rest].concat());
    }

    /// The sample cluster's pools and what they serve.
    pub(super) fn apply_sample(&self) {
        let pools = in_repository("ignition-fixtures/pools.yaml");
        let pools = pools.to_str().expect("text");
        self.node.kubectl(&["apply", "-f", pools]);
        self.node.kubectl(&["replace", "--subresource=status", "-f", pools]);
        for path in ["machine-configs", "controller-config.yaml"] {
            let path = in_repository("ignition-fixtures").join(path);
            let path = path.to_str().expect("text");
            self.node.kubectl(&["apply", "--server-side", "--recursive", "-f", path]);
        }
    }

    /// Waits until all pods of a Deployment or DaemonSet are new and ready.
    pub(super) fn rolled_out(&self, name: &str) {
        self.node.kubectl(&["rollout", "status", name, "--timeout=300s", "-n", NAMESPACE]);
    }

    /// The names of the server's pods.
    pub(super) fn pods(&self) -> Vec<String> {
        self.of_pods("/metadata/name")
    }

    /// The addresses of the server's pods.
    pub(super) fn addresses(&self) -> Vec<String> {
        self.of_pods("/status/podIP")
    }

    fn of_pods(&self, field: &str) -> Vec<String> {
        let pods = self.node.get(&["pods", "-l", "k8s-app=machine-config-server", "-n", NAMESPACE]);
        let pods = pods["items"].as_array().expect("pods").iter();
        // One that is to end is the server's no more.
        let pods = pods.filter(|pod| pod["metadata"]["deletionTimestamp"].is_null());
        let text = |pod: &Value| Some(pod.pointer(field)?.as_str()?.to_owned());
        let mut found: Vec<_> = pods.filter_map(text).collect();
        found.sort();
        found
    }

    /// What the machines' pointer configs trust.
    pub(super) fn cas(&self) -> String {
        wait_for("the authorities", || {
            let map = self.node.get(&["configmap/machine-config-server-ca", "-n", NAMESPACE]);
            map["data"]["ca-bundle.crt"].as_str().map(str::to_owned)
        })
    }

    /// `kubectl apply -f` of a text.
    pub(super) fn apply_text(&self, text: &str) {
        write(self.directory.path(), "objects.yaml", text);
        let file = self.directory.path().join("objects.yaml");
        self.node.kubectl(&["apply", "-f", file.to_str().expect("text")]);
    }

    /// `kubectl apply -k` of a folder with this kustomization.
    pub(super) fn apply(&self, directory: &str, kustomization: &str) {
        let directory = self.directory.path().join(directory);
        write(&directory, "kustomization.yaml", kustomization);
        self.node.kubectl(&["apply", "-k", directory.to_str().expect("text")]);
    }
}

/// The example on a page of the book that has this part in it, with the image as the tests name it.
pub(super) fn example(page: &str, part: &str) -> String {
    book::example(page, part).replace("registry.prod.example.com/", "registry.example.com/")
}

/// The token that machines join with, and its account.
pub(super) fn bootstrapper() -> String {
    example("how-to/kubernetes.md", "kubernetes.io/service-account.name: node-bootstrapper")
}

/// The example of `deploy/node-ca`, with the component for containerd that it shows as a comment.
pub(super) fn containerd_nodes() -> String {
    let components = "components:\n# - ../deploy/components/containerd";
    let example = example("how-to/node-ca.md", "# nodes/kustomization.yaml");
    with(&example, &format!("# {components}"), &components.replace("# ", ""))
}
