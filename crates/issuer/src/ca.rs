//! The CA that signs for an issuer, built from the objects that were read. The module does no I/O.
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

use std::collections::{BTreeMap, BTreeSet};

use controllers::certificates::{ClusterState, stored_pair, value};
use k8s_openapi::api::core::v1::Secret;
use pki::issue::Validity;
use pki::moment::LAST;
use pki::{
    CertificateState, IssueError, Issued, OwnCa, Requested, StoredPair, issue_requested,
    signing_fault,
};
use time::{Duration, OffsetDateTime};

use super::policy::Grant;
use super::reserved_names::ReservedNames;

/// Time by which validity is backdated, for clients whose clocks are behind.
const BACKDATED: Duration = Duration::minutes(5);

/// A CA that can sign.
pub(super) enum SigningCa {
    /// The machine config server's CA, with the names by which machines know the server.
    Server(Box<CertificateState>, ReservedNames),
    /// A CA in a Secret.
    Own(Box<OwnCa>),
}

impl SigningCa {
    /// The machine config server's CA, or the reason why it cannot sign.
    pub(super) fn of_server(cluster: &ClusterState, now: OffsetDateTime) -> Result<Self, String> {
        if cluster.ca.is_none() {
            return Err("the server has no CA yet".to_owned());
        }
        let state = cluster.certificates(&BTreeMap::new(), &BTreeSet::new());
        let state = state.map_err(|error| error.to_string())?;
        if let Some(fault) = signing_fault(&state, now) {
            return Err(format!("the server's CA cannot sign: {fault}"));
        }
        // Nothing is signed before the names of the server are known, which are reserved.
        let leaf = state.served();
        let reported = cluster.serving_names().unwrap_or_default();
        let reserved =
            leaf.map(|leaf| ReservedNames::of_server(&leaf, reported)).unwrap_or_default();
        if reserved.is_empty() {
            return Err(
                "the server has no serving certificate, which would have its names".to_owned()
            );
        }
        Ok(Self::Server(Box::new(state), reserved))
    }

    /// A CA in a Secret, or the reason why it cannot sign. A key of the machine config server is used as its CA, so
    /// that the server's names are reserved.
    pub(super) fn of_secret(
        secret: &Secret,
        cluster: &ClusterState,
        now: OffsetDateTime,
    ) -> Result<Self, String> {
        // Previous CAs are the machine config server's alone.
        let pair = StoredPair { previous: Vec::new(), ..stored_pair(secret) };
        let roots = value(secret, "ca.crt").unwrap_or_default();
        let own = OwnCa::read(&pair, roots, now).map_err(|error| error.to_string())?;
        if cluster.ca.as_ref().is_some_and(|stored| own.is_of(&stored_pair(stored))) {
            return Err(
                "its key is the server's signing CA, which is only available as machineConfigServer: {}"
                    .to_owned(),
            );
        }
        Ok(Self::Own(Box::new(own)))
    }

    /// Names that a policy's patterns do not cover: for the server's CA, those by which machines know the server.
    pub(super) fn reserved(&self) -> ReservedNames {
        match self {
            Self::Server(_, reserved) => reserved.clone(),
            Self::Own(_) => ReservedNames::default(),
        }
    }

    pub(super) fn issue(&self, grant: &Grant, now: OffsetDateTime) -> Result<Issued, IssueError> {
        let duration = Duration::try_from(grant.duration).unwrap_or(Duration::MAX);
        // An overflow is limited by the end of the CA.
        let end = now.checked_add(duration).unwrap_or(LAST);
        let requested = Requested {
            request: &grant.request,
            usages: &grant.usages,
            is_ca: grant.is_ca,
            validity: Validity { begin: now.saturating_sub(BACKDATED), end },
        };
        match self {
            Self::Server(state, _) => issue_requested(state, &requested, now),
            Self::Own(own) => own.issue(&requested),
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;
    use pki::Host;
    use pki::issue::{Signer, issue_ca, issue_serving};
    use rcgen::KeyPair;

    use super::*;

    const NOW: OffsetDateTime = time::macros::datetime!(2026-01-01 0:00 UTC);

    fn secret(certificate: &str, key: &KeyPair) -> Secret {
        let data = [("tls.crt", certificate.to_owned()), ("tls.key", key.serialize_pem())];
        let data = data.map(|(name, text)| (name.to_owned(), ByteString(text.into())));
        Secret { data: Some(data.into()), ..Secret::default() }
    }

    #[test]
    fn the_server_s_ca_signs_once_the_server_s_names_are_known() {
        let (ca_key, key) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let ca = issue_ca(&ca_key, Duration::days(10), NOW).unwrap();
        let host: Host = "mcs.example.com".parse().unwrap();
        let by = Signer { certificate: &ca, key: &ca_key };
        let validity = Validity { begin: NOW, end: NOW + Duration::days(5) };
        let leaf = issue_serving(&key, std::slice::from_ref(&host), by, validity).unwrap();
        let fault = |cluster: &ClusterState, now| SigningCa::of_server(cluster, now).err();

        let mut cluster = ClusterState::default();
        assert_eq!(fault(&cluster, NOW).unwrap(), "the server has no CA yet");
        cluster.ca = Some(secret(&ca.to_pem(), &ca_key));
        let unknown = "the server has no serving certificate, which would have its names";
        assert_eq!(fault(&cluster, NOW).unwrap(), unknown);
        cluster.serving = Some(secret(&leaf.to_pem(), &key));
        let signer = SigningCa::of_server(&cluster, NOW).unwrap();
        assert_eq!(signer.reserved(), ["mcs.example.com"].into_iter().collect());
        let annotations = [("auth.openshift.io/certificate-hostnames", "api-int.example.com")];
        let annotations = annotations.map(|(name, value)| (name.to_owned(), value.to_owned()));
        cluster.serving.as_mut().unwrap().metadata.annotations = Some(annotations.into());
        let signer = SigningCa::of_server(&cluster, NOW).unwrap();
        assert!(signer.reserved().has_name("api-int.example.com"));
        // An external pair can have only a wildcard.
        let mut params = rcgen::CertificateParams::new(["*.example.com".to_owned()]).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        let wild = params.self_signed(&key).unwrap().pem();
        let cluster_of = |serving| ClusterState { serving, ..cluster.clone() };
        let signer = SigningCa::of_server(&cluster_of(Some(secret(&wild, &key))), NOW).unwrap();
        assert!(signer.reserved().has_name("mcs.example.com"));
        let late = NOW + Duration::days(11);
        let over = "the server's CA cannot sign: no CA with an available key is valid now";
        assert_eq!(fault(&cluster, late).unwrap(), over);
        cluster.ca = Some(secret(&ca.to_pem(), &key));
        let foreign = "the server's CA cannot sign: its key does not belong to its certificate";
        assert_eq!(fault(&cluster, NOW).unwrap(), foreign);
    }

    #[test]
    fn a_ca_out_of_a_secret_has_no_names_of_the_server() {
        let key = KeyPair::generate().unwrap();
        let ca = issue_ca(&key, Duration::days(10), NOW).unwrap();
        let none = ClusterState::default();
        let ca = SigningCa::of_secret(&secret(&ca.to_pem(), &key), &none, NOW).unwrap();
        assert!(ca.reserved().is_empty());
        let fault = SigningCa::of_secret(&Secret::default(), &none, NOW).err();
        assert_eq!(fault.unwrap(), "empty");
    }

    #[test]
    fn the_server_s_key_does_not_sign_out_of_a_secret() {
        let [key, before, other] = [(); 3].map(|()| KeyPair::generate().unwrap());
        let ca = |key: &KeyPair| issue_ca(key, Duration::days(10), NOW).unwrap();
        let own = ca(&key);
        let mut stored = secret(&own.to_pem(), &key);
        let previous = ca(&before).to_pem() + &before.serialize_pem();
        let data = stored.data.as_mut().unwrap();
        data.insert("previous-cas.pem".to_owned(), ByteString(previous.into()));
        let whole = ClusterState { ca: Some(stored), ..ClusterState::default() };
        // An administrator must correct it.
        let broken =
            ClusterState { ca: Some(secret(&own.to_pem(), &other)), ..ClusterState::default() };
        // Another certificate for the same key belongs to the same CA.
        let renewed = issue_ca(&key, Duration::days(20), NOW).unwrap();
        for (certificate, key, cluster, is_server) in [
            (&own, &key, &whole, true),
            (&renewed, &key, &whole, true),
            (&ca(&before), &before, &whole, true),
            (&ca(&other), &other, &whole, false),
            (&own, &key, &broken, true),
        ] {
            let secret = secret(&certificate.to_pem(), key);
            let fault = SigningCa::of_secret(&secret, cluster, NOW).err();
            let reported = "its key is the server's signing CA, which is only available as \
                machineConfigServer: {}";
            assert_eq!(fault.as_deref(), is_server.then_some(reported), "{certificate:?}");
        }
    }
}
