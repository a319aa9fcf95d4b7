//! Reading and writing single objects.
//!
//! Not by kube's `Api::entry`, which reads an object anew before it writes: what was planned on has to
//! be what is replaced.

use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::ControlError;
use super::write::{Change, ObjectName, ObjectWrite, Precondition};
use crate::kubernetes::error::api_error;

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
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    K: Clone + std::fmt::Debug + DeserializeOwned,
{
    let api: Api<K> = Api::namespaced(client.clone(), &object.namespace);
    api.get_opt(&object.name).await.map_err(api_error(object))
}

/// How the object that was read is deleted, and no other.
pub(crate) fn deletion(precondition: &Precondition) -> DeleteParams {
    let Precondition { uid, resource_version } = precondition;
    DeleteParams::default().preconditions(Preconditions {
        uid: Some(uid.clone()),
        resource_version: Some(resource_version.clone()),
    })
}

/// Makes a write.
pub(crate) async fn apply<K, V>(
    client: &Client,
    write: &ObjectWrite<K, V>,
) -> Result<Applied, ControlError>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    K: Clone + std::fmt::Debug + Serialize + DeserializeOwned,
    V: Serialize,
{
    let ObjectWrite { object, change } = write;
    let ObjectName { namespace, name, .. } = object;
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    let result = match change {
        Change::Create(new) => api.create(&PostParams::default(), new).await.map(drop),
        Change::Patch(patch) => {
            api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
        }
        Change::Replace(new) => api.replace(name, &PostParams::default(), new).await.map(drop),
        Change::Delete(precondition) => api.delete(name, &deletion(precondition)).await.map(drop),
    };
    match result {
        Ok(()) => Ok(Applied::Done),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(Applied::Superseded),
        // Where nothing is to be replaced, it is the namespace that is not there.
        Err(kube::Error::Api(status))
            if status.code == 404 && !matches!(change, Change::Create(_)) =>
        {
            Ok(Applied::Superseded)
        }
        Err(error) => Err(api_error(object)(error)),
    }
}
