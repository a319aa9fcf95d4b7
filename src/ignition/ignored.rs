//! Fields of a config that Ignition ignores, found by the same tables that drop them.

use std::fmt;

use serde_json::Value;

use super::config::declared;
use super::error::{At, Error};
use super::fields::{self, Shape, Spec, known};

/// A field that has no effect, or another one than its text suggests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ignored {
    /// The place, such as `storage.luks[0].cex`. It may have names in it that others chose: escape it
    /// before it is printed.
    pub path: String,
    /// Why it has no effect, or another one.
    pub reason: IgnoredReason,
}

/// The reason that a field is ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IgnoredReason {
    /// No spec has the field.
    UnknownField,
    /// The config's spec does not have the field; a newer one does.
    NewerField {
        /// The config's spec, as (major, minor).
        declared: (u8, u8),
        /// The first spec with it.
        since: (u8, u8),
    },
    /// Permissions that were meant as octal digits, and are read as a decimal number.
    DecimalMode {
        /// As it is written, in decimal digits.
        mode: i64,
        /// What those digits are as octal ones.
        meant: i64,
    },
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
        }
    }
}

/// All fields of a config that Ignition ignores, in the order of the config.
///
/// # Errors
/// It is no config of a known spec.
pub fn ignored(config: &Value) -> Result<Vec<Ignored>, Error> {
    let spec = declared(config)?;
    let shape = if spec.0 == 2 { &fields::spec2::CONFIG } else { &fields::spec3::CONFIG };
    let mut found = Vec::new();
    look(config, shape, spec, &At::ROOT, &mut found);
    Ok(found)
}

fn look(value: &Value, shape: &Shape, spec: Spec, at: &At<'_>, found: &mut Vec<Ignored>) {
    match (shape, value) {
        (Shape::Object(fields), Value::Object(members)) => {
            // What is null says nothing.
            for (name, value) in members.iter().filter(|(_, value)| !value.is_null()) {
                let at = at.field(name);
                let reason = match known(fields, name) {
                    None => Some(IgnoredReason::UnknownField),
                    Some(field) if field.since > spec => {
                        Some(IgnoredReason::NewerField { declared: spec, since: field.since })
                    }
                    Some(field) => {
                        look(value, &field.shape, spec, &at, found);
                        let mode = value.as_i64().filter(|_| field.name == "mode");
                        mode.and_then(decimal_mode)
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
        // A value of another type is refused elsewhere.
        _ => {}
    }
}

/// Permissions that nobody wants, where their decimal digits as octal ones are some that people do.
fn decimal_mode(mode: i64) -> Option<IgnoredReason> {
    let meant = i64::from_str_radix(&mode.to_string(), 8).ok()?;
    let is_meant = !is_sensible(mode) && is_sensible(meant & 0o777);
    is_meant.then_some(IgnoredReason::DecimalMode { mode, meant })
}

/// Whether the owner may read, nobody may do more than who comes before, and nobody writes or runs what
/// they cannot read.
fn is_sensible(mode: i64) -> bool {
    let [owner, group, other] = [mode >> 6 & 7, mode >> 3 & 7, mode & 7];
    let is_class = |class: i64| class == 0 || class & 4 != 0;
    mode & !0o7777 == 0
        && owner & 4 != 0
        && group & !owner == 0
        && other & !group == 0
        && [owner, group, other].into_iter().all(is_class)
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
    fn modes_that_people_want_are_let_be_in_either_writing() {
        for mode in [
            0o644, 0o755, 0o600, 0o700, 0o640, 0o750, 0o400, 0o440, 0o444, 0o555, 0o500, 0o777,
            0o1777, 0o664, 0o660, 0,
        ] {
            assert_eq!(decimal_mode(mode), None, "{mode:o}");
        }
        for (mode, meant) in [
            (644, 0o644),
            (755, 0o755),
            (600, 0o600),
            (700, 0o700),
            (640, 0o640),
            (400, 0o400),
            (440, 0o440),
            (444, 0o444),
            (777, 0o777),
            (664, 0o664),
            (660, 0o660),
            (750, 0o750),
            (1777, 0o1777),
        ] {
            assert_eq!(
                decimal_mode(mode),
                Some(IgnoredReason::DecimalMode { mode, meant }),
                "{mode}"
            );
        }
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
        let shape = &fields::spec3::CONFIG;
        let read = super::super::normalise::normalise(config, shape, (3, 1), &At::ROOT).unwrap();
        assert_eq!(stripped, read);
    }

    #[test]
    fn what_is_no_config_is_refused() {
        assert!(ignored(&json!({})).is_err() && ignored(&json!([])).is_err());
    }
}
