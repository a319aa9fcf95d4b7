//! A serving pair that somebody else makes, and what machines are to trust it by.
//!
//! Nothing is issued then. What its maker calls its roots goes into bundle and pointer configs, and the pair is served
//! once every pointer config that is known boots from it; until then the one before stays. CAs whose keys are at hand
//! vouch for its issuer, so that who trusts only them boots from it too.

use time::OffsetDateTime;

use super::certificate::key_of;
use super::chain::Links;
use super::view::View;
use super::{Attention, Certificate, External, IssueError, Unusable, untrusted};

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
    /// Its certificates, the leaf first.
    pub(super) fn certificates(&self) -> Vec<Certificate> {
        self.pair.as_ref().map(|pair| Certificate::read_all(&pair.certificates)).unwrap_or_default()
    }

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
        let own = self.certificates();
        let issued = |chain: &[Certificate], ca: &Certificate| {
            // A pair that is not valid yet is to be served later.
            let at = chain.first().map(|leaf| now.clamp(leaf.not_before, leaf.not_after));
            at.is_some_and(|at| untrusted(chain, std::slice::from_ref(ca), at).is_none())
        };
        let is_taken =
            |ca: &Certificate| bundle.contains(ca) || issued(&own, ca) || issued(served, ca);
        let (taken, left_out) = trusted.into_iter().partition(is_taken);
        Trust { taken, left_out }
    }

    /// What an administrator should know of the CAs that are left out, if any are.
    pub(super) fn left_out(&self, trust: &Trust) -> Option<Attention> {
        let listed = self.trusted();
        (!trust.left_out.is_empty()).then(|| Attention::Trust {
            name: self.name.clone(),
            listed: listed.len(),
            left_out: trust.left_out.len(),
            bytes: pem_bytes(&listed),
            most: MAX_TRUST_BYTES,
        })
    }

    /// Why it cannot be served, whoever trusts it.
    pub(super) fn fault(&self) -> Option<Unusable> {
        let Some(pair) = &self.pair else { return Some(Unusable::Missing) };
        if let Some(reason) = &pair.unreadable {
            return Some(Unusable::Unreadable(reason.clone()));
        }
        let certificates = self.certificates();
        let Some(leaf) = certificates.first() else { return Some(Unusable::NoCertificate) };
        if leaf.signing_fault().is_none() {
            return Some(Unusable::Ca);
        }
        match key_of(&pair.key) {
            Some(key) if leaf.matches(&key) => None,
            Some(_) => Some(Unusable::ForeignKey),
            None if pair.key.is_empty() => Some(Unusable::NoKey),
            None => Some(Unusable::UnsupportedKey),
        }
    }

    /// What would be sent: all that comes with the leaf but for roots, and what leads from there to the CAs that are
    /// kept.
    pub(super) fn chain(&self, view: &View<'_>) -> Result<Vec<Certificate>, IssueError> {
        let given = self.certificates();
        let Some((leaf, between)) = given.split_first() else { return Ok(Vec::new()) };
        let trusted = self.trusted();
        let issuer = between.iter().chain(&trusted).find(|ca| leaf.is_issued_by(ca));
        let is_sent = |it: &Certificate| !it.is_issued_by(it);
        let mut chain = match issuer {
            Some(issuer) => {
                let links = Links { known: [&view.chain, &view.bundle, &given], ..view.links() };
                links.chain(leaf, issuer)?
            }
            None => vec![leaf.clone()],
        };
        let missing: Vec<_> =
            between.iter().filter(|it| is_sent(it) && !chain.contains(it)).cloned().collect();
        chain.splice(1..1, missing);
        Ok(chain)
    }
}

fn pem_bytes(certificates: &[Certificate]) -> usize {
    certificates.iter().map(|certificate| certificate.to_pem().len()).sum()
}
