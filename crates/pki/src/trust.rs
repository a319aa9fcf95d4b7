//! Chooses the CAs that machines trust for a serving pair that is made outside of this server, within the size that
//! pointer configs have room for.

use time::OffsetDateTime;

use super::certificate::Certificate;
use super::lockout::untrusted;
use super::state::External;
use super::warning::Warning;

/// Size up to which all CAs that come with the pair go into pointer configs, in bytes of PEM. Of a longer list only
/// issuers of the present or next pair do: EC2 accepts 16 KiB of user data, and each byte becomes 4/3 there.
const MAX_TRUST_BYTES: usize = 8 * 1024;

/// CAs that come with an external pair.
#[derive(Default)]
pub(super) struct Trust {
    /// CAs for machines to trust.
    pub(super) taken: Vec<Certificate>,
    /// CAs that are omitted for lack of room.
    pub(super) left_out: Vec<Certificate>,
}

impl External {
    /// The usable CAs that come with the pair.
    pub(super) fn trusted(&self) -> Vec<Certificate> {
        let mut trusted = Vec::new();
        for ca in Certificate::read_all(&self.trust) {
            if ca.signing_fault().is_none() && !trusted.contains(&ca) {
                trusted.push(ca);
            }
        }
        trusted
    }

    /// Chooses CAs of the list while `served` is served. CAs in the bundle already stay: machines may need them again.
    pub(super) fn trust(
        &self,
        served: &[Certificate],
        bundle: &[Certificate],
        now: OffsetDateTime,
    ) -> Trust {
        let trusted = self.trusted();
        if pem_bytes(&trusted) <= MAX_TRUST_BYTES {
            return Trust { taken: trusted, left_out: Vec::new() };
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
        let (taken, left_out) = trusted.into_iter().partition(is_taken);
        Trust { taken, left_out }
    }

    pub(super) fn left_out(&self, trust: &Trust) -> Option<Warning> {
        let listed = self.trusted();
        (!trust.left_out.is_empty()).then(|| Warning::Trust {
            name: self.name.clone(),
            listed: listed.len(),
            left_out: trust.left_out.len(),
            bytes: pem_bytes(&listed),
            most: MAX_TRUST_BYTES,
        })
    }
}

fn pem_bytes(certificates: &[Certificate]) -> usize {
    certificates.iter().map(|certificate| certificate.to_pem().len()).sum()
}
