//! Identity of a machine's object: what an approval is for.

use std::collections::BTreeMap;

use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use time::OffsetDateTime;
use time::serde::rfc3339;

use super::super::machine::{MachineState, MachineToken, RearmRequests};
use super::subject::Subject;
use crate::objects::FirstBootMachine;

/// One first boot of one object with one content: a hash of the object's UID where it has one, of its `spec`, and of its
/// token in one arming. It is compared, and otherwise means nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity(String);

impl Identity {
    /// The identity of an object in a directory.
    fn of(machine: &FirstBootMachine, token: &MachineToken) -> Self {
        let MachineToken { token, armed, .. } = token;
        let [annotation, command] = [&armed.annotation, &armed.command].map(Option::as_deref);
        let armed = [annotation.unwrap_or_default(), command.unwrap_or_default()];
        let armed = armed.map(str::as_bytes);
        Self::new(&[machine.content().bytes(), token.hash().bytes(), armed[0], armed[1]])
    }

    fn new(parts: &[&[u8]]) -> Self {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update(part.len().to_be_bytes());
            hash.update(part);
        }
        Self(HEXLOWER.encode(&hash.finalize()))
    }
}

/// The object of a machine that is approved, as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApprovedObject {
    /// It was not seen, or the machine is approved by its address and has none.
    Unknown,
    /// It was removed.
    Removed,
    /// It is about to get another token, or its token to be armed again.
    Changing,
    /// It is there.
    Present(Identity),
}

impl ApprovedObject {
    /// An object in a directory with its token, when `command` is the last request of a command to arm it.
    pub fn in_directory(
        machine: &FirstBootMachine,
        token: &MachineToken,
        command: Option<String>,
    ) -> Self {
        let requests = RearmRequests { annotation: machine.rearm().map(str::to_owned), command };
        if token.is_revoked() {
            Self::Removed
        } else if token.pool != machine.spec.pool || token.armed.lacks(&requests) {
            Self::Changing
        } else {
            Self::Present(Identity::of(machine, token))
        }
    }

    /// An object in a cluster; unknown before it has a token.
    pub fn in_cluster(machine: &FirstBootMachine, state: &MachineState) -> Self {
        let Some(status) = &state.status else { return Self::Unknown };
        let Some(token) = status.token else { return Self::Unknown };
        let is_asked = machine.rearm().is_some_and(|asked| status.rearm.as_deref() != Some(asked));
        if status.pool != machine.spec.pool || is_asked {
            return Self::Changing;
        }
        let (uid, armings) = (state.uid.as_bytes(), status.armings.to_be_bytes());
        let content = machine.content();
        Self::Present(Identity::new(&[content.bytes(), token.bytes(), uid, &armings]))
    }
}

/// An approval that is open, for the process that follows: its time, and what it is for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BoundApproval {
    /// Time at which it was given.
    #[serde(with = "rfc3339")]
    pub at: OffsetDateTime,
    /// The object that it was first seen with.
    pub identity: Identity,
}

/// Open approvals of machines with names.
pub type BoundApprovals = BTreeMap<Subject, BoundApproval>;

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use time::macros::datetime;

    use super::super::super::token::Token;
    use super::*;
    use crate::objects::Object;

    fn machine(spec: &Value) -> FirstBootMachine {
        let object = json!({
            "apiVersion": "machine-config-server.io/v1alpha1", "kind": "FirstBootMachine",
            "metadata": {"name": "rack-7"}, "spec": spec,
        });
        match Object::from_value(object) {
            Ok(Some(Object::FirstBootMachine(machine))) => FirstBootMachine::clone(&machine),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_change_of_content_token_or_arming_makes_another_identity() {
        let spec = json!({"pool": "worker", "addresses": ["192.0.2.7"]});
        let noon = datetime!(2026-11-25 12:00 UTC);
        let armed = |command: Option<&str>| RearmRequests {
            annotation: None,
            command: command.map(str::to_owned),
        };
        let token = |byte: u8, command| {
            MachineToken::new(Token::new([byte; 32]), "worker", armed(command), noon)
        };
        let first = Identity::of(&machine(&spec), &token(1, None));
        let reordered = json!({"addresses": ["192.0.2.7"], "pool": "worker"});
        assert_eq!(Identity::of(&machine(&reordered), &token(1, None)), first);
        let used = {
            let mut used = token(1, None);
            used.usage.spend();
            used
        };
        assert_eq!(Identity::of(&machine(&spec), &used), first);
        for (spec, token) in [
            (json!({"pool": "worker"}), token(1, None)),
            (spec.clone(), token(2, None)),
            (spec.clone(), token(1, Some("x"))),
        ] {
            assert_ne!(Identity::of(&machine(&spec), &token), first, "{spec} {token:?}");
        }
    }

    #[test]
    fn an_object_that_was_made_again_in_a_cluster_has_another_identity() {
        let machine = machine(&json!({"pool": "worker"}));
        let state = |uid: &str, armings: u64| {
            let status = json!({"pool": "worker", "tokenSHA256": Token::new([1; 32]).hash(), "armings": armings});
            MachineState::read(&json!({"metadata": {"uid": uid}, "status": status}).to_string())
                .unwrap()
        };
        let of = |uid, armings| ApprovedObject::in_cluster(&machine, &state(uid, armings));
        assert_eq!(of("u", 1), of("u", 1));
        assert_ne!(of("u", 1), of("v", 1));
        assert_ne!(of("u", 1), of("u", 2));
        let without = MachineState::read(r#"{"metadata": {"uid": "u"}}"#).unwrap();
        assert_eq!(ApprovedObject::in_cluster(&machine, &without), ApprovedObject::Unknown);
    }
}
