//! Bad input at the start ends in exit code 1 and one line that names what is wrong.

use std::fs;
use std::net::TcpListener;
use std::path::Path;

use crate::support::command::{Said, run};
use crate::support::in_repository;
use crate::support::pair::Pair;

/// What `validate` says of a directory that has to be refused.
fn validated(directory: &Path) -> String {
    let said = run(&["validate", text(directory)]);
    assert_eq!(said.status, 1);
    said.text()
}

/// The one line of a command that has to fail. Log lines before it do not count.
fn error_line(arguments: &[&str]) -> String {
    let Said { status, error: text, .. } = run(arguments);
    assert_eq!(status, 1, "{arguments:?}: {text}");
    let lines: Vec<_> =
        text.lines().filter(|line| line.starts_with("machine-config-server: ")).collect();
    assert_eq!(lines.len(), 1, "{arguments:?}: {text}");
    assert!(!text.contains("panicked"), "{text}");
    lines[0].to_owned()
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

const ANY_PORT: [&str; 6] = [
    "--listen-address=127.0.0.1",
    "--secure-port=0",
    "--insecure-port=0",
    "--metrics-address=off",
    "--host=localhost",
    "--v=2",
];

fn serve(directory: &Path, state: &Path, more: &[&str]) -> String {
    let state = format!("--state-dir={}", text(state));
    let mut arguments = vec!["serve", text(directory), &state];
    arguments.extend(ANY_PORT);
    arguments.extend(more);
    error_line(&arguments)
}

#[test]
fn a_missing_directory_is_named() {
    let directory = tempfile::tempdir().expect("a temporary folder");
    let state = directory.path().join("certs");
    let line = serve(Path::new("/nowhere/at/all"), &state, &[]);
    assert!(line.contains("/nowhere/at/all: No such file or directory"), "{line}");
    assert!(!state.exists(), "nothing is made for a directory that is mistyped");
}

#[test]
fn a_broken_manifest_is_named_with_its_fault() {
    let directory = tempfile::tempdir().expect("a temporary folder");
    for (contents, fault) in [
        ("kind: MachineConfigPool\nmetadata: {name: a\n", "line 2"),
        ("kind: MachineConfigPool\nmetadata: {}\n", "metadata.name is missing"),
        (
            "kind: MachineConfigPool\nmetadata:\n  name: on\n",
            "metadata.name is a boolean: put it in quotes",
        ),
        (
            "kind: MachineConfigPool\nmetadata:\n  name: 12\n",
            "metadata.name is a number: put it in quotes",
        ),
        ("kind: MachineConfigPool\nmetadata: {name: ../x}\n", "not a valid name"),
        ("kind: MachineConfigPool\nmetadata: {name: a}\nstatus: 1\n", "MachineConfigPool \"a\""),
        ("- a list\n", "this is a list"),
    ] {
        fs::write(directory.path().join("bad.yaml"), contents).expect("a writable folder");
        let line = validated(directory.path());
        assert!(line.contains("bad.yaml: ") && line.contains(fault), "{contents:?}: {line}");
    }
}

#[test]
fn two_objects_of_one_name_are_named_with_both_files() {
    let directory = tempfile::tempdir().expect("a temporary folder");
    for file in ["one.yaml", "two.yaml"] {
        let pool = "kind: MachineConfigPool\nmetadata: {name: a}\n";
        fs::write(directory.path().join(file), pool).expect("a writable folder");
    }
    let line = validated(directory.path());
    assert!(line.contains("one.yaml") && line.contains("two.yaml"), "{line}");
}

#[test]
fn an_unreadable_or_mismatched_pair_is_named() {
    let directory = tempfile::tempdir().expect("a temporary folder");
    let path = |name: &str| directory.path().join(name);
    fs::write(path("kubeconfig"), "{}").expect("a writable folder");
    fs::write(path("garbage"), "garbage").expect("a writable folder");
    fs::create_dir(path("one")).expect("a new folder");
    fs::create_dir(path("other")).expect("a new folder");
    let (one, other) = (Pair::make(&path("one"), "one"), Pair::make(&path("other"), "other"));
    for (certificate, key, fault) in [
        (path("missing"), one.key.clone(), "missing: No such file"),
        (path("garbage"), one.key.clone(), "garbage: has no certificate"),
        (one.certificate.clone(), path("garbage"), "garbage: no private key in PEM"),
        (one.certificate.clone(), other.key, "the key does not belong to the certificate"),
    ] {
        let mut arguments = vec!["bootstrap", "--server-basedir", text(directory.path())];
        let kubeconfig = path("kubeconfig");
        arguments.extend(["--bootstrap-kubeconfig", text(&kubeconfig)]);
        arguments.extend(["--cert", text(&certificate), "--key", text(&key)]);
        arguments.extend(ANY_PORT.iter().filter(|flag| !flag.starts_with("--host")));
        let line = error_line(&arguments);
        assert!(line.contains(fault), "{line}");
    }
}

#[test]
fn a_missing_bootstrap_kubeconfig_is_named() {
    let line =
        error_line(&["bootstrap", "--server-basedir=/tmp", "--bootstrap-kubeconfig=/no/such"]);
    assert!(line.contains("--bootstrap-kubeconfig /no/such: No such file"), "{line}");
}

#[test]
fn a_port_in_use_is_named_with_its_flag() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = taken.local_addr().expect("an address").port().to_string();
    let state = tempfile::tempdir().expect("a temporary folder");
    let fixtures = in_repository("ignition-fixtures");
    for flag in ["--secure-port", "--insecure-port"] {
        let mut arguments = vec!["serve", text(&fixtures), "--state-dir", text(state.path())];
        arguments.extend(["--listen-address=127.0.0.1", "--metrics-address=off"]);
        let free = if flag == "--secure-port" { "--insecure-port=0" } else { "--secure-port=0" };
        arguments.extend([free, flag, &port]);
        let line = error_line(&arguments);
        assert!(line.contains(flag) && line.contains(&port) && line.contains("in use"), "{line}");
    }
}

#[test]
fn a_mistyped_command_line_is_refused_with_the_nearest_word() {
    for (arguments, expected) in [
        (&["bootstrap", "--server-basdir=/tmp"][..], "--server-basedir"),
        (&["serve", "x", "--secure-prot", "1"], "--secure-port"),
        (&["serv", "x"], "did you mean serve"),
        (&["serve"], "missing <DIR>"),
        (&["serve", "x", "--secure-port", "70000"], "--secure-port"),
        (&["serve", "x", "--host", "a b"], "neither a DNS name nor an IP address"),
        (&["serve", "x", "--idle-timeout", "soon"], "expected a time"),
        (&["start", "--compact", "maybe"], "--compact"),
        (&["bootstrap", "--bootstrap-certs", "registry"], "expected HOST=FILE"),
        (&["bootstrap", "--bootstrap-certs", "../x=y"], "not a registry host"),
        (&["serve", "x", "--tls-min-version", "1.2"], "VersionTLS12"),
        (
            &["serve", "x", "--tls-cipher-suites", "TLS_RSA_WITH_AES_128_CBC_SHA"],
            "none of the cipher suites",
        ),
        (
            &["start", "--allow-from", "worker=192.0.2.7/24"],
            "--allow-from <[POOL=]CIDR>: \"worker=192.0.2.7/24\": expected 192.0.2.0/24",
        ),
        (&["serve", "x", "--allow-from", "everybody"], "expected an address, or a network"),
        (&["bootstrap", "--proxy-from", "192.0.2.8/8"], "expected 192.0.0.0/8"),
        (&["--bogus"], "unknown flag --bogus"),
    ] {
        let line = error_line(arguments);
        assert!(line.contains(expected), "{arguments:?}: {line}");
    }
}

#[test]
fn version_prints_name_version_and_commit() {
    let line = run(&["version"]).done().output;
    let mut words = line.split_whitespace();
    assert_eq!(words.next(), Some("machine-config-server"));
    assert_eq!(words.next(), Some(env!("CARGO_PKG_VERSION")));
    assert!(words.next().is_some_and(|commit| commit.len() > 2), "{line}");
}

#[test]
fn the_reference_servers_logging_flags_are_accepted_wherever_they_stand() {
    let line = error_line(&[
        "--logtostderr",
        "--stderrthreshold=2",
        "--add_dir_header=false",
        "bootstrap",
        "--v=4",
        "--alsologtostderr=true",
        "--vmodule",
        "a=1",
        "--skip_headers",
        "--one_output",
        "--log_dir=/tmp",
        "--payload-version=4.21.0",
        "--bootstrap-kubeconfig=/no/such",
    ]);
    assert!(line.contains("/no/such"), "{line}");
}

#[test]
fn an_external_pair_and_its_bundle_go_together() {
    let trust = "--trust-bundle=ns/trust";
    let (issuer, external) = ("--ca-from-issuer=Issuer/a", "--serving-pair=external");
    for (flags, fault) in [
        (&[external][..], "--serving-pair external needs --trust-bundle"),
        (&[trust][..], "--trust-bundle needs --serving-pair external"),
        (
            &[issuer, external, trust][..],
            "--ca-from-issuer <ISSUER> cannot be used with --serving-pair",
        ),
    ] {
        let line = error_line(&[&["controller", "--metrics-address=off"], flags].concat());
        assert!(line.contains(fault), "{line}");
    }
}
