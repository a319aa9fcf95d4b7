//! A serving pair that somebody else makes, and what machines are to trust it by.
//!
//! Nothing is issued then. What its maker calls its roots goes into bundle and pointer configs, and the pair is served
//! once every pointer config that is known boots from it; until then the one before stays. CAs whose keys are at hand
//! vouch for its issuer, so that who trusts only them boots from it too.

use super::chain::Links;
use super::view::View;
use super::{Certificate, External, IssueError, Unusable, Warning, read_chain};

impl External {
    /// Its certificates, the leaf first.
    pub(super) fn certificates(&self) -> Vec<Certificate> {
        let pair = self.pair.as_ref().and_then(|pair| read_chain(&pair.certificates).ok());
        pair.unwrap_or_default()
    }

    /// Why it cannot be served, whoever trusts it.
    pub(super) fn fault(&self) -> Option<Unusable> {
        let Some(pair) = &self.pair else { return Some(Unusable::Missing) };
        // Machines skip what they cannot read in a bundle. A bundle with nothing else is reported.
        let trusts_nothing = self.trusted().is_empty();
        let unread = read_chain(&self.trust).err().filter(|_| trusts_nothing);
        match pair.served_chain() {
            Ok(chain) => {
                let mut sent = chain.iter().enumerate().filter(|(place, it)| is_sent(*place, it));
                let weakness = sent.find_map(|(_, it)| it.weakness());
                unread.or(weakness.map(Unusable::Weak))
            }
            Err(fault) => Some(fault),
        }
    }

    /// What machines cannot read of what they are to trust, if there is any. They pass over it.
    pub(super) fn unread(&self) -> Option<Warning> {
        let fault = read_chain(&self.trust).err()?;
        Some(Warning::TrustUnread { name: self.name.clone(), fault })
    }

    /// What would be sent: all that comes with the leaf but for roots, and what leads from there to the CAs that are
    /// kept.
    pub(super) fn chain(&self, view: &View<'_>) -> Result<Vec<Certificate>, IssueError> {
        let given = self.certificates();
        let Some((leaf, between)) = given.split_first() else { return Ok(Vec::new()) };
        let trusted = self.trusted();
        let issuer = between.iter().chain(&trusted).find(|ca| leaf.is_issued_by(ca));
        let mut chain = match issuer {
            Some(issuer) => {
                let links = Links { known: [&view.chain, &view.bundle, &given], ..view.links() };
                links.chain(leaf, issuer)?
            }
            None => vec![leaf.clone()],
        };
        let between = (1..).zip(between).filter(|(place, it)| is_sent(*place, it));
        let missing: Vec<_> =
            between.map(|(_, it)| it).filter(|it| !chain.contains(it)).cloned().collect();
        chain.splice(1..1, missing);
        Ok(chain)
    }
}

/// Whether what comes with a leaf is sent with it: all but roots. The leaf may be its own.
fn is_sent(place: usize, certificate: &Certificate) -> bool {
    place == 0 || !certificate.is_issued_by(certificate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_that_cannot_be_read_is_reported_beside_one_that_can() {
        let key = rcgen::KeyPair::generate().unwrap();
        let now = time::OffsetDateTime::UNIX_EPOCH;
        let root = crate::issue::issue_ca(&key, time::Duration::WEEK, now).unwrap();
        let broken = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n";
        let external = |trust: &[&str]| {
            let (name, trust) = ("theirs".to_owned(), trust.concat().into_bytes());
            External { name, pair: None, trust }
        };
        let good = external(&[&root.to_pem()]);
        assert_eq!(good.unread(), None);
        let mixed = external(&[&root.to_pem(), broken]);
        assert_eq!(mixed.trusted(), good.trusted());
        let reported = mixed.unread().unwrap();
        assert_eq!(reported.label(), "trust");
        assert!(reported.to_string().contains("certificate 2"), "{reported}");
    }
}
