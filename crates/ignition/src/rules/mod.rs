//! The rules of the Ignition specs, which make a config valid.
//!
//! [`check`] has the rules of the newest spec and the narrower ones of each older spec; every rule is written once,
//! with the specs that it holds in. A config of an older spec must satisfy the newest rules too, because it is held in
//! the newest spec: the rules that specs 3.0 to 3.2 lack (a link needs a target, a merged config a source) only refuse
//! configs that cannot work.
//!
//! Ignition's warnings (unused keys, units without an `[Install]` section, partitions that will be overwritten) are not
//! checked: they do not keep a machine from booting.
//!
//! Sources: the pages "Configuration Specification v3.0.0" to "v3.6.0", and the reports of Ignition's validator.

mod common;
mod disks;
mod luks;
mod nodes;
pub(super) mod resource;
pub(super) mod spec2;
mod units;

use std::collections::HashSet;

use self::common::{Checked, all_unique, each, unique};
use super::error::FieldPath;
use super::fields::Spec;
use super::spec3::{Body, Passwd};

pub(super) use self::common::clean_path;

/// Checks that a config is valid in `spec`.
pub(super) fn check(body: &Body, spec: Spec) -> Checked {
    let at = FieldPath::ROOT;
    resource::check_ignition(&body.ignition, spec, &at.field("ignition"))?;
    check_kernel_arguments(body, &at.field("kernelArguments"))?;
    check_passwd(&body.passwd, &at.field("passwd"))?;
    let storage = at.field("storage");
    disks::check(&body.storage, spec, &storage)?;
    luks::check(&body.storage.luks, spec, &storage.field("luks"))?;
    nodes::check(&body.storage, &body.systemd, spec, &storage)?;
    units::check(&body.systemd.units, &at.field("systemd.units"))
}

fn check_kernel_arguments(body: &Body, at: &FieldPath<'_>) -> Checked {
    let arguments = &body.kernel_arguments;
    let mut seen = HashSet::new();
    unique(&mut seen, &arguments.should_exist, &at.field("shouldExist"), String::as_str)?;
    unique(&mut seen, &arguments.should_not_exist, &at.field("shouldNotExist"), String::as_str)
}

fn check_passwd(passwd: &Passwd, at: &FieldPath<'_>) -> Checked {
    all_unique(&passwd.groups, &at.field("groups"), |group| &group.name)?;
    let at = at.field("users");
    all_unique(&passwd.users, &at, |user| &user.name)?;
    each(&passwd.users, &at, |user, at| {
        all_unique(&user.groups, &at.field("groups"), String::as_str)?;
        all_unique(&user.ssh_authorized_keys, &at.field("sshAuthorizedKeys"), String::as_str)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::Config;

    /// Checks a config of spec 3.`minor` with one section: `valid`, or the reason for a refusal.
    pub(super) fn verdict(minor: u8, section: &str, value: &Value) -> String {
        let mut config = json!({"ignition": {"version": format!("3.{minor}.0")}});
        if section == "ignition" {
            let ignition = config["ignition"].as_object_mut().unwrap();
            ignition.extend(value.as_object().unwrap().clone());
        } else {
            config[section] = value.clone();
        }
        Config::parse(&config.to_string())
            .map_or_else(|error| error.to_string(), |_| "valid".into())
    }

    /// Checks a config of spec 2.2 likewise.
    pub(super) fn verdict_2(section: &str, value: &Value) -> String {
        let config = json!({"ignition": {"version": "2.2.0"}, section: value});
        Config::parse(&config.to_string())
            .map_or_else(|error| error.to_string(), |_| "valid".into())
    }

    #[test]
    fn names_and_keys_are_unique() {
        for (section, value, place) in [
            (
                "kernelArguments",
                json!({"shouldExist": ["a"], "shouldNotExist": ["a"]}),
                "kernelArguments.shouldNotExist[0]",
            ),
            ("passwd", json!({"users": [{"name": "a"}, {"name": "a"}]}), "passwd.users[1]"),
            ("passwd", json!({"users": [{"groups": ["a", "a"]}]}), "passwd.users[0].groups[1]"),
            (
                "passwd",
                json!({"users": [{"sshAuthorizedKeys": ["a", "a"]}]}),
                "passwd.users[0].sshAuthorizedKeys[1]",
            ),
            ("passwd", json!({"groups": [{}, {}]}), "passwd.groups[1]"),
            ("ignition", json!({"proxy": {"noProxy": ["a", "a"]}}), "ignition.proxy.noProxy[1]"),
            (
                "ignition",
                json!({"config": {"merge": [{"source": "data:,"}, {"source": "data:,"}]}}),
                "ignition.config.merge[1]",
            ),
            (
                "storage",
                json!({"files": [{"path": "/a"}], "links": [{"path": "/a", "target": "b"}]}),
                "storage.links[0]",
            ),
            (
                "storage",
                json!({"filesystems": [{"device": "/a"}, {"device": "/a"}]}),
                "storage.filesystems[1]",
            ),
            (
                "systemd",
                json!({"units": [{"name": "a.service"}, {"name": "a.service"}]}),
                "systemd.units[1]",
            ),
            (
                "systemd",
                json!({"units": [{"name": "a.service", "dropins": [{"name": "a.conf"}, {"name": "a.conf"}]}]}),
                "systemd.units[0].dropins[1]",
            ),
        ] {
            assert_eq!(verdict(6, section, &value), format!("{place}: appears twice"));
        }
    }

    #[test]
    fn an_unnamed_user_is_valid() {
        assert_eq!(verdict(6, "passwd", &json!({"users": [{}]})), "valid");
    }
}
