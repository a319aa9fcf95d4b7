//! What machines are to trust where somebody else makes the serving pair: its maker's list of CAs, as far as there is
//! room for it in pointer configs.

use time::OffsetDateTime;

use super::certificate::Certificate;
use super::{External, Warning, untrusted};

/// CAs of its maker's list that all go into pointer configs, in bytes of PEM. Of a longer list only those do
/// that issued what is served or is to be: EC2 takes 16 KiB of user data, and each byte makes 4/3 there.
const MAX_TRUST_BYTES: usize = 8 * 1024;

/// The CAs that its maker has machines trust.
#[derive(Default)]
pub(super) struct Trust {
    /// Those that they are to trust.
    pub(super) taken: Vec<Certificate>,
    /// Those that there is no room for, and no need.
    pub(super) left_out: Vec<Certificate>,
}

impl External {
    /// Whom its maker has machines trust.
    pub(super) fn trusted(&self) -> Vec<Certificate> {
        let mut trusted = Vec::new();
        for ca in Certificate::read_all(&self.trust) {
            if ca.signing_fault().is_none() && !trusted.contains(&ca) {
                trusted.push(ca);
            }
        }
        trusted
    }

    /// What machines are to trust of its list, with `served` being served. What is in the bundle already
    /// stays: machines may need it once more.
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
            // A pair that is not valid yet is to be served later. One may end before it begins.
            let at = chain.first().map(|leaf| now.max(leaf.not_before).min(leaf.not_after));
            at.is_some_and(|at| untrusted(chain, std::slice::from_ref(ca), at).is_none())
        };
        let is_taken =
            |ca: &Certificate| bundle.contains(ca) || issued(&own, ca) || issued(served, ca);
        let (taken, left_out) = trusted.into_iter().partition(is_taken);
        Trust { taken, left_out }
    }

    /// What an administrator should know of the CAs that are left out, if any are.
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
