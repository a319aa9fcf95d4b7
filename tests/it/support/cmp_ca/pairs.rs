//! Certificates with their keys.

use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::ServerConfig;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

pub(super) struct Pair {
    pub(super) der: Vec<u8>,
    pub(super) key: KeyPair,
    pub(super) params: CertificateParams,
}

impl Pair {
    pub(super) fn new(name: &str, by: Option<&Self>, is_ca: bool) -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = named(name);
        if is_ca {
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params.key_usages =
                vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        }
        let made = match by {
            Some(by) => {
                let issuer = Issuer::from_params(&by.params, &by.key);
                params.signed_by(&key, &issuer)
            }
            None => params.self_signed(&key),
        };
        let der = made.expect("a certificate").der().to_vec();
        Self { der, key, params }
    }
}

pub(super) fn named(name: &str) -> CertificateParams {
    let mut params = unnamed();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

pub(super) fn unnamed() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.use_authority_key_identifier_extension = true;
    params
}

/// TLS with a certificate of `root` for localhost.
pub(super) fn tls(root: &Pair) -> Arc<ServerConfig> {
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
    let issuer = Issuer::from_params(&root.params, &root.key);
    let leaf = params.signed_by(&key, &issuer).expect("a certificate");
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the library's own protocol versions")
        .with_no_client_auth()
        .with_single_cert(vec![leaf.der().clone()], key);
    Arc::new(config.expect("a pair"))
}
