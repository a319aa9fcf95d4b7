use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::fields::{Field, Merge, Shape};
use super::*;

fn part(config: &Value) -> MergeInput {
    let mut config = config.clone();
    config["ignition"]["version"] =
        config["ignition"]["version"].as_str().unwrap_or("3.5.0").into();
    MergeInput::new(&Config::parse(&config.to_string()).unwrap()).unwrap()
}

fn lowered(merged: &Merged<'_>) -> Result<Value, Error> {
    let mut config = merged.config()?;
    config.check()?;
    let written = serde_json::from_str(&config.write()?)?;
    let spec = config.declared();
    assert_eq!(json!(config.lower(spec)?), written, "it is in that spec");
    Ok(written)
}

/// The section of merged configs that have only this section.
fn merged(section: &str, values: &[Value]) -> Value {
    let parts: Vec<_> = values.iter().map(|value| part(&json!({section: value}))).collect();
    let parts: Vec<_> = parts.iter().collect();
    lowered(&merge(&parts, SpecVersion::V3_5)).unwrap()[section].clone()
}

/// Finds every list below a field, with its place.
fn lists(place: &str, fields: &'static [Field], found: &mut Vec<(String, &'static Field)>) {
    for field in fields {
        let place = format!("{place}.{}", field.name);
        let item = match field.shape {
            Shape::List(item) => {
                found.push((place.clone(), field));
                item
            }
            shape => shape,
        };
        if let Shape::Object(fields) = item {
            lists(&place, fields, found);
        }
    }
}

#[test]
fn every_list_has_keys_that_its_items_have_or_is_appended() {
    let Shape::Object(fields) = spec3::CONFIG else { panic!() };
    let mut found = Vec::new();
    lists("", fields, &mut found);
    let mut appended = Vec::new();
    let mut sharing = Vec::new();
    for (place, field) in &found {
        let Shape::List(item) = field.shape else { panic!() };
        match (field.merge, item) {
            (Merge::Append, _) => appended.push(place.as_str()),
            (Merge::ByKey(names), Shape::Object(members)) => {
                assert!(!names.is_empty(), "{place}");
                let is_member = |name: &&str| members.iter().any(|member| member.name == *name);
                assert!(names.iter().all(is_member), "{place}");
            }
            (Merge::ByKey(names), Shape::Text) => assert!(names.is_empty(), "{place}"),
            _ => panic!("{place}"),
        }
        if field.shares_keys {
            sharing.push(place.as_str());
        }
    }
    assert_eq!(
        appended,
        [
            ".storage.files.append",
            ".storage.filesystems.mountOptions",
            ".storage.filesystems.options",
            ".storage.luks.options",
            ".storage.raid.options",
        ]
    );
    assert_eq!(
        sharing,
        [
            ".kernelArguments.shouldExist",
            ".kernelArguments.shouldNotExist",
            ".storage.directories",
            ".storage.files",
            ".storage.links",
        ]
    );
}

#[test]
fn members_replace_and_what_is_left_out_stays() {
    let files = |file: Value| json!({"files": [file]});
    assert_eq!(
        merged(
            "storage",
            &[
                files(json!({
                    "path": "/a", "mode": 420, "user": {"id": 1}, "group": {"id": 2},
                    "contents": {"source": "data:,1", "verification": {"hash": format!("sha256-{}", "0".repeat(64))}},
                })),
                files(json!({"path": "/a", "mode": 384, "user": {"id": 3}})),
                files(json!({"path": "/b", "mode": 0})),
            ]
        )["files"],
        json!([
            {
                "path": "/a", "mode": 384, "user": {"id": 3}, "group": {"id": 2},
                "contents": {"source": "data:,1", "verification": {"hash": format!("sha256-{}", "0".repeat(64))}},
            },
            {"path": "/b", "mode": 0},
        ])
    );
    assert_eq!(
        merged(
            "ignition",
            &[
                json!({"proxy": {"httpProxy": "http://a", "noProxy": ["x", "y"]}, "timeouts": {"httpTotal": 5}}),
                json!({"proxy": {"httpsProxy": "http://b", "noProxy": ["z", "y"]}, "timeouts": {"httpTotal": 0}}),
            ]
        ),
        json!({
            "version": "3.5.0",
            "proxy": {"httpProxy": "http://a", "httpsProxy": "http://b", "noProxy": ["x", "y", "z"]},
            "timeouts": {"httpTotal": 0},
        })
    );
}

#[test]
fn a_node_of_another_kind_takes_the_place_of_an_earlier_one() {
    assert_eq!(
        merged(
            "storage",
            &[
                json!({"files": [{"path": "/a", "mode": 420}, {"path": "/b"}], "directories": [{"path": "/d"}]}),
                json!({"links": [{"path": "/a", "target": "t"}, {"path": "/d", "target": "t"}]}),
                json!({"directories": [{"path": "/a", "mode": 448}]}),
            ]
        ),
        json!({
            "directories": [{"path": "/a", "mode": 448}],
            "files": [{"path": "/b"}],
            "links": [{"path": "/d", "target": "t"}],
        })
    );
    assert_eq!(
        merged(
            "kernelArguments",
            &[
                json!({"shouldExist": ["a", "b"], "shouldNotExist": ["c"]}),
                json!({"shouldNotExist": ["a"], "shouldExist": ["c"]}),
            ]
        ),
        json!({"shouldExist": ["b", "c"], "shouldNotExist": ["a"]})
    );
}

#[test]
fn lists_within_items_are_merged_by_their_own_keys_or_appended() {
    let disk =
        |partitions: Value| json!({"disks": [{"device": "/dev/a", "partitions": partitions}]});
    assert_eq!(
        merged(
            "storage",
            &[
                disk(
                    json!([{"number": 1, "label": "x", "sizeMiB": 1}, {"label": "y", "sizeMiB": 2}])
                ),
                disk(
                    json!([{"label": "y", "resize": true}, {"number": 1, "sizeMiB": 3}, {"number": 2}])
                ),
            ]
        ),
        disk(json!([
            {"number": 1, "label": "x", "sizeMiB": 3}, {"label": "y", "sizeMiB": 2, "resize": true}, {"number": 2},
        ]))
    );
    let luks = |more: Value| {
        let mut luks = json!({"name": "l", "device": "/dev/a"});
        luks.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"luks": [luks]})
    };
    assert_eq!(
        merged(
            "storage",
            &[
                luks(json!({"options": ["-a"], "openOptions": ["-x"]})),
                luks(json!({"options": ["-a"], "openOptions": ["-x", "-y"]})),
            ]
        ),
        luks(json!({"options": ["-a", "-a"], "openOptions": ["-x", "-y"]}))
    );
    let unit = |dropins: Value| json!({"units": [{"name": "a.service", "dropins": dropins}]});
    assert_eq!(
        merged(
            "systemd",
            &[
                unit(json!([{"name": "1.conf", "contents": "[A]"}, {"name": "2.conf"}])),
                unit(json!([{"name": "3.conf"}, {"name": "1.conf", "contents": "[B]"}])),
            ]
        ),
        unit(
            json!([{"name": "1.conf", "contents": "[B]"}, {"name": "2.conf"}, {"name": "3.conf"}])
        )
    );
}

#[test]
fn a_header_without_a_value_removes_an_earlier_one() {
    let contents = |headers: Value| json!({"files": [{"path": "/a", "contents": {"source": "http://h", "httpHeaders": headers}}]});
    assert_eq!(
        merged(
            "storage",
            &[
                contents(json!([{"name": "a", "value": "1"}, {"name": "b", "value": "2"}])),
                contents(
                    json!([{"name": "b"}, {"name": "a", "value": "3"}, {"name": "c", "value": "4"}])
                ),
            ]
        ),
        contents(json!([{"name": "a", "value": "3"}, {"name": "c", "value": "4"}]))
    );
}

#[test]
fn what_is_merged_is_in_the_newest_spec_of_them_and_special_bits_keep_their_meaning() {
    let directory = |version: &str, path: &str| {
        part(&json!({
            "ignition": {"version": version},
            "storage": {"directories": [{"path": path, "mode": 0o1777}]},
        }))
    };
    let (old, new) = (directory("3.4.0", "/old"), directory("3.6.0", "/new"));
    let spec_and_modes = |parts: &[&MergeInput]| {
        let config = lowered(&merge(parts, SpecVersion::V3_5)).unwrap();
        let modes = config["storage"]["directories"].as_array().unwrap();
        let modes: Vec<_> = modes.iter().map(|node| node["mode"].as_i64().unwrap()).collect();
        (config["ignition"]["version"].clone(), modes)
    };
    assert_eq!(spec_and_modes(&[&old]), (json!("3.5.0"), vec![0o1777]));
    assert_eq!(spec_and_modes(&[&old, &new]), (json!("3.6.0"), vec![0o777, 0o1777]));
}

#[test]
fn everything_knows_where_it_comes_from_and_what_it_covers() {
    let parts = [
        json!({
            "ignition": {"timeouts": {"httpTotal": 1}},
            "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["k"]}]},
            "storage": {"files": [{"path": "/a", "mode": 420, "contents": {"source": "data:,1"}}, {"path": "/l"}]},
            "systemd": {"units": [{"name": "u.service", "contents": "[Unit]"}]},
        }),
        json!({
            "storage": {"files": [{"path": "/a", "contents": {"source": "data:,2"}}], "links": [{"path": "/l", "target": "t"}]},
            "systemd": {"units": [{"name": "u.service", "dropins": [{"name": "d.conf", "contents": "[A]"}]}]},
        }),
        json!({
            "ignition": {"timeouts": {"httpTotal": 2}},
            "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["other"]}]},
            "systemd": {"units": [{"name": "u.service", "dropins": [{"name": "d.conf", "contents": "[B]"}]}]},
        }),
    ];
    let parts: Vec<_> = parts.iter().map(part).collect();
    let parts: Vec<_> = parts.iter().collect();
    let reported = merge(&parts, SpecVersion::V3_5).origins().into_iter().map(|origin| {
        let members = origin.members.iter().map(|it| format!("{} {}", it.name, it.config));
        let members: Vec<_> = members.collect();
        let covered: Vec<_> = origin.covered.iter().map(ToString::to_string).collect();
        format!(
            "{} {}: {} over [{}]",
            origin.place,
            origin.keys.join(" "),
            members.join(", "),
            covered.join(", ")
        )
    });
    let mut reported: Vec<_> = reported.collect();
    reported.sort();
    assert_eq!(
        reported,
        [
            "ignition.timeouts.httpTotal :  2 over [0]",
            "passwd.users core: name 2 over []",
            "passwd.users.sshAuthorizedKeys core k:  0 over []",
            "passwd.users.sshAuthorizedKeys core other:  2 over []",
            "storage.files /a: contents.source 1, mode 0 over [0]",
            "storage.links /l: target 1 over [0]",
            "systemd.units u.service: contents 0 over []",
            "systemd.units.dropins u.service d.conf: contents 2 over [1]",
        ]
    );
}

/// Configs with names in common; nodes of one name always have the same kind.
fn config() -> impl Strategy<Value = Value> {
    let name = prop::sample::select(vec!["a", "b", "c"]);
    let names = prop::collection::btree_set(name, 0..3);
    let number = prop::option::of(0..4_i64);
    (prop::collection::vec(names, 8), prop::collection::vec(number, 4)).prop_map(
        |(names, numbers)| {
            let mode = numbers[0].map(|mode| mode + 256);
            let each = |i: usize, item: &dyn Fn(&str) -> Value| {
                Value::Array(names[i].iter().map(|name| item(name)).collect())
            };
            json!({
                "ignition": {"version": "3.5.0", "timeouts": {"httpTotal": numbers[1]}},
                "kernelArguments": {"shouldExist": each(0, &|name| json!(name))},
                "passwd": {"users": each(1, &|name| json!({
                    "name": name, "uid": numbers[2], "sshAuthorizedKeys": each(2, &|key| json!(key)),
                }))},
                "storage": {
                    "files": each(3, &|name| json!({
                        "path": format!("/f/{name}"), "mode": mode, "append": [{"source": "data:,x"}],
                        "contents": {"source": numbers[3].map(|number| format!("data:,{number}"))},
                    })),
                    "directories": each(4, &|name| json!({"path": format!("/d/{name}"), "mode": mode})),
                    "links": each(5, &|name| json!({"path": format!("/l/{name}"), "target": format!("/{:?}", numbers[1])})),
                },
                "systemd": {"units": each(6, &|name| json!({
                    "name": format!("{name}.service"), "enabled": numbers[2].map(|number| number > 1),
                    "dropins": each(7, &|name| json!({"name": format!("{name}.conf"), "contents": format!("[{name}]")})),
                }))},
            })
        },
    )
}

proptest! {
    #[test]
    fn an_empty_config_changes_nothing(config in config()) {
        let (empty, config) = (part(&json!({})), part(&config));
        let alone = lowered(&merge(&[&config], SpecVersion::V3_5)).unwrap();
        for parts in [[&empty, &config], [&config, &empty]] {
            prop_assert_eq!(&lowered(&merge(&parts, SpecVersion::V3_5)).unwrap(), &alone);
        }
    }

    /// Configs in which no node changes its kind and no header is removed: these leave no trace for configs before
    /// them.
    #[test]
    fn it_does_not_matter_which_are_merged_first(configs in prop::collection::vec(config(), 3)) {
        let parts: Vec<_> = configs.iter().map(part).collect();
        let together = |parts: &[&MergeInput]| {
            MergeInput::new(&merge(parts, SpecVersion::V3_5).config().unwrap()).unwrap()
        };
        let [a, b, c] = &parts[..] else { panic!() };
        let all = together(&[a, b, c]);
        prop_assert_eq!(&together(&[&together(&[a, b]), c]), &all);
        prop_assert_eq!(&together(&[a, &together(&[b, c])]), &all);
    }

    #[test]
    fn what_is_merged_of_these_is_valid_and_every_config_left_something_or_is_covered(
        configs in prop::collection::vec(config(), 1..4),
    ) {
        let parts: Vec<_> = configs.iter().map(part).collect();
        let parts: Vec<_> = parts.iter().collect();
        let merged = merge(&parts, SpecVersion::V3_5);
        prop_assert!(lowered(&merged).is_ok());
        let origins = merged.origins();
        for (config, part) in parts.iter().enumerate() {
            let alone = merge(&[part], SpecVersion::V3_5).origins();
            for said in alone {
                let found = origins.iter().find(|it| it.place == said.place && it.keys == said.keys);
                let found = found.unwrap();
                let names_it_only = said.members.iter().all(|it| ["name", "path"].contains(&&*it.name));
                let stays = found.configs().contains(&config);
                prop_assert!(stays || names_it_only || found.covered.contains(&config));
            }
        }
    }
}
