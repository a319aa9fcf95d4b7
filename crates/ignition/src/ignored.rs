//! Fields of a config that Ignition ignores, found by the same tables that drop them.

use std::fmt;

use serde_json::Value;

use super::config::{declared, member};
use super::error::{Error, FieldPath};
use super::fields::{Shape, Spec, known};

/// A field without effect, or with another effect than its text suggests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ignored {
    /// The place, such as `storage.luks[0].cex`. It can contain names from the config: escape it before printing.
    pub path: String,
    /// Reason why the field is ignored or misread.
    pub reason: IgnoredReason,
}

/// Reasons why a field is ignored or misread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IgnoredReason {
    /// No spec has the field.
    UnknownField,
    /// The config's spec lacks the field; a newer one has it.
    NewerField {
        /// The config's spec, as (major, minor).
        declared: (u8, u8),
        /// First spec with the field, as (major, minor).
        since: (u8, u8),
    },
    /// Permissions look like octal digits, and are read as a decimal number.
    DecimalMode {
        /// The value as written, in decimal digits.
        mode: i64,
        /// The value of those digits as octal ones.
        meant: i64,
    },
    /// The unit is enabled, and systemd enables nothing for a unit without `[Install]`.
    NoInstallSection,
}

impl fmt::Display for Ignored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.path)?;
        match self.reason {
            IgnoredReason::UnknownField => f.write_str("unknown field, ignored"),
            IgnoredReason::NewerField { declared: (major, minor), since } => write!(
                f,
                "ignored: new in Ignition spec {}.{}.0, and the config is of {major}.{minor}.0",
                since.0, since.1
            ),
            IgnoredReason::DecimalMode { mode, meant } => {
                write!(f, "{mode} is {mode:04o} in octal; for {meant:04o} write {meant}")
            }
            IgnoredReason::NoInstallSection => {
                f.write_str("no effect: the unit has no [Install] section, such as WantedBy=multi-user.target in it")
            }
        }
    }
}

/// All fields of a config that Ignition ignores, in the order of the config, and then units that cannot be enabled.
///
/// # Errors
/// The config's spec is unknown.
pub fn ignored(config: &Value) -> Result<Vec<Ignored>, Error> {
    let (spec, shape) = declared(config)?;
    let mut found = Vec::new();
    look(config, shape, spec, &FieldPath::ROOT, &mut found);
    found.extend(not_enabled(config));
    Ok(found)
}

/// Units that are enabled, and have contents without an `[Install]` section, in the unit or a drop-in.
fn not_enabled(config: &Value) -> Vec<Ignored> {
    fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
        member(value, name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }
    fn contents(value: &Value) -> &str {
        member(value, "contents").and_then(Value::as_str).unwrap_or_default()
    }
    let units = member(config, "systemd").map_or(&[][..], |systemd| list(systemd, "units"));
    let fault = |(index, unit): (usize, &Value)| {
        // Spec 2 has both names.
        let mut names = ["enabled", "enable"].into_iter();
        let enabled = names.find(|name| member(unit, name) == Some(&Value::Bool(true)))?;
        let is_section = |line: &str| line.trim() == "[Install]";
        let mut texts = list(unit, "dropins").iter().chain([unit]).map(contents);
        // Without contents, the unit is the image's.
        if contents(unit).is_empty() || texts.any(|text| text.lines().any(is_section)) {
            return None;
        }
        let path = format!("systemd.units[{index}].{enabled}");
        Some(Ignored { path, reason: IgnoredReason::NoInstallSection })
    };
    units.iter().enumerate().filter_map(fault).collect()
}

fn look(value: &Value, shape: &Shape, spec: Spec, at: &FieldPath<'_>, found: &mut Vec<Ignored>) {
    match (shape, value) {
        (Shape::Object(fields), Value::Object(members)) => {
            // Null means absence.
            for (name, value) in members.iter().filter(|(_, value)| !value.is_null()) {
                let at = at.field(name);
                let reason = match known(fields, name) {
                    None => Some(IgnoredReason::UnknownField),
                    Some(field) if field.since > spec => {
                        Some(IgnoredReason::NewerField { declared: spec, since: field.since })
                    }
                    Some(field) => {
                        look(value, field.shape, spec, &at, found);
                        let mode = value.as_i64().filter(|_| field.name == "mode");
                        let is_directory = || at.to_string().starts_with("storage.directories[");
                        mode.and_then(|mode| decimal_mode(mode, is_directory()))
                    }
                };
                found.extend(reason.map(|reason| Ignored { path: at.to_string(), reason }));
            }
        }
        (Shape::List(item), Value::Array(values)) => {
            for (index, value) in values.iter().enumerate() {
                look(value, item, spec, &at.item(index), found);
            }
        }
        // Values of the wrong type are refused elsewhere.
        _ => {}
    }
}

/// Permissions that are unusual, and usual if their decimal digits are read as octal ones.
fn decimal_mode(mode: i64, is_directory: bool) -> Option<IgnoredReason> {
    let meant = i64::from_str_radix(&mode.to_string(), 8).ok()?;
    let is_meant = (0..=7777).contains(&mode)
        && !is_typical(mode, is_directory)
        && is_typical(meant, is_directory);
    is_meant.then_some(IgnoredReason::DecimalMode { mode, meant })
}

/// Returns `true` if permissions are usual, by the rule of Butane (`isTypicalMode` in `config/util/util.go`).
fn is_typical(mode: i64, is_directory: bool) -> bool {
    // Mode 0 is common: root ignores permissions.
    if mode == 0 {
        return true;
    }
    let mut others = 0;
    for class in [mode & 7, mode >> 3 & 7, mode >> 6 & 7] {
        let (reads, runs) = (class & 4 != 0, class & 1 != 0);
        let may_less = others & !class != 0;
        let others_only_read = runs && others & 5 == 4;
        if may_less || others_only_read || (class != 0 && !reads) {
            return false;
        }
        others |= class;
    }
    let [is_read, is_written, is_run] = [4, 2, 1].map(|bit| others & bit != 0);
    let [sets_user, sets_group, is_sticky] = [0o4000, 0o2000, 0o1000].map(|bit| mode & bit != 0);
    is_read
        && if is_directory {
            is_run && !sets_user && (is_written || !(sets_group || is_sticky))
        } else {
            let is_open = mode & 2 != 0;
            !is_sticky && (!(sets_user || sets_group) || (is_run && !is_open))
        }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn lines(config: &Value) -> Vec<String> {
        ignored(config).unwrap().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn unknown_and_newer_fields_and_decimal_modes_are_named_with_their_places() {
        let config = json!({
            "ignition": {"version": "3.2.0", "novelty": {"a": 1}, "proxy": null, "nothing": null},
            "kernelArguments": {"shouldExist": ["a"]},
            "storage": {
                "files": [
                    {"path": "/a", "mode": 420},
                    {"path": "/b", "mode": 644, "content": {"source": "data:,"}},
                    {"PATH": "/c", "contents": {"compresion": "gzip"}},
                ],
                "luks": [{"name": "l", "device": "/l", "cex": {"enabled": true}}],
            },
        });
        assert_eq!(
            lines(&config),
            [
                "ignition.novelty: unknown field, ignored",
                "kernelArguments: ignored: new in Ignition spec 3.3.0, and the config is of 3.2.0",
                "storage.files[1].mode: 644 is 1204 in octal; for 0644 write 420",
                "storage.files[1].content: unknown field, ignored",
                "storage.files[2].contents.compresion: unknown field, ignored",
                "storage.luks[0].cex: ignored: new in Ignition spec 3.5.0, and the config is of 3.2.0",
            ]
        );
        let config = json!({
            "ignition": {"version": "2.1.0"},
            "storage": {"files": [{"filesystem": "root", "path": "/a", "append": true, "mode": 755}]},
        });
        assert_eq!(
            lines(&config),
            [
                "storage.files[0].append: ignored: new in Ignition spec 2.2.0, and the config is of 2.1.0",
                "storage.files[0].mode: 755 is 1363 in octal; for 0755 write 493",
            ]
        );
    }

    #[test]
    fn a_unit_that_cannot_be_enabled_is_named() {
        let install = "[Unit]\n[Install]\nWantedBy=multi-user.target\n";
        let bare = "[Service]\nExecStart=/bin/true\n# no [Install]\n";
        let units = json!([
            {"name": "a.service", "enabled": true, "contents": bare},
            {"name": "b.service", "enabled": true, "contents": install},
            {"name": "c.service", "enabled": true},
            {"name": "d.service", "enabled": false, "contents": bare},
            {"name": "e.service", "contents": bare},
            {"name": "f.service", "enabled": true, "contents": bare,
                "dropins": [{"name": "i.conf", "contents": install}]},
            {"name": "g.service", "enabled": true, "contents": bare,
                "dropins": [{"name": "i.conf", "contents": "[Service]"}]},
        ]);
        let expected = |index: u8, name: &str| {
            format!(
                "systemd.units[{index}].{name}: no effect: the unit has no [Install] section, such as \
                 WantedBy=multi-user.target in it"
            )
        };
        let config = json!({"ignition": {"version": "3.2.0"}, "systemd": {"units": units}});
        assert_eq!(lines(&config), [expected(0, "enabled"), expected(6, "enabled")]);
        let unit = json!({"name": "a.service", "enable": true, "contents": bare});
        let config = json!({"ignition": {"version": "2.2.0"}, "systemd": {"units": [unit]}});
        assert_eq!(lines(&config), [expected(0, "enable")]);
    }

    /// Modes that Butane's `isTypicalMode` accepts.
    #[test]
    fn modes_that_people_want_are_accepted_in_either_notation() {
        let files = [
            0o644, 0o755, 0o600, 0o700, 0o640, 0o750, 0o400, 0o440, 0o444, 0o555, 0o500, 0o550,
            0o664, 0o660, 0o666, 0o775, 0o770, 0o777, 0o4755, 0o2755, 0o2750,
        ];
        let directories =
            [0o755, 0o700, 0o750, 0o555, 0o500, 0o550, 0o775, 0o770, 0o777, 0o1777, 0o2750, 0o2775];
        for (is_directory, wanted) in [(false, &files[..]), (true, &directories)] {
            for &meant in wanted {
                assert_eq!(decimal_mode(meant, is_directory), None, "{meant:o}");
                let mode = format!("{meant:o}").parse().unwrap();
                let reason = Some(IgnoredReason::DecimalMode { mode, meant });
                assert_eq!(decimal_mode(mode, is_directory), reason, "{mode}");
            }
        }
        // Atypical by Butane in either notation.
        for mode in [0, 711, 710, 751, 701, 771, 511, 220, 200, 111, 1000, 7777, 8, 10_755, -644] {
            for is_directory in [false, true] {
                assert_eq!(decimal_mode(mode, is_directory), None, "{mode}");
            }
        }
        assert_eq!(decimal_mode(1777, false), None);
        assert_eq!(decimal_mode(4755, true), None);
        let config = |list: &str| json!({"ignition": {"version": "3.2.0"}, "storage": {list: [{"path": "/a", "mode": 1777}]}});
        assert_eq!(lines(&config("files")), Vec::<String>::new());
        assert_eq!(
            lines(&config("directories")),
            ["storage.directories[0].mode: 1777 is 3361 in octal; for 1777 write 1023"]
        );
    }

    #[test]
    fn what_is_ignored_is_what_reading_drops() {
        let config = json!({
            "ignition": {"version": "3.1.0", "x": 1},
            "storage": {"luks": [{"name": "a"}], "files": [{"path": "/a", "y": [1], "mode": 420}]},
        });
        let at = |path: &str| format!("/{}", path.replace(['.', '['], "/").replace(']', ""));
        let mut stripped = config.clone();
        for Ignored { path, .. } in ignored(&config).unwrap() {
            let pointer = at(&path);
            let (parent, name) = pointer.rsplit_once('/').unwrap();
            stripped.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(name).unwrap();
        }
        let shape = super::super::spec3::CONFIG;
        let read =
            super::super::normalise::normalise(config, shape, (3, 1), &FieldPath::ROOT).unwrap();
        assert_eq!(stripped, read);
    }

    #[test]
    fn what_is_no_config_is_refused() {
        assert!(ignored(&json!({})).is_err() && ignored(&json!([])).is_err());
    }
}
