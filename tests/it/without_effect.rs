//! Fields that have no effect: reported by each command that reads them, served as before, and refused with
//! `--strict`.

use std::fs;
use std::path::Path;

use machine_config_server::source::manifest;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::conformance::data;
use crate::support::command::{Said, run};
use crate::support::manifests::{self, files, write, yaml_documents};
use crate::support::server::Server;
use crate::support::{in_repository, wait_for, wait_until};

/// The four kinds of it, each where it is.
const REASONS: [&str; 4] = [
    "spec.config.storage.files[0].mode: 644 is 1204 in octal; for 0644 write 420",
    "spec.config.storage.luks[0].cex: ignored: new in Ignition spec 3.5.0, and the config is of 3.2.0",
    "spec.config.systemd.unit: unknown field, ignored",
    "spec.kernelArgument: unknown field, ignored",
];

fn machine_config() -> Value {
    let config = json!({
            "ignition": {"version": "3.2.0"},
            "storage": {
                "files": [{"path": "/a", "mode": 644, "contents": {"source": "data:,a"}}],
                "luks": [{"name": "l", "device": "/dev/l", "cex": {"enabled": true},
                    "keyFile": {"source": "data:,k"}}],
            },
            "systemd": {"unit": []},
    });
    let mut config = manifests::machine_config("rendered", &config);
    config["spec"]["kernelArgument"] = json!(["quiet"]);
    config
}

fn pool(version: &str) -> Value {
    let mut pool = manifests::pool("worker", "rendered");
    pool["apiVersion"] = format!("machineconfiguration.openshift.io/{version}").into();
    pool
}

fn manifests() -> TempDir {
    let directory = tempfile::tempdir().expect("a temporary folder");
    write(directory.path(), "config.json", machine_config());
    write(directory.path(), "pool.json", pool("v2"));
    directory
}

#[test]
fn what_has_no_effect_is_named_by_a_server_once_and_served_as_before() {
    let directory = manifests();
    let server = Server::serve(directory.path(), &[]);
    let readiness = || {
        let answer = server.metrics().get("/readyz");
        (answer.status, String::from_utf8(answer.body).expect("text"))
    };
    let version = "pool.json: MachineConfigPool worker: apiVersion: machineconfiguration.openshift.io/v2 \
                   is unknown, read as v1";
    let (status, lines) = readiness();
    assert_eq!(status, 200, "{lines}");
    for reason in REASONS {
        assert!(
            lines.contains(&format!("config.json: MachineConfig rendered: {reason}")),
            "{lines}"
        );
    }
    assert!(lines.contains(version), "{lines}");
    let page = String::from_utf8(server.metrics().get("/").body).expect("a page");
    assert!(page.contains("644 is 1204 in octal"), "{page}");
    // Machines' ports do not report it, and the config is what it was.
    assert_eq!(server.plain().get("/readyz").body, b"");
    let accept = [("Accept", "application/vnd.coreos.ignition+json;version=3.6.0")];
    let config = server.plain().request("GET", "/config/worker", &accept).json();
    // Of its bits, those that its spec gives a meaning to.
    assert_eq!(config["storage"]["files"][0]["mode"], 0o204);
    assert_eq!(config["storage"]["luks"][0].get("cex"), None);

    // Another change says none of it again.
    let reported = || server.log().matches("ignored a field without effect").count();
    wait_until("all five in the log", || reported() == 5);
    let mut other = pool("v1");
    other["metadata"]["name"] = "other".into();
    write(directory.path(), "other.json", other);
    wait_until("the other pool", || {
        let answer = server.plain().request("GET", "/config/other", &accept);
        answer.status == 200
    });
    assert_eq!(reported(), 5, "{}", server.log());
    write(directory.path(), "pool.json", pool("v1"));
    wait_until("the version to be corrected", || !readiness().1.contains(version));
    assert_eq!(reported(), 5);
}

#[test]
fn a_strict_server_serves_nothing_of_it_and_keeps_what_it_had() {
    let directory = manifests();
    let server = Server::serve_when_up(directory.path(), &["--strict"]);
    let readiness = wait_for("the file to be refused", || {
        let readiness = server.page("/readyz");
        readiness.contains("refused by --strict").then_some(readiness)
    });
    assert!(readiness.contains("config.json: "), "{readiness}");
    assert_eq!(server.plain().get("/config/worker").status, 503);

    let good = tempfile::tempdir().expect("a temporary folder");
    let mut config = machine_config();
    config["spec"] = json!({"config": {"ignition": {"version": "3.2.0"}}});
    write(good.path(), "config.json", config);
    write(good.path(), "pool.json", pool("v1"));
    let server = Server::serve(good.path(), &["--strict"]);
    let before = server.plain().get("/config/worker").body;
    write(good.path(), "config.json", machine_config());
    let readiness = wait_for("the file to be refused", || {
        let answer = server.metrics().get("/readyz");
        (answer.status == 503).then(|| String::from_utf8(answer.body).expect("text"))
    });
    assert!(readiness.contains(REASONS[3]) && readiness.contains("--strict"), "{readiness}");
    assert_eq!(server.plain().get("/config/worker").body, before);
}

#[test]
fn inspect_and_render_name_it_and_fail_when_they_are_strict() {
    let directory = manifests();
    let root = directory.path().to_str().expect("a path in UTF-8");
    let file = directory.path().join("config.json");
    let file = file.to_str().expect("a path in UTF-8");
    for arguments in [&["inspect", root, "worker"][..], &["inspect", file]] {
        let Said { status, output: text, .. } = run(arguments);
        assert_eq!(status, 0, "{text}");
        assert!(REASONS.iter().all(|reason| text.contains(reason)), "{text}");
        let Said { status, output: text, .. } = run(&[arguments, &["--strict", "--json"]].concat());
        assert_eq!(status, 1, "{text}");
        let page: Value = serde_json::from_str(&text).expect("JSON");
        assert!(page["warnings"].as_array().expect("warnings").len() >= REASONS.len(), "{page}");
    }
    let Said { status, output: text, error: warnings } = run(&["render", "worker", root]);
    assert_eq!(status, 0, "{warnings}");
    assert!(serde_json::from_str::<Value>(&text).is_ok(), "{text}");
    assert!(REASONS.iter().all(|reason| warnings.contains(reason)), "{warnings}");
    let Said { status, output: text, error } = run(&["render", "worker", root, "--strict"]);
    assert_eq!((status, &text[..]), (1, ""), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
    let server = Server::serve(directory.path(), &[]);
    let state = server.state().to_str().expect("a path in UTF-8").to_owned();
    let check = ["certs", "check", "--state-dir", &state, "--manifests", root];
    let Said { status, output: text, error } = run(&check);
    assert_eq!(status, 0, "{text}{error}");
    for reason in REASONS {
        let line = format!("warning: {file}: MachineConfig rendered: {reason}\n");
        assert!(text.contains(&line), "{text}");
    }
    let Said { output: text, .. } = run(&[&check[..], &["--json"]].concat());
    let report: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(report["warnings"].as_array().map(Vec::len), Some(REASONS.len() + 1), "{report}");
    let Said { status, output: strict, error } = run(&[&check[..], &["--strict"]].concat());
    assert_eq!(status, 1, "{strict}");
    assert!(error.contains("--strict refuses fields without effect: 5"), "{error}");
    let Said { status, error, .. } = run(&["bootstrap", "--server-basedir", root, "--strict"]);
    assert!(status != 0 && !error.contains("unexpected argument"), "{error}");
}

#[test]
fn objects_that_were_misspelt_are_named_and_refused() {
    let directory = tempfile::tempdir().expect("a temporary folder");
    let root = directory.path().to_str().expect("a path in UTF-8");
    let mut config = machine_config();
    config["spec"] = json!({"config": {"ignition": {"version": "3.2.0"}}});
    write(directory.path(), "config.json", config);
    let mut good = pool("v1");
    write(directory.path(), "pool.json", &good);
    let inspect = ["inspect", root, "worker"];
    let Said { status, output: text, .. } = run(&[&inspect[..], &["--strict"]].concat());
    assert_eq!(status, 0, "{text}");
    good["metadata"]["name"] = "other".into();
    let change = |pointer: &str, name: &str, value: Value| {
        let mut object = good.clone();
        let parent = object.pointer_mut(pointer).expect("a parent");
        parent.as_object_mut().expect("an object").insert(name.to_owned(), value);
        object
    };
    let api = "machineconfiguration.openshift.io/v1";
    for (object, reported) in [
        (change("", "specs", json!({})), "MachineConfigPool other: specs: unknown field, ignored"),
        (change("/metadata", "annotatons", json!({})), "did you mean annotations?"),
        (change("", "spec", json!({"pausd": true})), "did you mean paused?"),
        (change("", "kind", "MachineConfigPol".into()), "did you mean MachineConfigPool?"),
        (
            json!({"apiversion": api, "kind": "MachineConfig", "metadata": {"name": "a"}, "spec": {}}),
            "did you mean apiVersion?",
        ),
        (
            json!({"apiVersion": api, "kind": "ControllerConfig", "metadata": {"name": "a"},
                "spec": {"kubeAPIServerServingCAdata": "aGVsbG8="}}),
            "did you mean kubeAPIServerServingCAData?",
        ),
        (
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
                "name": "merged-trusted-image-registry-ca", "namespace": "openshift-config-manged"}}),
            "is read in namespace openshift-config-managed",
        ),
    ] {
        write(directory.path(), "other.json", object);
        let Said { status, output: text, .. } = run(&inspect);
        assert!(status == 0 && text.contains(reported), "{reported} in {text}");
        let Said { status, output: text, .. } = run(&[&inspect[..], &["--strict"]].concat());
        assert_eq!(status, 1, "{text}");
    }
}

/// What a schema has, all of it.
fn whole(schema: &Value) -> Value {
    if let Some(properties) = schema["properties"].as_object() {
        return properties.iter().map(|(name, schema)| (name.clone(), whole(schema))).collect();
    }
    match schema["type"].as_str() {
        Some("array") => json!([whole(&schema["items"])]),
        Some("object") => json!({}),
        Some("boolean") => true.into(),
        Some("integer" | "number") => 1.into(),
        _ => "".into(),
    }
}

fn warnings(text: &[u8], place: &str) -> Vec<String> {
    manifest::read(text).unwrap_or_else(|error| panic!("{place}: {error}")).warnings
}

#[test]
fn objects_of_real_clusters_raise_no_alarm() {
    let data = data();
    let fixtures = in_repository("ignition-fixtures");
    let below = |directory: &Path| -> Vec<_> {
        files(directory).into_iter().map(|file| directory.join(file)).collect()
    };
    let mut paths = below(&fixtures);
    if let Some(data) = &data {
        paths.extend(below(&data.join("rendered")));
        paths.extend([data.join("controller-config.yaml"), data.join("kubeconfig")]);
    }
    let mut seen = 0;
    for path in paths {
        let place = path.display().to_string();
        if [".yaml", ".json", "kubeconfig"].iter().any(|end| place.ends_with(end)) {
            assert_eq!(warnings(&fs::read(&path).expect("a file"), &place), [""; 0], "{place}");
            seen += 1;
        }
    }
    assert!(seen > 3, "{seen}");
    for (kind, spec) in [
        (
            "Service",
            json!({"ports": [{"name": "a", "port": 1, "targetPort": 2, "nodePort": 3, "protocol": "TCP",
            "appProtocol": "a"}], "type": "a", "selector": {}, "clusterIP": "a", "ipFamilies": []}),
        ),
        ("Secret", Value::Null),
        ("ConfigMap", Value::Null),
    ] {
        let object = json!({"apiVersion": "v1", "kind": kind, "immutable": null, "metadata": {
            "name": "a", "namespace": "b", "labels": {}, "annotations": {}, "uid": "c", "generateName": "d",
            "generation": 1, "managedFields": [], "ownerReferences": [], "finalizers": []}, "spec": spec});
        assert_eq!(warnings(object.to_string().as_bytes(), kind), [""; 0], "{kind}");
    }
    for file in data.iter().flat_map(|data| below(&data.join("crds"))) {
        let text = fs::read_to_string(&file).expect("a schema");
        for definition in yaml_documents(&text) {
            let spec = &definition["spec"];
            for version in spec["versions"].as_array().expect("versions") {
                let mut object = whole(&version["schema"]["openAPIV3Schema"]);
                let group = spec["group"].as_str().expect("a group");
                object["apiVersion"] =
                    format!("{group}/{}", version["name"].as_str().expect("v")).into();
                object["kind"] = spec["names"]["kind"].clone();
                object["metadata"] = json!({"name": "a"});
                let place = format!("{} of {}", object["apiVersion"], file.display());
                // A config is looked at elsewhere; other values may not be valid.
                if let Some(config) = object.pointer_mut("/spec/config") {
                    *config = json!({"ignition": {"version": "3.4.0"}});
                }
                assert_eq!(warnings(object.to_string().as_bytes(), &place), [""; 0], "{place}");
            }
        }
    }
}
