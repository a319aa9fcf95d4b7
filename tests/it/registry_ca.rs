//! The merge of the registries' config maps: what it comes to, what it refuses, what it keeps.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use model::objects::{ConfigMap, ImageConfig};
use model::registry_ca::{
    ADMINISTRATOR_NAMESPACE, Administrators, Contents, MANAGED_NAMESPACE, MAX_BYTES, MERGED_MAP,
    MergePlan, OPERATOR_MAP, Reason, Refused, RegistryCaMaps, RegistryHost, Write, collect, plan,
    read,
};
use proptest::collection::btree_map;
use proptest::prelude::*;
use serde_json::{Value, json};

/// Certificates that are all different.
static PEM: LazyLock<Vec<String>> = LazyLock::new(|| {
    let certificate = |number| {
        let key = rcgen::KeyPair::generate().expect("a key");
        let params = rcgen::CertificateParams::new([format!("ca-{number}")]).expect("parameters");
        params.self_signed(&key).expect("a certificate").pem()
    };
    (0..6).map(certificate).collect()
});

fn pem(number: usize) -> &'static str {
    &PEM[number]
}

fn map(namespace: &str, name: &str, data: &Value, binary: &Value) -> ConfigMap {
    let object = json!({
        "metadata": {"namespace": namespace, "name": name}, "data": data, "binaryData": binary,
    });
    serde_json::from_value(object).expect("a config map")
}

fn administrators(data: &Value) -> ConfigMap {
    map(ADMINISTRATOR_NAMESPACE, "mine", data, &json!({}))
}

fn operators(data: &Value) -> ConfigMap {
    map(MANAGED_NAMESPACE, OPERATOR_MAP, data, &json!({}))
}

fn merged(data: &Value) -> ConfigMap {
    map(MANAGED_NAMESPACE, MERGED_MAP, data, &json!({}))
}

fn found<'a>(
    administrators: &'a ConfigMap,
    operators: Option<&'a ConfigMap>,
    merged: Option<&'a ConfigMap>,
) -> MergePlan {
    plan(RegistryCaMaps {
        administrators: Administrators::Found(administrators),
        operators,
        merged,
    })
}

fn cas(plan: &MergePlan) -> Vec<(&str, &str)> {
    let text = |pem| std::str::from_utf8(pem).expect("text");
    plan.cas.iter().map(|(host, pem)| (host.as_str(), text(pem))).collect()
}

/// The merged config map once the plan is applied.
fn applied(plan: &MergePlan, merged: Option<&ConfigMap>) -> ConfigMap {
    match (&plan.write, merged) {
        (Write::Nothing, Some(merged)) => merged.clone(),
        (Write::Create(Contents { data, binary_data }), None)
        | (Write::Update(Contents { data, binary_data }), Some(_)) => {
            let binary: BTreeMap<_, _> =
                binary_data.iter().map(|(key, value)| (key, BASE64.encode(value))).collect();
            map(MANAGED_NAMESPACE, MERGED_MAP, &json!(data), &json!(binary))
        }
        (write, _) => panic!("{write:?}"),
    }
}

fn refused(plan: &MergePlan) -> Vec<String> {
    plan.refused.iter().map(|refused| format!("{}: {refused}", refused.place)).collect()
}

#[test]
fn both_maps_are_merged_and_the_administrators_entry_wins() {
    let administrators = administrators(&json!({"a": pem(0), "B..5000": pem(1)}));
    let operators = operators(&json!({"b..5000": pem(2), "c": pem(3)}));
    let plan = found(&administrators, Some(&operators), None);
    assert_eq!(cas(&plan), [("B:5000", pem(1)), ("a", pem(0)), ("c", pem(3))]);
    assert_eq!(plan.refused, []);
    let Write::Create(Contents { data, binary_data }) = &plan.write else {
        panic!("{:?}", plan.write)
    };
    let keys: Vec<&str> = data.keys().map(String::as_str).collect();
    assert_eq!(keys, ["B..5000", "a", "c"]);
    assert!(binary_data.is_empty());
}

#[test]
fn values_are_handed_on_as_they_are_and_base64_is_unwrapped() {
    let several = format!("# the old one\r\n{}\n# the new one\n{}\n\n", pem(0), pem(1));
    let latin = [b"# Soci\xe9t\xe9\n", pem(2).as_bytes()].concat();
    let mut wrapped = BASE64.encode(pem(3));
    wrapped.insert(70, '\n');
    let administrators = map(
        ADMINISTRATOR_NAMESPACE,
        "mine",
        &json!({"several": several, "wrapped": wrapped}),
        &json!({"binary": BASE64.encode(pem(4)), "latin": BASE64.encode(&latin)}),
    );
    let plan = found(&administrators, None, None);
    assert_eq!(plan.refused, []);
    let value = |host| &plan.cas[&RegistryHost::parse(host).expect("a host")][..];
    assert_eq!(value("several"), several.as_bytes());
    assert_eq!(value("wrapped"), pem(3).as_bytes());
    assert_eq!(value("binary"), pem(4).as_bytes());
    assert_eq!(value("latin"), latin);
    let Write::Create(contents) = &plan.write else { panic!("{:?}", plan.write) };
    let binary: Vec<_> = contents.binary_data.iter().collect();
    assert_eq!(binary, [(&"latin".to_owned(), &Bytes::from(latin))]);
    assert_eq!(contents.data["binary"], pem(4));
}

#[test]
fn nothing_is_written_when_the_values_are_the_same() {
    let mine = administrators(&json!({"a": pem(0), "b..1": pem(1)}));
    let in_data = merged(&json!({"b..1": pem(1), "a": pem(0)}));
    assert_eq!(found(&mine, None, Some(&in_data)).write, Write::Nothing);
    let elsewhere = map(
        MANAGED_NAMESPACE,
        MERGED_MAP,
        &json!({"a": pem(0)}),
        &json!({"b..1": BASE64.encode(pem(1))}),
    );
    assert_eq!(found(&mine, None, Some(&elsewhere)).write, Write::Nothing);
    for other in [
        json!({"a": pem(0)}),
        json!({"a": pem(0), "b..1": pem(2)}),
        json!({"a": pem(0), "b..1": pem(1), "c": pem(2)}),
        json!({"a": pem(0), "b..1": BASE64.encode(pem(1))}),
    ] {
        let plan = found(&mine, None, Some(&merged(&other)));
        assert!(matches!(plan.write, Write::Update(_)), "{other}");
    }
}

#[test]
fn the_map_is_emptied_when_the_last_ca_goes() {
    let merged = merged(&json!({"a": pem(0)}));
    let nothing =
        RegistryCaMaps { administrators: Administrators::Unnamed, operators: None, merged: None };
    let plan_of = |merged| plan(RegistryCaMaps { merged, ..nothing });
    assert_eq!(plan_of(Some(&merged)).write, Write::Update(Contents::default()));
    assert_eq!(plan_of(None).write, Write::Create(Contents::default()));
}

#[test]
fn each_bad_entry_is_refused_by_name_and_all_others_go_on() {
    let administrators = administrators(&json!({
        "good": pem(0),
        "not-pem": "hello",
        "empty": "",
        "torn": &pem(1)[..pem(1).len() / 2],
        "key": "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
        "not-der": "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        "..": pem(1),
        "../etc": pem(1),
        "a/b": pem(1),
        "b..0": pem(1),
        "-": pem(2),
        "Twice": pem(3),
        "twice": pem(4),
        "port..05000": pem(3),
        "port..5000": pem(4),
    }));
    let plan = found(&administrators, None, None);
    assert_eq!(
        cas(&plan),
        [("-", pem(2)), ("good", pem(0)), ("port:5000", pem(4)), ("twice", pem(4))]
    );
    let reasons: BTreeMap<&str, &str> =
        plan.refused.iter().map(|r| (r.key.as_str(), r.reason.label())).collect();
    let expected = [
        ("not-pem", "NoCertificate"),
        ("empty", "NoCertificate"),
        ("torn", "NoCertificate"),
        ("key", "NoCertificate"),
        ("not-der", "NoCertificate"),
        ("..", "NoHost"),
        ("../etc", "NoHost"),
        ("a/b", "NoHost"),
        ("b..0", "NoHost"),
        ("Twice", "SameHost"),
        ("port..05000", "SameHost"),
    ];
    assert_eq!(reasons, expected.into());
    let lines = refused(&plan);
    assert!(lines.contains(
        &"ConfigMap openshift-config/mine: key \"Twice\" names the same registry as \"twice\", \
          which is used"
            .to_owned()
    ));
    assert!(lines.iter().all(|line| !line.contains('\n')), "{lines:?}");
}

#[test]
fn an_undecodable_certificate_beside_a_good_one_is_handed_on() {
    let torn = "-----BEGIN CERTIFICATE-----\n!!!!\n-----END CERTIFICATE-----\n";
    let both = format!("{torn}{}", pem(0));
    let plan = found(&administrators(&json!({"a": both})), None, None);
    assert_eq!(cas(&plan), [("a", both.as_str())]);
}

#[test]
fn an_undecodable_entry_keeps_the_last_good_one_and_a_removed_one_does_not() {
    let before = merged(&json!({"a": pem(0), "b": pem(1)}));
    let plan = found(&administrators(&json!({"a": "oops", "b": pem(1)})), None, Some(&before));
    assert_eq!(cas(&plan), [("a", pem(0)), ("b", pem(1))]);
    assert_eq!((plan.write, plan.refused.len()), (Write::Nothing, 1));
    let plan = found(&administrators(&json!({"b": pem(1)})), None, Some(&before));
    assert_eq!(cas(&plan), [("b", pem(1))]);
}

#[test]
fn a_missing_map_keeps_what_was_last_good_and_the_operators_changes_go_on() {
    let before = merged(&json!({"a": pem(0), "internal": pem(1), "bad": "x"}));
    let missing = |operators: Option<&ConfigMap>, merged: Option<&ConfigMap>| {
        plan(RegistryCaMaps { administrators: Administrators::Missing("mine"), operators, merged })
    };
    let theirs = operators(&json!({"internal": pem(1)}));
    let kept = missing(Some(&theirs), Some(&before));
    assert_eq!(cas(&kept), [("a", pem(0)), ("internal", pem(1))]);
    assert_eq!(kept.missing.as_deref(), Some("mine"));
    let newer = operators(&json!({"internal": pem(2)}));
    let renewed = missing(Some(&newer), Some(&before));
    assert_eq!(cas(&renewed), [("a", pem(0)), ("internal", pem(2))]);
    let gone = missing(None, Some(&before));
    assert_eq!(cas(&gone), [("a", pem(0)), ("internal", pem(1))]);
    assert_eq!(cas(&missing(None, None)), []);
    // No map is named any more.
    let dropped = plan(RegistryCaMaps {
        administrators: Administrators::Unnamed,
        operators: Some(&theirs),
        merged: Some(&before),
    });
    assert_eq!(cas(&dropped), [("internal", pem(1))]);
    assert_eq!(dropped.missing, None);
}

/// An entry of about so many bytes.
fn large(number: usize, bytes: usize) -> String {
    format!("{}{}", pem(number), "#".repeat(bytes - pem(number).len()))
}

#[test]
fn what_does_not_fit_is_refused_alone_and_no_registry_loses_its_ca() {
    let third = MAX_BYTES / 3 - 10;
    let mine = administrators(&json!({
        "a": large(0, third), "b": large(1, third), "c": large(2, third), "d": large(3, third),
        "little": pem(4),
    }));
    let internal = operators(&json!({"internal": pem(5)}));
    let hosts =
        |plan: &MergePlan| plan.cas.keys().map(|h| h.as_str().to_owned()).collect::<Vec<_>>();
    let first = found(&mine, Some(&internal), None);
    assert_eq!(hosts(&first), ["a", "b", "internal", "little"]);
    assert_eq!(
        refused(&first),
        ["c", "d"].map(|key| format!(
            "ConfigMap openshift-config/mine: key {key:?} does not fit: all entries together can have 1 MiB"
        ))
    );
    // What is there stays there, whatever its place in the order.
    let before = merged(&json!({"c": large(2, third), "d": large(3, third)}));
    let later = found(&mine, Some(&internal), Some(&before));
    assert_eq!(hosts(&later), ["c", "d", "internal", "little"]);
    // One that has grown too large stays as it was.
    let grown = administrators(&json!({"c": large(2, 3 * third), "d": large(3, third + 1)}));
    let plan = found(&grown, Some(&internal), Some(&before));
    assert_eq!(hosts(&plan), ["c", "d", "internal"]);
    let lengths: Vec<usize> = plan.cas.values().map(Bytes::len).collect();
    assert_eq!(lengths, [third, third + 1, pem(5).len()]);
}

#[test]
fn a_directory_follows_the_same_rules() {
    let image = |name: &str| -> ImageConfig {
        serde_json::from_value(json!({"spec": {"additionalTrustedCA": {"name": name}}}))
            .expect("an image config")
    };
    let mine = administrators(&json!({"a": pem(0), "a/b": pem(0)}));
    let theirs = operators(&json!({"a": pem(1), "b": pem(1)}));
    let before = merged(&json!({"stale": pem(2)}));
    let elsewhere = map("default", MERGED_MAP, &json!({"c": pem(3)}), &json!({}));
    let all = [&elsewhere, &before, &mine, &theirs];
    let before_that = read(&merged(&json!({"read-before": pem(3)}))).good;
    let hosts = |maps: &[&ConfigMap], image: Option<&ImageConfig>| {
        let (cas, problems) = collect(maps, image, &before_that);
        let hosts: Vec<String> = cas.keys().map(|h| h.as_str().to_owned()).collect();
        (hosts.join(" "), problems.len())
    };
    assert_eq!(hosts(&all, Some(&image("mine"))), ("a b".to_owned(), 1));
    assert_eq!(hosts(&all, None), ("a b".to_owned(), 0));
    assert_eq!(hosts(&[&before], None), ("stale".to_owned(), 0));
    assert_eq!(hosts(&[&before], Some(&image("mine"))), ("stale".to_owned(), 0));
    // What a server has read before is what was good last where no map says so.
    assert_eq!(hosts(&[], Some(&image("mine"))), ("read-before".to_owned(), 1));
    assert_eq!(hosts(&[&theirs], Some(&image("mine"))), ("a b read-before".to_owned(), 1));
    assert_eq!(hosts(&[], None), (String::new(), 0));
    assert_eq!(hosts(&[&elsewhere], None), (String::new(), 0));
}

/// Keys as people and programs write them, and any others.
fn keys() -> impl Strategy<Value = String> {
    prop_oneof![
        "[aAbB]",
        "[aA]\\.\\.0?[12]",
        "[a-zA-Z0-9._:/-]{0,12}",
        "(\\.\\./|/|\\.|[a-z]|\\.\\.|:|\\\\|\u{0}){0,8}",
        any::<String>(),
    ]
}

/// Values as bytes, which a failure prints on one line each.
fn values() -> impl Strategy<Value = Bytes> {
    prop_oneof![
        3 => (0..6_usize).prop_map(|number| pem(number).into()),
        1 => (0..6_usize).prop_map(|number| BASE64.encode(pem(number)).into()),
        1 => (0..6_usize, 300_000..600_000_usize).prop_map(|(n, bytes)| large(n, bytes).into()),
        1 => any::<Vec<u8>>().prop_map(Bytes::from),
        1 => any::<String>().prop_map(Bytes::from),
    ]
}

type Entries = BTreeMap<String, Bytes>;

fn entries() -> impl Strategy<Value = Entries> {
    btree_map(keys(), values(), 0..6)
}

/// A config map whose JSON has its keys in the one order or the other.
fn written(name: &str, entries: &Entries, backwards: bool) -> ConfigMap {
    let (mut data, mut binary) = (serde_json::Map::new(), serde_json::Map::new());
    let mut pairs: Vec<_> = entries.iter().collect();
    if backwards {
        pairs.reverse();
    }
    for (key, value) in pairs {
        match std::str::from_utf8(value) {
            Ok(text) => data.insert(key.clone(), text.into()),
            Err(_) => binary.insert(key.clone(), BASE64.encode(value).into()),
        };
    }
    map(MANAGED_NAMESPACE, name, &data.into(), &binary.into())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_merge_is_total_and_depends_on_nothing_but_its_inputs(
        mine in proptest::option::of(entries()),
        is_named in any::<bool>(),
        theirs in proptest::option::of(entries()),
        before in proptest::option::of(entries()),
    ) {
        let result = |backwards| {
            let map = |entries: &Option<Entries>, name: &str| {
                entries.as_ref().map(|entries| written(name, entries, backwards))
            };
            let (mine, theirs, before) =
                (map(&mine, "mine"), map(&theirs, OPERATOR_MAP), map(&before, MERGED_MAP));
            let administrators = match &mine {
                Some(map) => Administrators::Found(map),
                None if is_named => Administrators::Missing("mine"),
                None => Administrators::Unnamed,
            };
            let merged = before.as_ref();
            let first = plan(RegistryCaMaps { administrators, operators: theirs.as_ref(), merged });
            // What is planned is what is read back, and there is nothing left to do then.
            let after = applied(&first, merged);
            let again = plan(RegistryCaMaps {
                administrators, operators: theirs.as_ref(), merged: Some(&after),
            });
            (first, again, after)
        };
        let (first, again, after) = result(false);
        prop_assert_eq!(&result(true).0, &first);
        prop_assert_eq!(&again.write, &Write::Nothing);
        prop_assert_eq!(&again.cas, &first.cas);
        // What did not fit and was nowhere but in the merged map is gone after the first.
        let is_elsewhere = |r: &&Refused| !r.place.ends_with(MERGED_MAP);
        let refused: Vec<_> = first.refused.iter().filter(is_elsewhere).cloned().collect();
        prop_assert_eq!(&again.refused, &refused);
        let read = read(&after);
        prop_assert_eq!(&read.good, &first.cas);
        prop_assert_eq!(&read.refused, &vec![]);
        let total: usize = first.cas.values().map(Bytes::len).sum();
        prop_assert!(total <= MAX_BYTES);
        // Each entry is used or refused, or gives way to the administrator's.
        let keys = mine.iter().flat_map(BTreeMap::keys);
        for key in keys {
            let host = RegistryHost::parse(key).ok();
            // What does not fit is named as a ConfigMap has it.
            let name = host.as_ref().map_or_else(|| key.clone(), RegistryHost::config_map_key);
            let is_refused = |refused: &Refused| [key, &name].contains(&&refused.key);
            let is_used = host.is_some_and(|host| first.cas.contains_key(&host));
            prop_assert!(is_used || first.refused.iter().any(is_refused), "{:?}", key);
        }
        let too_large = |r: &Refused| r.reason == Reason::TooLarge;
        if !first.refused.iter().any(too_large) && !before.iter().flatten().any(|_| true) {
            prop_assert_eq!(first.missing.is_some(), mine.is_none() && is_named);
        }
    }

    #[test]
    fn no_key_names_a_path_outside_of_its_directory(key in keys()) {
        if let Ok(host) = RegistryHost::parse(&key) {
            let path = host.certs_d_path();
            let components: Vec<_> = Path::new(&path).components().collect();
            prop_assert_eq!(components.len(), 6, "{}", path);
            prop_assert!(Path::new(&path).starts_with("/etc/docker/certs.d"));
            prop_assert_eq!(Path::new(&path).file_name(), Some("ca.crt".as_ref()));
            let directory = Path::new(host.as_str());
            prop_assert_eq!(directory.file_name(), Some(directory.as_os_str()));
            prop_assert!(host.as_str().len() <= 255 && !host.as_str().starts_with('.'));
            let again = RegistryHost::parse(&host.config_map_key());
            prop_assert_eq!(again.as_ref(), Ok(&host));
        }
    }
}
