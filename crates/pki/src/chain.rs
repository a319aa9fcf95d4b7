//! Which certificates are sent after the leaf.
//!
//! Whoever trusts the CA that signed the leaf needs none. For all others there has to be a way from
//! it to the CA that they trust: cross-certificates, each one CA's name and key signed by another.
//! The verifiers that count are Go's, Ignition's own, which tries every way; and OpenSSL's, curl's,
//! which takes the first certificate of an issuer's name that it meets and never turns back. So all
//! CAs lie on one way, that with the longest left to live next to the leaf's own, those that hang on
//! somebody else's last, and each is sent once. A chain grows by one certificate a rotation, and not
//! beyond [`MAX_CHAIN_BYTES`].
//!
//! What is sent begins with the oldest CA that it leads to, not when it was issued: a machine whose
//! clock is behind boots after a rotation as it did before.

use std::cell::RefCell;

use time::{Duration, OffsetDateTime};

use super::ca_store::{Ca, CaStore};
use super::issue::{BACKDATED, cross_sign};
use super::lockout::{Signatures, handshake_bytes, refusals};
use super::{Certificate, Holder, IssueError};

/// What a handshake may hold of certificates.
pub const MAX_CHAIN_BYTES: usize = 16 * 1024;

/// What chains are put together from.
pub(super) struct Links<'a> {
    pub(super) kept: &'a CaStore,
    /// Certificates that are known beside those that are kept: what is sent now, the bundle, and an
    /// older installation's CA.
    pub(super) known: [&'a [Certificate]; 3],
    pub(super) now: OffsetDateTime,
    /// What was found out about signatures.
    pub(super) signatures: &'a RefCell<Signatures>,
    /// The end of a pair that was replaced and that nobody here can issue again.
    pub(super) irreplaceable_until: Option<OffsetDateTime>,
}

impl Links<'_> {
    /// When what `signer` signs begins.
    ///
    /// A pair that cannot be issued again is needed when the clock, that was ahead, comes back: what
    /// has replaced it does not reach into its time, but for a while.
    pub(super) fn begin(&self, signer: &Certificate) -> OffsetDateTime {
        let followed = self.followed(signer);
        // A root that others hang on is reached by way of them, and begins long before them.
        let is_above = |ca: &&&Ca| {
            let own = |other: &&Ca| other.certificate != ca.certificate;
            let mut others = self.kept.cas.iter().filter(own);
            ca.key.is_none() && others.any(|other| other.certificate.is_issued_by(&ca.certificate))
        };
        let begins = followed.iter().filter(|ca| !is_above(ca)).map(|ca| ca.certificate.not_before);
        let begin = begins.fold(signer.not_before, Ord::min);
        match self.irreplaceable_until {
            Some(end) => {
                begin.max(end.saturating_sub(CLOCKS_BEHIND)).min(self.now.saturating_sub(BACKDATED))
            }
            None => begin,
        }
    }

    /// The CAs that a way is looked for to, in the order in which they lie on it.
    fn followed(&self, signer: &Certificate) -> Vec<&Ca> {
        let is_followed =
            |ca: &&Ca| ca.certificate.is_valid_at(self.now) && !ca.certificate.is_same_ca(signer);
        let mut followed: Vec<_> = self.kept.cas.iter().filter(is_followed).collect();
        // One that hangs on somebody else's comes last: from it the way goes on with its own
        // certificate.
        followed.sort_by_key(|ca| {
            let Certificate { not_after, not_before, subject_name, issuer_name, .. } =
                &ca.certificate;
            (subject_name != issuer_name, std::cmp::Reverse((*not_after, *not_before)))
        });
        followed
    }

    /// The leaf that `signer` issued, with all that leads from it to the other CAs.
    pub(super) fn chain(
        &self,
        leaf: &Certificate,
        signer: &Certificate,
    ) -> Result<Vec<Certificate>, IssueError> {
        let begin = self.begin(signer);
        let mut sent = vec![leaf.clone()];
        // The last CA on the way, from which the next one is looked for.
        let mut last = signer;
        let mut left = self.followed(signer);
        // What others signed, and nobody here can sign again, may lead from any CA to any other.
        let mut has_grown = true;
        while has_grown {
            has_grown = false;
            let mut unreached = Vec::new();
            for ca in left {
                if self.reaches(&sent, &ca.certificate) {
                    continue;
                }
                if let Some(link) = self.link(&sent, [last, signer], ca, begin)? {
                    sent.push(link);
                    has_grown = true;
                    if ca.key.is_some() {
                        last = &ca.certificate;
                    }
                } else {
                    unreached.push(ca);
                }
            }
            left = unreached;
        }
        self.add_ways_up(&mut sent);
        Ok(sent)
    }

    /// A certificate by which `ca` vouches for what is on the way already.
    fn link(
        &self,
        sent: &[Certificate],
        from: [&Certificate; 2],
        ca: &Ca,
        begin: OffsetDateTime,
    ) -> Result<Option<Certificate>, IssueError> {
        let leads = |link: &Certificate| {
            let longer = [sent, std::slice::from_ref(link)].concat();
            handshake_bytes(&longer) <= MAX_CHAIN_BYTES && self.reaches(&longer, &ca.certificate)
        };
        let issued = self.all().filter(|other| other.is_issued_by(&ca.certificate));
        let issued: Vec<_> = issued.collect();
        for from in from {
            let is_good = |link: &&&Certificate| link.is_same_ca(from) && link.not_before <= begin;
            if let Some(link) = issued.iter().filter(is_good).find(|link| leads(link)) {
                return Ok(Some((*link).clone()));
            }
            if let Some(signer) = ca.signer() {
                let link = cross_sign(from, signer, begin)?;
                if leads(&link) {
                    return Ok(Some(link));
                }
            }
        }
        Ok(issued.into_iter().find(|link| leads(link)).cloned())
    }

    /// Adds what leads to CAs that are known by their certificate alone, or by nobody here.
    fn add_ways_up(&self, sent: &mut Vec<Certificate>) {
        for _ in 0..MAX_INTERMEDIATES {
            let next = self.all().find(|other| {
                other.subject_name != other.issuer_name
                    && other.is_valid_at(self.now)
                    && !sent.contains(other)
                    && sent.iter().any(|it| it.is_issued_by(other))
                    && !self.kept.cas.iter().any(|ca| other.is_issued_by(&ca.certificate))
            });
            let Some(next) = next else { return };
            sent.push(next.clone());
            if handshake_bytes(sent) > MAX_CHAIN_BYTES {
                sent.pop();
                return;
            }
        }
    }

    /// All certificates that might be sent.
    fn all(&self) -> impl Iterator<Item = &Certificate> {
        let kept = self.kept.cas.iter().map(|ca| &ca.certificate);
        let all = kept.chain(&self.kept.cross_certificates).chain(self.known.into_iter().flatten());
        all.filter(|it| !self.kept.is_tainted(it))
    }

    fn reaches(&self, sent: &[Certificate], ca: &Certificate) -> bool {
        let holder = Holder::of_one(ca);
        let signatures = &mut self.signatures.borrow_mut();
        refusals(sent, [&holder], self.now, signatures) == [None]
    }
}

/// How far machines' clocks are behind, at the most that is provided for in this case.
const CLOCKS_BEHIND: Duration = Duration::days(30);

/// Intermediates that one CA hangs on.
const MAX_INTERMEDIATES: usize = 8;

#[cfg(test)]
mod tests {
    use rcgen::KeyPair;
    use time::macros::datetime;

    use super::*;
    use crate::StoredPair;
    use crate::issue::{Signer, Validity, issue_ca, issue_serving};

    const NOW: OffsetDateTime = datetime!(2026-01-01 0:00 UTC);

    #[test]
    fn so_many_intermediates_are_sent_and_no_more() {
        let ca = |_| {
            let key = KeyPair::generate().unwrap();
            (issue_ca(&key, Duration::days(3_650), NOW).unwrap(), key)
        };
        let cas: Vec<_> = (0..MAX_INTERMEDIATES + 3).map(ca).collect();
        // Each signed by the next one.
        let below = |pair: &[(Certificate, KeyPair)]| {
            let [(certificate, _), (above, key)] = pair else { panic!("two") };
            cross_sign(certificate, Signer { certificate: above, key }, NOW).unwrap()
        };
        let between: Vec<_> = cas.windows(2).map(below).collect();
        let (signer, key) = &cas[0];
        let stored = StoredPair {
            certificates: signer.to_pem().into(),
            key: key.serialize_pem().into(),
            ..StoredPair::default()
        };
        let (kept, _) = CaStore::read(&stored);
        let validity = Validity { begin: NOW, end: NOW + Duration::days(30) };
        let own = KeyPair::generate().unwrap();
        let by = Signer { certificate: signer, key };
        let leaf = issue_serving(&own, &["a.example.com".parse().unwrap()], by, validity).unwrap();
        for (known, sent) in [
            (MAX_INTERMEDIATES - 1, MAX_INTERMEDIATES - 1),
            (MAX_INTERMEDIATES, MAX_INTERMEDIATES),
            (MAX_INTERMEDIATES + 2, MAX_INTERMEDIATES),
        ] {
            let links = Links {
                kept: &kept,
                known: [&between[..known], &[], &[]],
                now: NOW,
                signatures: &RefCell::default(),
                irreplaceable_until: None,
            };
            let chain = links.chain(&leaf, signer).unwrap();
            assert_eq!(chain[1..], between[..sent], "{known}");
        }
    }
}
