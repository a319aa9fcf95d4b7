//! A rotation's writes, made on a cluster.

use futures_util::StreamExt as _;
use kube::api::DynamicObject;
use kube::{Client, ResourceExt as _};
use pki::{Policy, Write};

use super::objects::{bundle_write, ca_write, serving_write, store_write, user_data_write};
use super::observe::ca_requests;
use super::state::ClusterState;
use crate::kubernetes::ControlError;
use crate::kubernetes::apply::{Applied, CustomWrite, apply, apply_custom};
use crate::kubernetes::write::{Change, ObjectName, Precondition};

/// Secrets that are written at a time.
const WRITES: usize = 8;

/// Makes one write. `state` is what it was planned on.
pub(super) async fn apply_write(
    client: &Client,
    state: &ClusterState,
    policy: &Policy,
    write: &Write,
) -> Result<Applied, ControlError> {
    match write {
        Write::Ca(pair) => apply(client, &ca_write(state, pair, policy)?).await,
        Write::Store(pair) => apply(client, &store_write(state, pair, policy)?).await,
        Write::Bundle(pem) => apply(client, &bundle_write(state, pem)?).await,
        Write::Pointer { name, text } => apply(client, &user_data_write(state, name, text)?).await,
        Write::Serving(pair) => apply(client, &serving_write(state, pair, policy)?).await,
    }
}

/// Asks the issuer for what is to be asked for. Why that is not done, if it is not.
pub(super) async fn ask_issuer(client: &Client, state: &ClusterState) -> Option<String> {
    let request = state.ca_request.as_ref()?.missing()?;
    let request: DynamicObject = match serde_json::from_value(request) {
        Ok(request) => request,
        Err(error) => return Some(error.to_string()),
    };
    let (object, kind) = ca_requests();
    let object = ObjectName { name: request.name_any(), ..object };
    let write = CustomWrite { object, change: Change::Create(request) };
    match apply_custom(client, &kind, &write).await {
        // One that is there already was made a moment ago.
        Ok(Applied::Done | Applied::Superseded) => None,
        Err(ControlError::Api { object, error: kube::Error::Api(status) })
            if status.code == 404 =>
        {
            Some(format!("{object}: cert-manager is not there to take it"))
        }
        Err(error) => Some(error.to_string()),
    }
}

/// Deletes a request that another one has taken the place of. Nothing depends on it: it goes with its secret at last.
pub(super) async fn delete_request(
    client: &Client,
    object: ObjectName,
    precondition: Precondition,
) {
    let (_, kind) = ca_requests();
    let write = CustomWrite { object, change: Change::Delete(precondition) };
    if let Err(error) = apply_custom(client, &kind, &write).await {
        tracing::warn!(%error, "it was replaced, and cannot be deleted");
    }
}

/// Makes the writes of user data, some at a time, and tells what became of each.
pub(super) async fn apply_pointers(
    client: &Client,
    state: &ClusterState,
    policy: &Policy,
    writes: Vec<Write>,
) -> Vec<(ObjectName, Result<Applied, ControlError>)> {
    let writes = writes.into_iter().filter_map(|write| match &write {
        Write::Pointer { name, .. } => {
            Some((ObjectName::secret(&state.user_data_namespace, name), write))
        }
        _ => None,
    });
    let results = writes
        .map(async |(object, write)| (object, apply_write(client, state, policy, &write).await));
    futures_util::stream::iter(results).buffer_unordered(WRITES).collect().await
}
