//! Decides the next write for a machine with a name. The module does no I/O.
//!
//! ```text
//!  object, Secret ─> next ─┬─ Token: the status gets the hash of a token, before any machine has it
//!  CAs, host, pools        ├─ Arm: the status loses its use
//!                          ├─ Secret: the pointer config
//!                          └─ Report: conditions, and the state for people
//! ```
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Secret;
use kubernetes::write::Malformed;
use model::access::Token;
use model::access::approval::{ApprovedObject, granted_at};
use model::access::machine::{BoundApproval, RecordedUse, TokenStep};
use model::objects::FirstBootMachine;
use model::pointer_config::{Assessment, PointerConfig};
use pki::{Certificate, Host};
use serde_json::{Value, json};
use time::OffsetDateTime;

use super::objects::{Machine, armed_status, secret_object};
use crate::certificates::{ClusterState, managed_pointer, user_data};
use crate::object_conditions::{Condition, conditions_with};

/// Inputs of the pointer configs of all machines.
#[derive(Clone, PartialEq)]
pub(super) struct PointerInputs {
    pub(super) trusted: Vec<Certificate>,
    /// CAs that were the server's before.
    pub(super) known: Vec<Certificate>,
    pub(super) host: Option<Host>,
    pub(super) pools: BTreeSet<String>,
}

impl PointerInputs {
    pub(super) fn of(cluster: &ClusterState) -> Result<Self, Malformed> {
        Ok(Self {
            trusted: cluster.trusted()?,
            known: cluster.known()?,
            host: cluster.pointer_host().cloned(),
            pools: cluster.pools.iter().map(|pool| pool.name.clone()).collect(),
        })
    }
}

pub(super) struct ObservedMachine<'a> {
    pub(super) machine: &'a Machine,
    pub(super) secret: Option<&'a Secret>,
    /// Token whose hash was written, and that no Secret has yet.
    pub(super) pending: Option<&'a Token>,
    /// Reason why the API server refused the Secret.
    pub(super) refused: Option<&'a str>,
}

pub(super) enum Step {
    /// Write this token's hash, and keep the token until its Secret is written.
    Token(Token, Value),
    Arm(Value),
    /// Write the Secret with this pointer config.
    Secret(Vec<u8>),
    /// Write the conditions and the state, if they have changed.
    Report {
        status: Option<Value>,
        is_ready: bool,
        reason: String,
        until: Option<OffsetDateTime>,
    },
}

/// Reason and message of the condition of a machine that is not ready.
type Fault = (&'static str, String);

/// Decides the next write for a machine. `fresh` is a token that was not used before.
pub(super) fn next(
    seen: &ObservedMachine<'_>,
    shared: &PointerInputs,
    fresh: &Token,
    now: OffsetDateTime,
) -> Step {
    match due(seen, shared, fresh) {
        Ok(Some(step)) => step,
        settled => report(seen.machine, settled.map(drop), now),
    }
}

/// The write before the report, `None` if all are made.
fn due(
    seen: &ObservedMachine<'_>,
    shared: &PointerInputs,
    fresh: &Token,
) -> Result<Option<Step>, Fault> {
    let ObservedMachine { machine, secret, pending, refused } = seen;
    let object = expected(machine, *secret, shared)?;
    let (pool, status) = (object.spec.pool.as_str(), &machine.status);
    let expect_pool = || {
        if shared.pools.contains(pool) {
            Ok(())
        } else {
            Err(("PoolNotFound", format!("MachineConfigPool {pool} not found")))
        }
    };
    let embedded = secret.and_then(|secret| machine.token_in(secret, pool));
    let is_current = |token: &&Token| status.token == Some(token.hash());
    let current = embedded.as_ref().filter(is_current).or(pending.filter(is_current));
    let armed = |token: &Token| armed_status(machine, pool, token.hash(), object.rearm());
    let token = match (current, status.due(object)) {
        (Some(token), None) => token,
        (Some(token), Some(TokenStep::Arm)) => return Ok(Some(Step::Arm(armed(token)))),
        (None, _) | (_, Some(TokenStep::Make)) => {
            expect_pool()?;
            return Ok(Some(Step::Token(fresh.clone(), armed(fresh))));
        }
    };
    match (pointer(*secret, shared, (pool, token))?, refused) {
        (None, _) => expect_pool().map(|()| None),
        (Some(_), Some(refused)) => Err(("SecretNotWritten", (*refused).to_owned())),
        (Some(text), None) => Ok(Some(Step::Secret(text))),
    }
}

/// The machine of an object that can have a token.
fn expected<'a>(
    machine: &'a Machine,
    secret: Option<&Secret>,
    shared: &PointerInputs,
) -> Result<&'a FirstBootMachine, Fault> {
    let name = &machine.name;
    let object = machine.read.as_ref().map_err(|reason| ("Invalid", reason.clone()))?;
    if shared.pools.contains(name) {
        let reason =
            format!("MachineConfigPool {name} has this name: user data of both would be alike");
        return Err(("NameTaken", reason));
    }
    if secret.is_some_and(|secret| machine.owner_of(secret).is_none()) {
        let secret = secret_object(name);
        return Err(("NameTaken", format!("{secret} exists and was not made for this machine")));
    }
    Ok(object)
}

/// The text of the pointer config, if the Secret has another one.
fn pointer(
    secret: Option<&Secret>,
    shared: &PointerInputs,
    (pool, token): (&str, &Token),
) -> Result<Option<Vec<u8>>, Fault> {
    let PointerInputs { trusted, known, host, .. } = shared;
    if trusted.is_empty() {
        return Err(("NoCertificates", "the server has no CA yet".to_owned()));
    }
    let Some(host) = host else {
        let reason = "no host of the server is known: use --host of the controller";
        return Err(("NoHost", reason.to_owned()));
    };
    let url = ClusterState::url(host, pool);
    let present = secret.map(user_data).unwrap_or_default();
    let config = PointerConfig::read(present);
    if config.fetches_with(&url, pool, token.as_str())
        && config.assess(trusted, known) == Assessment::Current
    {
        return Ok(None);
    }
    let text = managed_pointer(&url, trusted);
    let text = PointerConfig::read(&text).with_bearer(pool, token.as_str());
    text.map(Some).map_err(|error| ("SecretNotWritten", error.to_string()))
}

/// The conditions and the state of a machine, and the time at which they change by themselves.
fn report(machine: &Machine, ready: Result<(), Fault>, now: OffsetDateTime) -> Step {
    let (state, until) = state(machine.status.recorded.as_ref(), now);
    let is_ready = ready.is_ok();
    let (reason, message) = match ready {
        Ok(()) => ("TokenMade", format!("{} has the pointer config", secret_object(&machine.name))),
        Err(reason) => reason,
    };
    let new_condition =
        Condition { type_: "Ready", is_true: is_ready, reason, message: message.clone() };
    let mut status = json!({});
    let before = &machine.data["status"];
    // Malformed conditions are replaced.
    let conditions = conditions_with(&machine.data, &new_condition, now)
        .or_else(|_| conditions_with(&Value::Null, &new_condition, now));
    if let Ok(Some(conditions)) = conditions {
        status["conditions"] = conditions;
    }
    if machine.status.token.is_some() && before["state"] != state {
        status["state"] = state.into();
    }
    if let Some(approval) = unrecorded_approval(machine) {
        status["approval"] = approval;
    }
    if before["observedGeneration"] != machine.generation {
        status["observedGeneration"] = machine.generation.into();
    }
    let status = Some(status).filter(|status| *status != json!({}));
    Step::Report { status, is_ready, reason: format!("{reason}: {message}"), until }
}

/// The approval of an object by its annotation with what it is for, if the status does not have it: a server that starts
/// when the object has changed could not tell.
fn unrecorded_approval(machine: &Machine) -> Option<Value> {
    let object = machine.read.as_ref().ok()?;
    let at = granted_at(object)?.ok()?;
    let Machine { status, precondition, .. } = machine;
    if status.approval.as_ref().is_some_and(|recorded| recorded.at == at) {
        return None;
    }
    match ApprovedObject::in_cluster(object, &precondition.uid, status) {
        ApprovedObject::Present(identity) => {
            serde_json::to_value(BoundApproval { at, identity }).ok()
        }
        _ => None,
    }
}

/// State of a token for people, and the time at which it ends.
fn state(
    recorded: Option<&RecordedUse>,
    now: OffsetDateTime,
) -> (&'static str, Option<OffsetDateTime>) {
    match recorded {
        None => ("Armed", None),
        Some(recorded) if recorded.spent => ("Spent", None),
        Some(RecordedUse { until: Some(until), .. }) if *until > now => ("Open", Some(*until)),
        Some(RecordedUse { until: None, .. }) => ("Open", None),
        Some(_) => ("Spent", None),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;
    use kubernetes::write::Change;
    use model::objects::APPROVED_ANNOTATION;
    use pki::issue::issue_ca;
    use pki::{KeyAlgorithm, VALIDITY};
    use time::macros::datetime;

    use super::super::objects::machine;
    use super::*;

    const NOW: OffsetDateTime = datetime!(2026-11-21 12:00 UTC);

    fn token(byte: u8) -> Token {
        Token::new([byte; 32])
    }

    fn shared(pools: &[&str]) -> PointerInputs {
        let key = KeyAlgorithm::P256.generate().unwrap();
        PointerInputs {
            trusted: vec![issue_ca(&key, VALIDITY, NOW).unwrap()],
            known: Vec::new(),
            host: "mcs.example.com".parse().ok(),
            pools: pools.iter().map(|pool| (*pool).to_owned()).collect(),
        }
    }

    fn object(uid: &str, annotations: &Value, status: &Value) -> Machine {
        let metadata = json!({
            "name": "n", "uid": uid, "resourceVersion": "7", "generation": 3,
            "annotations": annotations,
        });
        let data = json!({"spec": {"pool": "worker"}, "status": status});
        machine(serde_json::from_value(metadata).unwrap(), data).unwrap()
    }

    fn status(hash_of: u8, more: &Value) -> Value {
        let mut status =
            json!({"pool": "worker", "tokenSHA256": token(hash_of).hash(), "armings": 4});
        for (key, value) in more.as_object().unwrap() {
            status[key] = value.clone();
        }
        status
    }

    /// The Secret that the machine with this UID got for a token.
    fn secret(uid: &str, byte: u8, shared: &PointerInputs) -> Secret {
        let owner = object(uid, &json!({}), &status(byte, &json!({})));
        let text = pointer(None, shared, ("worker", &token(byte))).unwrap().unwrap();
        let Change::Create(mut secret) = owner.secret_write(None, text).unwrap().change else {
            panic!("it is created")
        };
        secret.metadata.uid = Some("s".to_owned());
        secret.metadata.resource_version = Some("8".to_owned());
        secret
    }

    fn step(machine: &Machine, secret: Option<&Secret>, shared: &PointerInputs) -> Step {
        let seen = ObservedMachine { machine, secret, pending: None, refused: None };
        next(&seen, shared, &token(9), NOW)
    }

    fn told(step: Step) -> (Value, bool, String) {
        let Step::Report { status, is_ready, reason, .. } = step else { panic!("no report") };
        (status.unwrap_or_default(), is_ready, reason)
    }

    #[test]
    fn a_machine_gets_a_token_whose_hash_is_written_before_its_secret() {
        let shared = shared(&["worker"]);
        let new = object("u", &json!({"machine-config-server.io/rearm": "x"}), &Value::Null);
        let Step::Token(made, written) = step(&new, None, &shared) else { panic!("no token") };
        assert_eq!(made, token(9));
        assert_eq!(written["tokenSHA256"], json!(token(9).hash()));
        assert_eq!((&written["armings"], &written["rearm"]), (&json!(1), &json!("x")));
        // The process that has the token writes the Secret.
        let known = object("u", &json!({}), &status(9, &json!({})));
        let seen =
            ObservedMachine { machine: &known, secret: None, pending: Some(&made), refused: None };
        let Step::Secret(text) = next(&seen, &shared, &token(8), NOW) else { panic!("no Secret") };
        let write = known.secret_write(None, text).unwrap();
        assert!(matches!(write.change, Change::Create(_)));
        // One that has died leaves a hash whose token is lost.
        let Step::Token(..) = step(&known, None, &shared) else { panic!("no token") };
    }

    #[test]
    fn what_is_settled_is_reported_once() {
        let shared = shared(&["worker"]);
        let secret = secret("u", 1, &shared);
        let machine = object("u", &json!({}), &status(1, &json!({})));
        let (first, is_ready, reason) = told(step(&machine, Some(&secret), &shared));
        assert!(is_ready && reason.starts_with("TokenMade: "), "{reason}");
        assert_eq!((&first["state"], &first["observedGeneration"]), (&json!("Armed"), &json!(3)));
        let machine = object("u", &json!({}), &status(1, &json!(first)));
        let (second, ..) = told(step(&machine, Some(&secret), &shared));
        assert!(second.is_null(), "{second}");
    }

    #[test]
    fn each_new_value_arms_the_token_once() {
        let shared = shared(&["worker"]);
        let secret = secret("u", 1, &shared);
        for (annotation, followed, is_armed) in [
            (json!({}), json!({}), false),
            (json!({"machine-config-server.io/rearm": "a"}), json!({}), true),
            (json!({"machine-config-server.io/rearm": "a"}), json!({"rearm": "a"}), false),
            (json!({"machine-config-server.io/rearm": "b"}), json!({"rearm": "a"}), true),
            (json!({}), json!({"rearm": "a"}), false),
        ] {
            let machine = object("u", &annotation, &status(1, &followed));
            let step = step(&machine, Some(&secret), &shared);
            match step {
                Step::Arm(written) => {
                    assert!(is_armed, "{annotation} {followed}");
                    assert_eq!((&written["use"], &written["armings"]), (&Value::Null, &json!(5)));
                    assert_eq!(written["tokenSHA256"], json!(token(1).hash()));
                }
                _ => assert!(!is_armed, "{annotation} {followed}"),
            }
        }
    }

    #[test]
    fn a_secret_of_another_object_pool_or_token_gives_none() {
        let shared = shared(&["worker", "infra"]);
        let right = secret("u", 1, &shared);
        for (case, machine, secret) in [
            ("of the object before", object("v", &json!({}), &status(1, &json!({}))), &right),
            ("of another token", object("u", &json!({}), &status(2, &json!({}))), &right),
            (
                "of another pool",
                object("u", &json!({}), &status(1, &json!({"pool": "infra"}))),
                &right,
            ),
        ] {
            let Step::Token(made, _) = step(&machine, Some(secret), &shared) else {
                panic!("{case}")
            };
            assert_eq!(made, token(9), "{case}");
        }
        // The Secret of the object before becomes this one's.
        let machine = object("v", &json!({}), &status(9, &json!({})));
        let seen = ObservedMachine {
            machine: &machine,
            secret: Some(&right),
            pending: Some(&token(9)),
            refused: None,
        };
        let Step::Secret(text) = next(&seen, &shared, &token(8), NOW) else { panic!("no Secret") };
        let write = machine.secret_write(Some(&right), text).unwrap();
        let Change::Patch(patch) = write.change else { panic!("no patch") };
        let patch = serde_json::to_value(patch).unwrap();
        assert_eq!(patch["metadata"]["ownerReferences"][0]["uid"], "v");
    }

    #[test]
    fn what_keeps_a_machine_from_a_token_is_named() {
        let machine = object("u", &json!({}), &Value::Null);
        let taken = Secret {
            data: Some([("a".to_owned(), ByteString(Vec::new()))].into()),
            ..Secret::default()
        };
        let nothing = PointerInputs { trusted: Vec::new(), ..shared(&["worker"]) };
        let with = status(1, &json!({}));
        let known = object("u", &json!({}), &with);
        let secret = secret("u", 1, &shared(&["worker"]));
        for (machine, secret, shared, reason) in [
            (&machine, None, shared(&["infra"]), "PoolNotFound"),
            (&machine, None, shared(&["n", "worker"]), "NameTaken"),
            (&machine, Some(&taken), shared(&["worker"]), "NameTaken"),
            (&known, Some(&secret), nothing, "NoCertificates"),
            (&known, Some(&secret), PointerInputs { host: None, ..shared(&["worker"]) }, "NoHost"),
        ] {
            let (_, is_ready, new_condition) = told(step(machine, secret, &shared));
            assert!(
                !is_ready && new_condition.starts_with(reason),
                "{new_condition} is not {reason}"
            );
        }
    }

    #[test]
    fn a_state_for_people_follows_the_recorded_use() {
        let at = |seconds: i64| NOW + time::Duration::seconds(seconds);
        let recorded = |until, spent| RecordedUse {
            first: NOW,
            last: NOW,
            until,
            spent,
            addresses: BTreeSet::new(),
        };
        for (recorded, expected) in [
            (None, ("Armed", None)),
            (Some(recorded(Some(at(10)), false)), ("Open", Some(at(10)))),
            (Some(recorded(Some(at(0)), false)), ("Spent", None)),
            (Some(recorded(Some(at(10)), true)), ("Spent", None)),
            (Some(recorded(None, false)), ("Open", None)),
        ] {
            assert_eq!(state(recorded.as_ref(), NOW), expected);
        }
    }

    #[test]
    fn an_approval_from_before_the_object_was_created_is_not_recorded_for_it() {
        let recorded = |created: &str| {
            let metadata = json!({
                "name": "n", "uid": "u", "resourceVersion": "7", "creationTimestamp": created,
                "annotations": {APPROVED_ANNOTATION: "2026-11-25T12:00:00Z"},
            });
            let data = json!({"spec": {"pool": "worker"}, "status": status(1, &json!({}))});
            let object = machine(serde_json::from_value(metadata).unwrap(), data).unwrap();
            unrecorded_approval(&object).map(|recorded| recorded["at"].clone())
        };
        let noon = json!("2026-11-25T12:00:00Z");
        assert_eq!(recorded("2026-11-25T12:00:00Z"), Some(noon));
        assert_eq!(recorded("2026-11-25T12:00:01Z"), None);
    }
}
