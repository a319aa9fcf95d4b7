//! Reads the issuers of a cluster, with their Secrets.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cmp_http::Server;
use controllers::certificates::{CA, ClusterState, SERVING};
use controllers::{NAMESPACE, read_secret};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Client;
use kubernetes::ControlError;
use kubernetes::apply::read;
use kubernetes::error::api_reason;
use kubernetes::write::ObjectName;
use time::OffsetDateTime;
use tokio::sync::OnceCell;

use super::ca::SigningCa;
use super::issuer_spec::{ISSUER_KINDS, IssuerSpec, SignerSpec, UpstreamSpec};
use super::listed::Listed;
use super::policy::Policy;
use super::reserved_names::ReservedNames;
use super::upstream::{Secrets, Upstream};

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
    pub(super) listed: Listed,
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
    upstreams: BTreeMap<ObjectName, Arc<Upstream<Server>>>,
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
        for kind in ISSUER_KINDS {
            for listed in Listed::all(&self.client, kind).await? {
                let spec = IssuerSpec::read(&listed.object.data["spec"], &listed.name);
                let has_secrets =
                    |spec: &IssuerSpec| spec.signer != SignerSpec::MachineConfigServer;
                let is_temporary = spec.as_ref().is_ok_and(has_secrets);
                let issuer = match spec {
                    Ok(spec) => self.issuer(&listed.name, spec, now, &server).await?,
                    Err(fault) => Err(fault),
                };
                let waits_for_secret = is_temporary && issuer.is_err();
                all.push(IssuerObject { listed, issuer, waits_for_secret });
            }
        }
        let names: BTreeSet<&ObjectName> = all.iter().map(|read| &read.listed.name).collect();
        self.upstreams.retain(|name, _| names.contains(name));
        Ok(all)
    }

    async fn issuer(
        &mut self,
        name: &ObjectName,
        spec: IssuerSpec,
        now: OffsetDateTime,
        server: &OnceCell<ClusterState>,
    ) -> Result<Result<Issuer, String>, ControlError> {
        let namespace = match name.namespace.as_str() {
            "" => &self.namespace,
            namespace => namespace,
        };
        let IssuerSpec { signer, policy } = spec;
        let signer = match signer {
            SignerSpec::MachineConfigServer => {
                let server = server.get_or_try_init(|| self.server()).await?;
                SigningCa::of_server(server, now).map(Signer::Ca)
            }
            SignerSpec::Secret(secret) => {
                let server = server.get_or_try_init(|| self.server()).await?;
                let object = ObjectName::secret(namespace, &secret);
                let secret = self.secret(&object).await?;
                secret.and_then(|secret| {
                    let own = SigningCa::of_secret(&secret, server, now);
                    own.map(Signer::Ca).map_err(|fault| format!("{object}: {fault}"))
                })
            }
            SignerSpec::Upstream(upstream) => {
                let secrets = self.secrets(namespace, &upstream).await?;
                let upstream = secrets.and_then(|secrets| self.upstream(name, *upstream, secrets));
                upstream.map(Signer::Upstream)
            }
        };
        Ok(signer.map(|signer| {
            let reserved = match &signer {
                Signer::Ca(ca) => ca.reserved(),
                Signer::Upstream(_) => ReservedNames::default(),
            };
            Issuer { policy, reserved, signer }
        }))
    }

    /// The external CA of an issuer, the same as before if nothing of it has changed.
    fn upstream(
        &mut self,
        name: &ObjectName,
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
        let bundle = ObjectName::config_map(NAMESPACE, CA);
        Ok(ClusterState {
            ca: read_secret(&self.client, CA).await?,
            serving: read_secret(&self.client, SERVING).await?,
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
