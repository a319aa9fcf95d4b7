//! State directories of an earlier version, in both directions: the present one takes one over as it is, and what it writes
//! itself can be read by that version.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use data_encoding::BASE64;
use model::access::Token;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tempfile::TempDir;
use time::format_description::well_known::Rfc3339;
use time::{Duration, OffsetDateTime};

use crate::support::access::{credential_in, get};
use crate::support::command::Said;
use crate::support::http::Client;
use crate::support::manifests::{copy_fixtures, write};
use crate::support::server::{Server, binary, free_ports, serving_with_access};
use crate::support::wait_until;

const POOLS: [&str; 4] = ["edge", "master", "rack", "worker"];

fn ago(duration: Duration) -> String {
    (OffsetDateTime::now_utc() - duration).format(&Rfc3339).expect("a time")
}

fn token(number: u8) -> Token {
    Token::new([number; 32])
}

/// The sample cluster with these machines, of which `held` and `approved` need an approval.
fn manifests(machines: &[&str]) -> TempDir {
    let directory = tempfile::tempdir().expect("a temporary folder");
    copy_fixtures(directory.path());
    for name in machines {
        let mut spec = json!({"pool": "worker"});
        if ["approved", "held"].contains(name) {
            spec["approval"] = json!("required");
        }
        let machine = json!({
            "apiVersion": "machine-config-server.io/v1alpha1", "kind": "FirstBootMachine",
            "metadata": {"name": name}, "spec": spec,
        });
        write(directory.path(), &format!("machine-{name}.yaml"), machine);
    }
    directory
}

/// Certificates: `ca.key`, `ca.crt`, `tls.key` and `tls.crt`. Returns the CA.
fn write_certificates(state: &Path) -> String {
    let with_name = |name: &str, hosts: &[String]| {
        let mut params = CertificateParams::new(hosts).expect("names");
        params.distinguished_name.push(DnType::CommonName, name);
        params.not_before = OffsetDateTime::now_utc() - Duration::DAY;
        params.not_after = params.not_before + Duration::days(3650);
        params.use_authority_key_identifier_extension = true;
        params
    };
    let [ca_key, key] = [(); 2].map(|()| KeyPair::generate().expect("a key"));
    let mut ca = with_name("machine-config-server-ca@1795756856-2f21", &[]);
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    ca.key_usages = vec![
        KeyUsagePurpose::DigitalSignature,
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::CrlSign,
    ];
    let ca_pem = ca.self_signed(&ca_key).expect("a CA").pem();
    let mut leaf = with_name("localhost", &["localhost".to_owned(), "127.0.0.1".to_owned()]);
    leaf.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let leaf = leaf.signed_by(&key, &Issuer::new(ca, &ca_key)).expect("a certificate").pem();
    write(state, "ca.key", ca_key.serialize_pem() + &ca_pem);
    write(state, "ca.crt", &ca_pem);
    write(state, "tls.key", key.serialize_pem() + &leaf);
    write(state, "tls.crt", leaf);
    ca_pem
}

/// A pointer config in one line, as that version writes it.
fn pointer(port: u16, pool: &str, token: &Token, ca: &str) -> String {
    let ca = BASE64.encode(ca.as_bytes());
    let authorization = format!("Bearer {}", token.as_str());
    let source = json!({
        "source": format!("https://localhost:{port}/config/{pool}"),
        "httpHeaders": [{"name": "Authorization", "value": authorization}],
    });
    let authority = json!({"source": format!("data:text/plain;charset=utf-8;base64,{ca}")});
    let tls = json!({"tls": {"certificateAuthorities": [authority]}});
    let config =
        json!({"ignition": {"config": {"merge": [source]}, "security": tls, "version": "3.1.0"}});
    format!("{config}\n")
}

/// Tokens of machines by their names, with the use of each.
fn machine_records() -> BTreeMap<&'static str, Value> {
    let used = |time: &str| json!({"begun": time, "last": time, "taken": time, "addresses": ["127.0.0.1"]});
    let record = |number: u8, usage: Value| {
        let made = ago(Duration::DAY);
        json!({"token": token(number), "pool": "worker", "made": made, "armed": {}, "usage": usage})
    };
    let mut spent = record(13, used(&ago(Duration::hours(2))));
    spent["usage"]["is_spent"] = json!(true);
    spent["armed"] = json!({"annotation": "x", "command": "y"});
    let mut removed = record(14, json!({}));
    removed["revoked"] = json!(ago(Duration::hours(2)));
    removed["earlier"] = json!([token(15).hash()]);
    [
        ("fresh", record(11, json!({}))),
        ("used", record(12, used(&ago(Duration::minutes(5))))),
        ("spent", spent),
        ("removed", removed),
        ("approved", record(16, json!({}))),
        ("held", record(17, json!({}))),
    ]
    .into()
}

/// A state directory as that version leaves it: each file in its form.
fn write_state(state: &Path, port: u16) {
    fs::create_dir_all(state.join("machines/arm")).expect("a folder");
    let ca = write_certificates(state);
    let made = ago(Duration::DAY);
    let numbered = || (1..).zip(POOLS);
    let issued =
        numbered().map(|(it, pool)| json!({"token": token(it), "pool": pool, "made": made}));
    let issued: Vec<_> = issued.collect();
    let records = numbered()
        .map(|(it, pool)| json!({"sha256": token(it).hash(), "pools": [pool], "made": made}));
    let named = json!({
        "sha256": token(9).hash(), "name": "ci", "pools": ["worker"], "made": made,
        "until": ago(-Duration::DAY),
    });
    let records: Vec<_> = records.chain([named]).collect();
    write(state, "tokens.json", json!({"tokens": issued, "enforced": POOLS}));
    write(state, "access.json", json!({"tokens": records, "enforced": POOLS, "lacking": {}}));
    for (number, pool) in numbered() {
        write(state, &format!("user-data/{pool}.ign"), pointer(port, pool, &token(number), &ca));
    }
    for (name, record) in machine_records() {
        if record["revoked"].is_null() {
            let token = Token::read(record["token"].as_str().expect("text")).expect("a token");
            write(
                state,
                &format!("user-data/machines/{name}.ign"),
                pointer(port, "worker", &token, &ca),
            );
        }
        write(state, &format!("machines/{name}.json"), record);
    }
    write(state, "machines/arm/spent", "y");
    let (approved, ended) = (ago(Duration::minutes(5)), ago(Duration::minutes(9)));
    write(state, "approvals/approved", &approved);
    write(state, "approvals/held", &ended);
    write(state, "approvals.json", json!({"held": ended}));
    let seen = "2026-11-27T05:21:00Z";
    let served = json!({"config": "rendered-worker-1", "sha256": "ab"});
    let requests = json!({
        "pool": "worker", "user_agent": "Ignition/2.14.0", "spec": "3.4.0", "served": served,
        "times": 2, "since": seen, "last": seen,
    });
    let handshakes = json!({"failed": "untrusted", "times": 1, "last": seen});
    let machine = json!({
        "address": "192.0.2.9", "first": seen, "last": seen, "requests": requests, "handshakes": handshakes,
    });
    write(state, "ledger.json", json!([machine]));
    write(state, ".lock", "");
}

/// The files of certificates and the pointer configs.
fn lasting(state: &Path) -> BTreeMap<PathBuf, String> {
    let pointers = ["user-data", "user-data/machines"].map(|it| state.join(it));
    let entries = pointers.iter().flat_map(|it| fs::read_dir(it).expect("a folder"));
    let pointers = entries.map(|entry| entry.expect("an entry").path()).filter(|it| it.is_file());
    let own = ["ca.key", "ca.crt"].map(|it| state.join(it));
    let files = own.into_iter().chain(pointers);
    files.map(|path| (path.clone(), fs::read_to_string(path).expect("text"))).collect()
}

#[test]
fn a_state_directory_of_an_earlier_version_is_taken_over_with_each_pointer_and_token() {
    let machines = ["fresh", "used", "spent", "approved", "held"];
    let (manifests, directory) = (manifests(&machines), tempfile::tempdir().expect("a folder"));
    let state = directory.path().join("state");
    let [secure] = free_ports();
    write_state(&state, secure.port());
    let before = lasting(&state);
    let server =
        Server::prepared_at(serving_with_access(manifests.path(), &state, "enforce"), secure)
            .until_ready();
    let ca = fs::read(state.join("ca.crt")).expect("the CA");
    let ask = |pool: &str, credential: Option<&str>| {
        get(&Client::tls(secure, &ca).named("localhost"), pool, credential).status
    };
    for pool in POOLS {
        let pointer = &before[&state.join(format!("user-data/{pool}.ign"))];
        let credential = credential_in(pointer.as_bytes());
        assert_eq!([ask(pool, credential.as_deref()), ask(pool, None)], [200, 401], "{pool}");
    }
    let bearer = |number: u8| format!("Bearer {}", token(number).as_str());
    for (number, status) in
        [(9, 200), (12, 200), (13, 401), (14, 401), (15, 401), (16, 200), (17, 503), (11, 200)]
    {
        assert_eq!(ask("worker", Some(&bearer(number))), status, "{number}");
    }
    let listed = Said::by(binary().args(["tokens", "list", "--state-dir"]).arg(&state)).done();
    for number in [1, 2, 3, 4, 9, 11, 12, 13, 14, 16, 17] {
        assert!(listed.output.contains(&token(number).hash().id()), "{number}: {}", listed.output);
    }
    let stages = ["spent", "removed"].map(|name| server.named_machine(name)["token"].clone());
    assert_eq!(stages, ["spent", "revoked"]);
    let ledger = server.metrics().get("/api/v1/machines/192.0.2.9").json();
    assert!(ledger.to_string().contains("rendered-worker-1"), "{ledger}");
    for (path, text) in &before {
        assert_eq!(&fs::read_to_string(path).expect("text"), text, "{}", path.display());
    }
    let is_open = |path: &&PathBuf| {
        path.extension().is_some_and(|it| it == "ign") && !path.ends_with("spent.ign")
    };
    for pointer in before.keys().filter(is_open) {
        let mut check = binary();
        check.args(["certs", "check", "--state-dir"]).arg(&state).arg("--pointer").arg(pointer);
        Said::by(&mut check).done();
    }
}

#[expect(dead_code, reason = "it is read, and no more")]
mod shapes {
    use time::serde::rfc3339;

    use super::{BTreeMap, BTreeSet, Deserialize, OffsetDateTime, Token};

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    pub(super) struct Issued {
        tokens: Vec<IssuedToken>,
        #[serde(default)]
        enforced: BTreeSet<String>,
        #[serde(default)]
        unsure: BTreeSet<String>,
    }

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct IssuedToken {
        token: Token,
        pool: String,
        #[serde(with = "rfc3339")]
        made: OffsetDateTime,
    }

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    pub(super) struct Records {
        tokens: Vec<Record>,
        enforced: BTreeSet<String>,
        lacking: BTreeMap<String, Vec<String>>,
        #[serde(default)]
        contested: BTreeSet<String>,
        #[serde(default)]
        unsure: BTreeSet<String>,
    }

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Record {
        sha256: String,
        name: Option<String>,
        pools: BTreeSet<String>,
        #[serde(with = "rfc3339")]
        made: OffsetDateTime,
        #[serde(default, with = "rfc3339::option")]
        until: Option<OffsetDateTime>,
        #[serde(default, with = "rfc3339::option")]
        revoked: Option<OffsetDateTime>,
    }

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    pub(super) struct MachineToken {
        token: Token,
        pool: String,
        #[serde(with = "rfc3339")]
        made: OffsetDateTime,
        armed: RearmRequests,
        pub(super) usage: Usage,
        #[serde(default, with = "rfc3339::option")]
        pub(super) revoked: Option<OffsetDateTime>,
        #[serde(default)]
        pub(super) earlier: Vec<String>,
    }

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct RearmRequests {
        annotation: Option<String>,
        command: Option<String>,
    }

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    pub(super) struct Usage {
        #[serde(default, with = "rfc3339::option")]
        pub(super) begun: Option<OffsetDateTime>,
        #[serde(default, with = "rfc3339::option")]
        last: Option<OffsetDateTime>,
        #[serde(default, with = "rfc3339::option")]
        taken: Option<OffsetDateTime>,
        #[serde(default)]
        is_spent: bool,
        #[serde(default)]
        addresses: BTreeSet<std::net::IpAddr>,
    }

    #[derive(Deserialize)]
    pub(super) struct Machine {
        address: std::net::IpAddr,
        #[serde(with = "rfc3339")]
        first: OffsetDateTime,
        #[serde(with = "rfc3339")]
        last: OffsetDateTime,
        requests: Option<Requests>,
        handshakes: Option<Handshakes>,
    }

    #[derive(Deserialize)]
    struct Requests {
        pool: String,
        user_agent: String,
        spec: Option<String>,
        #[serde(default)]
        without_tls: bool,
        #[serde(flatten)]
        outcome: Outcome,
        would_be_refused: Option<String>,
        times: u64,
        #[serde(with = "rfc3339")]
        since: OffsetDateTime,
        #[serde(with = "rfc3339")]
        last: OffsetDateTime,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Outcome {
        Served { config: String, sha256: String },
        Refused { status: u16, reason: String },
    }

    #[derive(Deserialize)]
    struct Handshakes {
        failed: Failed,
        times: u64,
        #[serde(with = "rfc3339")]
        last: OffsetDateTime,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Failed {
        Untrusted,
        Tls,
        Timeout,
        Connection,
    }
}

fn read<T: DeserializeOwned>(path: &Path) -> T {
    let text =
        fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text)
        .unwrap_or_else(|error| panic!("{}: {error}: {text}", path.display()))
}

fn names(directory: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(directory).expect("a folder");
    entries
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect()
}

/// Asserts that the state directory has nothing that the earlier version would take for something else.
fn assert_known_names(state: &Path) {
    // What that version does not know, it leaves alone.
    let known = [
        ".lock",
        "access.json",
        "approvals",
        "approvals.json",
        "ca.crt",
        "ca.key",
        "ledger.json",
        "machines",
        "tls.crt",
        "tls.key",
        "tokens.json",
        "user-data",
    ];
    let new = [".server", "approved-objects.json", "last-good", "rotate"];
    let all: BTreeSet<_> = known.into_iter().chain(new).map(str::to_owned).collect();
    assert_eq!(names(state).difference(&all).collect::<Vec<_>>(), [""; 0]);
    let of_machines = names(&state.join("machines"));
    let others = of_machines.iter().filter(|name| Path::new(name).extension().is_none());
    assert_eq!(others.collect::<Vec<_>>(), ["arm", "removed"]);
}

#[test]
fn an_earlier_version_can_read_what_is_written_now() {
    let machines = ["fresh", "used", "armed", "approved", "removed"];
    let (manifests, directory) = (manifests(&machines), tempfile::tempdir().expect("a folder"));
    let state = directory.path().join("state");
    let server =
        Server::prepared(serving_with_access(manifests.path(), &state, "enforce")).until_ready();
    let pointer = |name: &str| state.join(format!("user-data/machines/{name}.ign"));
    wait_until("the pointer configs", || machines.iter().all(|it| pointer(it).exists()));
    let run = |arguments: &[&str]| {
        Said::by(binary().args(arguments).arg("--state-dir").arg(&state)).done();
    };
    run(&["machines", "approve", "approved"]);
    run(&["tokens", "add", "ci", "--pool", "worker", "--until", "2d"]);
    run(&["tokens", "rotate"]);
    let ca = fs::read(state.join("ca.crt")).expect("the CA");
    for name in ["used", "armed", "approved"] {
        let credential = credential_in(&fs::read(pointer(name)).expect("a pointer config"));
        let client = Client::tls(server.secure(), &ca).named("localhost");
        wait_until("the config", || get(&client, "worker", credential.as_deref()).status == 200);
    }
    run(&["machines", "rearm", "armed"]);
    let mut remove = binary();
    remove.args(["machines", "remove", "removed", "--manifests"]).arg(manifests.path());
    Said::by(remove.arg("--state-dir").arg(&state)).done();
    let record =
        |name: &str| read::<shapes::MachineToken>(&state.join(format!("machines/{name}.json")));
    wait_until("the token to be armed", || record("armed").usage.begun.is_none());
    wait_until("the machine to be removed", || {
        let removed = record("removed");
        removed.revoked.is_some() && !removed.earlier.is_empty()
    });
    server.stop();

    for name in machines {
        record(name);
    }
    read::<shapes::Issued>(&state.join("tokens.json"));
    read::<shapes::Records>(&state.join("access.json"));
    assert!(!read::<Vec<shapes::Machine>>(&state.join("ledger.json")).is_empty());
    let approved = fs::read_to_string(state.join("approvals/approved")).expect("a file");
    OffsetDateTime::parse(&approved, &Rfc3339).expect("a time");
    assert_known_names(&state);
}
