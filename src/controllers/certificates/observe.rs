//! Reads all objects that decisions about certificates depend on.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{ApiResource, DynamicObject};
use kube::core::PartialObjectMeta;
use kube::{Api, Client, ResourceExt as _};
use pki::{External, Host};

use super::super::NAMESPACE;
use super::ca_request::{CaRequest, request_name};
use super::external_pair::ExternalPair;
use super::infrastructure::Infrastructure;
use super::issuer_ref::{GROUP, IssuerRef};
use super::key_algorithms::KeyAlgorithms;
use super::names::{
    CA, CA_REQUEST, RELEASE_IMAGE_PAIR, ROOT, ROOT_NAMESPACE, SERVING, SERVING_COPY,
};
use super::reference_names::is_azure;
use super::state::{ClusterState, OF_MACHINES, Pool};
use super::user_data::is_user_data;
use crate::controllers::runtime::Watched;
use crate::kubernetes::ControlError;
use crate::kubernetes::apply::{list, read, read_custom};
use crate::kubernetes::client::{api, resource};
use crate::kubernetes::write::{Malformed, ObjectName, Precondition, SecretWrite};
use model::access::ACCESS_ANNOTATION;

/// Reads the present objects.
pub(crate) struct Observer {
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
    pub(crate) fn new(client: Client, user_data_namespace: String, hosts: Vec<Host>) -> Self {
        let (issuer, external, has_machines) = (None, None, false);
        Self { client, user_data_namespace, hosts, issuer, external, has_machines }
    }

    /// Reads all objects of a plan.
    pub(crate) async fn observe(&self) -> Result<ClusterState, ControlError> {
        let secret =
            async |name| read::<Secret>(&self.client, &ObjectName::secret(NAMESPACE, name)).await;
        let external = Box::pin(self.external()).await?;
        let (object, kind) = release_image();
        let has_release_image = read_custom(&self.client, &object, &kind).await?.is_some();
        let release_image_pair =
            if has_release_image { secret(RELEASE_IMAGE_PAIR).await? } else { None };
        let pki = read_custom(&self.client, &KeyAlgorithms::object(), &pkis()).await?;
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
            ..self.observe_all_user_data().await?
        })
    }

    /// The same as [`Self::observe_user_data`], with the user data of machines with names.
    async fn observe_all_user_data(&self) -> Result<ClusterState, ControlError> {
        let mut state = self.observe_user_data().await?;
        if self.has_machines {
            let all = ObjectName::secret(NAMESPACE, "*");
            let secrets = Api::<Secret>::namespaced(self.client.clone(), NAMESPACE);
            let found = list(&secrets, &all, is_of_machine).await?;
            let named = |secret: Secret| (format!("{OF_MACHINES}{}", secret.name_any()), secret);
            state.user_data.extend(found.into_iter().map(named));
        }
        Ok(state)
    }

    /// Reads the objects as the controller does, with its own or an external serving pair.
    pub(crate) async fn observe_with_external_pair(self) -> Result<ClusterState, ControlError> {
        let state = self.observe().await?;
        match state.serving.as_ref().and_then(ExternalPair::noted) {
            Some(external) => Self { external: Some(external), ..self }.observe().await,
            None => Ok(state),
        }
    }

    /// The write that notes the origin of the serving pair, if it is due.
    pub(super) fn note(&self, state: &ClusterState) -> Result<Option<SecretWrite>, Malformed> {
        ExternalPair::note(self.external.as_ref(), state.serving.as_ref())
    }

    /// Reads user data, its pools and the CAs by which it is judged; other fields stay empty.
    pub(in crate::controllers) async fn observe_user_data(
        &self,
    ) -> Result<ClusterState, ControlError> {
        Ok(ClusterState {
            user_data: self.user_data().await?,
            user_data_namespace: self.user_data_namespace.clone(),
            ..self.observe_cas().await?
        })
    }

    /// Reads what pointer configs are made of; other fields stay empty.
    pub(in crate::controllers) async fn observe_pointers(
        &self,
    ) -> Result<ClusterState, ControlError> {
        Ok(ClusterState {
            infrastructure: self.infrastructure().await?,
            hosts: self.hosts.clone(),
            ..self.observe_cas().await?
        })
    }

    /// Reads the CAs and the pools.
    async fn observe_cas(&self) -> Result<ClusterState, ControlError> {
        let map = async |namespace, name| {
            read::<ConfigMap>(&self.client, &ObjectName::config_map(namespace, name)).await
        };
        let ca = ObjectName::secret(NAMESPACE, CA);
        Ok(ClusterState {
            ca: read::<Secret>(&self.client, &ca).await?,
            bundle: map(NAMESPACE, CA).await?,
            root: map(ROOT_NAMESPACE, ROOT).await?,
            pools: self.pools().await?,
            ..ClusterState::default()
        })
    }

    /// Objects that [`Self::observe_pointers`] reads.
    pub(in crate::controllers) fn watched_pointers() -> Vec<Watched> {
        let map =
            |namespace, name| Watched::core::<ConfigMap>(ObjectName::config_map(namespace, name));
        vec![
            Watched::core::<Secret>(ObjectName::secret(NAMESPACE, CA)),
            map(NAMESPACE, CA),
            map(ROOT_NAMESPACE, ROOT),
            Watched::custom(Infrastructure::object(), infrastructures()),
            Watched::custom(all_pools(), pools()),
        ]
    }

    /// Objects whose changes trigger another look.
    pub(in crate::controllers) fn watched(&self) -> Vec<Watched> {
        let release_image = release_image();
        let secret = |name| Watched::core::<Secret>(ObjectName::secret(NAMESPACE, name));
        let others = [
            secret(SERVING),
            secret(SERVING_COPY),
            secret(RELEASE_IMAGE_PAIR),
            Watched::custom(Infrastructure::object(), infrastructures()),
            Watched::custom(KeyAlgorithms::object(), pkis()),
            Watched::custom(release_image.0, release_image.1),
        ];
        let (object, kind) = ca_requests();
        let of_issuer = [secret(CA_REQUEST), Watched::custom(object, kind)];
        let of_issuer = of_issuer.into_iter().filter(|_| self.issuer.is_some());
        let external = self.external.iter().flat_map(|external| {
            [Watched::core::<Secret>(external.secret()), Watched::core::<ConfigMap>(external.map())]
        });
        let others = others.into_iter().chain(of_issuer).chain(external);
        self.watched_user_data().into_iter().chain(others).collect()
    }

    /// Objects that [`Self::observe_user_data`] reads.
    pub(in crate::controllers) fn watched_user_data(&self) -> Vec<Watched> {
        let secret = |namespace, name| Watched::core::<Secret>(ObjectName::secret(namespace, name));
        let map =
            |namespace, name| Watched::core::<ConfigMap>(ObjectName::config_map(namespace, name));
        vec![
            secret(NAMESPACE, CA),
            map(NAMESPACE, CA),
            map(ROOT_NAMESPACE, ROOT),
            secret(&self.user_data_namespace, "*"),
            Watched::custom(all_pools(), pools()),
        ]
    }

    async fn external(&self) -> Result<Option<External>, ControlError> {
        let Some(external) = &self.external else { return Ok(None) };
        let secret = read::<Secret>(&self.client, &external.secret()).await?;
        let map = read::<ConfigMap>(&self.client, &external.map()).await?;
        Ok(Some(external.seen(secret.as_ref(), map.as_ref())))
    }

    async fn ca_request(&self, issuer: &IssuerRef) -> Result<CaRequest, ControlError> {
        let secret = ObjectName::secret(NAMESPACE, CA_REQUEST);
        let secret = read::<Secret>(&self.client, &secret).await?;
        let (object, kind) = ca_requests();
        let mut request = None;
        if let Some(name) = secret.as_ref().and_then(request_name) {
            let object = ObjectName { name, ..object };
            let read = read_custom(&self.client, &object, &kind).await?;
            if let Some(DynamicObject { metadata, data, .. }) = read {
                request = Some((data, Precondition::of(&object, &metadata)?));
            }
        }
        Ok(CaRequest { issuer: issuer.clone(), secret, request, unasked: None })
    }

    async fn infrastructure(&self) -> Result<Infrastructure, ControlError> {
        let (object, kind) = (Infrastructure::object(), infrastructures());
        let Some(found) = read_custom(&self.client, &object, &kind).await? else {
            return Ok(Infrastructure::default());
        };
        let aro = if is_azure(&found.data) {
            read_custom(&self.client, &aro_cluster(), &aro_clusters()).await?
        } else {
            None
        };
        Ok(Infrastructure::read(&found.data, aro.as_ref().map(|aro| &aro.data))?)
    }

    async fn user_data(&self) -> Result<BTreeMap<String, Secret>, ControlError> {
        let all = ObjectName::secret(&self.user_data_namespace, "*");
        let secrets = Api::<Secret>::namespaced(self.client.clone(), &all.namespace);
        let found = list(&secrets, &all, |secret| is_user_data(&secret.name_any())).await?;
        Ok(found.into_iter().map(|secret| (secret.name_any(), secret)).collect())
    }

    async fn pools(&self) -> Result<Vec<Pool>, ControlError> {
        let all = all_pools();
        let pools = list(&api(&self.client, &all.namespace, &pools()), &all, |_| true).await?;
        Ok(pools.iter().map(pool).collect::<Result<_, _>>()?)
    }
}

/// Returns `true` for the Secret of a machine with a name.
fn is_of_machine(secret: &Secret) -> bool {
    is_user_data(&secret.name_any())
        && secret.owner_references().iter().any(|owner| owner.kind == "FirstBootMachine")
}

fn pool(object: &PartialObjectMeta<DynamicObject>) -> Result<Pool, Malformed> {
    let name = object.name_any();
    let uid = object.uid().ok_or_else(|| {
        ObjectName::new("MachineConfigPool", "", &name)
            .malformed("the API server returned it without its uid")
    })?;
    let access = object.annotations().get(ACCESS_ANNOTATION).cloned();
    Ok(Pool { name, uid, access })
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

/// CertificateRequests in the controller's namespace.
pub(super) fn ca_requests() -> (ObjectName, ApiResource) {
    let kind = "CertificateRequest";
    let object = ObjectName::new(kind, NAMESPACE, "*");
    (object, resource(GROUP, "v1", kind, "certificaterequests"))
}

fn aro_cluster() -> ObjectName {
    ObjectName::new("Cluster", "", "cluster")
}

/// Kind of Azure Red Hat OpenShift.
fn aro_clusters() -> ApiResource {
    resource("aro.openshift.io", "v1alpha1", "Cluster", "clusters")
}
