//! The indexes of the sample cluster and of the sample registry CAs claim what is there.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::Value;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::support::in_repository;
use crate::support::manifests::{self, Manifest};

#[test]
fn the_clusters_index_names_every_manifest_and_no_other() {
    let mut listed: Vec<[String; 3]> = index("ignition-fixtures")
        .into_iter()
        .map(|row| [row[0].clone(), row[1].clone(), row[2].clone()])
        .collect();
    listed.sort();
    let mut there: Vec<[String; 3]> = manifests::fixtures()
        .iter()
        .map(|m| [m.file.display().to_string(), m.kind().to_owned(), m.name().to_owned()])
        .collect();
    there.sort();
    assert_eq!(listed, there);

    let mut files: Vec<String> = manifests::files(&in_repository("ignition-fixtures"))
        .iter()
        .map(|file| file.display().to_string())
        .filter(|file| file != "README.md")
        .collect();
    files.retain(|file| !listed.iter().any(|[listed, ..]| listed == file));
    assert_eq!(files, [""; 0], "files that the index leaves out");
}

#[test]
fn the_machine_configs_are_of_the_spec_and_the_size_that_the_index_claims() {
    let manifests = manifests::fixtures();
    let rows = index("ignition-fixtures");
    let rows: Vec<_> = rows.iter().filter(|row| row[1] == "MachineConfig").collect();
    assert_eq!(rows.len(), 6);
    for row in rows {
        let (name, claim) = (&row[2], &row[3]);
        let config = &manifests::one(&manifests, "MachineConfig", name)["spec"]["config"];
        let version = config["ignition"]["version"].as_str().expect("a version");
        let spec = version.trim_end_matches(".0");
        assert!(claim.starts_with(&format!("spec {spec}")), "{name} is of spec {spec}: {claim}");
        for (what, place) in [
            ("file", "/storage/files"),
            ("link", "/storage/links"),
            ("directory", "/storage/directories"),
            ("unit", "/systemd/units"),
            ("user", "/passwd/users"),
            ("group", "/passwd/groups"),
        ] {
            let there = config.pointer(place).and_then(Value::as_array).map_or(0, Vec::len);
            assert_eq!(claimed(claim, what), there, "{what}s of {name}: {claim}");
        }
        let own_arguments = config.get("kernelArguments").is_some();
        assert_eq!(own_arguments, claim.contains("kernel arguments of Ignition's own"), "{name}");
    }
}

#[test]
fn the_pools_name_machine_configs_that_are_there() {
    let manifests = manifests::fixtures();
    for pool in ["master", "worker", "edge"] {
        let pool = manifests::one(&manifests, "MachineConfigPool", pool);
        for side in ["spec", "status"] {
            let name = pool[side]["configuration"]["name"].as_str().expect("a rendered config");
            manifests::one(&manifests, "MachineConfig", name);
        }
    }
    // One is merged.
    let rack = manifests::one(&manifests, "MachineConfigPool", "rack");
    assert_eq!((&rack["spec"]["configuration"], &rack["status"]), (&Value::Null, &Value::Null));
    // The index says which of the workers' two is served, and why.
    let worker = manifests::one(&manifests, "MachineConfigPool", "worker");
    assert_eq!(worker["status"]["updatedMachineCount"], 0);
    let served = worker["status"]["configuration"]["name"].as_str().expect("a name");
    assert_ne!(worker["spec"]["configuration"]["name"], served);
    let rows = index("ignition-fixtures");
    let row = rows.iter().find(|row| row[2] == served).expect("a row for the served one");
    assert!(row[3].contains("the one that is served"), "{row:?}");
}

#[test]
fn nothing_names_an_owner() {
    // Its UID would be made up, and a cluster removes what belongs to nobody.
    for manifest in manifests::fixtures() {
        let metadata = &manifest.document["metadata"];
        assert_eq!(metadata.get("ownerReferences"), None, "{}", metadata["name"]);
    }
}

#[test]
fn the_configs_hold_every_kind_of_file_link_and_unit() {
    let manifests = manifests::fixtures();
    let configs: Vec<&Value> = manifests
        .iter()
        .filter(|m| m.kind() == "MachineConfig")
        .map(|m| &m.document["spec"]["config"])
        .collect();
    let all = |place: &str| -> Vec<&Value> {
        let lists = configs.iter().filter_map(|config| config.pointer(place)?.as_array());
        lists.flatten().collect()
    };
    let files = all("/storage/files");
    let source = |file: &Value| file["contents"]["source"].as_str().map(str::to_owned);
    let kinds: [Kind<'_>; 9] = [
        ("percent-encoded", &|f| source(f).is_some_and(|s| s.contains('%'))),
        ("base64", &|f| source(f).is_some_and(|s| s.contains(";base64,"))),
        ("compressed", &|f| f["contents"]["compression"] == "gzip"),
        ("hashed", &|f| f["contents"]["verification"]["hash"].is_string()),
        ("empty", &|f| source(f).is_some_and(|s| s == "data:,")),
        ("without contents", &|f| f.get("contents").is_none() && f.get("append").is_none()),
        ("without a mode", &|f| f.get("mode").is_none()),
        ("owned by name", &|f| f["user"]["name"].is_string()),
        ("owned by number", &|f| f["user"]["id"].is_number()),
    ];
    for (kind, is) in kinds {
        assert!(files.iter().any(|file| is(file)), "no file is {kind}");
    }
    assert!(files.iter().any(|f| f["append"].is_array()), "nothing is appended in spec 3");
    assert!(files.iter().any(|f| f["append"] == true), "nothing is appended in spec 2");
    let links = all("/storage/links");
    assert!(links.iter().any(|link| link["hard"] == true), "no hard link");
    assert!(links.iter().any(|link| link["hard"] != true), "no soft link");
    let units = all("/systemd/units");
    let kinds: [Kind<'_>; 6] = [
        ("enabled", &|u| u["enabled"] == true),
        ("enabled by its name of old", &|u| u["enable"] == true),
        ("disabled", &|u| u["enabled"] == false),
        ("masked", &|u| u["mask"] == true),
        ("a template", &|u| u["name"].as_str().is_some_and(|name| name.contains("@."))),
        ("drop-ins alone", &|u| u["dropins"].is_array() && u.get("contents").is_none()),
    ];
    for (kind, is) in kinds {
        assert!(units.iter().any(|unit| is(unit)), "no unit is {kind}");
    }
}

#[test]
fn the_certificates_are_what_their_index_claims() {
    let rows = index("certs");
    let mut there: Vec<String> = manifests::files(&in_repository("certs"))
        .iter()
        .map(|file| file.display().to_string())
        .filter(|file| file.starts_with("registry-"))
        .collect();
    there.sort();
    let mut listed: Vec<String> = rows.iter().map(|row| row[0].clone()).collect();
    listed.sort();
    assert_eq!(listed, there);
    for row in &rows {
        let der = certificates(&fs::read(in_repository("certs").join(&row[0])).expect("a file"));
        let [der] = der.as_slice() else { panic!("{} has more than one", row[0]) };
        let (rest, certificate) = X509Certificate::from_der(der).expect("a certificate");
        assert!(rest.is_empty());
        let name = certificate.subject().iter_common_name().next().expect("a common name");
        assert_eq!(name.as_str().expect("text"), row[1]);
        assert!(certificate.is_ca(), "{} is no CA", row[0]);
        certificate.verify_signature(None).expect("a signature of its own");
        let key = certificate.public_key().algorithm.parameters.as_ref().expect("a curve");
        let curve = key.as_oid().expect("a named curve").to_id_string();
        assert_eq!(curve, "1.2.840.10045.3.1.7", "{} is not on P-256", row[0]);
        let validity = certificate.validity();
        let day = |time: x509_parser::time::ASN1Time| time.to_datetime().date().to_string();
        assert_eq!(
            [day(validity.not_before), day(validity.not_after)],
            ["2020-01-01", "2119-12-31"]
        );
    }
}

#[test]
fn the_config_map_holds_each_certificate_for_the_registry_that_the_index_names() {
    let mut listed: BTreeMap<String, Vec<Vec<u8>>> = BTreeMap::new();
    for row in index("certs") {
        let file = fs::read(in_repository("certs").join(&row[0])).expect("a certificate");
        listed.entry(row[2].clone()).or_default().extend(certificates(&file));
    }
    let manifests: Vec<Manifest> = manifests::fixtures();
    let name = "merged-trusted-image-registry-ca";
    let config_map = manifests::one(&manifests, "ConfigMap", name);
    assert_eq!(config_map["metadata"]["namespace"], "openshift-config-managed");
    let data = config_map["data"].as_object().expect("data");
    let there: BTreeMap<String, Vec<Vec<u8>>> = data
        .iter()
        .map(|(key, bundle)| {
            let bundle = bundle.as_str().expect("a bundle");
            (key.replace("..", ":"), certificates(bundle.as_bytes()))
        })
        .collect();
    assert_eq!(there, listed);
}

/// A kind's name, and whether an entry of a config is of it.
type Kind<'a> = (&'a str, &'a dyn Fn(&Value) -> bool);

/// The rows of the one table in a folder's README.md, without code marks.
fn index(directory: &str) -> Vec<Vec<String>> {
    let path = in_repository(directory).join("README.md");
    let text = fs::read_to_string(Path::new(&path)).expect("an index");
    let rows = text.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix('|'));
    // The first two are the heading and the line below it.
    let rows: Vec<Vec<String>> = rows
        .skip(2)
        .map(|row| row.split('|').map(|cell| cell.trim().replace('`', "")).collect())
        .collect();
    assert!(!rows.is_empty(), "no table in {}", path.display());
    rows
}

/// How many of something a claim such as `15 files, 1 directory` counts.
fn claimed(claim: &str, what: &str) -> usize {
    let plural = what.strip_suffix('y').map_or(format!("{what}s"), |stem| format!("{stem}ies"));
    let words: Vec<&str> = claim.split([' ', ',', ';', ':']).filter(|w| !w.is_empty()).collect();
    let counts = words.windows(2).filter(|pair| pair[1] == what || pair[1] == plural);
    counts.filter_map(|pair| pair[0].parse::<usize>().ok()).sum()
}

fn certificates(pem: &[u8]) -> Vec<Vec<u8>> {
    CertificateDer::pem_slice_iter(pem)
        .map(|certificate| certificate.expect("a certificate in PEM").to_vec())
        .collect()
}
