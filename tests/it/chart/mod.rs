//! The Helm chart in `deploy/chart`, with the real helm, which `tests/helm/install` builds, and as an administrator
//! does: values in, objects out, and releases on a real API server.

mod packed;
mod parity;
mod registry;
mod release;
mod values;
mod values_table;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::in_repository;
use crate::support::manifests::yaml_documents;

/// The API server as machines reach it, which has no default.
const API_SERVER: &str = "https://api.example.com:6443";
/// Where the release is, apart from what it makes.
const RELEASE_NAMESPACE: &str = "releases";

fn chart() -> PathBuf {
    in_repository("deploy/chart/machine-config-server")
}

/// helm, with a folder of its own for what it keeps.
struct Helm {
    home: TempDir,
}

impl Helm {
    fn new() -> Self {
        Self { home: tempfile::tempdir().expect("a temporary folder") }
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let path = std::env::var_os("HELM")
            .expect("HELM: run tests/run, or set it to what tests/helm/install prints");
        let mut helm = Command::new(path);
        for directory in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME", "KUBECACHEDIR"] {
            helm.env(directory, self.home.path());
        }
        helm.env_remove("KUBECONFIG").args(arguments).output().expect("helm")
    }

    /// What helm prints. It has to succeed.
    fn say(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "helm {arguments:?}: {errors}");
        String::from_utf8(output.stdout).expect("text")
    }

    /// A file of values, which goes with this value.
    fn values(&self, name: &str, values: &Value) -> String {
        let file = self.home.path().join(name);
        fs::write(&file, values.to_string()).expect("a writable folder");
        file.to_str().expect("text").to_owned()
    }

    /// What `helm template` makes of the chart, or the lines that say why not.
    fn template(&self, chart: &Path, values: &Value, flags: &[&str]) -> Result<Vec<Value>, String> {
        let values = self.values("values.json", values);
        let chart = chart.to_str().expect("text");
        let base = ["template", "mcs", chart, "--namespace", RELEASE_NAMESPACE, "-f", &values];
        let output = self.run(&[&base, flags].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            // What it says of links comes with every command.
            let lines = said.lines().filter(|line| !line.starts_with("level=INFO"));
            return Err(lines.collect::<Vec<_>>().join("\n"));
        }
        let objects = yaml_documents(&String::from_utf8(output.stdout).expect("text"));
        Ok(objects.into_iter().filter(|object| !object.is_null()).collect())
    }
}

/// `values` with what has no default, rendered.
fn rendered(values: &Value) -> Result<Vec<Value>, String> {
    Helm::new().template(&chart(), &with_url(values), &[])
}

fn with_url(values: &Value) -> Value {
    let mut values = values.clone();
    if values["server"]["apiServerUrl"].is_null() {
        values["server"]["apiServerUrl"] = json!(API_SERVER);
    }
    values
}

fn of_kind<'a>(objects: &'a [Value], kind: &str) -> Vec<&'a Value> {
    objects.iter().filter(|object| object["kind"] == kind).collect()
}
