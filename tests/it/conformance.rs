//! The answers of the server that this one takes the place of, for real rendered configs and for
//! a corpus of valid and invalid ones, compared by the machine that they leave. The data lies
//! beside the repository and belongs to others; without it there is nothing to compare.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use serde::Deserialize;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::contract::{self, VERSIONS, broken_rules};
use crate::support::http::Client;
use crate::support::ignition_equal::differences;
use crate::support::manifests::{machine_config, pool, yaml_documents};
use crate::support::pair::Pair;
use crate::support::server::Server;
use crate::support::{in_repository, manifests, wait_until};

#[test]
fn every_rendered_config_is_answered_as_by_the_reference() {
    let Some(data) = data() else { return };
    let answers = Answers::read(&data.join("rendered-expected"));
    let cases = files(&data.join("rendered"))
        .into_iter()
        .map(|file| {
            let name = stem(&file);
            // Without an answer to compare with, the ends of both lines of specs say enough.
            let asked = |version: &&str| {
                let ends = ["2.2.0", "3.0.0", "3.6.0"];
                ends.contains(version) || answers.get(&name, "2.2.0").is_some()
            };
            let asked = VERSIONS.into_iter().filter(asked);
            let statuses = asked.map(|version| (version.to_owned(), 200)).collect();
            Case { config: fs::read_to_string(file).expect("a rendered config"), statuses, name }
        })
        .collect();
    check(&data, cases, &answers);
}

#[test]
fn every_config_of_the_corpus_is_answered_as_by_the_reference() {
    let Some(data) = data() else { return };
    let statuses: BTreeMap<String, BTreeMap<String, u16>> =
        read_json(&data.join("corpus-status.json"));
    let answers = Answers::read(&data.join("corpus-expected"));
    let cases = files(&data.join("corpus"))
        .into_iter()
        .map(|file| {
            let name = stem(&file);
            let reference = &statuses[&name];
            let mut config = machine_config(&machine_config_name(&name), &read_json(&file));
            let image = format!("quay.io/example/os@sha256:{}", "0".repeat(64));
            config["spec"]["osImageURL"] = image.into();
            config["spec"]["kernelArguments"] = json!(["console=ttyS0"]);
            // What cannot be served may heal, so it is 503 and not 500. The newest spec can say
            // whatever any other can.
            let mut statuses: BTreeMap<String, u16> = reference
                .iter()
                .map(|(version, status)| {
                    (version.clone(), if *status == 500 { 503 } else { *status })
                })
                .collect();
            let sayable = statuses.values().any(|status| *status == 200);
            statuses.insert("3.6.0".into(), if sayable { 200 } else { 503 });
            Case { config: config.to_string(), statuses, name }
        })
        .collect();
    check(&data, cases, &answers);
}

#[test]
fn every_accept_header_gets_the_version_that_the_rules_name() {
    /// Where more is served than by the reference: spec 3.0, spec 3.6, and what comes after a
    /// version that cannot be served.
    const MORE: [(&str, &str); 7] = [
        ("application/vnd.coreos.ignition+json; version=3.0.0; q=0.5, */*;q=0.1", "3.0.0"),
        ("application/vnd.coreos.ignition+json; version=3.6.0; q=0.5, */*;q=0.1", "3.6.0"),
        ("application/vnd.coreos.ignition+json; version=3.7.0; q=0.5, */*;q=0.1", "3.6.0"),
        ("application/vnd.coreos.ignition+json; version=3.99.0; q=0.5, */*;q=0.1", "3.6.0"),
        (
            "application/vnd.coreos.ignition+json; version=3.6.0-experimental; q=0.5, */*;q=0.1",
            "3.6.0",
        ),
        (
            "application/vnd.coreos.ignition+json; version=3.7.0-experimental; q=0.5, */*;q=0.1",
            "3.6.0",
        ),
        (
            "application/vnd.coreos.ignition+json;version=9.0.0, \
             application/vnd.coreos.ignition+json;version=3.1.0;q=0.5",
            "3.1.0",
        ),
    ];
    let Some(data) = data() else { return };
    let mut rows: Vec<AcceptRow> = read_json(&data.join("accept.json"));
    for (accept, version) in MORE {
        let row = rows.iter_mut().find(|row| row.accept.as_deref() == Some(accept));
        let row = row.unwrap_or_else(|| panic!("no row for {accept}"));
        (row.status, row.version) = (200, Some(version.to_owned()));
    }
    let bootstrap = Bootstrap::start_rendered(&data, "rendered-master-aws");
    for client in bootstrap.ports() {
        for row in &rows {
            let headers: Vec<_> = row.accept.iter().map(|a| ("Accept", a.as_str())).collect();
            let answer = client.request("GET", "/config/master", &headers);
            assert_eq!(answer.status, row.status, "{:?}: {answer:?}", row.accept);
            if let Some(version) = &row.version {
                let served = answer.json();
                assert_eq!(&served["ignition"]["version"], version, "{:?}", row.accept);
            }
        }
    }
}

#[test]
fn every_method_and_path_gets_what_the_contract_says() {
    let Some(data) = data() else { return };
    let rows: Vec<PathRow> = read_json(&data.join("paths.json"));
    let bootstrap = Bootstrap::start_rendered(&data, "rendered-master-aws");
    let [tls, plain] = bootstrap.ports();
    let mut broken = Vec::new();
    for row in &rows {
        let client = if row.port == 22623 { &tls } else { &plain };
        // The data shortens a name of 300 letters.
        let target = row.path.replace("<300 a>", &"a".repeat(300));
        broken.extend(broken_rules(client, &row.method, &target, &["master"]));
        // Where the reference serves a config, and not by a path that is another's, so does this.
        let other_path = ["/config/a/master", "/config/..%2fmaster"].contains(&row.path.as_str());
        if row.status == 200 && !other_path {
            assert_eq!(contract::status(&row.method, &target, &["master"]), 200, "{target}");
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// The folder with the data: the one that `CONFORMANCE_DATA` names, else the usual one.
pub(crate) fn data() -> Option<PathBuf> {
    if let Some(directory) = std::env::var_os("CONFORMANCE_DATA") {
        let data = PathBuf::from(directory);
        assert!(data.is_dir(), "CONFORMANCE_DATA names {}, no folder", data.display());
        return Some(data);
    }
    let data = in_repository("../shared/conformance");
    if data.is_dir() {
        return Some(data);
    }
    println!("skipped: there is no {}", data.display());
    None
}

#[derive(Deserialize)]
struct AcceptRow {
    accept: Option<String>,
    status: u16,
    version: Option<String>,
}

#[derive(Deserialize)]
struct PathRow {
    method: String,
    path: String,
    port: u16,
    status: u16,
}

/// One machine config, and the status that it gets in each version.
struct Case {
    name: String,
    /// The machine config's manifest.
    config: String,
    statuses: BTreeMap<String, u16>,
}

impl Case {
    fn is_of_spec_3(&self) -> bool {
        let manifest = yaml_documents(&self.config);
        let version = &manifest[0]["spec"]["config"]["ignition"]["version"];
        version.as_str().is_some_and(|version| version.starts_with("3."))
    }
}

/// The reference's answers, by `NAME@VERSION`.
struct Answers(BTreeMap<String, PathBuf>);

impl Answers {
    fn read(directory: &Path) -> Self {
        let name = |file: PathBuf| (stem(&file).trim_end_matches(".json").to_owned(), file);
        let answers: BTreeMap<_, _> = files(directory).into_iter().map(name).collect();
        assert!(!answers.is_empty(), "no answers in {}", directory.display());
        Self(answers)
    }

    fn get(&self, case: &str, version: &str) -> Option<Value> {
        let file = File::open(self.0.get(&format!("{case}@{version}"))?).expect("an answer");
        Some(serde_json::from_reader(flate2::read::GzDecoder::new(file)).expect("JSON"))
    }
}

/// Serves each case by a server of its own, a few at a time, and compares all of its answers.
fn check(data: &Path, cases: Vec<Case>, answers: &Answers) {
    assert!(!cases.is_empty(), "no cases");
    let compared = Mutex::new(0);
    let faults = Mutex::new(Vec::new());
    let queue = Mutex::new(cases);
    let next = || queue.lock().expect("the queue").pop();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while let Some(case) = next() {
                    let name = machine_config_name(&case.name);
                    let bootstrap = Bootstrap::start(data, &name, &case.config);
                    let client = bootstrap.server.plain();
                    for (version, status) in &case.statuses {
                        let answer = contract::config(&client, "master", version);
                        let at = format!("{}@{version}", case.name);
                        if answer.status != *status {
                            let fault = format!("{at}: expected {status}: {answer:?}");
                            faults.lock().expect("the faults").push(fault);
                            continue;
                        }
                        // As Ignition asks for it: the same machine, and never more bytes.
                        let compact = contract::config_for_ignition(&client, "master", version);
                        assert_eq!(compact.status, answer.status, "{at}: {compact:?}");
                        if *status == 200 {
                            assert!(compact.body.len() <= answer.body.len(), "{at}");
                            let lines = differences(&compact.json(), &answer.json());
                            let lines =
                                lines.into_iter().map(|line| format!("{at}: compact: {line}"));
                            faults.lock().expect("the faults").extend(lines);
                        }
                        let Some(mut expected) = answers.get(&case.name, version) else { continue };
                        if *version == "2.2.0" && case.is_of_spec_3() {
                            set_default_modes(&mut expected);
                        }
                        *compared.lock().expect("the count") += 1;
                        let lines = differences(&answer.json(), &expected);
                        let lines = lines.into_iter().take(20).map(|line| format!("{at}: {line}"));
                        faults.lock().expect("the faults").extend(lines);
                    }
                }
            });
        }
    });
    let faults = faults.into_inner().expect("the faults");
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
    // Each answer that there is has been compared with.
    assert_eq!(compared.into_inner().expect("the count"), answers.0.len());
}

/// The reference leaves out the mode of a file that has none in spec 3, and Ignition 0.x makes such a file inaccessible
/// (Bug 2102004): here it has the mode that spec 3 gives it, as far as the file is made anew.
fn set_default_modes(config: &mut Value) {
    let Some(files) = config["storage"]["files"].as_array_mut() else { return };
    let place = |file: &Value| (file["filesystem"].clone(), file["path"].clone());
    let is_made = |file: &Value| file["append"] != true && file["mode"].is_null();
    let made: Vec<_> = files.iter().filter(|file| is_made(file)).map(place).collect();
    for file in files.iter_mut().filter(|file| made.contains(&place(file))) {
        file["mode"] = 420.into();
    }
}

/// `bootstrap` with one machine config for the pool `master`.
struct Bootstrap {
    server: Server,
    pair: Pair,
    _base: TempDir,
}

impl Bootstrap {
    /// With the rendered config of this name.
    fn start_rendered(data: &Path, name: &str) -> Self {
        let config = fs::read_to_string(data.join(format!("rendered/{name}.yaml")));
        Self::start(data, name, &config.expect("a rendered config"))
    }

    /// Returns once the config is served or is known not to be.
    fn start(data: &Path, name: &str, machine_config: &str) -> Self {
        let base = tempfile::tempdir().expect("a temporary folder");
        let pool = pool("master", name);
        let controller =
            fs::read_to_string(data.join("controller-config.yaml")).expect("a controller config");
        for (file, text) in [
            ("machine-pools/master.yaml", pool.to_string().as_str()),
            (&format!("machine-configs/{name}.yaml"), machine_config),
            ("controller-config/machine-config-controller.yaml", &controller),
        ] {
            let path = base.path().join(file);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            fs::write(path, text).expect("a writable folder");
        }
        let pair = Pair::make(base.path(), "localhost");
        let kubeconfig = data.join("kubeconfig");
        let kubeconfig = ["--bootstrap-kubeconfig", kubeconfig.to_str().expect("UTF-8")];
        let server = Server::bootstrap(base.path(), &pair.certificate, &pair.key, &kubeconfig);
        let client = server.plain();
        wait_until("the inputs to be read", || {
            let ready = client.get("/readyz");
            let named = String::from_utf8_lossy(&ready.body).contains("master");
            ready.status == 200 || named
        });
        Self { server, pair, _base: base }
    }

    /// TLS first.
    fn ports(&self) -> [Client; 2] {
        let tls = Client::tls(self.server.secure(), self.pair.pem.as_bytes());
        [tls, self.server.plain()]
    }
}

/// The name that a corpus config's machine config was given; a rendered one keeps its own.
fn machine_config_name(case: &str) -> String {
    if case.starts_with("rendered-") {
        return case.to_owned();
    }
    format!("c-{}", case.to_lowercase().replace('_', "-"))
}

fn files(directory: &Path) -> Vec<PathBuf> {
    manifests::files(directory).iter().map(|file| directory.join(file)).collect()
}

fn stem(file: &Path) -> String {
    file.file_stem().and_then(|stem| stem.to_str()).expect("a name in UTF-8").to_owned()
}

fn read_json<T: serde::de::DeserializeOwned>(file: &Path) -> T {
    let text = fs::read_to_string(file).expect("a readable file");
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}
