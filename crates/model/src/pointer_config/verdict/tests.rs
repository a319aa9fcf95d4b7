//! Typical files, with the verdict for each.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use ignition::{SpecVersion, pointer};
use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
use pki::Host;
use pki::KeyAlgorithm;
use pki::VALIDITY;
use pki::issue::{Signer, Validity, issue_ca, issue_serving};
use serde_json::Value;
use serde_json::json;
use sha2::{Digest as _, Sha512};
use time::Duration;

use super::super::ca::{CaFault, ContentsFault};
use super::super::fetch::accept;
use super::*;

const NOW: OffsetDateTime = time::macros::datetime!(2026-11-21 0:00 UTC);
const URL: &str = "https://api-int.example.com:22623/config/worker";

/// A CA, and a chain for these hosts.
fn issued(hosts: &[&str]) -> (Certificate, Vec<Certificate>) {
    let key = KeyAlgorithm::P256.generate().unwrap();
    let ca = issue_ca(&key, VALIDITY, NOW).unwrap();
    let signer = Signer { certificate: &ca, key: &key };
    let hosts: Vec<Host> = hosts.iter().map(|host| host.parse().unwrap()).collect();
    let validity = Validity { begin: ca.not_before, end: ca.not_after };
    let own = KeyAlgorithm::P256.generate().unwrap();
    let leaf = issue_serving(&own, &hosts, signer, validity).unwrap();
    (ca, vec![leaf])
}

fn ca() -> Certificate {
    issued(&["localhost"]).0
}

fn data(contents: &[u8]) -> String {
    format!("data:,{}", percent_encode(contents, NON_ALPHANUMERIC))
}

/// A sound config with a change.
fn changed(version: SpecVersion, change: impl FnOnce(&mut Value)) -> Vec<u8> {
    let mut config = pointer(URL, ca().to_pem().as_bytes(), version);
    change(&mut config);
    config.to_string().into_bytes()
}

fn with_ca(version: SpecVersion, entry: &Value) -> Vec<u8> {
    changed(version, |config| {
        config["ignition"]["security"]["tls"]["certificateAuthorities"] = json!([entry]);
    })
}

fn with_config(section: Value) -> Vec<u8> {
    changed(SpecVersion::V3_1, |config| config["ignition"]["config"] = section)
}

fn lines<T: ToString>(findings: &[T]) -> Vec<String> {
    findings.iter().map(ToString::to_string).collect()
}

/// Fault of a Butane file.
const BUTANE: &str = "Butane, which Ignition reads from 2.27 on, and no earlier one: convert it with `butane --strict`, \
                      so that each machine boots";

/// The only fault of a file.
fn fault(user_data: &[u8]) -> String {
    let config = PointerConfig::read(user_data);
    assert_eq!(config.fetches(), []);
    assert_eq!(config.faults().len(), 1, "{:?}", config.faults());
    config.faults()[0].to_string()
}

/// Fetches of a file without faults, and its warnings.
fn sound(user_data: &[u8]) -> (Vec<Fetch>, Vec<String>) {
    let config = PointerConfig::read(user_data);
    assert!(config.faults().is_empty(), "{:?}", config.faults());
    assert!(!config.fetches().is_empty());
    (config.fetches().to_vec(), lines(config.warnings()))
}

#[test]
fn a_pointer_of_every_spec_is_read() {
    for version in SpecVersion::ALL {
        let (fetches, warnings) = sound(&changed(version, |_| {}));
        assert_eq!(warnings, [""; 0]);
        assert_eq!(fetches[0].spec, version);
        assert_eq!(fetches[0].url, URL);
        assert_eq!(fetches[0].host, "api-int.example.com".parse().unwrap());
        assert_eq!(fetches[0].trusted.len(), 1);
    }
}

#[test]
fn what_is_no_ignition_config_is_reported_by_what_it_is() {
    let config = changed(SpecVersion::V3_1, |_| {});
    let encoded = BASE64.encode(&config);
    let wrapped = format!("{}\n{}\n", &encoded[..76], &encoded[76..]);
    for (file, expected) in [
        (&b""[..], "empty"),
        (b" \n", "empty"),
        (b"#!/bin/sh\n", "not an Ignition config, but a script or user data of another tool"),
        (b"#cloud-config\n", "not an Ignition config, but a script or user data of another tool"),
        (b"<powershell>", "not an Ignition config, but a script or user data of another tool"),
        (
            b"\x1f\x8b\x08\x00",
            "compressed with gzip, which Ignition does not unpack: decompress it first",
        ),
        (wrapped.as_bytes(), "encoded in base64, as in a Secret: decode it first (base64 -d)"),
        (b"\xff\xfe{", "not JSON: expected value at line 1 column 1"),
        (b"variant: fcos\n", BUTANE),
        (b"# site\n\n\"variant\" : fcos\n", BUTANE),
        (b"---\nversion: 1.5.0\nvariant: fcos\n", BUTANE),
        (b"{\"variant\": \"fcos\", \"version\": \"1.5.0\"}", BUTANE),
        (b"variants: fcos\n", "not JSON: expected value at line 1 column 1"),
        (b"a:\n  variant: fcos\n", "not JSON: expected value at line 1 column 1"),
        (b"# variant: fcos\n", "not an Ignition config, but a script or user data of another tool"),
        (
            b"#!/bin/sh\ncat <<END\nvariant: fcos\nEND\n",
            "not an Ignition config, but a script or user data of another tool",
        ),
        (
            b"#cloud-config\nvariant: fcos\n",
            "not an Ignition config, but a script or user data of another tool",
        ),
        (b"{", "not JSON: EOF while parsing an object at line 1 column 1"),
        (
            b"{\"kind\": \"Secret\"}",
            "ignition.version: is missing; it says the Ignition spec, such as \"3.4.0\"",
        ),
    ] {
        assert_eq!(fault(file), expected, "{}", file.escape_ascii());
    }
    for version in ["1.0.0", "2.3.0", "3.7.0", "3.5.0-experimental"] {
        let file =
            changed(SpecVersion::V3_1, |config| config["ignition"]["version"] = version.into());
        assert!(fault(&file).starts_with(&format!("ignition.version: \"{version}\" is not")));
    }
}

#[test]
fn a_config_has_to_lead_to_a_pool_over_tls() {
    let nowhere = "not a pointer config: neither ignition.config.merge nor \
                   ignition.config.replace has https://HOST:22623/config/POOL";
    for (section, expected) in [
        (json!({}), nowhere),
        (json!({"append": [{"source": URL}]}), nowhere),
        (
            json!({"merge": [{"source": "http://192.0.2.1:22624/config/worker"}]}),
            "http://192.0.2.1:22624/config/worker has no TLS: others on the network can read the \
                machine's secrets and change its config",
        ),
        (
            json!({"merge": [{"source": "https://h:22623/config/"}]}),
            "https://h:22623/config/ names no pool: it must end in /config/POOL",
        ),
        (
            json!({"merge": [{"source": "https://h:22623/config/a/b"}]}),
            "https://h:22623/config/a/b names no pool: it must end in /config/POOL",
        ),
        (
            json!({"replace": {"source": "https://1.2.3:22623/config/worker"}}),
            "https://1.2.3:22623/config/worker has a host that no certificate can name",
        ),
    ] {
        assert_eq!(fault(&with_config(section.clone())), expected, "{section}");
    }
    let spec_2 = changed(SpecVersion::V2_2, |config| {
        config["ignition"]["config"] = json!({"merge": [{"source": URL}]});
    });
    assert!(fault(&spec_2).contains("ignition.config.append"), "spec 2 does not merge");

    // Only the config that replaces this one is fetched.
    let other = "https://[2001:db8::1]:22623/config/master/";
    let (fetches, _) = sound(&with_config(json!({
        "merge": [{"source": URL}],
        "replace": {"source": other},
    })));
    assert_eq!(fetches.len(), 1);
    assert_eq!(fetches[0].host, "2001:db8::1".parse().unwrap());
    // Several configs are all fetched, with their headers, and data URLs are read.
    let headers = json!([
        {"name": "Authorization", "value": "Bearer x"},
        {"name": "authorization", "value": " Bearer y "},
        {"name": "host", "value": "h"},
    ]);
    let within = data(pointer(URL, b"", SpecVersion::V3_0).to_string().as_bytes());
    let (fetches, warnings) = sound(&with_config(json!({"merge": [
        {"source": URL, "httpHeaders": headers},
        {"source": other},
        {"source": within},
        {"source": "https://elsewhere.example.com/x.ign"},
    ]})));
    assert_eq!(fetches.len(), 3);
    assert_eq!(fetches[0].headers, [("authorization".into(), "Bearer y".into())]);
    assert_eq!(fetches[2].headers, []);
    assert_eq!(
        warnings,
        ["https://elsewhere.example.com/x.ign is fetched too, and is not checked"]
    );
}

#[test]
fn what_ignition_cannot_fetch_is_reported() {
    let with = |more: Value| {
        let mut resource = json!({"source": URL});
        resource.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        fault(&with_config(json!({"merge": [resource]})))
    };
    let header =
        |name: &str, value: &str| with(json!({"httpHeaders": [{"name": name, "value": value}]}));
    let hash = format!("sha256-{}", "0".repeat(64));
    let of = |text: &str| format!("{URL} {text}");
    assert!(with(json!({"compression": "gzip"})).starts_with(&of("has the compression gzip")));
    assert!(
        with(json!({"verification": {"hash": hash}})).starts_with(&of("has a verification hash"))
    );
    let no_value = with(json!({"httpHeaders": [{"name": "X"}]}));
    assert_eq!(no_value, format!("header \"X\" of {URL} has no value"));
    assert!(header("X Y", "z").ends_with("has a name that HTTP forbids"));
    assert!(header("X", "a\nb").ends_with("has a value that HTTP forbids"));
    assert!(header("X", &"x".repeat(16_384)).contains("and the server reads 16384 at most"));
    let many: Vec<_> = (0..97).map(|it| json!({"name": format!("X{it}"), "value": "y"})).collect();
    assert!(with(json!({"httpHeaders": many})).contains("has 97 headers"));
    for (accept, asked) in [
        ("*/*", "requests spec 2.2.0"),
        ("application/vnd.coreos.ignition+json;version=3.2.0", "requests spec 3.2.0"),
        ("application/vnd.coreos.ignition+json;version=1.0.0", "requests no spec that is served"),
    ] {
        assert!(header("accept", accept).contains(asked), "{accept}");
    }
    let good =
        json!([{"name": "Accept", "value": "application/vnd.coreos.ignition+json;version=3.1.0"}]);
    let _ = sound(&with_config(json!({"merge": [{"source": URL, "httpHeaders": good}]})));
    for (source, expected) in [
        ("https://h:0/config/worker", "has port 0, which no server can use"),
        ("https://h:70000/config/worker", "has port 70000, which no server can use"),
        ("https://h:1/config/worker//", "names no pool"),
    ] {
        let section = json!({"merge": [{"source": source}]});
        assert!(fault(&with_config(section)).contains(expected), "{source}");
    }
    let merge = json!([{"source": URL}, {"source": "https://api-int.example.com:22623/x"}]);
    assert!(fault(&with_config(json!({"merge": merge}))).contains("/x is not served"));
}

#[test]
fn what_leaves_a_machine_without_its_config_is_reported() {
    let place = "ignition.config.merge[0]";
    let nested = |contents: &str| {
        let merge = json!([{"source": data(contents.as_bytes())}, {"source": URL}]);
        fault(&with_config(json!({"merge": merge})))
    };
    assert!(
        fault(&with_config(json!({"merge": [{"source": URL}], "replace": {"source": ""}})))
            .starts_with("ignition.config.replace has an empty source")
    );
    for (contents, expected) in [
        ("", "empty"),
        ("{", "not JSON"),
        (r#"{"ignition": {"version": "2.2.0"}}"#, "its Ignition spec is 2.2.0"),
        (r#"{"ignition": {"version": "3.2.0"}}"#, "its Ignition spec is 3.2.0"),
        (r#"{"ignition": {"version": "3.1.0", "config": {"replace": {"source": ""}}}}"#, ""),
    ] {
        let reported = nested(contents);
        assert!(
            expected.is_empty()
                || reported
                    .starts_with(&format!("the config in {place} cannot be read: {expected}")),
            "{reported}"
        );
    }
    for (total, is_fault) in
        [(-1_i64, true), (9_223_372_037, true), (0, false), (1, false), (3600, false)]
    {
        let file = changed(SpecVersion::V3_1, |config| {
            config["ignition"]["timeouts"] = json!({"httpTotal": total, "httpResponseHeaders": -1});
        });
        assert_eq!(PointerConfig::read(&file).fetches().is_empty(), is_fault, "{total}");
    }
}

#[test]
fn what_go_reads_is_no_fault_where_nobody_looks() {
    let file = String::from_utf8(changed(SpecVersion::V3_1, |_| {})).unwrap();
    let with = |more: &[u8]| [b"{\"x\": ", more, b", ", &file.as_bytes()[1..]].concat();
    for more in [&b"\"\\ud800\""[..], b"\"\xff\"", b"1e400", b"[[[[[]]]]]"] {
        let _ = sound(&with(more));
    }
}

#[test]
fn each_fetch_is_judged_by_the_cas_that_hold_then() {
    let (old, new) = (ca(), ca());
    let entry = |ca: &Certificate| json!({"source": data(ca.to_pem().as_bytes())});
    let within = json!({"ignition": {
        "version": "3.1.0",
        "config": {"merge": [{"source": URL}]},
        "security": {"tls": {"certificateAuthorities": [entry(&new)]}},
    }});
    let mut outer = pointer(URL, b"", SpecVersion::V3_1);
    outer["ignition"]["security"]["tls"]["certificateAuthorities"] = json!([entry(&old)]);
    outer["ignition"]["config"]["merge"] =
        json!([{"source": URL}, {"source": data(within.to_string().as_bytes())}]);
    let (fetches, _) = sound(outer.to_string().as_bytes());
    let trusted: Vec<_> = fetches.into_iter().map(|fetch| fetch.trusted).collect();
    assert_eq!(trusted, [vec![old.clone()], vec![old, new]]);
}

#[test]
fn a_verdict_knows_pools_and_tokens() {
    let (ca, chain) = issued(&["api-int.example.com"]);
    let file = pointer(URL, ca.to_pem().as_bytes(), SpecVersion::V3_1).to_string();
    let verdict = |pools: &[&str]| {
        let pools = pools.iter().map(|pool| (*pool).to_owned()).collect();
        let known = ServerState { chain: Some(&chain), records: None, pools: &pools };
        lines(&PointerConfig::read(file.as_bytes()).verdict("a", known, NOW).problems)
    };
    assert_eq!(verdict(&["worker"]), [""; 0]);
    assert_eq!(verdict(&[]), [""; 0], "they are not known");
    assert_eq!(verdict(&["master"]).len(), 1);
    let master = file.replace("/worker", "/master");
    let nobody = file.replace("/worker", "/nobody");
    let files = [("worker", &nobody), ("master", &master), ("mine", &master), ("x", &nobody)];
    let pools = pools_of(files.iter().map(|(name, text)| (*name, text.as_bytes())));
    assert_eq!(pools.into_iter().collect::<Vec<_>>(), ["master", "worker", "x"]);
}

#[test]
#[expect(clippy::too_many_lines, reason = "it is a table")]
fn a_ca_that_ignition_cannot_read_is_named_with_its_place() {
    use std::io::Write as _;
    let pem = ca().to_pem();
    let gzip = {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(pem.as_bytes()).unwrap();
        encoder.finish().unwrap()
    };
    let hash = |text: &str| {
        let sum = data_encoding::HEXLOWER.encode(&Sha512::digest(text));
        json!({"hash": format!("sha512-{sum}")})
    };
    let key = KeyAlgorithm::P256.generate().unwrap().serialize_pem();
    let plain = |contents: &str| json!({"source": data(contents.as_bytes())});
    for (entry, expected) in [
        (plain(&pem), None),
        (plain(&pem.replace('\n', "\r\n")), None),
        (plain(pem.trim_end()), None),
        (plain(&format!("a comment\n{pem}another\n{pem}")), None),
        (json!({"source": data(&gzip), "compression": "gzip", "verification": hash(&pem)}), None),
        (
            json!({"source": data(pem.as_bytes()), "verification": hash("other")}),
            Some(ContentsFault::Hash.into()),
        ),
        (
            json!({"source": data(pem.as_bytes()), "compression": "gzip"}),
            Some(ContentsFault::NotGzip.into()),
        ),
        (json!({"source": data(&gzip)}), Some(CaFault::NoPem)),
        (json!({"source": data(ca().der())}), Some(CaFault::NoPem)),
        (plain("no PEM"), Some(CaFault::NoPem)),
        (plain(&pem.replace('\n', "\r")), Some(CaFault::BrokenPem)),
        (plain(&format!("{}{pem}", pem.trim_end())), Some(CaFault::BrokenPem)),
        (plain(&pem.replace("CERTIFICATE", "X509 CERTIFICATE")), None),
        (plain(&pem.replacen("-----\n", "-----\nA: b\n\n", 1)), None),
        (plain(""), None),
        (plain(&pem[..200]), Some(CaFault::BrokenPem)),
        (plain(&format!("{pem}{key}")), Some(CaFault::NoCertificate)),
        (plain(&key.replace("PRIVATE KEY", "CERTIFICATE")), Some(CaFault::NoCertificate)),
        (plain(&format!("{pem}\n")), Some(CaFault::Trailing)),
        (plain(&format!("{pem}a comment\n")), Some(CaFault::Trailing)),
    ] {
        let file = with_ca(SpecVersion::V3_1, &entry);
        match expected {
            None => drop(sound(&file)),
            Some(reason) => assert_eq!(
                fault(&file),
                format!("ignition.security.tls.certificateAuthorities[0] {reason}"),
                "{entry}"
            ),
        }
    }

    // Spec 3.0 has no compression, so that Ignition does not unpack it.
    let entry = json!({"source": data(&gzip), "compression": "gzip"});
    assert!(fault(&with_ca(SpecVersion::V3_0, &entry)).ends_with("no certificate in PEM"));
    // Spec 2 reads only the first certificate.
    let (first, second) = (ca(), ca());
    let both = plain(&format!("{}{}\n\n", first.to_pem(), second.to_pem()));
    let (fetches, warnings) = sound(&with_ca(SpecVersion::V2_2, &both));
    assert_eq!(fetches[0].trusted, [first]);
    let reported = "certificateAuthorities[0] has 2 certificates, of which Ignition reads only the \
                first in spec 2";
    assert_eq!(warnings, [reported]);

    let none = changed(SpecVersion::V3_1, |config| {
        config["ignition"]["security"]["tls"]["certificateAuthorities"] = json!([]);
    });
    assert!(fault(&none).starts_with("has no certificateAuthorities"));
    let remote = json!({"source": "https://example.com/ca.pem"});
    let (fetches, warnings) = sound(&with_ca(SpecVersion::V3_1, &remote));
    assert!(fetches[0].trusted.is_empty());
    assert_eq!(warnings, ["certificateAuthorities[0] is fetched, and is not checked"]);
}

#[test]
fn a_file_within_the_config_has_to_be_what_is_said_of_it() {
    let hash =
        |text: &str| format!("sha512-{}", data_encoding::HEXLOWER.encode(&Sha512::digest(text)));
    let with_file = |file: Value| {
        changed(SpecVersion::V3_1, |config| config["storage"] = json!({"files": [file]}))
    };
    let file = |resource: Value| json!({"path": "/etc/a", "contents": resource});
    let right = json!({"source": "data:,a", "verification": {"hash": hash("a")}});
    let wrong = json!({"source": "data:,a", "verification": {"hash": hash("b")}});
    let upper = hash("a").to_uppercase().replace("SHA", "sha");
    let upper = json!({"source": "data:,a", "verification": {"hash": upper}});
    let elsewhere = json!({"source": "https://a/b", "verification": {"hash": hash("b")}});
    for good in [&right, &upper, &elsewhere] {
        sound(&with_file(file(good.clone())));
    }
    let said = "the file /etc/a, in a data URL, does not have the hash of its verification: \
                a machine fails when it writes it";
    assert_eq!(fault(&with_file(file(wrong.clone()))), said);
    let appended = json!({"path": "/etc/a", "contents": right, "append": [upper, wrong]});
    assert_eq!(fault(&with_file(appended)), said);
    let packed = file(json!({"source": "data:,a", "compression": "gzip"}));
    assert!(fault(&with_file(packed)).contains("is not gzip, which its compression says"));
}

#[test]
fn the_size_is_reported_before_a_platform_refuses_it() {
    let of_size = |size: usize| {
        let mut file = changed(SpecVersion::V3_1, |_| {});
        file.resize(size, b' ');
        sound(&file).1
    };
    assert_eq!(of_size(14 * 1024 - 1), [""; 0]);
    assert_eq!(of_size(14 * 1024), ["has 14336 bytes of the 16384 that EC2 accepts as user data"]);
    assert_eq!(of_size(16 * 1024), ["has 16384 bytes of the 16384 that EC2 accepts as user data"]);
    assert_eq!(
        of_size(16 * 1024 + 1),
        ["has 16385 bytes, and EC2 accepts 16384 bytes of user data"]
    );
}

#[test]
fn each_reason_not_to_boot_is_reported_once() {
    let (ca, chain) = issued(&["api-int.example.com"]);
    let pools = BTreeSet::new();
    let refusals = |file: &[u8], now| {
        let known = ServerState { chain: Some(&chain), records: None, pools: &pools };
        lines(&PointerConfig::read(file).verdict("worker.ign", known, now).problems)
    };
    let url = |host: &str| json!({"source": format!("https://{host}:22623/config/worker")});
    let of_ca = |ca: &Certificate, hosts: &[&str]| {
        let file = changed(SpecVersion::V3_1, |config| {
            *config = pointer(URL, ca.to_pem().as_bytes(), SpecVersion::V3_1);
            config["ignition"]["config"]["merge"] = hosts.iter().map(|host| url(host)).collect();
        });
        refusals(&file, NOW)
    };
    assert_eq!(of_ca(&ca, &["api-int.example.com"]), [""; 0]);
    assert_eq!(
        of_ca(&ca, &["192.0.2.1", "api-int.example.com", "a.example.com"]),
        ["192.0.2.1", "a.example.com"].map(|host| format!(
            "worker.ign cannot boot a machine: the serving certificate does not name {host}"
        ))
    );
    let unrelated = of_ca(&self::ca(), &["api-int.example.com", "API-INT.example.com"]);
    assert_eq!(unrelated.len(), 1, "{unrelated:?}");
    let later = NOW + VALIDITY + Duration::DAY;
    let late = refusals(&changed(SpecVersion::V3_1, |_| {}), later);
    assert!(late[0].contains("expired at"), "{late:?}");
}

#[test]
fn the_accept_header_is_answered_in_the_spec_of_the_file() {
    for version in SpecVersion::ALL {
        assert_eq!(ignition::negotiate(Some(&accept(version))), Ok(version));
    }
}
