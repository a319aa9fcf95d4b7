use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use pki::VALIDITY;
use pki::issue::issue_ca;
use pki::issue::{Signer, cross_sign};
use pki::{Host, KeyAlgorithm, TrustHolder};
use rcgen::KeyPair;
use serde_json::json;
use time::{Duration, OffsetDateTime};

use super::super::ca::MAX_CONTENTS;
use super::super::written::pem;
use super::*;

const NOW: OffsetDateTime = time::macros::datetime!(2026-11-21 0:00 UTC);

fn assess(user_data: &[u8], bundle: &[Certificate], known: &[Certificate]) -> Assessment {
    PointerConfig::read(user_data).assess(bundle, known)
}

fn cas(user_data: &[u8]) -> Vec<Certificate> {
    PointerConfig::read(user_data).cas()
}

fn holders(user_data: &[u8]) -> Vec<TrustHolder> {
    PointerConfig::read(user_data).holders("worker.ign")
}

fn hosts(user_data: &[u8]) -> Vec<Host> {
    PointerConfig::read(user_data).hosts()
}

fn ca(age: i64) -> Certificate {
    let key = KeyAlgorithm::P256.generate().unwrap();
    issue_ca(&key, VALIDITY, NOW - Duration::days(age)).unwrap()
}

/// A self-signed certificate of this name for a key.
fn named(name: &str, key: &KeyPair) -> Certificate {
    let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    Certificate::from_der(params.self_signed(key).unwrap().der()).unwrap()
}

/// A CA that is not the machine config server's.
fn unrelated() -> Certificate {
    named("unrelated", &KeyAlgorithm::P256.generate().unwrap())
}

/// The readable certificates of an entry.
fn understood(entry: &Value) -> Vec<Certificate> {
    let ders = certificates(&entry.to_string());
    ders.iter().filter_map(|der| Certificate::from_der(der)).collect()
}

fn plain(certificates: &[&Certificate]) -> Value {
    let pem: String = certificates.iter().map(|certificate| certificate.to_pem()).collect();
    let text = percent_encoding::percent_encode(pem.as_bytes(), percent_encoding::NON_ALPHANUMERIC);
    json!({"source": format!("data:,{text}")})
}

fn gzipped(certificate: &Certificate) -> Value {
    use std::io::Write as _;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(certificate.to_pem().as_bytes()).unwrap();
    let bytes = encoder.finish().unwrap();
    json!({
        "source": format!("data:;base64,{}", BASE64.encode(bytes)),
        "compression": "gzip",
        "verification": {"hash": "sha512-0"},
    })
}

fn config(version: &str, cas: &[Value]) -> Value {
    json!({
        "ignition": {
            "version": version,
            "x-unknown": [1, {"a": null}],
            "config": {"merge": [{"source": "https://api-int.example.com:22623/config/worker"}]},
            "security": {"tls": {"certificateAuthorities": cas}},
        },
        "passwd": {"users": [{"name": "core"}]},
    })
}

fn assessed(config: &Value, bundle: &[Certificate]) -> Assessment {
    assess(config.to_string().as_bytes(), bundle, &[])
}

fn patched(config: &Value, bundle: &[Certificate]) -> Value {
    let Assessment::Stale(text) = assessed(config, bundle) else { panic!("not stale") };
    assert_eq!(assess(&text, bundle, &[]), Assessment::Current, "once is enough");
    serde_json::from_slice(&text).unwrap()
}

#[test]
fn only_the_cas_change_in_every_spec_and_encoding() {
    let (old, new) = (ca(100), ca(0));
    let bundle = [new.clone(), old.clone()];
    for version in ["2.2.0", "3.1.0", "3.6.0", "3.9.0-experimental"] {
        for entry in [plain(&[&old]), gzipped(&old)] {
            let before = config(version, &[entry]);
            let mut after = patched(&before, &bundle);
            let cas = after.pointer_mut("/ignition/security/tls/certificateAuthorities");
            let cas = cas.unwrap().take();
            let mut rest = before.clone();
            *rest.pointer_mut("/ignition/security/tls/certificateAuthorities").unwrap() =
                Value::Null;
            assert_eq!(after, rest);
            assert_eq!(cas.as_array().unwrap().len(), 1);
            assert_eq!(cas[0].as_object().unwrap().len(), 1, "no stale hash is left");
            assert_eq!(understood(&cas[0]), bundle);
        }
    }
}

#[test]
fn what_means_the_same_is_left_as_it_is() {
    let (old, new) = (ca(100), ca(0));
    let bundle = [new.clone(), old.clone()];
    for entries in [
        vec![plain(&[&new, &old])],
        vec![plain(&[&old, &new])],
        vec![plain(&[&old]), gzipped(&new)],
    ] {
        assert_eq!(assessed(&config("3.1.0", &entries), &bundle), Assessment::Current);
    }
}

#[test]
fn unrelated_cas_stay_where_they_are() {
    let (old, new, unrelated) = (ca(100), ca(0), unrelated());
    let bundle = [new.clone(), old.clone()];
    let other = json!({"source": "https://example.com/ca.pem"});
    let after =
        patched(&config("3.1.0", &[plain(&[&unrelated]), other.clone(), plain(&[&old])]), &bundle);
    let entries = &after["ignition"]["security"]["tls"]["certificateAuthorities"];
    assert_eq!(entries[0], plain(&[&unrelated]));
    assert_eq!(entries[1], other);
    assert_eq!(understood(&entries[2]), bundle);
    // In one entry with this server's CAs, it stays too.
    let after = patched(&config("3.1.0", &[plain(&[&unrelated, &old])]), &bundle);
    let entries = &after["ignition"]["security"]["tls"]["certificateAuthorities"];
    assert_eq!(understood(&entries[0]), [new, old, unrelated.clone()]);

    let alone = assessed(&config("3.1.0", &[plain(&[&unrelated])]), &bundle);
    assert_eq!(alone, Assessment::LeftAlone(LeftAlone::Foreign));
}

/// Result for a CA in a pointer config, alone or with another one.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    /// The bundle replaces it.
    Replaced,
    /// The CA stays next to the bundle, which replaces this server's CAs.
    Kept,
    /// The whole text stays.
    LeftAlone(LeftAlone),
}

#[test]
fn a_ca_is_ours_by_its_certificate_or_its_key_and_never_by_its_name() {
    let key = || KeyAlgorithm::P256.generate().unwrap();
    let (own_key, old_key) = (key(), key());
    let own = issue_ca(&own_key, VALIDITY, NOW).unwrap();
    let old = named("root-ca", &old_key);
    let renewed = named("root-ca", &old_key);
    let renamed = named("corporate CA", &old_key);
    let cross = cross_sign(&own, Signer { certificate: &old, key: &old_key }, NOW);
    let cross = cross.unwrap();
    let name = LeftAlone::NameOnly;
    let none: &[Certificate] = &[];
    let known = std::slice::from_ref(&old);
    let ours = |certificate| (certificate, Fate::Replaced, Fate::Replaced);
    let other = |certificate, alone| (certificate, Fate::LeftAlone(alone), Fate::Kept);
    // Known CAs next to the bundle, the CA, and its fate alone and together with this server's.
    let cases = [
        ("the old root-ca", known, ours(old.clone())),
        ("the same, renewed", known, ours(renewed.clone())),
        ("its key under another name", known, ours(renamed)),
        ("a cross-certificate", none, ours(cross)),
        ("the old root-ca, not known any more", none, other(old.clone(), name)),
        ("a corporate root-ca", known, other(named("root-ca", &key()), name)),
        (
            "an authority of another cluster's server",
            known,
            other(named("ns_machine-config-server-ca@1700000000", &key()), name),
        ),
        ("its own server's", known, other(ca(50), name)),
        ("another", known, other(named("corporate CA", &key()), LeftAlone::Foreign)),
        (
            "a name that only begins alike",
            none,
            other(named("root-ca-2", &key()), LeftAlone::Foreign),
        ),
    ];
    let bundle = std::slice::from_ref(&own);
    for (case, known, (certificate, alone, beside)) in cases {
        let fate = |entries: &[Value]| {
            let text = config("3.1.0", entries).to_string();
            let text = match assess(text.as_bytes(), bundle, known) {
                Assessment::Stale(text) => text,
                Assessment::LeftAlone(reason) => return Fate::LeftAlone(reason),
                // It trusts the bundle and the other one.
                Assessment::Current => text.into_bytes(),
            };
            assert_eq!(assess(&text, bundle, known), Assessment::Current, "{case}: once is enough");
            let trusted = cas(&text);
            assert!(trusted.contains(&own), "{case}");
            if trusted.contains(&certificate) { Fate::Kept } else { Fate::Replaced }
        };
        assert_eq!(fate(&[plain(&[&certificate])]), alone, "{case}");
        for entries in [
            vec![plain(&[&certificate]), plain(&[&own])],
            vec![plain(&[&own]), plain(&[&certificate])],
            vec![plain(&[&own, &certificate])],
            vec![plain(&[&certificate, &own])],
        ] {
            assert_eq!(fate(&entries), beside, "{case}: {entries:?}");
        }
    }
}

#[test]
fn a_corporate_ca_of_an_old_name_stays_through_a_rotation() {
    let corporate = named("root-ca", &KeyAlgorithm::P256.generate().unwrap());
    let (old, new) = (ca(100), ca(0));
    for entries in [vec![plain(&[&corporate]), plain(&[&old])], vec![plain(&[&old, &corporate])]] {
        let text = config("3.1.0", &entries).to_string();
        let Assessment::Stale(text) =
            assess(text.as_bytes(), std::slice::from_ref(&new), std::slice::from_ref(&old))
        else {
            panic!("not stale")
        };
        let trusted = cas(&text);
        assert_eq!(trusted.len(), 2, "{trusted:?}");
        assert!(trusted.contains(&corporate) && trusted.contains(&new));
    }
}

#[test]
fn what_cannot_be_read_beside_ours_stays() {
    let (old, new) = (ca(100), ca(0));
    let unreadable = certificate_pem(b"a certificate of a kind that is yet to come");
    let source = |text: &str| json!({"source": format!("data:;base64,{}", BASE64.encode(text))});
    let before = source(&(unreadable.clone() + &old.to_pem()));
    let after = patched(&config("3.1.0", &[before]), &[new.clone(), old.clone()]);
    let entry = &after["ignition"]["security"]["tls"]["certificateAuthorities"][0];
    let pem = pem(&entry.to_string()).unwrap();
    assert_eq!(pem, (new.to_pem() + &old.to_pem() + &unreadable).into_bytes());
}

#[test]
fn every_byte_around_the_cas_stays() {
    let (old, new) = (ca(100), ca(0));
    let bundle = [new, old.clone()];
    let pem: String = bundle.iter().map(Certificate::to_pem).collect();
    let written = format!("{{\"source\":\"{}\"}}", ca_source(pem.as_bytes()));
    let own = plain(&[&old]).to_string();
    let spaced = own.replacen('{', "{ ", 1).replacen(':', " :\n", 1);
    let deep = format!("{}{}", "[".repeat(5_000), "]".repeat(5_000));
    // Text before and after the list.
    let around = [
        (r#"{"ignition":{"security":{"tls":{"certificateAuthorities":["#, "]}}}}"),
        (
            " \n{\"ignition\" : {\"security\":\t{\"tls\":{\"certificateAuthorities\": [\n",
            " ] }}}}\n\n",
        ),
        (
            r#"{"a":1e400,"b":12345678901234567890123,"c":1.10,"d":-0.0,"e":1E+2,"ignition":{"version":"3.1.0","timeouts":{"httpTotal":1.0},"security":{"x":1e-999,"tls":{"y":0.1000,"certificateAuthorities":["#,
            r#"],"z":9007199254740993}}},"a":2,"f":"\u0041\/\u2028","g":{"z":1,"a":2}}"#,
        ),
        (
            &format!(
                r#"{{"deep":{deep},"ignition":{{"security":{{"tls":{{"certificateAuthorities":["#
            ),
            &format!(r#"]}}}}}},"deeper":{{"a":{deep}}}}}"#),
        ),
    ];
    let unrelated = plain(&[&unrelated()]).to_string().replacen('{', r#"{"x":1.10, "#, 1);
    // The list before and after.
    let lists = [
        (own.clone(), written.clone()),
        (spaced.clone(), written.clone()),
        (format!("{own} , {spaced}"), written.clone()),
        (format!("{unrelated} ,\n{own}"), format!("{unrelated} ,\n{written}")),
        (format!("{own},{unrelated} ,{own}"), format!("{written},{unrelated}")),
        (format!("{own},{own} ,{unrelated}"), format!("{written} ,{unrelated}")),
        (format!("null,{own},1.10 , {own},{own} , []"), format!("null,{written},1.10 , []")),
        (
            own.replacen('{', r#"{"httpHeaders":[{"name":"a","value":1.10}],"#, 1),
            written.replacen('}', r#","httpHeaders":[{"name":"a","value":1.10}]}"#, 1),
        ),
    ];
    for (head, tail) in around {
        for (list, expected) in &lists {
            let text = format!("{head}{list}{tail}");
            let Assessment::Stale(patched) = assess(text.as_bytes(), &bundle, &[]) else {
                panic!("not stale: {text}")
            };
            let patched = String::from_utf8(patched).unwrap();
            assert_eq!(patched, format!("{head}{expected}{tail}"), "{text}");
            assert_eq!(assess(patched.as_bytes(), &bundle, &[]), Assessment::Current);
        }
    }
}

#[test]
fn numbers_that_no_machine_holds_hide_nothing() {
    let text = config("3.1.0", &[plain(&[&ca(0)])]).to_string();
    let text = text.replacen('{', "{\"x\": 1e400, ", 1);
    assert_eq!(hosts(text.as_bytes()), ["api-int.example.com".parse().unwrap()]);
    assert_eq!(cas(text.as_bytes()).len(), 1);
    assert_eq!(holders(text.as_bytes()).len(), 1);
    let config = PointerConfig::read(text.as_bytes());
    assert!(config.fetches_from("https://api-int.example.com:22623/config/worker"));
}

#[test]
fn what_unpacks_to_more_than_any_bundle_is_not_understood() {
    use std::io::Write as _;
    let own = ca(0);
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(own.to_pem().as_bytes()).unwrap();
    encoder.write_all(&vec![b'\n'; usize::try_from(MAX_CONTENTS).unwrap()]).unwrap();
    let source = format!("data:;base64,{}", BASE64.encode(encoder.finish().unwrap()));
    let entry = json!({"source": source, "compression": "gzip"});
    let left_alone = Assessment::LeftAlone(LeftAlone::Foreign);
    assert_eq!(assessed(&config("3.1.0", &[entry]), &[own]), left_alone);
}

#[test]
fn what_is_no_pointer_config_is_left_alone() {
    let bundle = [ca(0)];
    for text in ["", "#cloud-config\n", "<powershell>", "[]", "{", "1", r#"{"ignition": 1}"#] {
        let assessed = assess(text.as_bytes(), &bundle, &[]);
        assert_eq!(assessed, Assessment::LeftAlone(LeftAlone::NoIgnition), "{text:?}");
    }
    for config in [
        json!({"ignition": {"version": "3.1.0"}}),
        json!({"ignition": {"security": {"tls": {"certificateAuthorities": []}}}}),
        json!({"ignition": {"security": {"tls": {"certificateAuthorities": "x"}}}}),
    ] {
        assert_eq!(assessed(&config, &bundle), Assessment::LeftAlone(LeftAlone::NoCas));
    }
}

#[test]
fn the_hosts_are_those_of_the_configs_that_are_fetched() {
    let config = json!({"ignition": {"config": {
        "merge": [
            {"source": "https://api-int.example.com:22623/config/worker"},
            {"source": "https://[2001:db8::1]:22623/config/worker"},
            {"source": "https://example.com/other"},
            {"source": "data:,"},
        ],
        "replace": {"source": "http://192.0.2.1:22624/config/worker"},
    }}});
    let hosts: Vec<_> = hosts(config.to_string().as_bytes()).iter().map(Host::to_string).collect();
    assert_eq!(hosts, ["api-int.example.com", "[2001:db8::1]", "192.0.2.1"]);
}

#[test]
fn certificates_matter_to_those_that_fetch_over_tls_and_name_cas() {
    let ca = ca(0);
    let with = |source: &str, cas: &[Value]| {
        let mut config = config("3.1.0", cas);
        config["ignition"]["config"]["merge"][0]["source"] = source.into();
        holders(config.to_string().as_bytes())
    };
    let https = "https://api-int.example.com:22623/config/worker";
    let [found] = &with(https, &[plain(&[&ca])])[..] else { panic!("one fetch") };
    assert_eq!(found.name, "worker.ign");
    assert_eq!(found.trusted, std::slice::from_ref(&ca));
    assert_eq!(found.hosts, ["api-int.example.com".parse().unwrap()]);

    assert_eq!(with(https, &[]), [], "it trusts what its system does");
    let plain_http = "http://api-int.example.com:22624/config/worker";
    assert_eq!(with(plain_http, &[plain(&[&ca])]), []);
    assert_eq!(with("https://example.com/other", &[plain(&[&ca])]), []);
    assert_eq!(holders(b"#cloud-config"), []);
}

#[test]
fn what_is_larger_than_any_platform_takes_is_left_alone() {
    let (old, new) = (ca(100), ca(0));
    let text = config("3.2.0", &[plain(&[&old])]).to_string();
    let bundle = [new, old];
    let padded = |length: usize| format!("{text}{}", " ".repeat(length - text.len())).into_bytes();
    let largest = padded(MAX_BYTES);
    assert!(matches!(assess(&largest, &bundle, &[]), Assessment::Stale(_)));
    assert_eq!(holders(&largest).len(), 1);
    let larger = padded(MAX_BYTES + 1);
    let left = Assessment::LeftAlone(LeftAlone::TooLarge);
    assert_eq!(assess(&larger, &bundle, &[]), left);
    let config = PointerConfig::read(&larger);
    assert!(holders(&larger).is_empty() && !config.fetches_from("https://a") && !config.is_plain());
}

#[test]
fn names_are_read_in_any_case_as_ignition_does() {
    let (old, new) = (ca(100), ca(0));
    let text = config("3.2.0", &[gzipped(&old)]).to_string();
    let mixed = text
        .replace("certificateAuthorities", "CertificateAuthorities")
        .replace("compression", "COMPRESSION")
        .replace("\"source\"", "\"Source\"")
        .replace("merge", "Merge");
    assert_eq!(holders(mixed.as_bytes()), holders(text.as_bytes()));
    let bundle = [new, old];
    let Assessment::Stale(repaired) = assess(mixed.as_bytes(), &bundle, &[]) else {
        panic!("{mixed}")
    };
    assert_eq!(assess(&repaired, &bundle, &[]), Assessment::Current);
    // Properties of the old contents are removed, in any spelling of their names.
    assert!(!String::from_utf8(repaired).unwrap().contains("COMPRESSION"));
}

/// A config that boots is judged by the CAs that it fetches with, in any notation.
#[test]
fn what_ignition_reads_is_replaced_or_told_to_be_out_of_reach() {
    let (old, new) = (ca(100), ca(0));
    let bundle = [new.clone()];
    let known = [old.clone()];
    let text = config("3.1.0", &[plain(&[&old])]).to_string();
    let pem = |change: &dyn Fn(String) -> String| {
        let source = BASE64.encode(change(old.to_pem()));
        config("3.1.0", &[json!({"source": format!("data:;base64,{source}")})]).to_string()
    };
    let replaced = [
        pem(&|pem| pem.replace("CERTIFICATE", "X509 CERTIFICATE")),
        pem(&|pem| pem.replace("CERTIFICATE", "TRUSTED CERTIFICATE")),
        pem(&|pem| pem.replacen("-----\n", "-----\nSubject: x\n\n", 1)),
        text.replace("\"source\"", "\"\u{17f}ource\""),
    ];
    for text in replaced {
        let Assessment::Stale(repaired) = assess(text.as_bytes(), &bundle, &known) else {
            panic!("not stale: {text}")
        };
        assert_eq!(PointerConfig::read(&repaired).trusted(), bundle, "{text}");
        assert_eq!(holders(text.as_bytes())[0].trusted, known, "{text}");
    }
    let within = format!("data:;base64,{}", BASE64.encode(&text));
    let bare =
        json!({"ignition": {"version": "3.1.0", "config": {"merge": [{"source": &within}]}}});
    let mut replacing = config("3.1.0", &[plain(&[&old])]);
    replacing["ignition"]["config"] = json!({"replace": {"source": within}});
    let no_utf_8 = text.replacen('{', "{\"x\":\"@\",", 1);
    let no_utf_8: Vec<u8> =
        no_utf_8.bytes().map(|byte| if byte == b'@' { 0xff } else { byte }).collect();
    let out_of_reach = Assessment::LeftAlone(LeftAlone::OutOfReach);
    for text in
        [bare, replacing].map(|it| it.to_string().into_bytes()).into_iter().chain([no_utf_8])
    {
        assert_eq!(assess(&text, &bundle, &known), out_of_reach);
        let config = PointerConfig::read(&text);
        let pointer = config.trust("a", "a", config.assess(&bundle, &known));
        assert_eq!(pointer.state, PointerState::OutOfReach);
        assert_eq!(pointer.holders.len(), 1);
        assert_eq!(pointer.holders[0].trusted, known);
        assert_eq!(pointer.hosts, ["api-int.example.com".parse().unwrap()]);
        assert!(config.fetches_from("https://api-int.example.com:22623/config/worker"));
        let embedded = config.embedded_tokens("a", &bundle, &known, true);
        assert_eq!(embedded.len(), 1);
        assert_eq!(embedded[0].pool, "worker");
        assert!(matches!(
            embedded[0].credential,
            crate::access::rotation::FetchCredential::Cannot(_)
        ));
        // A config of another server is not reported.
        let unknown = assess(&text, &bundle, &[]);
        assert!(
            matches!(unknown, Assessment::LeftAlone(reason) if reason != LeftAlone::OutOfReach)
        );
    }
}

#[test]
fn labels_of_user_data_that_is_left_alone_stay_when_a_variant_gets_another_name() {
    let labels: Vec<_> = LeftAlone::ALL.iter().map(|reason| reason.label()).collect();
    let expected =
        ["no-ignition", "no-authorities", "foreign", "name-only", "out-of-reach", "too-large"];
    assert_eq!(labels, expected);
}
