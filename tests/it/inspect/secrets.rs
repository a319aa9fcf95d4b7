//! What is secret is named and not printed.

use std::collections::BTreeSet;
use std::fs;

use ignition::Config;
use ignition::contents::UnpackBudget;
use secrets::{SecretKind, secrets};
use serde_json::{Value, json};

use super::{fixtures, inspect};
use crate::support::in_repository;
use crate::support::manifests::machine_config;

/// Everything that is secret in the fixtures: the kubeconfig's token and a user's hash.
fn known_secrets() -> Vec<String> {
    let text =
        fs::read_to_string(in_repository("ignition-fixtures/kubeconfig.yaml")).expect("a file");
    let token = text.lines().find_map(|line| line.trim().strip_prefix("token: ")).expect("a token");
    let text = fs::read_to_string(in_repository("ignition-fixtures/machine-configs/master.yaml"));
    let text = text.expect("a file");
    let hash = text.lines().find_map(|line| line.split_once("passwordHash: ")).expect("a hash").1;
    [token, hash].map(|text| text.trim_matches(['"', '\'']).to_owned()).to_vec()
}

#[test]
fn secrets_are_named_and_printed_only_as_a_file() {
    let fixtures = fixtures();
    for arguments in [
        &[&fixtures[..], "master"][..],
        &[&fixtures, "master", "--json"],
        &[&fixtures, "master", "--diff", "worker"],
        &[&fixtures, "edge", "--diff", "master", "--json"],
    ] {
        let said = inspect(arguments);
        for secret in known_secrets() {
            assert!(secret.len() > 5 && !said.output.contains(&secret), "{arguments:?}");
        }
    }
    let page = inspect(&[&fixtures, "master", "--json"]).json();
    let named: BTreeSet<_> = page["machine"]["secrets"]
        .as_array()
        .expect("secrets")
        .iter()
        .map(|it| (it["place"].as_str().expect("a place"), it["kind"].as_str().expect("a kind")))
        .collect();
    assert_eq!(
        named,
        BTreeSet::from([
            ("/etc/kubernetes/kubeconfig", "kubeconfig"),
            ("/etc/mcs-machine-config-content.json", "password-hash"),
            ("user core", "password-hash"),
        ])
    );
    let said = inspect(&[&fixtures, "master", "--file", "/etc/kubernetes/kubeconfig"]);
    assert!(said.status == 0 && said.output.contains(&known_secrets()[0]), "{said:?}");
}

/// A MachineConfig with this wherever something secret may be.
fn full_of(secret: &str, name: &str) -> Value {
    let signed = format!("https://h/c?sv=2024&se=2030&sig={}", secret.repeat(4));
    let config = json!({
        "ignition": {
            "version": "3.4.0",
            "config": {"merge": [{"source": signed, "httpHeaders": [{"name": "Authorization", "value": secret}]}]},
            "proxy": {"httpProxy": format!("http://me:{secret}@proxy:3128")},
        },
        "kernelArguments": {
            "shouldExist": ["quiet", format!("rd.znet_passphrase={secret}"), format!("password=/{secret}"),
                format!("\"db.password=a {secret}\""), format!("inst.sshpw={secret}"), format!("secret={secret}")],
            "shouldNotExist": [format!("inst.vncpassword={secret}")],
        },
        "passwd": {"users": [{
            "name": "core",
            "sshAuthorizedKeys": [format!("environment=\"API_TOKEN={secret}\" ssh-ed25519 AAAA")],
        }]},
        "storage": {
            "files": [
                {"path": "/url", "contents": {"source": format!("https://me:{secret}@h/x?token={secret}")}},
                {"path": "/env", "contents": {"source": format!("data:,TOKEN={secret}")}},
            ],
            "links": [{"path": "/l", "target": format!("https://me:{secret}@h/")}],
            "luks": [{"name": "l", "device": "/dev/l", "clevis": {"tang": [
                {"url": format!("http://me:{secret}@tang"), "thumbprint": "x"}]}}],
        },
        "systemd": {"units": [{
            "name": "a.service", "enabled": true,
            "contents": format!("[Service]\nEnvironment=DB_PASSWORD={secret}\nExecStart=/bin/true\n"),
        }]},
    });
    let mut config = machine_config(name, &config);
    config["spec"]["kernelArguments"] = json!([
        format!("netroot=iscsi:me:{secret}@192.0.2.1::::iqn"),
        format!("systemd.set_credential=a:{secret}")
    ]);
    config
}

#[test]
fn nothing_secret_is_printed_wherever_in_a_config_it_is() {
    let directory = tempfile::tempdir().expect("a temporary folder");
    let saved = |name: &str, secret: &str| {
        let path = directory.path().join(name);
        fs::write(&path, full_of(secret, name).to_string()).expect("a file");
        path.display().to_string()
    };
    let (one, other) = (saved("one", "sesame-Zq1"), saved("two", "sesame-Zq2"));
    for arguments in [
        &[&one[..]][..],
        &[&one, "--json"],
        &[&one, "--diff", &other],
        &[&other, "--diff", &one, "--json"],
        &["https://me:sesame-Zq1@localhost:1"],
        &["https://me:sesame-Zq1@localhost:1", "worker"],
        &["https://me:sesame-Zq1@localhost:1", "worker", "--json"],
    ] {
        let said = inspect(arguments);
        let all = format!("{}{}", said.output, said.error);
        assert!(!all.contains("sesame"), "{arguments:?}: {all}");
        assert!(all.contains("(secret)"), "{arguments:?}: {all}");
    }
    // What differs in nothing but secrets differs.
    let said = inspect(&[&one, "--diff", &other]);
    let line = "value: differs in what is secret: quiet rd.znet_passphrase=(secret)";
    assert!(said.status == 1 && said.output.contains(line), "{}", said.output);
    // The place is named among the secrets.
    let page = inspect(&[&one, "--json"]).json();
    let named = page["machine"]["secrets"].as_array().expect("secrets");
    assert!(named.iter().any(|it| it["place"] == "kernelArguments"), "{page}");
    let said = inspect(&[&one, "--file", "/env"]);
    assert_eq!(said.output, "TOKEN=sesame-Zq1");
}

#[test]
fn no_conformance_input_raises_a_false_alarm() {
    let directory = in_repository("../shared/conformance");
    if !directory.exists() {
        // It lies beside the repository and belongs to others.
        return;
    }
    let mut looked_at = 0;
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(directory.join("corpus")).expect("the corpus") {
        let text = fs::read_to_string(entry.expect("an entry").path()).expect("a file");
        let Ok(config) = Config::parse(&text) else { continue };
        looked_at += 1;
        let secrets = secrets(&config, &mut UnpackBudget::default());
        found.extend(secrets.into_iter().map(|it| (it.place.to_string(), it.kind)));
    }
    assert!(looked_at > 20, "{looked_at}");
    assert_eq!(found, BTreeSet::from([("user test".to_owned(), SecretKind::PasswordHash)]));
    for entry in fs::read_dir(directory.join("rendered")).expect("rendered configs") {
        let path = entry.expect("an entry").path();
        let page = inspect(&[path.to_str().expect("text"), "--json"]).json();
        // Each has a pull secret, and nothing else.
        let expected = json!([{"place": "/var/lib/kubelet/config.json", "kind": "registry-login"}]);
        assert_eq!(page["machine"]["secrets"], expected, "{}", path.display());
    }
}
