//! Reading everything that a decision about the certificates depends on.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::core::PartialObjectMeta;
use kube::{Api, Client, ResourceExt as _};

use super::super::apply::read;
use super::super::error::api_error;
use super::super::runtime::{Watched, resource};
use super::super::write::{Malformed, ObjectName};
use super::super::{ControlError, NAMESPACE};
use super::infrastructure::Infrastructure;
use super::key_algorithms::KeyAlgorithms;
use super::names::{AUTHORITY, RELEASE_IMAGE_PAIR, ROOT, ROOT_NAMESPACE, SERVING, SERVING_COPY};
use super::reference_names::is_azure;
use super::state::{ClusterState, Pool};
use super::user_data::is_user_data;
use crate::pki::Host;

/// Secrets a page of a list: bounds the memory that a list takes.
const PAGE: u32 = 100;

/// Reads what there is.
pub struct Observer {
    client: Client,
    user_data_namespace: String,
    hosts: Vec<Host>,
}

impl Observer {
    /// `user_data_namespace` is where the secrets with user data are, and `hosts` are names of the
    /// server beside those that the cluster tells.
    #[must_use]
    pub fn new(client: Client, user_data_namespace: String, hosts: Vec<Host>) -> Self {
        Self { client, user_data_namespace, hosts }
    }

    /// Reads all objects that a plan depends on.
    pub async fn observe(&self) -> Result<ClusterState, ControlError> {
        let secret =
            async |name| read::<Secret>(&self.client, &ObjectName::secret(NAMESPACE, name)).await;
        let map = async |namespace, name| {
            read::<ConfigMap>(&self.client, &ObjectName::config_map(namespace, name)).await
        };
        let (object, kind) = release_image();
        let has_release_image = self.of_cluster(&object, &kind).await?.is_some();
        let release_image_pair =
            if has_release_image { secret(RELEASE_IMAGE_PAIR).await? } else { None };
        let pki = self.of_cluster(&KeyAlgorithms::object(), &pkis()).await?;
        Ok(ClusterState {
            authority: secret(AUTHORITY).await?,
            bundle: map(NAMESPACE, AUTHORITY).await?,
            serving: secret(SERVING).await?,
            serving_copy: secret(SERVING_COPY).await?,
            root: map(ROOT_NAMESPACE, ROOT).await?,
            infrastructure: self.infrastructure().await?,
            has_release_image,
            release_image_pair,
            pki: pki.map(|pki| pki.data),
            user_data: self.user_data().await?,
            user_data_namespace: self.user_data_namespace.clone(),
            pools: self.pools().await?,
            hosts: self.hosts.clone(),
        })
    }

    /// The objects whose changes call for another look.
    pub(super) fn watched(&self) -> Vec<Watched> {
        let release_image = release_image();
        let secret = |namespace, name| Watched::core::<Secret>(ObjectName::secret(namespace, name));
        let map =
            |namespace, name| Watched::core::<ConfigMap>(ObjectName::config_map(namespace, name));
        vec![
            secret(NAMESPACE, AUTHORITY),
            secret(NAMESPACE, SERVING),
            secret(NAMESPACE, SERVING_COPY),
            secret(&self.user_data_namespace, "*"),
            map(NAMESPACE, AUTHORITY),
            map(ROOT_NAMESPACE, ROOT),
            secret(NAMESPACE, RELEASE_IMAGE_PAIR),
            Watched::custom(Infrastructure::object(), infrastructures()),
            Watched::custom(KeyAlgorithms::object(), pkis()),
            Watched::custom(release_image.0, release_image.1),
            Watched::custom(all_pools(), pools()),
        ]
    }

    async fn infrastructure(&self) -> Result<Infrastructure, ControlError> {
        let Some(found) = self.of_cluster(&Infrastructure::object(), &infrastructures()).await?
        else {
            return Ok(Infrastructure::default());
        };
        let aro = if is_azure(&found.data) {
            self.of_cluster(&aro_cluster(), &aro_clusters()).await?
        } else {
            None
        };
        Ok(Infrastructure::read(&found.data, aro.as_ref().map(|aro| &aro.data))?)
    }

    /// An object of the whole cluster, which need not have it, nor its kind.
    async fn of_cluster(
        &self,
        object: &ObjectName,
        kind: &ApiResource,
    ) -> Result<Option<DynamicObject>, ControlError> {
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), kind);
        match api.get(&object.name).await {
            Ok(found) => Ok(Some(found)),
            // Not `get_opt`: that a kind is missing is told without a status object.
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            Err(error) => Err(api_error(object)(error)),
        }
    }

    async fn user_data(&self) -> Result<BTreeMap<String, Secret>, ControlError> {
        let all = ObjectName::secret(&self.user_data_namespace, "*");
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &all.namespace);
        let mut params = ListParams::default().limit(PAGE);
        let mut found = BTreeMap::new();
        loop {
            let list = secrets.list(&params).await.map_err(api_error(&all))?;
            let next = list.metadata.continue_.clone().filter(|token| !token.is_empty());
            for secret in list.items {
                let name = secret.name_any();
                if is_user_data(&name) {
                    found.insert(name, secret);
                }
            }
            match next {
                Some(token) => params.continue_token = Some(token),
                None => return Ok(found),
            }
        }
    }

    async fn pools(&self) -> Result<Vec<Pool>, ControlError> {
        let api: Api<PartialObjectMeta<DynamicObject>> =
            Api::all_with(self.client.clone(), &pools());
        match api.list(&ListParams::default()).await {
            Ok(list) => Ok(list.items.iter().map(pool).collect::<Result<_, _>>()?),
            // A cluster without the kind has no pools.
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(Vec::new()),
            Err(error) => Err(api_error(&all_pools())(error)),
        }
    }
}

fn pool(object: &PartialObjectMeta<DynamicObject>) -> Result<Pool, Malformed> {
    let name = object.name_any();
    let uid = object.uid().ok_or_else(|| {
        ObjectName::new("MachineConfigPool", "", &name).malformed("it was read without its uid")
    })?;
    Ok(Pool { name, uid })
}

fn all_pools() -> ObjectName {
    ObjectName::new("MachineConfigPool", "", "*")
}

fn pools() -> ApiResource {
    resource("machineconfiguration.openshift.io", "v1", "MachineConfigPool", "machineconfigpools")
}

fn infrastructures() -> ApiResource {
    resource("config.openshift.io", "v1", "Infrastructure", "infrastructures")
}

fn pkis() -> ApiResource {
    resource("config.openshift.io", "v1alpha1", "PKI", "pkis")
}

fn release_image() -> (ObjectName, ApiResource) {
    let kind = "InternalReleaseImage";
    let plural = "internalreleaseimages";
    let object = ObjectName::new(kind, "", "cluster");
    (object, resource("machineconfiguration.openshift.io", "v1", kind, plural))
}

fn aro_cluster() -> ObjectName {
    ObjectName::new("Cluster", "", "cluster")
}

/// Azure Red Hat OpenShift's own kind.
fn aro_clusters() -> ApiResource {
    resource("aro.openshift.io", "v1alpha1", "Cluster", "clusters")
}
