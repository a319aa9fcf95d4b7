//! Reads, lists and writes objects.
//!
//! kube's `Api::entry` is not used, because it reads the object again before it writes: a write must replace the
//! version that was planned on.

use std::fmt::Debug;

use k8s_openapi::NamespaceResourceScope;
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams,
    Preconditions,
};
use kube::core::DynamicResourceScope;
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::client::{api, found};
use super::error::ControlError;
use super::write::{Change, ObjectName, ObjectWrite, Precondition};
use crate::error::api_error;

/// Number of objects in a page of a list, which bounds its memory.
const PAGE: u32 = 100;

/// A write to an object of a custom resource.
pub type CustomWrite = ObjectWrite<DynamicObject, ()>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Applied {
    Done,
    /// Another client has changed the object, so that a new plan is needed.
    Superseded,
}

impl<K> From<Option<K>> for Applied {
    fn from(written: Option<K>) -> Self {
        written.map_or(Self::Superseded, |_| Self::Done)
    }
}

/// Reads an object, `None` if it does not exist.
pub async fn read<K>(client: &Client, object: &ObjectName) -> Result<Option<K>, ControlError>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    K: Clone + Debug + DeserializeOwned,
{
    get(&Api::namespaced(client.clone(), &object.namespace), object).await
}

/// Reads an object of a custom resource, `None` if the object or its kind does not exist.
pub async fn read_custom(
    client: &Client,
    object: &ObjectName,
) -> Result<Option<DynamicObject>, ControlError> {
    get(&api(client, &object.namespace, object.kind), object).await
}

async fn get<K>(api: &Api<K>, object: &ObjectName) -> Result<Option<K>, ControlError>
where
    K: Clone + Debug + DeserializeOwned,
{
    found(api.get(&object.name).await).map_err(api_error(object))
}

/// Lists all objects of a custom resource; empty if the cluster does not have the kind.
pub async fn list_custom<K>(client: &Client, all: &ObjectName) -> Result<Vec<K>, ControlError>
where
    K: Resource<DynamicType = ApiResource, Scope = DynamicResourceScope>,
    K: Clone + Debug + DeserializeOwned,
{
    list(&api(client, &all.namespace, all.kind), all, |_| true).await
}

/// Lists the wanted objects of `api`; empty if the cluster does not have the kind.
pub async fn list<K>(
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

pub async fn apply<K, V>(
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

pub async fn apply_custom(client: &Client, write: &CustomWrite) -> Result<Applied, ControlError> {
    let ObjectName { kind, namespace, .. } = &write.object;
    apply_by(&api(client, namespace, kind), write).await
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
    // For a creation, "not found" refers to the namespace or the kind.
    let was_there = !matches!(change, Change::Create(_));
    written(object, was_there, result).map(Applied::from)
}

/// Sets spec fields of a custom resource's object, in the version that was read.
pub async fn apply_spec(
    client: &Client,
    object: &ObjectName,
    precondition: &Precondition,
    spec: &Value,
) -> Result<Applied, ControlError> {
    let api: Api<DynamicObject> = api(client, &object.namespace, object.kind);
    let patch = Patch::Merge(json!({"metadata": precondition, "spec": spec}));
    let result = api.patch(&object.name, &PatchParams::default(), &patch).await;
    written(object, true, result.map(drop)).map(Applied::from)
}

/// Sets status fields of a custom resource's object, in the version that was read. Returns the object as it is then;
/// `None` if another client has changed it, so that a new plan is needed.
pub async fn apply_status(
    client: &Client,
    object: &ObjectName,
    precondition: &Precondition,
    status: &Value,
) -> Result<Option<DynamicObject>, ControlError> {
    let api: Api<DynamicObject> = api(client, &object.namespace, object.kind);
    let patch = Patch::Merge(json!({"metadata": precondition, "status": status}));
    let result = api.patch_status(&object.name, &PatchParams::default(), &patch).await;
    written(object, true, result)
}

/// The result of a write, `None` if it was superseded; `was_there` is true if the object existed in the plan.
fn written<K>(
    object: &ObjectName,
    was_there: bool,
    result: kube::Result<K>,
) -> Result<Option<K>, ControlError> {
    match result {
        Ok(written) => Ok(Some(written)),
        Err(kube::Error::Api(status))
            if status.code == 409 || (status.code == 404 && was_there) =>
        {
            Ok(None)
        }
        Err(error) => Err(api_error(object)(error)),
    }
}

/// Parameters that delete only the version that was read.
fn deletion(precondition: &Precondition) -> DeleteParams {
    let Precondition { uid, resource_version } = precondition;
    DeleteParams::default().preconditions(Preconditions {
        uid: Some(uid.clone()),
        resource_version: Some(resource_version.clone()),
    })
}
