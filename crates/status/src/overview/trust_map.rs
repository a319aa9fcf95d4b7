//! Maps the trust between served certificates, CAs and pointer configs.

use std::collections::{BTreeMap, BTreeSet};

use pki::{Certificate, TrustHolder};
use serde::Serialize;
use time::OffsetDateTime;
use utoipa::ToSchema;

/// A pointer config that a machine may have.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = Pointer)]
pub struct PointerStatus {
    /// Name of the file or object.
    pub name: String,
    /// Reason why a machine with it could not boot at present; `null` if it could.
    pub problem: Option<String>,
}

/// Certificates and pointer configs, and the trust between them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TrustMap {
    /// The serving certificate first, if there is one; then each CA once, those that vouch for others after them.
    pub certificates: Vec<TrustedCertificate>,
    /// Pointer configs that trust the same CAs and boot machines alike, together.
    pub groups: Vec<PointerGroup>,
}

/// A certificate, and its issuers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustedCertificate {
    /// Its subject's common name.
    pub subject: String,
    /// True for the serving certificate itself.
    pub is_leaf: bool,
    /// True if it is sent to machines.
    pub is_sent: bool,
    /// End of its validity.
    pub not_after: OffsetDateTime,
    /// The CAs that signed it, by their places; a CA that signed itself is not among them.
    pub issuers: Vec<usize>,
}

/// Pointer configs that trust the same CAs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PointerGroup {
    /// Names of the files or objects.
    pub names: Vec<String>,
    /// The CAs that they trust, by their places.
    pub trusted: Vec<usize>,
    /// Why machines could not boot from them; `None` if they could.
    pub problem: Option<String>,
}

impl TrustMap {
    /// Creates the map of a served chain, leaf first, and of pointer configs with their verdicts.
    pub fn new(chain: &[Certificate], holders: &[TrustHolder], pointers: &[PointerStatus]) -> Self {
        let mut all: Vec<&Certificate> = Vec::new();
        let mut place = |certificate| {
            all.iter().position(|it| *it == certificate).unwrap_or_else(|| {
                all.push(certificate);
                all.len() - 1
            })
        };
        for certificate in chain {
            place(certificate);
        }
        let mut groups: BTreeMap<(BTreeSet<usize>, Option<String>), Vec<String>> = BTreeMap::new();
        for pointer in pointers {
            let of_it = holders.iter().filter(|holder| holder.name == pointer.name);
            let trusted: BTreeSet<_> = of_it.flat_map(|it| &it.trusted).map(&mut place).collect();
            let names = groups.entry((trusted, pointer.problem.clone())).or_default();
            names.push(pointer.name.clone());
        }
        let issuers = |certificate: &Certificate| {
            let vouches = |ca: &Certificate| ca != certificate && certificate.is_issued_by(ca);
            (0..all.len()).filter(|place| vouches(all[*place])).collect()
        };
        let certificates = all.iter().enumerate().map(|(place, certificate)| TrustedCertificate {
            subject: certificate.common_name.clone(),
            is_leaf: place == 0 && !chain.is_empty(),
            is_sent: chain.contains(certificate),
            not_after: certificate.not_after,
            issuers: issuers(certificate),
        });
        let groups = groups.into_iter().map(|((trusted, problem), names)| PointerGroup {
            names,
            trusted: trusted.into_iter().collect(),
            problem,
        });
        Self { certificates: certificates.collect(), groups: groups.collect() }
    }
}
