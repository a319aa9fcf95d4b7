//! Kinds of objects for the issuer. Only their status is written, and other fields stay unchanged.

use kube::api::{ApiResource, DynamicObject};
use kube::{Client, ResourceExt as _};
use serde_json::{Map, Value};

use super::issuer_spec::IssuerKind;
use super::objects::GROUP;
use crate::kubernetes::ControlError;
use crate::kubernetes::apply::{Applied, apply_status, list};
use crate::kubernetes::client::{api, resource};
use crate::kubernetes::write::{ObjectName, Precondition, StatusPatch};

/// A kind with a status subresource.
pub(super) struct Kind {
    pub(super) name: &'static str,
    pub(super) resource: ApiResource,
}

impl Kind {
    fn new(group: &str, version: &str, name: &'static str, plural: &str) -> Self {
        Self { name, resource: resource(group, version, name, plural) }
    }

    pub(super) fn object(&self, object: &DynamicObject) -> ObjectName {
        ObjectName::new(self.name, &object.namespace().unwrap_or_default(), &object.name_any())
    }

    /// Lists all objects of the kind, none if the cluster does not have it.
    pub(super) async fn list(&self, client: &Client) -> Result<Vec<DynamicObject>, ControlError> {
        list(&api(client, "", &self.resource), &ObjectName::new(self.name, "", "*"), |_| true).await
    }

    /// Sets fields of the status of the object that was read, in the version that was read.
    pub(super) async fn write_status(
        &self,
        client: &Client,
        object: &DynamicObject,
        fields: Map<String, Value>,
    ) -> Result<Applied, ControlError> {
        let name = self.object(object);
        let metadata = Precondition::of(&name, &object.metadata)?;
        let patch = StatusPatch { metadata, status: fields };
        apply_status(client, &self.resource, &name, &patch).await
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

pub(super) fn signing_requests() -> Kind {
    let plural = "certificatesigningrequests";
    Kind::new("certificates.k8s.io", "v1", "CertificateSigningRequest", plural)
}
