//! A serving pair that is made outside of this server, and the CAs that machines trust it by.
//!
//! Nothing is issued in this case. The roots that come with the pair go into the bundle and pointer configs. The pair
//! is served once every known pointer config boots from it; until then the previous one stays. Stored CAs with keys
//! cross-sign its issuer, so that machines that trust only them boot too.

use super::certificate::Certificate;
use super::chain::Links;
use super::reason::{IssueError, Unusable};
use super::servable::read_chain;
use super::state::External;
use super::view::View;
use super::warning::Warning;

impl External {
    /// Certificates of the pair, the leaf first.
    pub(super) fn certificates(&self) -> Vec<Certificate> {
        let pair = self.pair.as_ref().and_then(|pair| read_chain(&pair.certificates).ok());
        pair.unwrap_or_default()
    }

    /// Reason why the pair cannot be served to any machine.
    pub(super) fn fault(&self) -> Option<Unusable> {
        let Some(pair) = &self.pair else { return Some(Unusable::Missing) };
        // Machines skip unreadable certificates in a bundle. Only a bundle without readable ones is reported.
        let trusts_nothing = self.trusted().is_empty();
        let unread = read_chain(&self.trust).err().filter(|_| trusts_nothing);
        let chain = match pair.served_chain() {
            Ok(chain) => chain,
            Err(fault) => return Some(fault),
        };
        let is_sent = |(place, it): &(usize, &Certificate)| *place == 0 || !it.is_self_signed();
        let mut sent = chain.iter().enumerate().filter(is_sent);
        unread.or_else(|| sent.find_map(|(_, it)| it.weakness()).map(Unusable::Weak))
    }

    /// Warning about certificates in the trust list that machines cannot read and skip.
    pub(super) fn unread(&self) -> Option<Warning> {
        let fault = read_chain(&self.trust).err()?;
        Some(Warning::TrustUnread { name: self.name.clone(), fault })
    }

    /// The chain to send: the leaf and all intermediates that come with it, without roots, then the path to the stored
    /// CAs.
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
        let is_missing = |it: &&Certificate| !it.is_self_signed() && !chain.contains(it);
        let missing: Vec<_> = between.iter().filter(is_missing).cloned().collect();
        chain.splice(1..1, missing);
        Ok(chain)
    }
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
