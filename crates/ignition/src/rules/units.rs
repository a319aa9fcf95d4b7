//! Systemd units and their drop-ins.
//!
//! Source: the specs' section `systemd.units`.

use super::super::error::FieldPath;
use super::super::spec3::Unit;
use super::super::unit_file;
use super::common::{Checked, all_unique};

/// Suffixes of unit names (systemd.unit(5)).
const KINDS: &[&str] = &[
    "service",
    "socket",
    "device",
    "mount",
    "automount",
    "swap",
    "target",
    "path",
    "timer",
    "snapshot",
    "slice",
    "scope",
];

pub(super) fn check(units: &[Unit], at: &FieldPath<'_>) -> Checked {
    for (i, unit) in units.iter().enumerate() {
        let at = at.item(i);
        check_unit(&unit.name, unit.contents.as_deref(), &at)?;
        let at = at.field("dropins");
        for (k, dropin) in unit.dropins.iter().enumerate() {
            check_dropin(&dropin.name, dropin.contents.as_deref(), &at.item(k))?;
        }
        all_unique(&unit.dropins, &at, |dropin| &dropin.name)?;
    }
    all_unique(units, at, |unit| &unit.name)
}

pub(super) fn check_unit(name: &str, contents: Option<&str>, at: &FieldPath<'_>) -> Checked {
    if !KINDS.contains(&suffix(name)) {
        return Err(at.field("name").invalid(format!("{name:?} does not end like a systemd unit")));
    }
    check_contents(contents, at)
}

pub(super) fn check_dropin(name: &str, contents: Option<&str>, at: &FieldPath<'_>) -> Checked {
    if suffix(name) != "conf" {
        return Err(at.field("name").invalid(format!("{name:?} does not end in .conf")));
    }
    check_contents(contents, at)
}

fn check_contents(contents: Option<&str>, at: &FieldPath<'_>) -> Checked {
    unit_file::check(contents.unwrap_or_default())
        .map_err(|reason| at.field("contents").invalid(reason.to_string()))
}

/// The part after the last dot of the last path segment.
fn suffix(name: &str) -> &str {
    let segment = name.rsplit('/').next().unwrap_or(name);
    segment.rsplit_once('.').map_or("", |(_, suffix)| suffix)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::verdict;

    #[test]
    fn units_and_dropins_are_named_after_their_kind_and_can_be_read() {
        for (unit, reason) in [
            (json!({"name": "a@b.service", "enabled": true}), "valid"),
            (json!({"name": ".mount"}), "valid"),
            (json!({"name": "a.service", "contents": "[Unit]\nA=b"}), "valid"),
            (json!({"name": "a"}), "systemd.units[0].name: \"a\" does not end like a systemd unit"),
            (
                json!({"name": "a.service/b"}),
                "systemd.units[0].name: \"a.service/b\" does not end like a systemd unit",
            ),
            (
                json!({"name": "a.service", "contents": "[Unit"}),
                "systemd.units[0].contents: a section name has no closing bracket",
            ),
            (
                json!({"name": "a.service", "dropins": [{"name": "b"}]}),
                "systemd.units[0].dropins[0].name: \"b\" does not end in .conf",
            ),
            (
                json!({"name": "a.service", "dropins": [{"name": "b.conf", "contents": "[A]\nb"}]}),
                "systemd.units[0].dropins[0].contents: a line in a section has no equals sign",
            ),
        ] {
            assert_eq!(verdict(0, "systemd", &json!({"units": [unit]})), reason);
        }
    }
}
