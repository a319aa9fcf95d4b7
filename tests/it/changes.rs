//! Changes of files are followed: what is served is right within a second, and what cannot be read
//! leaves the last good state.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, SystemTime};

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::command::Said;
use crate::support::contract::{SOON, accept, config, marker, marker_soon};
use crate::support::http::Client;
use crate::support::manifests::{self, pool, replace, with_files, write};
use crate::support::pair::Pair;
use crate::support::rest::becomes_idle;
use crate::support::server::{Server, binary, limited_output};
use crate::support::stopwatch::{HURRY, Stopwatch, once_within};
use crate::support::{wait_for, wait_until};

/// A MachineConfig with a marker.
pub(crate) fn machine_config(name: &str, marker: &str) -> String {
    manifests::machine_config(name, &with_files(&[("/etc/marker", marker)])).to_string()
}

/// One pool `worker` at config `a`, whose marker is `one`.
pub(crate) fn cluster() -> (TempDir, Server) {
    let directory = tempfile::tempdir().expect("a temporary folder");
    write(directory.path(), "pool.yaml", pool("worker", "a"));
    write(directory.path(), "a.yaml", machine_config("a", "one"));
    let server = Server::serve(directory.path(), &[]);
    assert_eq!(marker(&server, "worker"), Ok("one".to_owned()));
    (directory, server)
}

#[test]
fn a_file_that_is_written_renamed_into_or_removed_is_followed() {
    let (directory, server) = cluster();
    write(directory.path(), "a.yaml", machine_config("a", "two"));
    marker_soon(&server, "worker", Ok("two"));
    replace(directory.path(), "a.yaml", machine_config("a", "three"));
    marker_soon(&server, "worker", Ok("three"));
    fs::create_dir(directory.path().join("more")).expect("a new folder");
    write(&directory.path().join("more"), "extra.json", pool("extra", "a"));
    marker_soon(&server, "extra", Ok("three"));
    fs::remove_file(directory.path().join("more/extra.json")).expect("the file");
    marker_soon(&server, "extra", Err(503));
}

#[test]
fn kubelets_swap_of_a_symlinked_directory_is_followed() {
    let directory = tempfile::tempdir().expect("a temporary folder");
    let version = |number: u32, marker: &str| {
        let data = directory.path().join(format!("..version_{number}"));
        fs::create_dir(&data).expect("a new folder");
        write(&data, "pool.yaml", pool("worker", "a"));
        write(&data, "a.yaml", machine_config("a", marker));
        let link = directory.path().join("..data_tmp");
        symlink(data.file_name().expect("a name"), &link).expect("a link");
        fs::rename(link, directory.path().join("..data")).expect("a rename");
    };
    version(1, "one");
    for file in ["pool.yaml", "a.yaml"] {
        symlink(format!("..data/{file}"), directory.path().join(file)).expect("a link");
    }
    let server = Server::serve(directory.path(), &[]);
    assert_eq!(marker(&server, "worker"), Ok("one".to_owned()));
    version(2, "two");
    marker_soon(&server, "worker", Ok("two"));
    wait_until("readiness", || server.readiness().0 == 200);
}

#[test]
fn a_directory_that_is_replaced_whole_is_followed() {
    let top = tempfile::tempdir().expect("a temporary folder");
    for (version, marker) in [("one", "one"), ("two", "two")] {
        let directory = top.path().join(version);
        fs::create_dir(&directory).expect("a new folder");
        write(&directory, "pool.yaml", pool("worker", "a"));
        write(&directory, "a.yaml", machine_config("a", marker));
    }
    let current = top.path().join("current");
    symlink("one", &current).expect("a link");
    let server = Server::serve(&current, &[]);
    assert_eq!(marker(&server, "worker"), Ok("one".to_owned()));
    symlink("two", top.path().join("next")).expect("a link");
    fs::rename(top.path().join("next"), &current).expect("a rename");
    marker_soon(&server, "worker", Ok("two"));
}

#[test]
fn a_broken_manifest_leaves_the_last_good_state_and_is_named_everywhere() {
    let (directory, server) = cluster();
    for broken in ["kind: MachineConfig\nmetadata: {name: a\n", "", "{\"kind\": 1}", "\u{0}"] {
        write(directory.path(), "a.yaml", broken);
        let (status, reason) =
            wait_for("readiness to notice", || Some(server.readiness()).filter(|(s, _)| *s == 503));
        assert_eq!(status, 503);
        assert!(reason.contains("a.yaml: "), "{broken:?}: {reason:?}");
        assert_eq!(marker(&server, "worker"), Ok("one".to_owned()));
        assert!(server.metric("mcs_input_problems") > 0.0);
        wait_until("a log line with file and reason", || {
            server.log().lines().any(|l| l.contains("ERROR") && l.contains("a.yaml"))
        });
        write(directory.path(), "a.yaml", machine_config("a", "one"));
        wait_until("readiness to come back", || server.readiness().0 == 200);
    }
    assert!(server.metric("mcs_input_failures_total") >= 4.0);
}

#[test]
fn a_config_that_cannot_be_rendered_leaves_the_last_good_one() {
    let (directory, server) = cluster();
    let invalid = machine_config("a", "one").replace("/etc/marker", "not-absolute");
    write(directory.path(), "a.yaml", invalid);
    let (_, reason) =
        wait_for("readiness to notice", || Some(server.readiness()).filter(|(s, _)| *s == 503));
    assert!(reason.contains("pool worker: "), "{reason:?}");
    assert_eq!(marker(&server, "worker"), Ok("one".to_owned()));
    fs::remove_file(directory.path().join("a.yaml")).expect("the file");
    wait_until("readiness to notice", || {
        server.readiness().1.contains("MachineConfig a not found")
    });
    assert_eq!(marker(&server, "worker"), Ok("one".to_owned()));
    // Whether a version was asked for while it was good makes no difference.
    let other = config(&server.plain(), "worker", "3.1.0");
    assert_eq!((other.status, other.header("machine-config-server-pending")), (200, Some("a")));
    let overview = server.overview();
    let problem = overview["pools"][0]["problem"].as_str().expect("a problem");
    assert!(problem.contains("MachineConfig a not found; "), "{problem}");
    let inspected = || {
        let url = format!("http://{}", server.insecure());
        Said::by(binary().args(["inspect", &url, "worker"])).done().output
    };
    let noted = inspected();
    let line = noted.lines().find(|line| line.contains("answer")).expect("the step");
    assert!(line.trim_start().starts_with("-- answer"), "{noted}");
    assert!(noted.contains("an older config, because the pool's present one, a,"), "{noted}");
    write(directory.path(), "a.yaml", machine_config("a", "two"));
    marker_soon(&server, "worker", Ok("two"));
}

#[test]
fn a_hundred_pools_of_real_size_that_change_at_once_are_served_within_a_second() {
    a_hundred_pools_change_at_once("curl/8.0.0");
}

#[test]
fn a_hundred_pools_are_compacted_within_that_second() {
    a_hundred_pools_change_at_once("Ignition/2.14.0");
}

/// Machines that ask have this `User-Agent`.
fn a_hundred_pools_change_at_once(user_agent: &str) {
    let accept = accept("3.4.0");
    let headers = [("User-Agent", user_agent), ("Accept", &accept)];
    let ask = |client: &Client, method: &str, pool: &str| {
        client.request(method, &format!("/config/{pool}"), &headers)
    };
    let directory = tempfile::tempdir().expect("a temporary folder");
    let names: Vec<String> = (0..100).map(|number| format!("pool-{number}")).collect();
    let fill = |marker: &str| {
        let config = large_machine_config(marker);
        for name in &names {
            let config_name = format!("{name}-{marker}");
            let text = config.replace("CONFIG", &config_name);
            write(directory.path(), &format!("{config_name}.yaml"), text);
        }
        for name in &names {
            let config_name = format!("{name}-{marker}");
            replace(directory.path(), &format!("{name}.json"), pool(name, &config_name));
        }
    };
    // Looking through what is answered takes the processors from the server.
    let etag = |client: &Client, name: &str| {
        ask(client, "HEAD", name).header("etag").expect("an ETag").to_owned()
    };
    let all_serve = |client: &Client, marker: &str| {
        let wanted = format!("data:,{marker}\"");
        for name in &names {
            let body = ask(client, "GET", name).body;
            let mut windows = body.windows(wanted.len());
            assert!(windows.any(|window| window == wanted.as_bytes()), "{name}");
        }
    };
    fill("first");
    let server = Server::serve(directory.path(), &[]);
    let client = server.plain();
    all_serve(&client, "first");
    once_within(SOON * HURRY, "the last of 100 pools", |attempt| {
        let old: Vec<String> = names.iter().map(|name| etag(&client, name)).collect();
        let marker = format!("change-{attempt}");
        fill(&marker);
        let changed = Stopwatch::start();
        for (name, old) in names.iter().zip(&old) {
            wait_until("the new config", || etag(&client, name) != *old);
        }
        let took = changed.took();
        all_serve(&client, &marker);
        took
    });
}

/// A machine config CONFIG of 170 KB, as large as a rendered one of a real cluster, in YAML as `oc get` prints it.
pub(crate) fn large_machine_config(marker: &str) -> String {
    let mut text = format!(
        "apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata:
  name: CONFIG
spec:
  config:
    ignition:
      version: 3.4.0
    storage:
      files:
      - contents:
          source: data:,{marker}
        path: /etc/marker
"
    );
    for number in 0..85 {
        let contents = "key%20%3D%20value%0A".repeat(100);
        text.extend([
            "      - contents:\n          source: data:,",
            &contents,
            "\n        mode: 420\n        overwrite: true\n        path: /etc/large/",
            &number.to_string(),
            "\n",
        ]);
    }
    text
}

#[test]
fn a_serving_pair_that_does_not_match_is_refused_and_the_old_one_stays() {
    let directory = tempfile::tempdir().expect("a temporary folder");
    let [base, first, second] = ["base", "first", "second"].map(|name| directory.path().join(name));
    for path in [&base, &first, &second] {
        fs::create_dir(path).expect("a new folder");
    }
    write(directory.path(), "kubeconfig", "apiVersion: v1\nkind: Config\n");
    let kubeconfig = directory.path().join("kubeconfig");
    let old = Pair::make(&first, "localhost");
    let new = Pair::make(&second, "localhost");
    let server = Server::bootstrap(
        &base,
        &old.certificate,
        &old.key,
        &["--bootstrap-kubeconfig", kubeconfig.to_str().expect("text")],
    );
    let trusting = |pem: &str| Client::tls(server.secure(), pem.as_bytes());
    let (old_pem, new_pem) = (old.pem.clone(), new.pem.clone());
    assert_eq!(trusting(&old_pem).get("/healthz").status, 200);

    fs::copy(&new.certificate, &old.certificate).expect("a copy");
    let refused = || {
        // Machines are served as before.
        assert_eq!(trusting(&old_pem).get("/healthz").status, 200);
        server.metrics().get("/readyz").body
    };
    wait_until("readiness to name the pair", || {
        String::from_utf8_lossy(&refused()).contains("serving certificate: ")
    });
    wait_until("a log line", || {
        server.log().contains("the key does not belong to the certificate")
    });
    assert!(server.metric("mcs_certificate_reload_failures_total") >= 1.0);

    fs::copy(&new.key, &old.key).expect("a copy");
    let changed = Stopwatch::start();
    wait_for("the new pair", || {
        trusting(&new_pem).try_request("GET", "/healthz", &[]).ok().filter(|r| r.status == 200)
    });
    changed.within(SOON, "the new pair");
}

const KUBECONFIG: &str = r#"{"apiVersion": "v1", "kind": "Config", "clusters": [{"name": "c"}], "users": [{"name": "u"}]}"#;
const BOOTSTRAP_FILES: [&str; 5] = [
    "machine-pools/master.yaml",
    "machine-configs/a.yaml",
    "controller-config/machine-config-controller.yaml",
    "kubeconfig",
    "registry.crt",
];

/// Contents of these files.
fn bootstrap_texts() -> [String; 5] {
    let controller_config = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "ControllerConfig",
        "metadata": {"name": "machine-config-controller"}, "spec": {},
    });
    [
        pool("master", "a").to_string(),
        machine_config("a", "one"),
        controller_config.to_string(),
        KUBECONFIG.to_owned(),
        manifests::registry_ca("main"),
    ]
}

/// Puts something else in the place of a file.
fn damage(path: &Path, how: &str) {
    let text = fs::read_to_string(path).expect("a file");
    fs::remove_file(path).expect("a file");
    match how {
        "emptied" => fs::write(path, "").expect("a file"),
        "half" => fs::write(path, &text[..text.len() / 2]).expect("a file"),
        "missing" => {}
        "a folder" => fs::create_dir(path).expect("a folder"),
        "a fifo" => mkfifo(path, Mode::S_IRUSR).expect("a pipe"),
        _ => symlink("/dev/zero", path).expect("a link"),
    }
}

#[test]
fn what_bootstrap_cannot_read_is_served_as_it_was_and_reported() {
    let directory = tempfile::tempdir().expect("a temporary folder");
    let base = directory.path().join("base");
    let mend = |file: &str| {
        let path = base.join(file);
        if path.is_dir() {
            fs::remove_dir(&path).expect("a folder");
        }
        let _ = fs::remove_file(&path);
        let texts = bootstrap_texts();
        let text = BOOTSTRAP_FILES.iter().zip(&texts).find(|(name, _)| **name == file);
        write(&base, file, text.expect("a text").1);
    };
    for file in BOOTSTRAP_FILES {
        mend(file);
    }
    let kubeconfig = base.join("kubeconfig");
    let pair = Pair::make(directory.path(), "localhost");
    let flags =
        ["--bootstrap-certs", "registry.example.com=registry.crt", "--bootstrap-kubeconfig"];
    let flags = [&flags[..], &[kubeconfig.to_str().expect("text")]].concat();
    let server = Server::bootstrap(&base, &pair.certificate, &pair.key, &flags);
    let answer = || {
        let answer = config(&server.plain(), "master", "3.4.0");
        (answer.status, String::from_utf8_lossy(&answer.body).into_owned())
    };
    let good = wait_for("the config", || Some(answer()).filter(|(status, _)| *status == 200));
    for file in BOOTSTRAP_FILES {
        for how in ["emptied", "half", "missing", "a folder", "a fifo", "a link to /dev/zero"] {
            damage(&base.join(file), how);
            wait_until(&format!("{file} to be reported, {how}"), || {
                server.readiness().1.contains(file)
            });
            assert_eq!(answer(), good, "{file}: {how}");
            mend(file);
            wait_until("all to be in order", || server.metric("mcs_input_problems") < 0.5);
        }
    }
    write(&base, BOOTSTRAP_FILES[1], machine_config("a", "two"));
    wait_until("the change", || answer().1.contains("data:,two"));
    // Without a good one from before it does not start.
    drop(server);
    damage(&kubeconfig, "half");
    let mut command = binary();
    command.arg("bootstrap").arg("--server-basedir").arg(&base);
    command.arg("--cert").arg(&pair.certificate).arg("--key").arg(&pair.key).args(&flags);
    command.args(["--listen-address=127.0.0.1", "--secure-port=0", "--insecure-port=0"]);
    let said = limited_output(command.arg("--metrics-address=off"));
    let text = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.status.code() == Some(1) && text.contains("kubeconfig: "), "{text}");
}

fn config_map(namespace: &str, name: &str, data: &Value) -> String {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"namespace": namespace, "name": name}, "data": data,
    })
    .to_string()
}

/// The object that names the administrators' config map of registries' authorities.
fn image_config(name: &str) -> String {
    json!({
        "apiVersion": "config.openshift.io/v1", "kind": "Image",
        "metadata": {"name": "cluster"}, "spec": {"additionalTrustedCA": {"name": name}},
    })
    .to_string()
}

#[test]
fn the_registries_config_maps_are_followed_and_a_bad_entry_is_refused_alone() {
    let directory = tempfile::tempdir().expect("a temporary folder");
    let at = directory.path();
    let [main, mirror] = ["main", "mirror"].map(|name| {
        let path = crate::support::in_repository(&format!("certs/registry-{name}.crt"));
        fs::read_to_string(path).expect("a CA")
    });
    let administrators = |name: &str, data: &Value| config_map("openshift-config", name, data);
    write(at, "pool.json", pool("worker", "rendered-1"));
    write(at, "config.json", machine_config("rendered-1", "one"));
    write(at, "image.json", image_config("registry-ca"));
    let ours = json!({
        "registry.example.com": main, "registry-with-port.example.com..5000": main, "bad": "x",
    });
    write(at, "ours.json", administrators("registry-ca", &ours));
    let internal = "image-registry.openshift-image-registry.svc";
    let theirs = json!({
        format!("{internal}..5000"): mirror, format!("{internal}.cluster.local..5000"): mirror,
    });
    write(at, "theirs.json", config_map("openshift-config-managed", "image-registry-ca", &theirs));
    let server = Server::serve_when_up(at, &[]);
    let soon = |expected: &[&str]| {
        let changed = Stopwatch::start();
        let what = format!("{expected:?}");
        wait_until(&what, || registries(&server) == expected);
        changed.within(SOON, what);
    };
    let internal = [format!("{internal}.cluster.local:5000"), format!("{internal}:5000")];
    let internal: Vec<&str> = internal.iter().map(String::as_str).collect();
    let both = ["registry-with-port.example.com:5000", "registry.example.com"];
    soon(&[&internal[..], &both].concat());
    let refused = "ConfigMap openshift-config/registry-ca: key \"bad\" has no certificate in PEM";
    wait_until("the bad entry to be named", || {
        server.readiness().1.lines().any(|line| line == refused)
    });

    // Added and removed; renamed with its reference; gone while it is named; no longer named.
    write(at, "ours.json", administrators("registry-ca", &json!({"added": main})));
    soon(&[&["added"], &internal[..]].concat());
    write(at, "next.json", administrators("next", &json!({"next": main})));
    write(at, "image.json", image_config("next"));
    soon(&[&internal[..], &["next"]].concat());
    fs::remove_file(at.join("next.json")).expect("a removal");
    wait_until("the missing map to be named", || {
        let named = "Image cluster: ConfigMap openshift-config/next is named";
        server.readiness().1.contains(named)
    });
    assert_eq!(registries(&server), [&internal[..], &["next"]].concat());
    fs::remove_file(at.join("theirs.json")).expect("a removal");
    write(at, "image.json", image_config(""));
    soon(&[]);
}

/// The registries whose authorities a machine of pool `worker` gets.
fn registries(server: &Server) -> Vec<String> {
    let config = config(&server.plain(), "worker", "3.4.0").json();
    let files = config["storage"]["files"].as_array().expect("files");
    let paths = files.iter().map(|file| file["path"].as_str().expect("a path"));
    let host = |path: &str| {
        Some(path.strip_prefix("/etc/docker/certs.d/")?.strip_suffix("/ca.crt")?.to_owned())
    };
    let mut hosts: Vec<String> = paths.filter_map(host).collect();
    hosts.sort();
    hosts
}

#[test]
fn a_server_of_a_hundred_pools_is_idle_even_with_file_times_in_the_future() {
    let directory = tempfile::tempdir().expect("a temporary folder");
    for number in 0..100 {
        let name = format!("pool-{number}");
        write(directory.path(), &format!("{name}.json"), pool(&name, &name));
        let config = machine_config(&name, "one");
        write(directory.path(), &format!("{name}-config.json"), config);
    }
    let ahead = SystemTime::now() + Duration::from_secs(100 * 24 * 3600);
    let file = File::options().append(true).open(directory.path().join("pool-1.json"));
    file.and_then(|file| file.set_modified(ahead)).expect("a file's clock");
    let server = Server::serve(directory.path(), &[]);
    assert_eq!(marker(&server, "pool-1"), Ok("one".to_owned()));
    becomes_idle(server.pid());
    // And is awake at once.
    replace(directory.path(), "pool-1-config.json", machine_config("pool-1", "two"));
    marker_soon(&server, "pool-1", Ok("two"));
}
