//! Label selectors of Kubernetes objects.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::machine_config::Labels;
use super::metadata::null_as_default;
use super::object_name::is_object_name;

/// Requirements for an object's labels, all of which must be met.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct LabelSelector {
    #[serde(deserialize_with = "null_as_default")]
    match_labels: BTreeMap<String, String>,
    #[serde(deserialize_with = "null_as_default")]
    match_expressions: Vec<Requirement>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct Requirement {
    #[serde(default, deserialize_with = "null_as_default")]
    key: String,
    #[serde(default, deserialize_with = "null_as_default")]
    operator: String,
    #[serde(default, deserialize_with = "null_as_default")]
    values: Vec<String>,
}

/// Reasons why a selector is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSelector {
    /// The selector has neither labels nor expressions.
    #[error("has no requirement")]
    Empty,
    /// The operator is unknown.
    #[error("operator {0:?} is not In, NotIn, Exists or DoesNotExist")]
    Operator(String),
    /// The expression of this label has an operator that needs values and lacks them, or takes none and has some.
    #[error("operator {1} of {0:?} {2}")]
    Values(String, String, &'static str),
    /// The label name is invalid.
    #[error("{0:?} is not a valid name of a label")]
    Key(String),
    /// The label value is invalid.
    #[error("{0:?} is not a valid value of a label")]
    Value(String),
}

impl LabelSelector {
    /// Selects objects with this label.
    pub fn of_label(key: &str, value: &str) -> Self {
        let match_labels = [(key.to_owned(), value.to_owned())].into();
        Self { match_labels, match_expressions: Vec::new() }
    }

    /// Checks that labels can satisfy the selector. An empty one is an error here: a pool of all MachineConfigs is a
    /// mistake.
    pub fn check(&self) -> Result<(), InvalidSelector> {
        if self.match_labels.is_empty() && self.match_expressions.is_empty() {
            return Err(InvalidSelector::Empty);
        }
        for (key, value) in &self.match_labels {
            check_label(key, [value])?;
        }
        for Requirement { key, operator, values } in &self.match_expressions {
            let takes_values = match operator.as_str() {
                "In" | "NotIn" => true,
                "Exists" | "DoesNotExist" => false,
                _ => return Err(InvalidSelector::Operator(operator.clone())),
            };
            if takes_values == values.is_empty() {
                let rule = if takes_values { "needs values" } else { "takes no values" };
                return Err(InvalidSelector::Values(key.clone(), operator.clone(), rule));
            }
            check_label(key, values)?;
        }
        Ok(())
    }

    /// Labels of which each selected object has at least one, `None` if there are no such labels.
    pub fn required_labels(&self) -> Option<Vec<(&str, &str)>> {
        if let Some((key, value)) = self.match_labels.first_key_value() {
            return Some(vec![(key, value)]);
        }
        let among = self.match_expressions.iter().find(|it| it.operator == "In")?;
        Some(among.values.iter().map(|value| (among.key.as_str(), value.as_str())).collect())
    }

    /// Returns `true` if an object with these labels is selected. [`Self::check`] must have accepted the selector.
    pub fn matches(&self, labels: Option<&Labels>) -> bool {
        let label = |key: &String| labels?.get(key)?.as_deref();
        let has_labels = self.match_labels.iter().all(|(key, value)| label(key) == Some(value));
        has_labels
            && self.match_expressions.iter().all(|Requirement { key, operator, values }| {
                let label = label(key);
                let is_among = label.is_some_and(|label| values.iter().any(|value| value == label));
                match operator.as_str() {
                    "In" => is_among,
                    "NotIn" => !is_among,
                    "Exists" => label.is_some(),
                    "DoesNotExist" => label.is_none(),
                    _ => false,
                }
            })
    }
}

fn check_label<'a>(
    key: &str,
    values: impl IntoIterator<Item = &'a String>,
) -> Result<(), InvalidSelector> {
    let (prefix, name) = key.split_once('/').unwrap_or(("a", key));
    if !is_object_name(prefix) || name.is_empty() || !is_label_value(name) {
        return Err(InvalidSelector::Key(key.to_owned()));
    }
    match values.into_iter().find(|value| !is_label_value(value)) {
        Some(value) => Err(InvalidSelector::Value(value.clone())),
        None => Ok(()),
    }
}

/// Returns `true` for a valid label value, by the Kubernetes page "Labels and Selectors": at most 63 letters, digits,
/// `-`, `_` and `.`, with a letter or digit at both ends.
fn is_label_value(text: &str) -> bool {
    let ends = [text.bytes().next(), text.bytes().next_back()];
    text.len() <= 63
        && ends.into_iter().flatten().all(|end| end.is_ascii_alphanumeric())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn selector(value: &Value) -> LabelSelector {
        serde_json::from_value(value.clone()).unwrap()
    }

    #[test]
    fn all_requirements_have_to_be_met() {
        let labels = [("role", "infra"), ("tier", "")];
        let labels: Labels =
            labels.map(|(key, value)| (key.to_owned(), Some(value.to_owned()))).into();
        let expression = |operator: &str, key: &str, values: Value| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
        for (requirements, is_met) in [
            (json!({"matchLabels": {"role": "infra"}}), true),
            (json!({"matchLabels": {"role": "infra", "tier": ""}, "matchExpressions": null}), true),
            (json!({"matchLabels": {"role": "infra", "other": "x"}}), false),
            (json!({"matchLabels": {"role": "worker"}}), false),
            (expression("In", "role", json!(["worker", "infra"])), true),
            (expression("In", "role", json!(["worker"])), false),
            (expression("In", "other", json!(["worker"])), false),
            (expression("NotIn", "role", json!(["worker"])), true),
            (expression("NotIn", "role", json!(["infra", "worker"])), false),
            (expression("NotIn", "other", json!(["infra"])), true),
            (expression("Exists", "tier", json!([])), true),
            (expression("Exists", "other", Value::Null), false),
            (expression("DoesNotExist", "other", json!([])), true),
            (expression("DoesNotExist", "tier", json!([])), false),
            (
                json!({"matchLabels": {"role": "infra"}, "matchExpressions": [{"key": "tier", "operator": "DoesNotExist"}]}),
                false,
            ),
        ] {
            let selector = selector(&requirements);
            assert_eq!(selector.check(), Ok(()), "{requirements}");
            assert_eq!(selector.matches(Some(&labels)), is_met, "{requirements}");
        }
    }

    #[test]
    fn what_no_labels_can_meet_is_refused() {
        for (requirements, message) in [
            (json!({}), "has no requirement"),
            (json!({"matchLabels": {}, "matchExpressions": []}), "has no requirement"),
            (
                json!({"matchExpressions": [{"key": "a", "operator": "in", "values": ["x"]}]}),
                "operator \"in\" is not In, NotIn, Exists or DoesNotExist",
            ),
            (
                json!({"matchExpressions": [{"key": "a", "operator": "In"}]}),
                "operator In of \"a\" needs values",
            ),
            (
                json!({"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["x"]}]}),
                "operator Exists of \"a\" takes no values",
            ),
            (json!({"matchLabels": {"": "a"}}), "\"\" is not a valid name of a label"),
            (json!({"matchLabels": {"a/b/c": "a"}}), "\"a/b/c\" is not a valid name of a label"),
            (json!({"matchLabels": {"A/b": "a"}}), "\"A/b\" is not a valid name of a label"),
            (json!({"matchLabels": {"a/b": "-"}}), "\"-\" is not a valid value of a label"),
            (
                json!({"matchLabels": {"a": "x".repeat(64)}}),
                &*format!("\"{}\" is not a valid value of a label", "x".repeat(64)),
            ),
        ] {
            let refused = selector(&requirements).check().unwrap_err();
            assert_eq!(refused.to_string(), message, "{requirements}");
        }
    }
}
