//! A certificate's extensions, as far as a path through it depends on them (RFC 5280 section 4.2).

use core::net::IpAddr;

use x509_parser::extensions::{BasicConstraints, GeneralName, ParsedExtension};
use x509_parser::prelude::X509Certificate;

use super::hosts::address;
use super::name_constraints::NameConstraints;

#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Extensions {
    /// Basic constraints: CA or not, and the maximum number of CAs between it and a leaf.
    pub(super) basic_constraints: Option<BasicConstraints>,
    /// True if key usage is present and lacks keyCertSign.
    pub(super) forbids_signing: bool,
    /// True if extended key usage is present and lacks serverAuth.
    pub(super) forbids_serving: bool,
    /// True if paths below it need certificate policies (section 4.2.1.11).
    pub(super) demands_policies: bool,
    /// The alternative names, as they are encoded.
    pub(super) alternative_names: Option<Vec<u8>>,
    /// The DNS names among them, wildcards too.
    pub(super) dns_names: Vec<String>,
    pub(super) addresses: Vec<IpAddr>,
    /// Names that certificates below a CA can have.
    pub(super) name_constraints: Option<NameConstraints>,
    /// The key's identifier, empty where there is none.
    pub(super) key_identifier: Vec<u8>,
    /// The identifier of the issuer's key, empty where there is none.
    pub(super) issuer_key_identifier: Vec<u8>,
    /// Object identifier of a critical extension that verifiers do not know.
    pub(super) unknown_critical: Option<String>,
}

impl Extensions {
    pub(super) fn read(certificate: &X509Certificate<'_>) -> Self {
        let mut read = Self::default();
        for extension in certificate.extensions() {
            let mut is_known = true;
            match extension.parsed_extension() {
                ParsedExtension::BasicConstraints(constraints) => {
                    read.basic_constraints = Some(constraints.clone());
                }
                ParsedExtension::KeyUsage(usage) => {
                    // Go treats a key usage without bits as absent.
                    read.forbids_signing = usage.flags != 0 && !usage.key_cert_sign();
                }
                ParsedExtension::ExtendedKeyUsage(usage) => {
                    read.forbids_serving = !usage.any && !usage.server_auth;
                }
                ParsedExtension::SubjectAlternativeName(names) => {
                    read.alternative_names = Some(extension.value.to_vec());
                    for name in &names.general_names {
                        match name {
                            GeneralName::DNSName(name) => read.dns_names.push((*name).to_owned()),
                            GeneralName::IPAddress(bytes) => read.addresses.extend(address(bytes)),
                            _ => {}
                        }
                    }
                }
                ParsedExtension::NameConstraints(constraints) => {
                    let (constraints, all_known) = NameConstraints::read(constraints);
                    read.name_constraints = Some(constraints);
                    is_known = all_known;
                }
                ParsedExtension::SubjectKeyIdentifier(identifier) => {
                    read.key_identifier = identifier.0.to_vec();
                }
                ParsedExtension::AuthorityKeyIdentifier(identifier) => {
                    let identifier = identifier.key_identifier.iter();
                    read.issuer_key_identifier = identifier.flat_map(|it| it.0).copied().collect();
                }
                // Go handles policy mappings and constraints since 1.22, and machines may have an older release.
                ParsedExtension::PolicyConstraints(constraints) => {
                    read.demands_policies = constraints.require_explicit_policy.is_some();
                    is_known = false;
                }
                ParsedExtension::CertificatePolicies(_)
                | ParsedExtension::CRLDistributionPoints(_) => {}
                _ => is_known = false,
            }
            if extension.critical && !is_known {
                read.unknown_critical.get_or_insert_with(|| extension.oid.to_id_string());
            }
        }
        read
    }
}
