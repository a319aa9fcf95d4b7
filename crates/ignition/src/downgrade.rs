//! Converts a config in the newest spec to an older one.
//!
//! A field that the older spec lacks is refused by name, unless its value means the same as its absence: a machine must
//! not come up with less than its config specifies.

use serde_json::Value;

use super::error::{Error, FieldPath};
use super::fields::{Field, Idle, Shape};
use super::version::SpecVersion;

/// Removes idle fields that `to` lacks, and refuses the others.
pub(super) fn downgrade(
    value: &mut Value,
    shape: &Shape,
    to: SpecVersion,
    at: &FieldPath<'_>,
) -> Result<(), Error> {
    match (shape, value) {
        (Shape::Object(fields), Value::Object(members)) => {
            for field in *fields {
                let Some(value) = members.get_mut(field.name) else { continue };
                let at = at.field(field.name);
                if field.since <= to.number() {
                    downgrade(value, field.shape, to, &at)?;
                } else if field.is_idle(value) {
                    members.shift_remove(field.name);
                } else {
                    let needs = SpecVersion::holding(field.since);
                    return Err(Error::Unsupported { path: at.to_string(), needs, to });
                }
            }
            Ok(())
        }
        (Shape::List(item), Value::Array(values)) => {
            let mut items = values.iter_mut().enumerate();
            items.try_for_each(|(i, value)| downgrade(value, item, to, &at.item(i)))
        }
        _ => Ok(()),
    }
}

impl Field {
    fn is_idle(&self, value: &Value) -> bool {
        match self.idle {
            Idle::Never => false,
            Idle::True => *value == Value::Bool(true),
            Idle::False => *value == Value::Bool(false),
            Idle::Always => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::spec3;
    use super::*;

    fn downgraded(mut value: Value, to: SpecVersion) -> Result<Value, String> {
        downgrade(&mut value, spec3::CONFIG, to, &FieldPath::ROOT)
            .map_err(|error| error.to_string())?;
        Ok(value)
    }

    #[test]
    fn a_field_is_refused_below_the_spec_that_brought_it() {
        let resource = json!({"source": "data:,", "compression": "gzip"});
        let header = json!({"httpHeaders": [{"name": "a"}]});
        for (since, config) in [
            (SpecVersion::V3_1, json!({"ignition": {"proxy": {"httpProxy": "http://a"}}})),
            (SpecVersion::V3_1, json!({"ignition": {"config": {"merge": [resource]}}})),
            (SpecVersion::V3_1, json!({"ignition": {"config": {"replace": header}}})),
            (SpecVersion::V3_1, json!({"storage": {"files": [{"append": [header]}]}})),
            (SpecVersion::V3_1, json!({"storage": {"filesystems": [{"mountOptions": ["ro"]}]}})),
            (SpecVersion::V3_2, json!({"storage": {"luks": [{"name": "a"}]}})),
            (
                SpecVersion::V3_2,
                json!({"storage": {"disks": [{"partitions": [{"resize": true}]}]}}),
            ),
            (SpecVersion::V3_2, json!({"passwd": {"users": [{"shouldExist": false}]}})),
            (SpecVersion::V3_3, json!({"kernelArguments": {"shouldExist": ["a"]}})),
            (SpecVersion::V3_4, json!({"storage": {"luks": [{"discard": true}]}})),
            (SpecVersion::V3_4, json!({"storage": {"luks": [{"openOptions": ["a"]}]}})),
        ] {
            for to in SpecVersion::ALL.into_iter().skip(1) {
                let answer = downgraded(config.clone(), to);
                if to >= since {
                    assert_eq!(answer.as_ref(), Ok(&config), "{to}");
                } else {
                    let message = answer.unwrap_err();
                    assert!(
                        message.contains(&format!("cannot be expressed in spec {to}, it needs 3.")),
                        "{message}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_field_that_says_nothing_is_left_out() {
        let config = json!({
            "passwd": {"users": [{"name": "core", "shouldExist": true}]},
            "storage": {"disks": [{"partitions": [{"number": 1, "resize": false}]}]},
        });
        let left = json!({
            "passwd": {"users": [{"name": "core"}]},
            "storage": {"disks": [{"partitions": [{"number": 1}]}]},
        });
        assert_eq!(downgraded(config, SpecVersion::V3_1), Ok(left));
    }

    #[test]
    fn file_contents_may_be_compressed_in_every_spec() {
        let config = json!({"storage": {"files": [{"contents": {"compression": "gzip"}}]}});
        assert_eq!(downgraded(config.clone(), SpecVersion::V3_0), Ok(config));
    }
}
