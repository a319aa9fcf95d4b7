//! What `helm package` makes of the chart, which is what administrators get.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Helm, chart, of_kind, with_url};
use crate::support::in_repository;
use crate::support::manifests::{files, yaml_documents};

/// The chart as it is packed, unpacked again.
fn packed(helm: &Helm) -> TempDir {
    let directory = tempfile::tempdir().expect("a temporary folder");
    let path = directory.path().to_str().expect("text");
    helm.say(&["package", chart().to_str().expect("text"), "--destination", path]);
    let package = format!("{path}/machine-config-server-{}.tgz", env!("CARGO_PKG_VERSION"));
    let unpacked = Command::new("tar").args(["-xzf", &package, "-C", path]).status();
    assert!(unpacked.expect("tar").success());
    directory
}

#[test]
fn helm_lint_finds_nothing() {
    let helm = Helm::new();
    let chart = chart();
    let chart = chart.to_str().expect("text");
    let all = json!({
        "controller": {"enabled": true}, "nodeCa": {"enabled": true},
        "issuer": {"enabled": true},
        "monitoring": {"server": true, "controller": true, "issuer": true, "nodeCa": true},
        "networkPolicy": {"enabled": true},
    });
    let openshift = json!({"platform": "openshift", "nodeCa": {"enabled": true}});
    for values in [json!({}), with_url(&all), with_url(&openshift)] {
        let values = helm.values("values.json", &values);
        let said = helm.say(&["lint", "--strict", chart, "-f", &values]);
        assert!(said.contains("0 chart(s) failed"), "{said}");
        assert!(!said.contains("[WARNING]") && !said.contains("[ERROR]"), "{said}");
    }
    let library = in_repository("deploy/chart/machine-config-server-library");
    let said = helm.say(&["lint", "--strict", library.to_str().expect("text")]);
    assert!(!said.contains("[WARNING]") && !said.contains("[ERROR]"), "{said}");
}

#[test]
fn a_package_has_deploys_own_files_and_needs_no_links() {
    let helm = Helm::new();
    let directory = packed(&helm);
    let unpacked = directory.path().join("machine-config-server");
    let own = |name: &Path| fs::read(unpacked.join(name)).expect("a file of the package");
    let compared = |inside: &str, outside: &str| {
        let names = files(&unpacked.join(inside));
        assert!(!names.is_empty(), "{inside}");
        for name in names {
            let theirs = fs::read(in_repository(outside).join(&name)).expect("a file of deploy/");
            assert!(own(&Path::new(inside).join(&name)) == theirs, "{inside}/{}", name.display());
        }
    };
    for name in
        ["base", "components", "controller", "kubernetes", "monitoring", "node-ca", "openshift"]
    {
        compared(&format!("files/{name}"), &format!("deploy/{name}"));
    }
    for name in files(&unpacked) {
        assert!(!name.ends_with("kustomization.yaml"), "{}", name.display());
    }

    let values = with_url(&json!({"controller": {"enabled": true}, "nodeCa": {"enabled": true},
                                  "monitoring": {"server": true}}));
    let from_the_source = helm.template(&chart(), &values, &[]).expect("objects");
    let from_the_package = helm.template(&unpacked, &values, &[]).expect("objects");
    assert_eq!(of_kind(&from_the_package, "CustomResourceDefinition").len(), 6);
    assert_eq!(from_the_source, from_the_package);
}

#[test]
fn a_checkout_without_symbolic_links_is_reported() {
    let helm = Helm::new();
    let directory = packed(&helm);
    let unpacked = directory.path().join("machine-config-server");
    // What is left of a link to a folder there.
    fs::remove_dir_all(unpacked.join("files/base")).expect("a folder");
    fs::write(unpacked.join("files/base"), "../../../base").expect("a file");
    let error = helm.template(&unpacked, &with_url(&json!({})), &[]).expect_err("a fault");
    assert!(error.contains("base/service-account.yaml is no manifest"), "{error}");
}

#[test]
fn the_versions_are_the_servers() {
    for name in ["machine-config-server", "machine-config-server-library"] {
        let text = fs::read_to_string(in_repository(&format!("deploy/chart/{name}/Chart.yaml")));
        let chart: Value = yaml_documents(&text.expect("a file")).remove(0);
        assert_eq!(chart["version"], env!("CARGO_PKG_VERSION"), "{name}");
        if name == "machine-config-server" {
            assert_eq!(chart["appVersion"], env!("CARGO_PKG_VERSION"));
            assert_eq!(chart["dependencies"][0]["version"], env!("CARGO_PKG_VERSION"));
        }
    }
}
