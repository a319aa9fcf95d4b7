//! Reads all objects that decisions about certificates depend on.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::DynamicObject;
use kube::core::PartialObjectMeta;
use kube::{Api, Client, ResourceExt as _};
use kubernetes::ControlError;
use kubernetes::apply::{list, list_custom, read, read_custom};
use kubernetes::write::{Malformed, ObjectName, Precondition};
use model::objects::ObjectKind;
use pki::{External, Host};

use super::super::{NAMESPACE, read_secret};
use super::external_pair::ExternalPair;
use super::names::{
    CA, CA_REQUEST, RELEASE_IMAGE_PAIR, ROOT, ROOT_NAMESPACE, SERVING, SERVING_COPY,
};
use super::reference::names::is_azure;
use super::requests::ca::{CaRequest, certificate_request, request_name};
use super::requests::issuer_ref::IssuerRef;
use super::settings::infrastructure::Infrastructure;
use super::settings::key_algorithms::KeyAlgorithms;
use super::state::{ClusterState, OF_MACHINES, Pool};
use super::user_data::is_user_data;
use model::access::ACCESS_ANNOTATION;

pub struct Observer {
    pub client: Client,
    pub user_data_namespace: String,
    /// Names of the server in addition to those in the cluster.
    pub hosts: Vec<Host>,
    /// Issuer of CAs, unless they are self-signed.
    pub issuer: Option<IssuerRef>,
    /// External pair; nothing is issued if it is set.
    pub external: Option<ExternalPair>,
    /// True to read the user data of machines with names.
    pub has_machines: bool,
}

impl Observer {
    /// Creates an observer of user data in `user_data_namespace`. `hosts` are names of the server in addition to those
    /// in the cluster.
    pub fn new(client: Client, user_data_namespace: String, hosts: Vec<Host>) -> Self {
        let (issuer, external, has_machines) = (None, None, false);
        Self { client, user_data_namespace, hosts, issuer, external, has_machines }
    }

    /// Reads all objects of a plan.
    pub async fn observe(&self) -> Result<ClusterState, ControlError> {
        let secret = async |name| read_secret(&self.client, name).await;
        let external = Box::pin(self.external()).await?;
        let has_release_image = read_custom(&self.client, &release_image()).await?.is_some();
        let release_image_pair =
            if has_release_image { secret(RELEASE_IMAGE_PAIR).await? } else { None };
        let pki = read_custom(&self.client, &KeyAlgorithms::object()).await?;
        let ca_request = match &self.issuer {
            Some(issuer) => Some(Box::pin(self.ca_request(issuer)).await?),
            None => None,
        };
        Ok(ClusterState {
            external,
            ca_request,
            serving: secret(SERVING).await?,
            serving_copy: secret(SERVING_COPY).await?,
            infrastructure: self.infrastructure().await?,
            has_release_image,
            release_image_pair,
            pki: pki.map(|pki| pki.data),
            hosts: self.hosts.clone(),
            ..self.observe_user_data().await?
        })
    }

    /// Reads the objects as the controller does, with its own or an external serving pair.
    pub async fn observe_with_external_pair(self) -> Result<ClusterState, ControlError> {
        let state = self.observe().await?;
        match state.serving.as_ref().and_then(ExternalPair::noted) {
            Some(external) => Self { external: Some(external), ..self }.observe().await,
            None => Ok(state),
        }
    }

    /// Reads user data, its pools and the CAs by which it is judged; other fields stay empty.
    pub(crate) async fn observe_user_data(&self) -> Result<ClusterState, ControlError> {
        Ok(ClusterState {
            user_data: self.user_data().await?,
            user_data_namespace: self.user_data_namespace.clone(),
            ..self.observe_cas().await?
        })
    }

    /// Reads what pointer configs are made of; other fields stay empty.
    pub async fn observe_pointers(&self) -> Result<ClusterState, ControlError> {
        Ok(ClusterState {
            infrastructure: self.infrastructure().await?,
            hosts: self.hosts.clone(),
            ..self.observe_cas().await?
        })
    }

    async fn observe_cas(&self) -> Result<ClusterState, ControlError> {
        let map = async |namespace, name| {
            read::<ConfigMap>(&self.client, &ObjectName::config_map(namespace, name)).await
        };
        Ok(ClusterState {
            ca: read_secret(&self.client, CA).await?,
            bundle: map(NAMESPACE, CA).await?,
            root: map(ROOT_NAMESPACE, ROOT).await?,
            pools: self.pools().await?,
            ..ClusterState::default()
        })
    }

    /// Objects that [`Self::observe_pointers`] reads.
    pub(crate) fn watched_pointers() -> Vec<ObjectName> {
        let mut watched = watched_cas();
        watched.push(Infrastructure::object());
        watched
    }

    /// Objects whose changes trigger another look.
    pub fn watched(&self) -> Vec<ObjectName> {
        let secret = |name| ObjectName::secret(NAMESPACE, name);
        let mut watched = self.watched_user_data();
        watched.extend([SERVING, SERVING_COPY, RELEASE_IMAGE_PAIR].map(secret));
        watched.extend([Infrastructure::object(), KeyAlgorithms::object(), release_image()]);
        if self.issuer.is_some() {
            watched.extend([secret(CA_REQUEST), certificate_request("*")]);
        }
        if let Some(external) = &self.external {
            watched.extend([external.secret(), external.map()]);
        }
        watched
    }

    /// Objects that [`Self::observe_user_data`] reads.
    pub(crate) fn watched_user_data(&self) -> Vec<ObjectName> {
        let mut watched = watched_cas();
        watched.push(ObjectName::secret(&self.user_data_namespace, "*"));
        watched
    }

    async fn external(&self) -> Result<Option<External>, ControlError> {
        let Some(external) = &self.external else { return Ok(None) };
        let secret = read::<Secret>(&self.client, &external.secret()).await?;
        let map = read::<ConfigMap>(&self.client, &external.map()).await?;
        Ok(Some(external.seen(secret.as_ref(), map.as_ref())))
    }

    async fn ca_request(&self, issuer: &IssuerRef) -> Result<CaRequest, ControlError> {
        let secret = read_secret(&self.client, CA_REQUEST).await?;
        let mut request = None;
        if let Some(name) = secret.as_ref().and_then(request_name) {
            let object = certificate_request(&name);
            let read = read_custom(&self.client, &object).await?;
            if let Some(DynamicObject { metadata, data, .. }) = read {
                request = Some((data, Precondition::of(&object, &metadata)?));
            }
        }
        Ok(CaRequest { issuer: issuer.clone(), secret, request, failure: None })
    }

    async fn infrastructure(&self) -> Result<Infrastructure, ControlError> {
        let Some(found) = read_custom(&self.client, &Infrastructure::object()).await? else {
            return Ok(Infrastructure::default());
        };
        let aro = if is_azure(&found.data) {
            let cluster = ObjectName::new(ObjectKind::ARO_CLUSTER, "", "cluster");
            read_custom(&self.client, &cluster).await?
        } else {
            None
        };
        Ok(Infrastructure::read(&found.data, aro.as_ref().map(|aro| &aro.data))?)
    }

    async fn user_data(&self) -> Result<BTreeMap<String, Secret>, ControlError> {
        let secrets_of = async |namespace, is_wanted: fn(&Secret) -> bool| {
            let secrets = Api::namespaced(self.client.clone(), namespace);
            list(&secrets, &ObjectName::secret(namespace, "*"), is_wanted).await
        };
        let found =
            secrets_of(&self.user_data_namespace, |it| is_user_data(&it.name_any())).await?;
        let mut user_data: BTreeMap<_, _> =
            found.into_iter().map(|secret| (secret.name_any(), secret)).collect();
        if self.has_machines {
            let named = |secret: Secret| (format!("{OF_MACHINES}{}", secret.name_any()), secret);
            user_data.extend(secrets_of(NAMESPACE, is_of_machine).await?.into_iter().map(named));
        }
        Ok(user_data)
    }

    async fn pools(&self) -> Result<Vec<Pool>, ControlError> {
        let pools = list_custom(&self.client, &ObjectName::pool("*")).await?;
        Ok(pools.iter().map(pool).collect::<Result<_, _>>()?)
    }
}

/// Returns `true` for the Secret of a machine with a name.
fn is_of_machine(secret: &Secret) -> bool {
    is_user_data(&secret.name_any())
        && secret
            .owner_references()
            .iter()
            .any(|owner| owner.kind == ObjectKind::FIRST_BOOT_MACHINE.name)
}

fn pool(object: &PartialObjectMeta<DynamicObject>) -> Result<Pool, Malformed> {
    let name = object.name_any();
    let uid = object.uid().ok_or_else(|| {
        ObjectName::pool(&name).malformed("the API server returned it without its uid")
    })?;
    let access = object.annotations().get(ACCESS_ANNOTATION).cloned();
    Ok(Pool { name, uid, access })
}

/// Objects with the CAs, and the pools.
fn watched_cas() -> Vec<ObjectName> {
    vec![
        ObjectName::secret(NAMESPACE, CA),
        ObjectName::config_map(NAMESPACE, CA),
        ObjectName::config_map(ROOT_NAMESPACE, ROOT),
        ObjectName::pool("*"),
    ]
}

fn release_image() -> ObjectName {
    ObjectName::new(ObjectKind::INTERNAL_RELEASE_IMAGE, "", "cluster")
}
