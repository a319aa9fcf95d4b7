//! Conditions in the statuses of objects. The module does no I/O.
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// A condition of an object, by its type.
pub fn condition<'a>(object: &'a Value, type_: &str) -> Option<&'a Value> {
    let mut conditions = object["status"]["conditions"].as_array()?.iter();
    conditions.find(|condition| condition["type"] == type_)
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    pub type_: &'static str,
    pub is_true: bool,
    pub reason: &'static str,
    pub message: String,
}

/// The conditions of an object with this one, `None` if it is there already. The others stay; malformed conditions are
/// an error.
pub fn conditions_with(
    object: &Value,
    new_condition: &Condition,
    now: OffsetDateTime,
) -> Result<Option<Value>, String> {
    let Condition { type_, is_true, reason, message } = new_condition;
    let mut conditions = match &object["status"]["conditions"] {
        Value::Null => Vec::new(),
        Value::Array(conditions) => conditions.clone(),
        _ => return Err("status.conditions is not a list".to_owned()),
    };
    let status = if *is_true { "True" } else { "False" };
    let place = conditions.iter().position(|condition| condition["type"] == *type_);
    let before = place.map(|at| &conditions[at]);
    let is_same = before.is_some_and(|before| {
        before["status"] == status && before["reason"] == *reason && before["message"] == *message
    });
    if is_same {
        return Ok(None);
    }
    let since = before.filter(|before| before["status"] == status);
    let since = since.map_or_else(|| json!(time_text(now)), |it| it["lastTransitionTime"].clone());
    let new = json!({
        "type": type_, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": since,
    });
    match place {
        Some(at) => conditions[at] = new,
        None => conditions.push(new),
    }
    Ok(Some(Value::Array(conditions)))
}

/// A time in RFC 3339, in whole seconds.
pub fn time_text(time: OffsetDateTime) -> String {
    let whole = time.replace_nanosecond(0).unwrap_or(time);
    // Only a time after the year 9999 cannot be formatted.
    whole.format(&Rfc3339).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_takes_the_place_of_its_type_and_leaves_the_others() {
        let now = time::macros::datetime!(2026-01-02 03:04:05.678 UTC);
        let new_condition = |is_true, message: &str| Condition {
            type_: "Ready",
            is_true,
            reason: "R",
            message: message.to_owned(),
        };
        let other = json!({"type": "Approved", "status": "True", "more": 1});
        let object = json!({"status": {"conditions": [other]}});
        let first = conditions_with(&object, &new_condition(false, "m"), now).unwrap().unwrap();
        let ready = json!({
            "type": "Ready", "status": "False", "reason": "R", "message": "m",
            "lastTransitionTime": "2026-01-02T03:04:05Z",
        });
        assert_eq!(first, json!([other, ready]));
        let object = json!({"status": {"conditions": first}});
        assert_eq!(conditions_with(&object, &new_condition(false, "m"), now), Ok(None), "no write");
        let later = now + time::Duration::HOUR;
        let reported =
            conditions_with(&object, &new_condition(false, "n"), later).unwrap().unwrap();
        assert_eq!(reported[1]["message"], "n");
        assert_eq!(
            reported[1]["lastTransitionTime"], "2026-01-02T03:04:05Z",
            "its status is the same"
        );
        let ready = conditions_with(&object, &new_condition(true, "m"), later).unwrap().unwrap();
        assert_eq!(ready[1]["lastTransitionTime"], "2026-01-02T04:04:05Z");
        let broken = json!({"status": {"conditions": "x"}});
        assert!(conditions_with(&broken, &new_condition(true, "m"), now).is_err());
    }
}
