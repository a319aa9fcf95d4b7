//! Reading, listing and writing objects.
//!
//! Not by kube's `Api::entry`, which reads an object anew before it writes: what was planned on has to
//! be what is replaced.

use std::fmt::Debug;

use k8s_openapi::NamespaceResourceScope;
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams,
    Preconditions,
};
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::ControlError;
use super::client::{api, found};
use super::write::{Change, FieldsPatch, ObjectName, ObjectWrite, Precondition, StatusPatch};
use crate::kubernetes::error::api_error;

/// Objects a page of a list: bounds the memory that a list takes.
const PAGE: u32 = 100;

/// A write to an object of a kind that is defined in the cluster.
pub(crate) type CustomWrite = ObjectWrite<DynamicObject, ()>;

/// What became of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Applied {
    /// It is done.
    Done,
    /// Somebody else came first: what was planned is to be planned anew.
    Superseded,
}

/// Reads an object, `None` if it is not there.
pub(crate) async fn read<K>(client: &Client, object: &ObjectName) -> Result<Option<K>, ControlError>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    K: Clone + Debug + DeserializeOwned,
{
    get(&Api::namespaced(client.clone(), &object.namespace), object).await
}

/// Reads an object of a kind that is defined in the cluster, `None` if it is not there, nor its kind.
pub(crate) async fn read_custom(
    client: &Client,
    object: &ObjectName,
    kind: &ApiResource,
) -> Result<Option<DynamicObject>, ControlError> {
    get(&api(client, &object.namespace, kind), object).await
}

async fn get<K>(api: &Api<K>, object: &ObjectName) -> Result<Option<K>, ControlError>
where
    K: Clone + Debug + DeserializeOwned,
{
    found(api.get(&object.name).await).map_err(api_error(object))
}

/// Lists the objects of `api` that are wanted; none where the cluster does not know the kind.
pub(crate) async fn list<K>(
    api: &Api<K>,
    all: &ObjectName,
    is_wanted: impl Fn(&K) -> bool,
) -> Result<Vec<K>, ControlError>
where
    K: Clone + Debug + DeserializeOwned,
{
    let mut params = ListParams::default().limit(PAGE);
    let mut objects = Vec::new();
    loop {
        let page = found(api.list(&params).await).map_err(api_error(all))?;
        let Some(page) = page else { return Ok(objects) };
        objects.extend(page.items.into_iter().filter(&is_wanted));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params.continue_token = Some(token),
            None => return Ok(objects),
        }
    }
}

/// Makes a write.
pub(crate) async fn apply<K, V>(
    client: &Client,
    write: &ObjectWrite<K, V>,
) -> Result<Applied, ControlError>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    K: Clone + Debug + Serialize + DeserializeOwned,
    V: Serialize,
{
    apply_by(&Api::namespaced(client.clone(), &write.object.namespace), write).await
}

/// Makes a write to an object of a kind that is defined in the cluster.
pub(crate) async fn apply_custom(
    client: &Client,
    kind: &ApiResource,
    write: &CustomWrite,
) -> Result<Applied, ControlError> {
    apply_by(&api(client, &write.object.namespace, kind), write).await
}

async fn apply_by<K, V>(api: &Api<K>, write: &ObjectWrite<K, V>) -> Result<Applied, ControlError>
where
    K: Clone + Debug + Serialize + DeserializeOwned,
    V: Serialize,
{
    let ObjectWrite { object, change } = write;
    let name = &object.name;
    let result = match change {
        Change::Create(new) => api.create(&PostParams::default(), new).await.map(drop),
        Change::Patch(patch) => {
            api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
        }
        Change::Replace(new) => api.replace(name, &PostParams::default(), new).await.map(drop),
        Change::Delete(precondition) => api.delete(name, &deletion(precondition)).await.map(drop),
    };
    // Where nothing is to be replaced, it is the namespace or the kind that is not there.
    let was_there = !matches!(change, Change::Create(_));
    outcome(object, was_there, result)
}

/// Sets fields of an object of a kind that is defined in the cluster.
pub(crate) async fn apply_fields(
    client: &Client,
    kind: &ApiResource,
    object: &ObjectName,
    patch: &FieldsPatch,
) -> Result<Applied, ControlError> {
    let api: Api<DynamicObject> = api(client, &object.namespace, kind);
    let result = api.patch(&object.name, &PatchParams::default(), &Patch::Merge(patch)).await;
    outcome(object, true, result.map(drop))
}

/// Sets fields of the status of an object of a kind that is defined in the cluster.
pub(crate) async fn apply_status(
    client: &Client,
    kind: &ApiResource,
    object: &ObjectName,
    patch: &StatusPatch,
) -> Result<Applied, ControlError> {
    let api: Api<DynamicObject> = api(client, &object.namespace, kind);
    let params = PatchParams::default();
    let result = api.patch_status(&object.name, &params, &Patch::Merge(patch)).await;
    outcome(object, true, result.map(drop))
}

/// What became of a write to an object that was there when it was planned, or was not.
#[expect(clippy::result_large_err, reason = "it is made once a write, and most are none")]
fn outcome(
    object: &ObjectName,
    was_there: bool,
    result: kube::Result<()>,
) -> Result<Applied, ControlError> {
    match result {
        Ok(()) => Ok(Applied::Done),
        Err(kube::Error::Api(status))
            if status.code == 409 || (status.code == 404 && was_there) =>
        {
            Ok(Applied::Superseded)
        }
        Err(error) => Err(api_error(object)(error)),
    }
}

/// How the object that was read is deleted, and no other.
fn deletion(precondition: &Precondition) -> DeleteParams {
    let Precondition { uid, resource_version } = precondition;
    DeleteParams::default().preconditions(Preconditions {
        uid: Some(uid.clone()),
        resource_version: Some(resource_version.clone()),
    })
}
