//! Pointer configs as people and accidents make them, each given to Ignition itself and to `certs check --pointer`:
//! a machine boots from it if and only if that says so. `certs check` says the same of it where it is kept, and
//! `certs distrust` of all that it trusts replaces that or names it.
//!
//! Two of them are asked: Debian's package, 2.14, built with an old Go, and a current one that `tests/ignition/install`
//! builds. Where they differ the verdict is that of the stricter one, and [`DIFFERENT`] has the case.

mod cases;
mod mutations;
mod real;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::Value;

use self::real::Ignition;
use crate::rotation::model::states;
use crate::support::access::trusted;
use crate::support::command::Store;
use crate::support::server::Server;
use crate::support::wait_until;

/// What is asked at a time.
const WORKERS: usize = 4;

/// Cases of which one Ignition boots and the other does not.
const DIFFERENT: &[&str] = &[
    // What is served differs with the spec that is asked for.
    "the right hash of the pool's config",
    // A newer Go takes an address in brackets alone.
    "URL: brackets",
    // From 2.27 on, Ignition converts it.
    "Butane",
    "Butane: after a comment",
    "Butane: in JSON",
    "Butane: in a data URL",
];

/// Cases that boot and are refused all the same: what they do is not to be relied on.
const REFUSED_BY_CHOICE: &[&str] = &["without TLS"];

/// A pointer config.
struct Case {
    name: String,
    text: Vec<u8>,
}

/// A server, and what a pointer config of it is made of.
struct PointerServer {
    server: Server,
    /// The pointer config that the server has made.
    config: Value,
    /// Its only authority, PEM.
    pem: String,
}

impl PointerServer {
    fn start() -> Self {
        let server = Server::sample_cluster(&[]);
        let own = server.state().join("user-data/worker.ign");
        wait_until("the pointer config", || own.exists());
        let config: Value = serde_json::from_slice(&fs::read(own).expect("a file")).expect("JSON");
        let pem = String::from_utf8(trusted(config.to_string().as_bytes())).expect("PEM");
        Self { server, config, pem }
    }

    /// Where the workers' config is.
    fn url(&self) -> String {
        let source = &self.config["ignition"]["config"]["merge"][0]["source"];
        source.as_str().expect("a source").to_owned()
    }

    /// What Ignition is served of the workers' pool.
    fn served(&self) -> Vec<u8> {
        let accept = "application/vnd.coreos.ignition+json;version=3.3.0, */*;q=0.1";
        let headers = [("Accept", accept), ("User-Agent", "Ignition/2.14.0")];
        self.server.tls().request("GET", "/config/worker", &headers).body
    }

    /// What `certs check --pointer` says: all of it, and whether a machine boots.
    fn verdict(&self, file: &Path) -> (bool, String) {
        certs(&["check", "--pointer", path(file)], &self.server.state())
    }

    /// What is kept, and this beside it.
    fn kept_with(&self, text: &[u8], directory: &Path) -> (PathBuf, PathBuf) {
        let state = directory.join("state");
        self.server.copy_state(&state);
        let file = state.join("user-data/case.ign");
        fs::write(&file, text).expect("a writable folder");
        (state, file)
    }
}

/// What a command says, all of it, and whether it ends with 0.
fn certs(arguments: &[&str], state: &Path) -> (bool, String) {
    let said = state.run(&[&["certs"], arguments].concat());
    (said.status == 0, said.text())
}

fn path(path: &Path) -> &str {
    path.to_str().expect("text")
}

/// What was wrong, and how many were asked.
#[derive(Default)]
struct Outcome {
    wrong: Mutex<Vec<String>>,
    booted: AtomicUsize,
    refused: AtomicUsize,
}

/// Where a case is kept, `certs check` says of it what `--pointer` does, and it is not discarded when its CA is
/// distrusted. Returns what is wrong.
fn kept_otherwise(
    site: &PointerServer,
    case: &Case,
    boots: bool,
    directory: &Path,
) -> Option<String> {
    let (state, file) = site.kept_with(&case.text, directory);
    let (is_in_order, said) = certs(&["check"], &state);
    if is_in_order != boots {
        return Some(format!("kept: {is_in_order}: {said}"));
    }
    if !boots {
        return None;
    }
    let bundle = state.join("ca.crt");
    let (is_done, said) = certs(&["distrust", path(&bundle), "--yes"], &state);
    let is_written = fs::read(&file).expect("a file") != case.text;
    let is_kept = if is_written {
        certs(&["check", "--pointer", path(&file)], &state).0
    } else {
        said.contains(path(&file)) && !certs(&["check"], &state).0
    };
    (!is_done || !is_kept).then(|| format!("distrusted: written: {is_written}: {said}"))
}

/// Judges one case by all who read its spec.
fn compare(site: &PointerServer, ignitions: &[Ignition], case: &Case, outcome: &Outcome) {
    let directory = tempfile::tempdir().expect("a temporary folder");
    let file = directory.path().join("pointer.ign");
    fs::write(&file, &case.text).expect("a writable folder");
    let (ours, said) = site.verdict(&file);
    let readers = ignitions.iter().filter(|it| it.reads(&case.text));
    let real: Vec<_> = readers.map(|it| (it, it.boots(&file, directory.path()))).collect();
    let all_boot = real.iter().all(|(_, answer)| answer.boots);
    let any_boots = real.iter().any(|(_, answer)| answer.boots);
    let count = if all_boot { &outcome.booted } else { &outcome.refused };
    count.fetch_add(1, Ordering::Relaxed);
    let is_chosen = REFUSED_BY_CHOICE.contains(&&case.name[..]);
    let expected = all_boot && !is_chosen;
    let is_known = DIFFERENT.contains(&&case.name[..]) == (any_boots != all_boot);
    let kept = kept_otherwise(site, case, ours, directory.path());
    if ours == expected && is_known && (all_boot || !is_chosen) && kept.is_none() {
        return;
    }
    let of = |(ignition, answer): &(&Ignition, real::Answer)| {
        format!("{}: {}: {}\n", ignition.name, answer.boots, answer.log)
    };
    let real: String = real.iter().map(of).collect::<Vec<_>>().concat();
    let text = String::from_utf8_lossy(&case.text);
    let kept = kept.unwrap_or_default();
    let reported = format!("## {}\nours: {ours}: {said}{kept}{real}{text}\n", case.name);
    outcome.wrong.lock().expect("no panic").push(reported);
}

fn agree(site: &PointerServer, cases: &[Case]) -> Outcome {
    let ignitions = Ignition::all();
    let outcome = Outcome::default();
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    compare(site, &ignitions, case, &outcome);
                }
            });
        }
    });
    let wrong = outcome.wrong.lock().expect("no panic").join("\n");
    assert!(wrong.is_empty(), "{} of {}:\n{wrong}", wrong.matches("## ").count(), cases.len());
    outcome
}

#[test]
fn the_real_ignitions_and_the_check_agree_on_every_case() {
    let site = PointerServer::start();
    let cases = cases::all(&site);
    let names: BTreeSet<&str> = cases.iter().map(|case| &case.name[..]).collect();
    assert_eq!(names.len(), cases.len(), "a name is of one case");
    assert!(DIFFERENT.iter().chain(REFUSED_BY_CHOICE).all(|name| names.contains(name)));
    let Outcome { booted, refused, .. } = agree(&site, &cases);
    let (booted, refused) = (booted.into_inner(), refused.into_inner());
    assert!(booted > 30 && refused > 60, "{booted} booted, {refused} did not");
}

#[test]
fn the_real_ignitions_and_the_check_agree_on_mutations() {
    let site = PointerServer::start();
    let cases = mutations::some(&site, states() / 20);
    let Outcome { booted, refused, .. } = agree(&site, &cases);
    let (booted, refused) = (booted.into_inner(), refused.into_inner());
    assert!(booted > 5 && refused > 20, "{booted} booted, {refused} did not");
}

#[test]
fn a_config_of_the_image_takes_the_place_of_the_user_data() {
    let site = PointerServer::start();
    let directory = tempfile::tempdir().expect("a temporary folder");
    let (file, own) = (directory.path().join("pointer.ign"), directory.path().join("own"));
    fs::write(&file, site.config.to_string()).expect("a writable folder");
    fs::create_dir(&own).expect("a folder");
    fs::write(own.join("user.ign"), r#"{"ignition": {"version": "3.1.0"}}"#).expect("it");
    let arguments = directory.path().join("cmdline");
    fs::write(&arguments, "ro ignition.config.device=config\n").expect("it");
    assert!(site.verdict(&file).0, "the file itself is fine");
    let boots = |ignition: &Ignition, image: &[(&str, &Path)]| {
        ignition.boots_in(&file, directory.path(), image).boots
    };
    let [older, newer] = Ignition::all();
    for (place, of_older) in [
        ("IGNITION_SYSTEM_RUNTIME_CONFIG_DIR", true),
        ("IGNITION_SYSTEM_LOCAL_CONFIG_DIR", true),
        ("IGNITION_SYSTEM_CONFIG_DIR", false),
    ] {
        let image = [(place, &*own)];
        assert_eq!([boots(&older, &image), boots(&newer, &image)], [of_older, false], "{place}");
    }
    // Without a path on the device, Ignition gives up.
    let image = [("IGNITION_KERNEL_CMDLINE_PATH", &*arguments)];
    assert_eq!([boots(&older, &image), boots(&newer, &image)], [true, false]);
}
