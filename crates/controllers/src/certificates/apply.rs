//! Applies a rotation's writes to a cluster.

use futures_util::StreamExt as _;
use kube::api::DynamicObject;
use kube::{Client, ResourceExt as _};
use kubernetes::ControlError;
use kubernetes::apply::{Applied, CustomWrite, apply, apply_custom};
use kubernetes::write::{Change, ObjectName, Precondition};
use pki::{Policy, Write};

use super::objects::{bundle_write, ca_write, serving_write, store_write, user_data_write};
use super::requests::ca::certificate_request;
use super::state::ClusterState;

/// Maximum number of concurrent writes of Secrets.
const WRITES: usize = 8;

/// Applies one write. `state` is the state that it was planned on.
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

/// Creates the CertificateRequest for the wanted CA. Returns the reason if that fails.
pub(super) async fn create_request(client: &Client, state: &ClusterState) -> Option<String> {
    let request = state.ca_request.as_ref()?.missing()?;
    let request: DynamicObject = match serde_json::from_value(request) {
        Ok(request) => request,
        Err(error) => return Some(error.to_string()),
    };
    let object = certificate_request(&request.name_any());
    let write = CustomWrite { object, change: Change::Create(request) };
    match apply_custom(client, &write).await {
        // An existing one was created just before.
        Ok(Applied::Done | Applied::Superseded) => None,
        Err(ControlError::Api { object, error: kube::Error::Api(status) })
            if status.code == 404 =>
        {
            Some(format!("{object}: cert-manager is not installed"))
        }
        Err(error) => Some(error.to_string()),
    }
}

/// Deletes a superseded request. A failure is harmless: it is deleted with its Secret later.
pub(super) async fn delete_request(
    client: &Client,
    object: ObjectName,
    precondition: Precondition,
) {
    let write = CustomWrite { object, change: Change::Delete(precondition) };
    if let Err(error) = apply_custom(client, &write).await {
        tracing::warn!(
            %error,
            fix = "allow the controller to delete CertificateRequests, or delete it",
            "cannot delete a CertificateRequest that was replaced"
        );
    }
}

/// Writes user data, some Secrets concurrently, and returns the result for each by its name in `state`.
pub(super) async fn apply_pointers(
    client: &Client,
    state: &ClusterState,
    policy: &Policy,
    writes: Vec<Write>,
) -> Vec<(String, Result<Applied, ControlError>)> {
    let writes = writes.into_iter().filter_map(|write| match &write {
        Write::Pointer { name, .. } => Some((name.clone(), write)),
        _ => None,
    });
    let results =
        writes.map(async |(name, write)| (name, apply_write(client, state, policy, &write).await));
    futures_util::stream::iter(results).buffer_unordered(WRITES).collect().await
}
