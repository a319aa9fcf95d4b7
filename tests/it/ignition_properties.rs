//! What holds for every Ignition config: a spec 3 config that is read and written in its own spec is unchanged, and
//! no input makes the module panic.

use ignition::{Config, SpecVersion, data_url, negotiate};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Map, Value, json};

/// An optional member of an object.
type Member = (&'static str, BoxedStrategy<Option<Value>>);

/// A member that may be missing.
fn maybe(name: &'static str, value: impl Strategy<Value = Value> + 'static) -> Member {
    (name, option::of(value).boxed())
}

/// A member that is always there.
fn always(name: &'static str, value: impl Strategy<Value = Value> + 'static) -> Member {
    (name, value.prop_map(Some).boxed())
}

/// An object of some of these members. An empty one is left out by the caller, as it says nothing.
fn object(members: Vec<Member>) -> BoxedStrategy<Value> {
    let (names, values): (Vec<_>, Vec<_>) = members.into_iter().unzip();
    values
        .prop_map(move |values| {
            let members = names.iter().zip(values);
            let members = members.filter_map(|(name, value)| Some(((*name).to_owned(), value?)));
            Value::Object(members.filter(|(_, value)| !is_empty(value)).collect::<Map<_, _>>())
        })
        .boxed()
}

fn is_empty(value: &Value) -> bool {
    value.as_object().is_some_and(Map::is_empty) || value.as_array().is_some_and(Vec::is_empty)
}

/// A list of up to three objects; `key` is set to something that no other has.
fn keyed(
    key: &'static str,
    prefix: &'static str,
    suffix: &'static str,
    item: BoxedStrategy<Value>,
) -> BoxedStrategy<Value> {
    vec(item, 0..4)
        .prop_map(move |items| {
            let keyed = items.into_iter().enumerate().map(|(i, mut item)| {
                item[key] = json!(format!("{prefix}{i}{suffix}"));
                item
            });
            keyed.collect()
        })
        .boxed()
}

fn text() -> impl Strategy<Value = Value> {
    "[a-zA-Z0-9 é]{0,12}".prop_map(Value::from)
}

fn texts() -> impl Strategy<Value = Value> {
    vec(text(), 0..3).prop_map(|mut texts| {
        texts.dedup();
        Value::from(texts)
    })
}

fn flag() -> impl Strategy<Value = Value> {
    any::<bool>().prop_map(Value::from)
}

fn number() -> impl Strategy<Value = Value> {
    any::<i32>().prop_map(Value::from)
}

/// A resource with a source; references could only be compressed since 3.1.
fn resource(spec: SpecVersion, reference: bool) -> BoxedStrategy<Value> {
    let mut schemes = vec![
        "http://h/",
        "https://u@h:1/",
        "tftp://h/",
        "s3://b/",
        "data:,",
        "data:text/plain;base64,Zm8=",
    ];
    if spec >= SpecVersion::V3_2 {
        schemes.push("gs://b/");
    }
    if spec >= SpecVersion::V3_4 {
        schemes.push("arn:aws:s3:::b/");
    }
    let mut hashes = vec![format!("sha512-{}", "0".repeat(128))];
    if spec >= SpecVersion::V3_1 {
        hashes.push(format!("sha256-{}", "f".repeat(64)));
    }
    let mut members = vec![
        always("source", select(schemes).prop_map(Value::from)),
        maybe("verification", select(hashes).prop_map(|hash| json!({"hash": hash}))),
    ];
    if !reference || spec >= SpecVersion::V3_1 {
        members.push(maybe("compression", select(vec!["", "gzip"]).prop_map(Value::from)));
    }
    if spec >= SpecVersion::V3_1 {
        members
            .push(maybe("httpHeaders", Just(json!([{"name": "a", "value": "b"}, {"name": "c"}]))));
    }
    let resource = object(members);
    resource
        .prop_map(|mut resource| {
            let takes_headers =
                resource["source"].as_str().is_some_and(|source| source.starts_with("http"));
            if let (false, Some(members)) = (takes_headers, resource.as_object_mut()) {
                members.shift_remove("httpHeaders");
            }
            resource
        })
        .boxed()
}

fn owner() -> impl Strategy<Value = Value> {
    prop_oneof![
        number().prop_map(|id| json!({"id": id})),
        text().prop_map(|name| json!({"name": name}))
    ]
}

fn node(mut members: Vec<Member>) -> BoxedStrategy<Value> {
    members.extend([maybe("user", owner()), maybe("group", owner())]);
    object(members)
}

fn storage(spec: SpecVersion) -> BoxedStrategy<Value> {
    let mode = || (0..=0o777).prop_map(Value::from);
    let file = node(vec![
        maybe("mode", mode()),
        maybe("overwrite", Just(json!(false))),
        maybe("contents", resource(spec, false)),
        maybe("append", vec(resource(spec, false), 1..3).prop_map(Value::from)),
    ]);
    let link = node(vec![maybe("hard", flag()), always("target", Just(json!("/target")))]);
    let directory = node(vec![maybe("mode", mode()), maybe("overwrite", flag())]);
    let mut partition = vec![
        maybe("sizeMiB", Just(json!(0))),
        maybe("startMiB", Just(json!(0))),
        maybe("guid", Just(json!("01234567-89ab-cdef-edcb-a98765432101"))),
        maybe("wipePartitionEntry", flag()),
    ];
    let mut filesystem = vec![
        always(
            "format",
            select(vec!["ext4", "btrfs", "xfs", "swap", "vfat"]).prop_map(Value::from),
        ),
        maybe("label", "[a-z]{1,11}".prop_map(Value::from)),
        maybe("options", texts()),
        maybe("uuid", text()),
        maybe("wipeFilesystem", flag()),
    ];
    if spec >= SpecVersion::V3_1 {
        filesystem.push(maybe("mountOptions", texts()));
    }
    if spec >= SpecVersion::V3_2 {
        partition.push(maybe("resize", flag()));
    }
    let disk = object(vec![
        maybe("wipeTable", flag()),
        maybe("partitions", keyed("label", "p", "", object(partition))),
    ]);
    let raid = object(vec![
        always("level", select(vec!["raid1", "5", "raid10"]).prop_map(Value::from)),
        always("devices", Just(json!(["/dev/a", "/dev/b"]))),
        maybe("spares", (0..3).prop_map(Value::from)),
        maybe("options", texts()),
    ]);
    let mut members = vec![
        always("files", keyed("path", "/file", "", file)),
        always("links", keyed("path", "/link", "", link)),
        always("directories", keyed("path", "/directory", "", directory)),
        always("disks", keyed("device", "/dev/disk", "", disk)),
        always("raid", keyed("name", "md", "", raid)),
        always("filesystems", keyed("device", "/dev/fs", "", object(filesystem))),
    ];
    if spec >= SpecVersion::V3_2 {
        members.push(always("luks", keyed("name", "luks", "", luks(spec))));
    }
    object(members)
}

fn luks(spec: SpecVersion) -> BoxedStrategy<Value> {
    let tang = object(vec![always("thumbprint", Just(json!("x")))]);
    let bound = object(vec![
        maybe("tang", keyed("url", "http://t", "", tang)),
        maybe("threshold", (0..3).prop_map(Value::from)),
        maybe("tpm2", flag()),
    ]);
    let pin = if spec >= SpecVersion::V3_6 { "pkcs11" } else { "sss" };
    let custom = flag().prop_map(
        move |network| json!({"custom": {"config": "{}", "needsNetwork": network, "pin": pin}}),
    );
    let mut members = vec![
        always("device", Just(json!("/dev/a"))),
        always("clevis", prop_oneof![bound, custom]),
        maybe("keyFile", resource(spec, false)),
        maybe("label", text()),
        maybe("options", texts()),
        maybe("uuid", text()),
        maybe("wipeVolume", flag()),
    ];
    if spec >= SpecVersion::V3_4 {
        members.extend([maybe("discard", flag()), maybe("openOptions", texts())]);
    }
    if spec >= SpecVersion::V3_5 {
        members.push(maybe("cex", Just(json!({"enabled": false}))));
    }
    object(members)
}

fn ignition(spec: SpecVersion) -> BoxedStrategy<Value> {
    let seconds = || (0..100).prop_map(Value::from);
    let reference = || resource(spec, true);
    let mut members = vec![
        always("version", Just(json!(spec.as_str()))),
        maybe(
            "config",
            object(vec![
                maybe("merge", reference().prop_map(|reference| json!([reference]))),
                maybe("replace", reference()),
            ]),
        ),
        maybe(
            "security",
            reference().prop_map(|ca| json!({"tls": {"certificateAuthorities": [ca]}})),
        ),
        maybe(
            "timeouts",
            object(vec![maybe("httpTotal", seconds()), maybe("httpResponseHeaders", seconds())]),
        ),
    ];
    if spec >= SpecVersion::V3_1 {
        members.push(maybe(
            "proxy",
            object(vec![maybe("httpProxy", Just(json!("http://p:1"))), maybe("noProxy", texts())]),
        ));
    }
    object(members)
}

fn passwd(spec: SpecVersion) -> BoxedStrategy<Value> {
    let mut user = vec![
        maybe("gecos", text()),
        maybe("groups", texts()),
        maybe("sshAuthorizedKeys", texts()),
        maybe("system", flag()),
        maybe("uid", number()),
    ];
    let mut group = vec![maybe("gid", number()), maybe("passwordHash", text())];
    if spec >= SpecVersion::V3_2 {
        user.push(maybe("shouldExist", flag()));
        group.push(maybe("shouldExist", flag()));
    }
    object(vec![
        always("users", keyed("name", "user", "", object(user))),
        always("groups", keyed("name", "group", "", object(group))),
    ])
}

fn systemd() -> BoxedStrategy<Value> {
    let contents = || select(vec!["", "[Unit]\nDescription=x\n", "# none"]).prop_map(Value::from);
    let dropin = object(vec![maybe("contents", contents())]);
    let unit = object(vec![
        maybe("contents", contents()),
        maybe("enabled", flag()),
        maybe("mask", flag()),
        maybe("dropins", keyed("name", "1", ".conf", dropin)),
    ]);
    object(vec![always("units", keyed("name", "unit", ".service", unit))])
}

/// A valid config of a spec 3, in the form in which it is written.
fn config(spec: SpecVersion) -> BoxedStrategy<Value> {
    let mut members = vec![
        always("ignition", ignition(spec)),
        maybe("passwd", passwd(spec)),
        maybe("storage", storage(spec)),
        maybe("systemd", systemd()),
    ];
    if spec >= SpecVersion::V3_3 {
        members.push(maybe("kernelArguments", object(vec![maybe("shouldExist", texts())])));
    }
    object(members)
}

fn spec_3() -> impl Strategy<Value = SpecVersion> {
    select(&SpecVersion::ALL[1..])
}

/// A config that only has what spec 2.2 can say, in the form of spec 2.2.
fn config_2() -> BoxedStrategy<Value> {
    let node = |members: Vec<Member>| {
        let mut all = members;
        all.push(always("filesystem", Just(json!("root"))));
        object(all)
    };
    let contents =
        select(vec!["data:,x", "http://h/"]).prop_map(|source| json!({"source": source}));
    let file = node(vec![
        always("contents", contents),
        always("overwrite", flag()),
        maybe("mode", (0..0o777).prop_map(Value::from)),
    ]);
    let directory = node(vec![maybe("mode", (0..0o777).prop_map(Value::from))]);
    let unit = object(vec![maybe("enabled", flag()), maybe("mask", Just(json!(true)))]);
    object(vec![
        always("ignition", Just(json!({"version": "2.2.0"}))),
        maybe(
            "storage",
            object(vec![
                always("files", keyed("path", "/file", "", file)),
                always("directories", keyed("path", "/directory", "", directory)),
            ]),
        ),
        maybe("systemd", object(vec![always("units", keyed("name", "unit", ".service", unit))])),
    ])
}

/// Any JSON at all.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        flag(),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        select(vec![
            "",
            "/",
            "/a/..",
            "data:",
            "data:;base64,=",
            "http://[",
            "arn:::::",
            "%",
            "sha512-",
            "[a",
            "a.service"
        ])
        .prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            vec(("[a-z]{1,4}", inner), 0..4).prop_map(|members| members.into_iter().collect()),
        ]
    })
}

/// Puts `value` where the `at`th leaf is.
fn replace_leaf(config: &mut Value, at: usize, value: Value) {
    fn leaves<'a>(value: &'a mut Value, found: &mut Vec<&'a mut Value>) {
        match value {
            Value::Object(members) => members.values_mut().for_each(|value| leaves(value, found)),
            Value::Array(items) => items.iter_mut().for_each(|value| leaves(value, found)),
            leaf => found.push(leaf),
        }
    }
    let mut found = Vec::new();
    leaves(config, &mut found);
    let at = at % found.len().max(1);
    if let Some(leaf) = found.into_iter().nth(at) {
        *leaf = value;
    }
}

/// Reads a config and says it in every spec, whatever comes of it.
fn exercise(text: &str) {
    if let Ok(mut config) = Config::parse(text) {
        config.set_file("/a", b"a");
        config.append_file("/b", text.as_bytes());
        for spec in SpecVersion::ALL {
            let _ = config.clone().lower(spec);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn a_spec_3_config_is_written_in_its_own_spec_as_it_was_read(config in spec_3().prop_flat_map(config)) {
        let spec = Config::parse(&config.to_string()).map_err(|error| TestCaseError::fail(format!("{error}\n{config:#}")))?;
        let declared = spec.declared();
        let written = spec.lower(declared).map_err(|error| TestCaseError::fail(format!("{error}\n{config:#}")))?;
        prop_assert_eq!(json!(written), config);
    }

    #[test]
    fn a_config_lifted_from_an_older_spec_can_be_written_in_it_again(
        config in spec_3().prop_flat_map(config),
        to in select(&SpecVersion::ALL[1..]),
    ) {
        let Ok(lowered) = Config::parse(&config.to_string()).unwrap().lower(to) else { return Ok(()) };
        let again = Config::parse(&json!(lowered).to_string()).unwrap().lower(to).unwrap();
        prop_assert_eq!(again, lowered);
    }

    #[test]
    fn a_lifted_spec_2_config_can_be_written_in_spec_2_again(mut config in config_2()) {
        let lowered = Config::parse(&config.to_string()).unwrap().lower(SpecVersion::V2_2).unwrap();
        // Files and units come out in reverse order, because the last definition of each wins.
        for list in ["/storage/files", "/systemd/units"] {
            if let Some(Value::Array(items)) = config.pointer_mut(list) {
                items.reverse();
            }
        }
        prop_assert_eq!(json!(lowered), config);
    }

    #[test]
    fn no_text_makes_reading_panic(text in any::<String>()) {
        exercise(&text);
        let _ = data_url::decode(&text);
        let _ = data_url::decode(&format!("data:{text}"));
        let _ = negotiate(Some(&text));
    }

    #[test]
    fn no_accept_header_makes_negotiation_panic(parts in vec(select(vec![
        "application/vnd.coreos.ignition+json", ";", ",", "version", "=", "q", "3.4.0", "0.5", "-", "+", ".", " ", "é", "*/*", "99999999999999999999",
    ]), 0..16)) {
        let _ = negotiate(Some(&parts.concat()));
    }

    #[test]
    fn no_json_makes_reading_panic(section in select(vec!["ignition", "passwd", "storage", "systemd", "kernelArguments"]), value in any_json()) {
        let mut config = json!({"ignition": {"version": "3.6.0"}});
        config[section] = value;
        exercise(&config.to_string());
    }

    #[test]
    fn no_changed_config_makes_reading_panic(
        mut config in prop_oneof![spec_3().prop_flat_map(config), config_2()],
        changes in vec((any::<usize>(), any_json()), 1..4),
    ) {
        for (at, value) in changes {
            replace_leaf(&mut config, at, value);
        }
        exercise(&config.to_string());
    }

    #[test]
    fn a_data_url_decodes_to_the_bytes_that_it_was_made_of(bytes in vec(any::<u8>(), 0..64)) {
        let url = data_url::encode(&bytes);
        prop_assert_eq!(data_url::check(&url), Ok(()));
        prop_assert_eq!(data_url::decode(&url), Ok(bytes));
    }

    #[test]
    fn what_checks_as_a_data_url_decodes(parts in vec(select(vec![
        "text/plain", ";", ",", "base64", "=", "\"", "\\", "%", "4", "Zm9v", "Zg==", "a", "/", "é", "\n", "#",
    ]), 0..8)) {
        let url = format!("data:{}", parts.concat());
        prop_assert_eq!(data_url::check(&url).is_ok(), data_url::decode(&url).is_ok());
    }
}
