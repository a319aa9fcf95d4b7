//! The kinds that are read here, each object as it comes: of all that are written only the status is, and the rest
//! stays as it is.

use kube::api::{ApiResource, DynamicObject, ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Map, Value, json};

use super::issuer_spec::IssuerKind;
use super::objects::GROUP;
use crate::controllers::runtime::resource;
use crate::kubernetes::ControlError;
use crate::kubernetes::apply::Applied;
use crate::kubernetes::client::found;
use crate::kubernetes::error::api_error;
use crate::kubernetes::write::{ObjectName, Precondition};

/// Objects a page of a list: bounds the memory that a list takes.
const PAGE: u32 = 200;

/// A kind of objects that have a status of their own.
pub(super) struct Kind {
    pub(super) name: &'static str,
    pub(super) resource: ApiResource,
}

impl Kind {
    fn new(group: &str, version: &str, name: &'static str, plural: &str) -> Self {
        Self { name, resource: resource(group, version, name, plural) }
    }

    fn api(&self, client: &Client, namespace: &str) -> Api<DynamicObject> {
        match namespace {
            "" => Api::all_with(client.clone(), &self.resource),
            namespace => Api::namespaced_with(client.clone(), namespace, &self.resource),
        }
    }

    pub(super) fn object(&self, object: &DynamicObject) -> ObjectName {
        ObjectName::new(self.name, &object.namespace().unwrap_or_default(), &object.name_any())
    }

    /// All objects of the kind, none where the cluster does not know it.
    pub(super) async fn list(&self, client: &Client) -> Result<Vec<DynamicObject>, ControlError> {
        let api = self.api(client, "");
        let all = ObjectName::new(self.name, "", "*");
        let mut params = ListParams::default().limit(PAGE);
        let mut objects = Vec::new();
        loop {
            let page = found(api.list(&params).await).map_err(api_error(&all))?;
            let Some(page) = page else { return Ok(objects) };
            let next = page.metadata.continue_.clone().filter(|token| !token.is_empty());
            objects.extend(page.items);
            match next {
                Some(token) => params.continue_token = Some(token),
                None => return Ok(objects),
            }
        }
    }

    /// Sets these fields of the status of the very object that was read, in the version that was read.
    pub(super) async fn write_status(
        &self,
        client: &Client,
        object: &DynamicObject,
        fields: Map<String, Value>,
    ) -> Result<Applied, ControlError> {
        let name = self.object(object);
        let precondition = Precondition::of(&name, &object.metadata)?;
        let patch = Patch::Merge(json!({"metadata": precondition, "status": fields}));
        let api = self.api(client, &name.namespace);
        match api.patch_status(&name.name, &PatchParams::default(), &patch).await {
            Ok(_) => Ok(Applied::Done),
            Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => {
                Ok(Applied::Superseded)
            }
            Err(error) => Err(api_error(&name)(error)),
        }
    }
}

pub(super) fn issuers_of(kind: IssuerKind) -> Kind {
    let plural = match kind {
        IssuerKind::ClusterIssuer => "clusterissuers",
        IssuerKind::Issuer => "issuers",
        IssuerKind::CmpV2Issuer => "cmpv2issuers",
    };
    Kind::new(GROUP, "v1alpha1", kind.as_str(), plural)
}

pub(super) fn certificate_requests() -> Kind {
    Kind::new("cert-manager.io", "v1", "CertificateRequest", "certificaterequests")
}

/// Those of Kubernetes itself.
pub(super) fn signing_requests() -> Kind {
    let plural = "certificatesigningrequests";
    Kind::new("certificates.k8s.io", "v1", "CertificateSigningRequest", plural)
}
