//! Chooses the certificates that are sent after the leaf.
//!
//! A client that trusts the CA that signed the leaf needs none. All others need a path from it to the CA that they
//! trust: cross-certificates, each with one CA's name and key signed by another. The relevant verifiers are Go's, used
//! by Ignition, which tries every path, and OpenSSL's, used by curl, which takes the first certificate with the
//! issuer's name and does not backtrack. So all CAs lie on one path: next to the leaf's own the one that is valid
//! longest, last those that an external CA issued. Each is sent once. A chain grows by one certificate a rotation, and
//! not beyond [`MAX_CHAIN_BYTES`].
//!
//! The validity of issued certificates begins with that of the oldest CA on the path, not at the time of issue: a
//! machine whose clock is behind boots after a rotation as it did before.

use time::{Duration, OffsetDateTime};

use super::ca_store::{Ca, CaStore};
use super::certificate::Certificate;
use super::holder::TrustHolder;
use super::issue::{BACKDATED, cross_sign};
use super::lockout::{handshake_bytes, refusals};
use super::reason::IssueError;

/// Maximum size of the chain, in bytes of DER.
pub const MAX_CHAIN_BYTES: usize = 16 * 1024;

pub(super) struct Links<'a> {
    pub(super) store: &'a CaStore,
    /// Certificates that are not in the store: the served chain, the bundle, and the CA of an older installation.
    pub(super) known: [&'a [Certificate]; 3],
    pub(super) now: OffsetDateTime,
    /// End of the validity of a replaced pair that cannot be issued again here.
    pub(super) irreplaceable_until: Option<OffsetDateTime>,
}

impl Links<'_> {
    /// Beginning of the validity of certificates that `signer` issues.
    ///
    /// A pair that cannot be issued again is needed if the clock was ahead and is set back. So the validity of its
    /// replacement overlaps with it only for [`CLOCKS_BEHIND`].
    pub(super) fn begin(&self, signer: &Certificate) -> OffsetDateTime {
        let followed = self.followed(signer);
        // A root above other stored CAs is reached through them, and can begin long before them.
        let is_above = |Ca { certificate, key }: &Ca| {
            let mut others = self.store.certificates().filter(|other| *other != certificate);
            key.is_none() && others.any(|other| other.is_issued_by(certificate))
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

    /// The CAs that the path must reach, in their order on it.
    fn followed(&self, signer: &Certificate) -> Vec<&Ca> {
        let is_followed =
            |ca: &&Ca| ca.certificate.is_valid_at(self.now) && !ca.certificate.is_same_ca(signer);
        let mut followed: Vec<_> = self.store.cas.iter().filter(is_followed).collect();
        // CAs that an external CA issued come last: the path continues from them with their own certificates.
        followed.sort_by_key(|ca| {
            let Certificate { not_after, not_before, subject_name, issuer_name, .. } =
                &ca.certificate;
            (subject_name != issuer_name, std::cmp::Reverse((*not_after, *not_before)))
        });
        followed
    }

    /// The leaf that `signer` issued, followed by the path from it to the other CAs.
    pub(super) fn chain(
        &self,
        leaf: &Certificate,
        signer: &Certificate,
    ) -> Result<Vec<Certificate>, IssueError> {
        let begin = self.begin(signer);
        let mut sent = vec![leaf.clone()];
        // Last CA on the path so far.
        let mut last = signer;
        let mut left = self.followed(signer);
        // Cross-certificates of external CAs, which cannot be issued again here, may connect any two CAs.
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
        self.add_intermediates(&mut sent);
        Ok(sent)
    }

    /// A cross-certificate that `ca` issued for a CA on the path, stored or new.
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
        let issued: Vec<_> = self.all().filter(|it| it.is_issued_by(&ca.certificate)).collect();
        for from in from {
            let is_good = |link: &&&Certificate| link.is_same_ca(from) && link.not_before <= begin;
            if let Some(link) = issued.iter().filter(is_good).find(|link| leads(link)) {
                return Ok(Some((*link).clone()));
            }
            if let Ok(signer) = ca.signer() {
                let link = cross_sign(from, signer, begin)?;
                if leads(&link) {
                    return Ok(Some(link));
                }
            }
        }
        Ok(issued.into_iter().find(|link| leads(link)).cloned())
    }

    /// Appends intermediates that lead to CAs whose keys are not stored.
    fn add_intermediates(&self, sent: &mut Vec<Certificate>) {
        for _ in 0..MAX_INTERMEDIATES {
            let next = self.all().find(|other| {
                other.subject_name != other.issuer_name
                    && other.is_valid_at(self.now)
                    && !sent.contains(other)
                    && sent.iter().any(|it| it.is_issued_by(other))
                    && !self.store.certificates().any(|ca| other.is_issued_by(ca))
            });
            let Some(next) = next else { return };
            sent.push(next.clone());
            if handshake_bytes(sent) > MAX_CHAIN_BYTES {
                sent.pop();
                return;
            }
        }
    }

    /// All certificates that can be sent.
    fn all(&self) -> impl Iterator<Item = &Certificate> {
        let stored = self.store.certificates().chain(&self.store.cross_certificates);
        let all = stored.chain(self.known.into_iter().flatten());
        all.filter(|it| !self.store.is_tainted(it))
    }

    fn reaches(&self, sent: &[Certificate], ca: &Certificate) -> bool {
        refusals(sent, [&TrustHolder::of_one(ca)], self.now) == [None]
    }
}

/// Assumed maximum lag of machines' clocks.
const CLOCKS_BEHIND: Duration = Duration::days(30);

/// Maximum number of intermediates above one CA.
const MAX_INTERMEDIATES: usize = 8;

#[cfg(test)]
mod tests {
    use rcgen::KeyPair;
    use time::macros::datetime;

    use super::*;
    use crate::issue::{Signer, Validity, issue_ca, issue_serving};
    use crate::state::StoredPair;

    const NOW: OffsetDateTime = datetime!(2026-01-01 0:00 UTC);

    #[test]
    fn so_many_intermediates_are_sent_and_no_more() {
        let ca = |_| {
            let key = KeyPair::generate().unwrap();
            (issue_ca(&key, Duration::days(3_650), NOW).unwrap(), key)
        };
        let cas: Vec<_> = (0..MAX_INTERMEDIATES + 3).map(ca).collect();
        // Each is signed by the next one.
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
        let (store, _) = CaStore::read(&stored);
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
                store: &store,
                known: [&between[..known], &[], &[]],
                now: NOW,
                irreplaceable_until: None,
            };
            let chain = links.chain(&leaf, signer).unwrap();
            assert_eq!(chain[1..], between[..sent], "{known}");
        }
    }
}
