//! Chooses the CAs that machines trust for a serving pair that is made outside of this server, within the size that
//! pointer configs have room for.

use time::OffsetDateTime;

use super::certificate::{Certificate, unique};
use super::lockout::untrusted;
use super::state::External;
use super::warning::{MAX_TRUST_BYTES, Warning};

/// CAs that come with an external pair.
#[derive(Default)]
pub(super) struct Trust {
    pub(super) taken: Vec<Certificate>,
    /// Warning about CAs that are omitted for lack of room.
    pub(super) dropped: Option<Warning>,
}

impl External {
    /// The usable CAs that come with the pair.
    pub(super) fn trusted(&self) -> Vec<Certificate> {
        let cas = Certificate::read_all(&self.trust).into_iter();
        unique(cas.filter(|ca| ca.signing_fault().is_none()))
    }

    /// Chooses CAs of the list while `served` is served. CAs in the bundle already stay: machines may need them again.
    pub(super) fn trust(
        &self,
        served: &[Certificate],
        bundle: &[Certificate],
        now: OffsetDateTime,
    ) -> Trust {
        let trusted = self.trusted();
        let bytes: usize = trusted.iter().map(|certificate| certificate.to_pem().len()).sum();
        if bytes <= MAX_TRUST_BYTES {
            return Trust { taken: trusted, dropped: None };
        }
        let own = self.pair.as_ref().map(|pair| Certificate::read_all(&pair.certificates));
        let own = own.unwrap_or_default();
        let issued = |chain: &[Certificate], ca: &Certificate| {
            // A pair that is not valid yet is judged at its beginning, and one that ends before it begins at its end.
            let at = chain.first().map(|leaf| now.max(leaf.not_before).min(leaf.not_after));
            at.is_some_and(|at| untrusted(chain, std::slice::from_ref(ca), at).is_none())
        };
        let is_taken =
            |ca: &Certificate| bundle.contains(ca) || issued(&own, ca) || issued(served, ca);
        let listed = trusted.len();
        let taken: Vec<_> = trusted.into_iter().filter(is_taken).collect();
        let dropped = (taken.len() < listed).then(|| Warning::Trust {
            name: self.name.clone(),
            listed,
            dropped: listed - taken.len(),
            bytes,
        });
        Trust { taken, dropped }
    }
}
