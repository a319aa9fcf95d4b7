//! What unauthenticated clients can read in the configs of pools that are not enforced: found where it is, told to
//! administrators, and no false alarm on the reference's own data.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ignition::data_url;
use model::render::exposed;
use nix::time::{ClockId, clock_gettime};
use serde_json::json;

use crate::support::book;
use crate::support::http::Client;
use crate::support::manifests::{machine_config, pool, write, yaml_documents};
use crate::support::server::Server;
use crate::support::stopwatch::{HURRY, once_within};
use crate::support::{in_repository, wait_until};

fn files(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let mut files: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    files
}

/// The same with those of all folders within it.
fn all_files(directory: &Path) -> Vec<PathBuf> {
    let (directories, mut all): (Vec<_>, Vec<_>) =
        files(directory).into_iter().partition(|it| it.is_dir());
    all.extend(directories.iter().flat_map(|directory| all_files(directory)));
    all
}

/// Each place with what is secret there, of all configs of a folder that are valid.
fn found(directory: &str) -> BTreeMap<String, Vec<String>> {
    let mut found = BTreeMap::new();
    for file in files(&in_repository("../shared/conformance").join(directory)) {
        let text = fs::read_to_string(&file).expect("a config");
        let document = yaml_documents(&text).remove(0);
        let config = document.pointer("/spec/config").unwrap_or(&document);
        let Ok(secrets) = exposed(config.to_string().as_bytes()) else { continue };
        let line = |secret: &secrets::Secret| format!("{}: {}", secret.place, secret.kind);
        let name = file.file_stem().expect("a name").to_string_lossy().into_owned();
        let lines: Vec<_> = secrets.iter().map(line).collect();
        if !lines.is_empty() {
            found.insert(name, lines);
        }
    }
    found
}

#[test]
fn the_references_own_configs_raise_no_false_alarm() {
    if !in_repository("../shared/conformance").exists() {
        return;
    }
    let hash = ("151-users".to_owned(), vec!["user test: password hash".to_owned()]);
    assert_eq!(found("corpus"), BTreeMap::from([hash]));
    // All that is rendered has a pull secret in it, and nothing else that is one.
    let rendered = found("rendered");
    assert_eq!(rendered.len(), files(&in_repository("../shared/conformance/rendered")).len());
    for (name, places) in rendered {
        assert_eq!(places, ["/var/lib/kubelet/config.json: registry credentials"], "{name}");
    }
}

#[test]
fn the_manifests_of_this_repository_have_the_secrets_that_are_in_them_and_raise_no_false_alarm() {
    let mut found = Vec::new();
    for directory in ["deploy", "ignition-fixtures"] {
        let files = all_files(&in_repository(directory));
        let is_manifest =
            |it: &&PathBuf| it.extension().is_some_and(|it| it == "yaml" || it == "json");
        for file in files.iter().filter(is_manifest) {
            let source = data_url::encode(&fs::read(file).expect("a manifest"));
            let name = file.strip_prefix(in_repository("")).expect("a path of the repository");
            let config = json!({"ignition": {"version": "3.4.0"}, "storage": {"files": [
                {"path": format!("/{}", name.display()), "contents": {"source": source}},
            ]}});
            let secrets = exposed(config.to_string().as_bytes()).expect("a valid config");
            found.extend(secrets.iter().map(|it| format!("{}: {}", it.place, it.kind)));
        }
    }
    found.sort();
    assert_eq!(
        found,
        [
            "/ignition-fixtures/kubeconfig.yaml: kubeconfig with credentials",
            "/ignition-fixtures/machine-configs/edge.json: password hash",
            "/ignition-fixtures/machine-configs/master.yaml: password hash",
        ]
    );
}

#[test]
fn what_unauthenticated_clients_can_read_is_reported_to_administrators_alone() {
    let directory = tempfile::tempdir().expect("a temporary folder");
    let unit = "[Service]\nEnvironment=DB_PASSWORD=sesame\nExecStart=/bin/true\n";
    let units = json!({
        "ignition": {"version": "3.4.0"},
        "systemd": {"units": [{"name": "db.service", "contents": unit}]},
    });
    let mut config = machine_config("rendered", &units);
    config["spec"]["kernelArguments"] = json!(["quiet", "password=/sesame1"]);
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "users": [{"name": "u", "user": {"token": "abcdef.0123456789abcdef"}}],
    });
    write(directory.path(), "config.json", config);
    write(directory.path(), "kubeconfig.json", kubeconfig);
    write(directory.path(), "pool.json", pool("worker", "rendered"));
    let server = Server::serve(directory.path(), &[]);
    let read = |client: Client| {
        let answer = client.get("/readyz");
        (answer.status, String::from_utf8(answer.body).expect("text"))
    };
    let line = "pool worker: unauthenticated clients can read /etc/kubernetes/kubeconfig \
                (kubeconfig with credentials), unit db.service (password), kernelArguments (password)\n";
    wait_until("administrators to be told", || read(server.metrics()).1 == line);
    assert_eq!(read(server.metrics()).0, 200, "machines get what they should");
    for client in [server.plain(), server.tls()] {
        assert_eq!(read(client), (200, String::new()));
    }
    let overview = server.overview();
    assert_eq!(overview["degraded"], json!([line.trim_end()]));
    let page = String::from_utf8(server.metrics().get("/").body).expect("a page");
    assert!(page.contains("unit db.service (password)") && !page.contains("sesame"), "{page}");
    let logged = "served config contains secrets pool=worker files=[\"/etc/kubernetes/kubeconfig\"] \
                  units=[\"db.service\"] others=[\"kernelArguments\"] fix=\"enforce tokens: ";
    wait_until("the log", || server.log().contains(logged));
    assert!(!server.log().contains("sesame"), "{}", server.log());

    // What is told follows what is served.
    fs::remove_file(directory.path().join("kubeconfig.json")).expect("a file");
    let line = line.replace("/etc/kubernetes/kubeconfig (kubeconfig with credentials), ", "");
    wait_until("the token to go", || read(server.metrics()).1 == line);
}

/// How long a thread works to find what is secret in a config with these files, by the processor's time.
fn searched(files: &[(String, String)]) -> Duration {
    let file = |(path, text): &(String, String)| json!({"path": path, "contents": {"source": data_url::encode(text.as_bytes())}});
    let files: Vec<_> = files.iter().map(file).collect();
    let config = json!({"ignition": {"version": "3.4.0"}, "storage": {"files": files}}).to_string();
    let now =
        || -> Duration { clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("a clock").into() };
    let since = now();
    exposed(config.as_bytes()).expect("a valid config");
    now().saturating_sub(since)
}

#[test]
fn a_config_is_searched_in_some_milliseconds() {
    let text: String = book::pages().iter().map(|name| book::page(name)).collect();
    let units =
        "[Unit]\nDescription=x\n[Service]\nEnvironment=A=b\nExecStart=/usr/bin/x --a=b --c d\n";
    let text = format!("{text}{}", units.repeat(1_000));
    let files: Vec<_> = text
        .as_bytes()
        .chunks(8 << 10)
        .cycle()
        .take(55)
        .enumerate()
        .map(|(index, part)| (format!("/{index}"), String::from_utf8_lossy(part).into_owned()))
        .collect();
    once_within(HURRY * Duration::from_millis(50), "a config of 440 KB", |_| searched(&files));
}

/// Each is a mark or a name, again and again: the work is in proportion to the text.
#[test]
fn hostile_texts_are_searched_no_longer_than_others() {
    for text in [
        "a=",
        "token=",
        "token=x",
        "token=*",
        "password: ",
        "eyJ",
        "eyJ1234567.a.",
        "://a:b",
        "$6$",
        "{SHA}",
        "-----BEGIN PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\nA",
        "Private-Lines: ",
        "MI",
        "\nMII",
        "sig=",
        "&sig=aaaaaaaaaaaaaaaaaaaa",
        "iscsi:",
        "bearer ",
        "basic ",
        "curl -u ",
        "a:",
        "a=\"",
        "--a ",
        "\n",
        "x",
        "\"",
        "Q~",
        "machine login ",
        "LS0tLS1CRUdJTi",
        "grub.pbkdf2.",
        "pbkdf2_sha",
        "|echo ",
        "password=(\"",
        "-p ",
        "message-digest-key ",
        "<a>",
        "ZXlK",
        "=ZXlK",
        "T3BlbkFJ",
        "sk-T3BlbkFJ",
        "s.",
        "pat.",
        "SK",
        "{a, b: ",
        ", a: ",
        "curl -u a \\\n",
        "curl -u a \\\n# b \\\n",
        "password: |\n\n",
        "token=x(",
        ": PSK ",
        "kind: Secret\n",
    ] {
        let files = [("/a".to_owned(), text.repeat((1 << 20) / text.len()))];
        let limit = HURRY * Duration::from_secs(1);
        once_within(limit, &format!("{text:?} over 1 MiB"), |_| searched(&files));
    }
}
