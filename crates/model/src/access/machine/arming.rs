//! Requests to arm tokens again, and the step that a token needs next.

use serde::{Deserialize, Serialize};

use crate::objects::FirstBootMachine;

/// Requests to arm a token: values that are compared and otherwise mean nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RearmRequests {
    /// Value of the object's annotation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub annotation: Option<String>,
    /// Value that the command has left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
}

impl RearmRequests {
    /// Requests for a machine's token: that of its object, and the last one of a command.
    pub fn of(machine: &FirstBootMachine, command: Option<String>) -> Self {
        Self { annotation: machine.rearm().map(str::to_owned), command }
    }

    /// Returns `true` if `requests` has a request that was not followed. A request that is withdrawn is none.
    fn lacks(&self, requests: &Self) -> bool {
        let is_new = |own: &Option<String>, new: &Option<String>| new.is_some() && own != new;
        is_new(&self.annotation, &requests.annotation) || is_new(&self.command, &requests.command)
    }

    /// These requests, with those that `requests` has.
    pub(in crate::access) fn with(self, requests: &Self) -> Self {
        Self {
            annotation: requests.annotation.clone().or(self.annotation),
            command: requests.command.clone().or(self.command),
        }
    }
}

/// The step after which a token opens the pool of its machine's object, as often as was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenStep {
    /// Make another token: there is none, or it opens another pool.
    Make,
    /// Arm the token again, without its use.
    Arm,
}

impl TokenStep {
    /// The step that is due for a machine of `pool` with these requests, if any is. `known` is the present token's pool, with
    /// the requests that it has followed; `None` without a token that can be used.
    pub fn due(
        known: Option<(&str, &RearmRequests)>,
        pool: &str,
        requests: &RearmRequests,
    ) -> Option<Self> {
        match known {
            Some((opened, followed)) if opened == pool => {
                followed.lacks(requests).then_some(Self::Arm)
            }
            _ => Some(Self::Make),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_made_where_none_can_be_used_and_armed_once_by_each_new_request() {
        let requests = |annotation: &str, command: &str| {
            let known = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
            RearmRequests { annotation: known(annotation), command: known(command) }
        };
        for (known, asked, step) in [
            (None, requests("", ""), Some(TokenStep::Make)),
            (None, requests("a", "1"), Some(TokenStep::Make)),
            (Some(("infra", requests("", ""))), requests("", ""), Some(TokenStep::Make)),
            (Some(("infra", requests("", ""))), requests("a", ""), Some(TokenStep::Make)),
            (Some(("worker", requests("", ""))), requests("", ""), None),
            (Some(("worker", requests("a", "1"))), requests("a", "1"), None),
            (Some(("worker", requests("a", "1"))), requests("", ""), None),
            (Some(("worker", requests("", ""))), requests("a", ""), Some(TokenStep::Arm)),
            (Some(("worker", requests("a", ""))), requests("b", ""), Some(TokenStep::Arm)),
            (Some(("worker", requests("a", "1"))), requests("a", "2"), Some(TokenStep::Arm)),
        ] {
            let present = known.as_ref().map(|(pool, followed)| (*pool, followed));
            assert_eq!(TokenStep::due(present, "worker", &asked), step, "{known:?} {asked:?}");
        }
    }
}
