//! Writes the uses of machines' tokens into the status of their objects.
//!
//! Each write has the version that was read as its precondition, so that servers see each other's uses.

use std::time::Duration;

use kube::api::{Patch, PatchParams};
use kube::runtime::events::EventType;
use kube::{Api, Client};
use kubernetes::events::Events;
use kubernetes::{ControlError, ObjectName, api_error};
use model::access::machine::{MachineState, RecordedUse};
use model::objects::{OPERATOR_NAMESPACE, ObjectKind};
use serde_json::json;
use tokio::time::timeout;

use super::kind::{Kind, RawObject};

/// Maximum time for a request: a machine waits for it.
const LONGEST: Duration = Duration::from_secs(3);

pub struct MachineRecords {
    machines: Api<RawObject>,
    events: Events,
}

/// Reasons why a use is not recorded.
#[derive(Debug)]
pub enum RecordError {
    Superseded,
    Gone,
    /// The API server is unreachable or in trouble.
    Unreachable(String),
    Refused(String),
}

impl std::fmt::Debug for MachineRecords {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MachineRecords").finish_non_exhaustive()
    }
}

impl MachineRecords {
    /// Creates a writer; `identity` is the name of this process in events.
    pub(super) fn new(client: Client, identity: &str) -> Self {
        let machines = Kind::FirstBootMachine.api(&client);
        Self { machines, events: Events::new(client, identity) }
    }

    /// A writer whose API server is unreachable.
    #[cfg(test)]
    pub(crate) fn unreachable() -> Self {
        let config = kube::Config::new(http::Uri::from_static("http://127.0.0.1:9"));
        Self::new(Client::try_from(config).unwrap(), "test")
    }

    /// Reads the present state of a machine's object.
    pub(crate) async fn read(&self, name: &str) -> Result<MachineState, RecordError> {
        within(name, self.machines.get(name)).await
    }

    /// Records a use in the object that was read as `state`. Returns the object's new state.
    pub(crate) async fn write(
        &self,
        name: &str,
        state: &MachineState,
        recorded: &RecordedUse,
    ) -> Result<MachineState, RecordError> {
        let MachineState { uid, resource_version, .. } = state;
        let metadata = json!({"uid": uid, "resourceVersion": resource_version});
        let patch = json!({"metadata": metadata, "status": {"use": recorded}});
        let (params, patch) = (PatchParams::default(), Patch::Merge(&patch));
        within(name, self.machines.patch_status(name, &params, &patch)).await
    }

    /// Publishes an Event about a machine. A failure is only logged.
    pub(crate) async fn warn(&self, name: &str, uid: &str, reason: &str, note: &str) {
        let object = object(name).reference(uid);
        self.events.publish_about(EventType::Warning, reason, &object, note).await;
    }
}

fn object(name: &str) -> ObjectName {
    ObjectName::new(ObjectKind::FIRST_BOOT_MACHINE, OPERATOR_NAMESPACE, name)
}

async fn within(
    name: &str,
    request: impl Future<Output = kube::Result<RawObject>>,
) -> Result<MachineState, RecordError> {
    let object = object(name);
    let Ok(answer) = timeout(LONGEST, request).await else {
        let seconds = LONGEST.as_secs();
        return Err(RecordError::Unreachable(format!("{object}: no answer within {seconds} s")));
    };
    let raw = answer.map_err(|error| refusal(&object, error))?;
    let state = MachineState::read(raw.json.get());
    state.map_err(|error| RecordError::Refused(format!("{object}: {error}")))
}

fn refusal(object: &ObjectName, error: kube::Error) -> RecordError {
    match &error {
        kube::Error::Api(status) if status.code == 409 => return RecordError::Superseded,
        kube::Error::Api(status) if status.code == 404 => return RecordError::Gone,
        _ => {}
    }
    let error: ControlError = api_error(object)(error);
    if error.is_for_good() {
        RecordError::Refused(error.to_string())
    } else {
        RecordError::Unreachable(error.to_string())
    }
}
