use super::*;
use crate::pki::KeyAlgorithm;
use crate::pki::VALIDITY;
use crate::pki::issue::issue_authority;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use time::{Duration, OffsetDateTime};

const NOW: OffsetDateTime = time::macros::datetime!(2026-11-21 0:00 UTC);

fn authority(age: i64) -> Certificate {
    let key = KeyAlgorithm::P256.generate().unwrap();
    issue_authority(&key, VALIDITY, NOW - Duration::days(age)).unwrap()
}

/// One that has nothing to do with the machine config server.
fn stranger() -> Certificate {
    let key = KeyAlgorithm::P256.generate().unwrap();
    let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(rcgen::DnType::CommonName, "stranger");
    Certificate::from_der(params.self_signed(&key).unwrap().der()).unwrap()
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

fn config(version: &str, authorities: &[Value]) -> Value {
    json!({
        "ignition": {
            "version": version,
            "x-unknown": [1, {"a": null}],
            "config": {"merge": [{"source": "https://api-int.example.com:22623/config/worker"}]},
            "security": {"tls": {"certificateAuthorities": authorities}},
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
fn only_the_authorities_change_in_every_spec_and_encoding() {
    let (old, new) = (authority(100), authority(0));
    let bundle = [new.clone(), old.clone()];
    for version in ["2.2.0", "3.1.0", "3.6.0", "3.9.0-experimental"] {
        for entry in [plain(&[&old]), gzipped(&old)] {
            let before = config(version, &[entry]);
            let mut after = patched(&before, &bundle);
            let authorities = after.pointer_mut("/ignition/security/tls/certificateAuthorities");
            let authorities = authorities.unwrap().take();
            let mut rest = before.clone();
            *rest.pointer_mut("/ignition/security/tls/certificateAuthorities").unwrap() =
                Value::Null;
            assert_eq!(after, rest);
            assert_eq!(authorities.as_array().unwrap().len(), 1);
            assert_eq!(authorities[0].as_object().unwrap().len(), 1, "no stale hash is left");
            assert_eq!(certificates(&authorities[0]).unwrap(), bundle);
        }
    }
}

#[test]
fn what_means_the_same_is_left_as_it_is() {
    let (old, new) = (authority(100), authority(0));
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
fn strangers_stay_where_they_are() {
    let (old, new, stranger) = (authority(100), authority(0), stranger());
    let bundle = [new.clone()];
    let other = json!({"source": "https://example.com/ca.pem"});
    let after =
        patched(&config("3.1.0", &[plain(&[&stranger]), other.clone(), plain(&[&old])]), &bundle);
    let entries = &after["ignition"]["security"]["tls"]["certificateAuthorities"];
    assert_eq!(entries[0], plain(&[&stranger]));
    assert_eq!(entries[1], other);
    assert_eq!(certificates(&entries[2]).unwrap(), bundle);
    // In one text with ours, it stays too.
    let after = patched(&config("3.1.0", &[plain(&[&stranger, &old])]), &bundle);
    let entries = &after["ignition"]["security"]["tls"]["certificateAuthorities"];
    assert_eq!(certificates(&entries[0]).unwrap(), [new, stranger.clone()]);

    let alone = assessed(&config("3.1.0", &[plain(&[&stranger])]), &bundle);
    assert_eq!(alone, Assessment::LeftAlone(LeftAlone::Foreign));
}

#[test]
fn an_authority_without_a_name_of_ours_is_recognised_when_it_is_known() {
    let (known, new) = (stranger(), authority(0));
    let text = config("3.1.0", &[plain(&[&known])]).to_string();
    let Assessment::Stale(text) = assess(text.as_bytes(), std::slice::from_ref(&new), &[known])
    else {
        panic!("not stale")
    };
    assert_eq!(assess(&text, &[new], &[]), Assessment::Current);
}

#[test]
fn what_is_no_pointer_config_is_left_alone() {
    let bundle = [authority(0)];
    for text in ["", "#cloud-config\n", "<powershell>", "[]", "{", "1", r#"{"ignition": 1}"#] {
        let assessed = assess(text.as_bytes(), &bundle, &[]);
        assert_eq!(assessed, Assessment::LeftAlone(LeftAlone::NoIgnition), "{text:?}");
    }
    for config in [
        json!({"ignition": {"version": "3.1.0"}}),
        json!({"ignition": {"security": {"tls": {"certificateAuthorities": []}}}}),
        json!({"ignition": {"security": {"tls": {"certificateAuthorities": "x"}}}}),
    ] {
        assert_eq!(assessed(&config, &bundle), Assessment::LeftAlone(LeftAlone::NoAuthorities));
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
fn certificates_matter_to_those_that_fetch_over_tls_and_name_authorities() {
    let ca = authority(0);
    let with = |source: &str, authorities: &[Value]| {
        let mut config = config("3.1.0", authorities);
        config["ignition"]["config"]["merge"][0]["source"] = source.into();
        holder("worker.ign", config.to_string().as_bytes())
    };
    let https = "https://api-int.example.com:22623/config/worker";
    let found = with(https, &[plain(&[&ca])]).unwrap();
    assert_eq!(found.name, "worker.ign");
    assert_eq!(found.trusted, std::slice::from_ref(&ca));
    assert_eq!(found.hosts, ["api-int.example.com".parse().unwrap()]);

    assert_eq!(with(https, &[]), None, "it trusts what its system does");
    let plain_http = "http://api-int.example.com:22624/config/worker";
    assert_eq!(with(plain_http, &[plain(&[&ca])]), None);
    assert_eq!(with("https://example.com/other", &[plain(&[&ca])]), None);
    assert_eq!(holder("worker.ign", b"#cloud-config"), None);
}
