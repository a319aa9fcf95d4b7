//! Reads the issuers of a cluster, with their Secrets.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::DynamicObject;
use kube::{Client, ResourceExt as _};
use time::OffsetDateTime;
use tokio::sync::OnceCell;

use super::super::NAMESPACE;
use super::ca::SigningCa;
use super::issuer_spec::{IssuerKind, IssuerName, IssuerSpec, SignerSpec, UpstreamSpec};
use super::kinds::issuers_of;
use super::policy::Policy;
use super::reserved_names::ReservedNames;
use super::upstream::{Secrets, Upstream};
use crate::cmp_http::Server;
use crate::controllers::certificates::{CA, ClusterState, SERVING};
use crate::kubernetes::ControlError;
use crate::kubernetes::apply::read;
use crate::kubernetes::error::api_reason;
use crate::kubernetes::write::ObjectName;

/// An issuer that can sign.
pub(super) struct Issuer {
    pub(super) policy: Policy,
    /// Names that the policy must list literally.
    pub(super) reserved: ReservedNames,
    pub(super) signer: Signer,
}

pub(super) enum Signer {
    Ca(SigningCa),
    Upstream(Arc<Upstream<Server>>),
}

/// An issuer as it was read.
pub(super) struct IssuerObject {
    pub(super) object: DynamicObject,
    pub(super) name: IssuerName,
    /// The issuer, or the reason why it cannot sign.
    pub(super) issuer: Result<Issuer, String>,
    /// True if the reason may be corrected in a Secret, which cannot be watched.
    pub(super) waits_for_secret: bool,
}

pub(super) struct IssuerReader {
    client: Client,
    /// Namespace of cluster issuers' Secrets.
    namespace: String,
    /// External CAs, kept while they stay the same.
    upstreams: BTreeMap<IssuerName, Arc<Upstream<Server>>>,
}

impl IssuerReader {
    pub(super) fn new(client: Client, namespace: String) -> Self {
        Self { client, namespace, upstreams: BTreeMap::new() }
    }

    pub(super) async fn read(
        &mut self,
        now: OffsetDateTime,
    ) -> Result<Vec<IssuerObject>, ControlError> {
        // The server's CA is read once for each look.
        let (mut all, server) = (Vec::new(), OnceCell::new());
        for kind in IssuerKind::ALL {
            for object in issuers_of(kind).list(&self.client).await? {
                let namespace = object.namespace().unwrap_or_default();
                let name = IssuerName { kind, namespace, name: object.name_any() };
                let spec = IssuerSpec::read(&object.data["spec"], &name);
                let may_heal = spec.as_ref().is_ok_and(|spec| spec.signer.is_of_secrets());
                let issuer = match spec {
                    Ok(spec) => self.issuer(&name, spec, now, &server).await?,
                    Err(fault) => Err(fault),
                };
                let waits_for_secret = may_heal && issuer.is_err();
                all.push(IssuerObject { object, name, issuer, waits_for_secret });
            }
        }
        let names: BTreeSet<&IssuerName> = all.iter().map(|read| &read.name).collect();
        self.upstreams.retain(|name, _| names.contains(name));
        Ok(all)
    }

    async fn issuer(
        &mut self,
        name: &IssuerName,
        spec: IssuerSpec,
        now: OffsetDateTime,
        server: &OnceCell<ClusterState>,
    ) -> Result<Result<Issuer, String>, ControlError> {
        let namespace = match name.namespace.as_str() {
            "" => &self.namespace,
            namespace => namespace,
        };
        let ca = match spec.signer {
            SignerSpec::MachineConfigServer => {
                SigningCa::of_server(server.get_or_try_init(|| self.server()).await?, now)
            }
            SignerSpec::Secret(secret) => {
                let server = server.get_or_try_init(|| self.server()).await?;
                let object = ObjectName::secret(namespace, &secret);
                let secret = self.secret(&object).await?;
                secret.and_then(|secret| {
                    let own = SigningCa::of_secret(&secret, server, now);
                    own.map_err(|fault| format!("{object}: {fault}"))
                })
            }
            SignerSpec::Upstream(upstream) => {
                let secrets = self.secrets(namespace, &upstream).await?;
                let upstream = secrets.and_then(|secrets| self.upstream(name, *upstream, secrets));
                let (policy, reserved) = (spec.policy, ReservedNames::default());
                return Ok(upstream.map(|upstream| Issuer {
                    policy,
                    reserved,
                    signer: Signer::Upstream(upstream),
                }));
            }
        };
        Ok(ca.map(|ca| Issuer {
            policy: spec.policy,
            reserved: ca.reserved(),
            signer: Signer::Ca(ca),
        }))
    }

    /// The external CA of an issuer, the same as before if nothing of it has changed.
    fn upstream(
        &mut self,
        name: &IssuerName,
        spec: UpstreamSpec,
        secrets: Secrets,
    ) -> Result<Arc<Upstream<Server>>, String> {
        let before = self.upstreams.get(name).filter(|before| before.is_of(&spec, &secrets));
        if let Some(before) = before {
            return Ok(Arc::clone(before));
        }
        let upstream = Arc::new(Upstream::new(spec, secrets, |spec, cas| {
            let ca_name = spec.ca_name.as_deref();
            let server = Server::new(&spec.url, ca_name, cas, spec.allow_http);
            server.map_err(|error| error.to_string())
        })?);
        self.upstreams.insert(name.clone(), Arc::clone(&upstream));
        Ok(upstream)
    }

    /// All Secrets of an external CA, or the reason why one is missing.
    async fn secrets(
        &self,
        namespace: &str,
        upstream: &UpstreamSpec,
    ) -> Result<Result<Secrets, String>, ControlError> {
        let mut secrets = Secrets::new();
        for name in upstream.secrets() {
            match self.secret(&ObjectName::secret(namespace, name)).await? {
                Ok(secret) => {
                    let data = secret.data.unwrap_or_default();
                    let data = data.into_iter().map(|(key, value)| (key, value.0)).collect();
                    secrets.insert(name.to_owned(), data);
                }
                Err(fault) => return Ok(Err(fault)),
            }
        }
        Ok(Ok(secrets))
    }

    /// Reads the state of the server's CA.
    async fn server(&self) -> Result<ClusterState, ControlError> {
        let secret = async |name| read(&self.client, &ObjectName::secret(NAMESPACE, name)).await;
        let bundle = ObjectName::config_map(NAMESPACE, CA);
        Ok(ClusterState {
            ca: secret(CA).await?,
            serving: secret(SERVING).await?,
            bundle: read::<ConfigMap>(&self.client, &bundle).await?,
            ..ClusterState::default()
        })
    }

    /// Reads a Secret of an issuer. A missing permission for it does not affect other issuers; a general failure is an
    /// error.
    async fn secret(&self, object: &ObjectName) -> Result<Result<Secret, String>, ControlError> {
        match read::<Secret>(&self.client, object).await {
            Ok(Some(secret)) => Ok(Ok(secret)),
            Ok(None) => Ok(Err(format!("{object} not found"))),
            Err(ControlError::Api { error, .. }) if matches!(&error, kube::Error::Api(status) if status.code == 403) => {
                Ok(Err(format!("cannot read {object}: {}", api_reason(&error))))
            }
            Err(error) => Err(error),
        }
    }
}
