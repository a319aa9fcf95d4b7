//! The object of a machine that is approved, as it is now.

use std::collections::BTreeMap;

use super::super::machine::{
    BoundApproval, DirectoryToken, Identity, MachineStatus, RearmRequests, TokenInUse as _,
    TokenStep,
};
use super::subject::Subject;
use crate::objects::FirstBootMachine;

/// The object of a machine that is approved, as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApprovedObject {
    /// It was not seen, or the machine is approved by its address and has none.
    Unknown,
    /// It was removed.
    Removed,
    /// It is about to get another token.
    Changing,
    /// It is there. If its token is about to be armed again, it is the one that is armed then.
    Present(Identity),
}

impl ApprovedObject {
    /// An object in a directory with its token, when `command` is the last request of a command to arm it.
    pub fn in_directory(
        machine: &FirstBootMachine,
        token: &DirectoryToken,
        command: Option<String>,
    ) -> Self {
        let requests = RearmRequests::of(machine, command);
        if token.is_revoked() {
            Self::Removed
        } else if token.pool != machine.spec.pool {
            Self::Changing
        } else {
            let armed = token.armed.clone().with(&requests);
            Self::Present(identity_in_directory(machine, token, &armed))
        }
    }

    /// An object in a cluster with its UID; unknown before it has a token.
    pub fn in_cluster(machine: &FirstBootMachine, uid: &str, status: &MachineStatus) -> Self {
        let Some(token) = status.token else { return Self::Unknown };
        let due = status.due(machine);
        if due == Some(TokenStep::Make) {
            return Self::Changing;
        }
        let is_due = due == Some(TokenStep::Arm);
        let armings = status.armings.saturating_add(is_due.into()).to_be_bytes();
        let content = machine.content();
        Self::Present(Identity::new(&[content.bytes(), token.bytes(), uid.as_bytes(), &armings]))
    }
}

fn identity_in_directory(
    machine: &FirstBootMachine,
    DirectoryToken { token, .. }: &DirectoryToken,
    armed: &RearmRequests,
) -> Identity {
    let [annotation, command] = [&armed.annotation, &armed.command].map(Option::as_deref);
    let armed = [annotation.unwrap_or_default(), command.unwrap_or_default()];
    let armed = armed.map(str::as_bytes);
    Identity::new(&[machine.content().bytes(), token.hash().bytes(), armed[0], armed[1]])
}

/// Open approvals of machines with names.
pub type BoundApprovals = BTreeMap<Subject, BoundApproval>;

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use time::macros::datetime;

    use super::super::super::token::Token;
    use super::*;
    use crate::objects::{Object, REARM_ANNOTATION};

    fn machine(spec: &Value) -> FirstBootMachine {
        asked(spec, &json!({}))
    }

    fn asked(spec: &Value, annotations: &Value) -> FirstBootMachine {
        let object = json!({
            "apiVersion": "machine-config-server.io/v1alpha1", "kind": "FirstBootMachine",
            "metadata": {"name": "rack-7", "annotations": annotations}, "spec": spec,
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
            DirectoryToken::new(Token::new([byte; 32]), "worker", armed(command), noon)
        };
        let of = |spec: &Value, token: &DirectoryToken, command: Option<&str>| {
            ApprovedObject::in_directory(&machine(spec), token, command.map(str::to_owned))
        };
        let first = of(&spec, &token(1, None), None);
        let reordered = json!({"addresses": ["192.0.2.7"], "pool": "worker"});
        assert_eq!(of(&reordered, &token(1, None), None), first);
        let used = {
            let mut used = token(1, None);
            used.usage.spend();
            used
        };
        assert_eq!(of(&spec, &used, None), first);
        for (spec, token) in [
            (json!({"pool": "worker"}), token(1, None)),
            (
                json!({"pool": "worker", "addresses": ["192.0.2.7"], "overlay": null}),
                token(1, None),
            ),
            (spec.clone(), token(2, None)),
            (spec.clone(), token(1, Some("x"))),
        ] {
            assert_ne!(of(&spec, &token, None), first, "{spec} {token:?}");
        }
        let requested = of(&spec, &token(1, None), Some("x"));
        assert_eq!(requested, of(&spec, &token(1, Some("x")), None), "as it will be armed");
    }

    #[test]
    fn an_object_that_was_made_again_in_a_cluster_has_another_identity() {
        let spec = json!({"pool": "worker"});
        let [machine, again] = [json!({}), json!({REARM_ANNOTATION: "x"})]
            .map(|annotations| asked(&spec, &annotations));
        let token = Some(Token::new([1; 32]).hash());
        let status = |armings| MachineStatus {
            pool: "worker".to_owned(),
            token,
            armings,
            ..Default::default()
        };
        let of = |uid, armings| ApprovedObject::in_cluster(&machine, uid, &status(armings));
        assert_eq!(of("u", 1), of("u", 1));
        assert_ne!(of("u", 1), of("v", 1));
        assert_ne!(of("u", 1), of("u", 2));
        let requested = ApprovedObject::in_cluster(&again, "u", &status(1));
        assert_eq!(requested, of("u", 2), "as it will be armed");
        let without = ApprovedObject::in_cluster(&machine, "u", &MachineStatus::default());
        assert_eq!(without, ApprovedObject::Unknown);
    }
}
