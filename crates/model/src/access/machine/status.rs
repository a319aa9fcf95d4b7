//! Status of a machine's object in a cluster: what controller and servers report to each other of its token.
//!
//! ```text
//!  controller ─> pool, hash of the token, number of armings, what an approval is for ─┐
//!                                                                                     ├─> status ─> servers, controller
//!  servers ────> use since the last arming ───────────────────────────────────────────┘
//! ```

use core::net::IpAddr;
use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use time::serde::rfc3339;

use super::super::token::TokenHash;
use super::arming::{RearmRequests, TokenStep};
use super::identity::BoundApproval;
use crate::objects::FirstBootMachine;

/// Fields of the status that decide about the token.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct MachineStatus {
    /// Pool that the token opens.
    pub pool: String,
    /// Hash of the token, if there is one.
    #[serde(rename = "tokenSHA256", skip_serializing_if = "Option::is_none")]
    pub token: Option<TokenHash>,
    /// Number of times that the token was made or armed again. A use belongs to one of them.
    pub armings: u64,
    /// Value of the annotation that armed it last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rearm: Option<String>,
    /// Last approval by an annotation, with what it is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approval: Option<BoundApproval>,
    /// Use since then.
    #[serde(rename = "use", skip_serializing_if = "Option::is_none")]
    pub recorded: Option<RecordedUse>,
}

impl MachineStatus {
    /// The step that is due if the object's token, as it is named here, can be used.
    pub fn due(&self, machine: &FirstBootMachine) -> Option<TokenStep> {
        let followed = RearmRequests { annotation: self.rearm.clone(), command: None };
        let requests = RearmRequests::of(machine, None);
        TokenStep::due(Some((&self.pool, &followed)), &machine.spec.pool, &requests)
    }
}

/// Use of a token, as servers record it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedUse {
    /// Beginning of the first answer.
    #[serde(with = "rfc3339")]
    pub first: OffsetDateTime,
    /// Time at which an answer counts as delivered in full. The server that gave it may know better.
    #[serde(with = "rfc3339")]
    pub last: OffsetDateTime,
    /// End of the window by the server that recorded this, for people.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "rfc3339::option")]
    pub until: Option<OffsetDateTime>,
    /// True if a server found the token spent.
    #[serde(default)]
    pub spent: bool,
    /// Addresses that got an answer.
    #[serde(default)]
    pub addresses: BTreeSet<IpAddr>,
}

/// The object of a machine at one version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineState {
    /// Its UID. An object that is made again has another one.
    pub uid: String,
    /// Its version, the precondition of a write.
    pub resource_version: String,
    /// True while it is being deleted.
    pub is_deleted: bool,
    /// Its status; `None` if it cannot be read.
    pub status: Option<MachineStatus>,
}

#[derive(Deserialize)]
struct MachineObject {
    metadata: ObjectMetadata,
    status: Option<serde_json::Value>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ObjectMetadata {
    uid: String,
    resource_version: String,
    deletion_timestamp: Option<String>,
}

impl MachineState {
    /// Reads an object's JSON.
    ///
    /// # Errors
    /// It is no object with metadata.
    pub fn read(json: &str) -> Result<Self, serde_json::Error> {
        let MachineObject { metadata, status } = serde_json::from_str(json)?;
        let unused = || Some(MachineStatus::default());
        let status = status.map_or_else(unused, |status| serde_json::from_value(status).ok());
        Ok(Self {
            uid: metadata.uid,
            resource_version: metadata.resource_version,
            is_deleted: metadata.deletion_timestamp.is_some(),
            status,
        })
    }

    /// Hash of the token that the object gives out at present, with the pool that it opens.
    pub fn token(&self) -> Option<(TokenHash, &str)> {
        let status = self.status.as_ref()?;
        Some((status.token?, &status.pool))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::token::Token;
    use super::*;

    fn read(object: &serde_json::Value) -> MachineState {
        MachineState::read(&object.to_string()).unwrap()
    }

    #[test]
    fn a_status_is_read_beside_fields_for_people() {
        let hash = Token::new([1; 32]).hash();
        let status = json!({
            "pool": "worker", "tokenSHA256": hash, "armings": 2, "rearm": "x", "state": "Open",
            "conditions": [{"type": "Ready"}], "observedGeneration": 7,
            "use": {
                "first": "2026-11-21T12:00:00.123456789Z", "last": "2026-11-21T12:00:01Z",
                "addresses": ["192.0.2.7"],
            },
        });
        let metadata = json!({"name": "n", "uid": "u", "resourceVersion": "5"});
        let state = read(&json!({"metadata": metadata, "spec": {}, "status": status}));
        assert_eq!((&*state.uid, &*state.resource_version, state.is_deleted), ("u", "5", false));
        assert_eq!(state.token(), Some((hash, "worker")));
        let recorded = state.status.unwrap().recorded.unwrap();
        let again: RecordedUse =
            serde_json::from_value(serde_json::to_value(&recorded).unwrap()).unwrap();
        assert_eq!(again, recorded, "to the nanosecond");
        assert!(!recorded.spent);
    }

    #[test]
    fn a_status_that_cannot_be_read_gives_no_token() {
        let hash = Token::new([1; 32]).hash();
        for status in [
            json!({"tokenSHA256": "x"}),
            json!({"armings": -1}),
            json!({"tokenSHA256": hash, "use": {}}),
        ] {
            let state = read(&json!({"metadata": {}, "status": status}));
            assert_eq!((state.token(), &state.status), (None, &None), "{status}");
        }
        assert_eq!(read(&json!({"metadata": {}})).status, Some(MachineStatus::default()));
        let deleted = read(&json!({"metadata": {"deletionTimestamp": "2026-11-21T12:00:00Z"}}));
        assert!(deleted.is_deleted);
    }
}
