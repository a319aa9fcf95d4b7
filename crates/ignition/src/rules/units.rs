//! Systemd units and their drop-ins.
//!
//! Source: the specs' section `systemd.units`.

use super::super::error::FieldPath;
use super::super::spec3::Unit;
use super::super::unit_file;
use super::common::{Checked, all_unique, each};

pub(super) fn check(units: &[Unit], at: &FieldPath<'_>) -> Checked {
    each(units, at, |unit, at| {
        check_unit(&unit.name, unit.contents.as_deref(), at)?;
        let at = at.field("dropins");
        each(&unit.dropins, &at, |dropin, at| {
            check_dropin(&dropin.name, dropin.contents.as_deref(), at)
        })?;
        all_unique(&unit.dropins, &at, |dropin| &dropin.name)
    })?;
    all_unique(units, at, |unit| &unit.name)
}

pub(super) fn check_unit(name: &str, contents: Option<&str>, at: &FieldPath<'_>) -> Checked {
    match suffix(name) {
        // systemd.unit(5)
        "service" | "socket" | "device" | "mount" | "automount" | "swap" | "target" | "path"
        | "timer" | "snapshot" | "slice" | "scope" => check_contents(contents, at),
        _ => Err(at.field("name").invalid(format!("{name:?} does not end like a systemd unit"))),
    }
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

    use super::super::tests::verdict;

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
