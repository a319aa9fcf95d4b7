//! Makes a new CA, or takes one that an external CA issued, after a check of the chain that it would lead to.

use std::sync::Arc;

use time::OffsetDateTime;

use super::ca_store::{Ca, CaKey, CaStore};
use super::certificate::Certificate;
use super::chain::{Links, MAX_CHAIN_BYTES};
use super::holder::{Lockout, LockoutReason, TrustHolder};
use super::hosts::Host;
use super::issue::{Validity, cross_sign, issue_ca, issue_serving};
use super::issuer::IssuedCa;
use super::issuer::IssuedCaFault;
use super::lockout::handshake_bytes;
use super::lockout::locked_out;
use super::plan::wanted_hosts;
use super::reason::{IssueError, Reason};
use super::serving::is_forced;
use super::state::Issuer;
use super::warning::{CertificateKind, Refusal, Refused};
use super::writes::{Write, WriteBuilder, Writes};

/// Number of renewals for which a chain has room while older CAs are still valid.
const RENEWALS: usize = 2;

/// Adds a new CA to the store as its own, with the cross-certificates to the others: their keys may be missing when
/// these are needed again.
fn kept_with(mut kept: CaStore, new: &Ca, ways: Vec<Certificate>, now: OffsetDateTime) -> Write {
    for link in ways.into_iter().skip(1) {
        let is_own = kept.cas.iter().any(|ca| ca.certificate == link);
        if !is_own && !kept.cross_certificates.contains(&link) {
            kept.cross_certificates.push(link);
        }
    }
    kept.cas.retain(|ca| ca.certificate != new.certificate);
    kept.cas.insert(0, new.clone());
    Write::Ca(kept.store(new, now))
}

impl WriteBuilder<'_> {
    /// Makes a new CA, and keeps all others.
    pub(super) fn ca(&mut self, reason: &Reason) -> Result<Writes, IssueError> {
        let refused =
            |refusal| Refused { what: CertificateKind::Ca, because: reason.clone(), refusal };
        if let Some(issuer) = &self.view.state.issuer {
            let granted = issuer.request.as_ref().and_then(|it| it.granted(self.view.now));
            let taken = match granted {
                None => return Ok(Ok(Vec::new())),
                Some(granted) => self.take(issuer, reason, granted)?,
            };
            return Ok(taken.map_err(refused));
        }
        if *reason == Reason::Requested
            && !self.view.state.asked.force
            && let Some(refusal) = self.refusal()?
        {
            return Ok(Err(refused(refusal)));
        }
        let new = self.new_ca()?;
        let ways = self.ways_from(&new, &self.view.kept)?;
        Ok(Ok(vec![kept_with(self.view.kept.clone(), &new, ways, self.view.now)]))
    }

    /// Takes a CA that an external CA issued, if machines can boot with it.
    fn take(
        &self,
        issuer: &Issuer,
        reason: &Reason,
        granted: Result<IssuedCa, IssuedCaFault>,
    ) -> Result<Result<Vec<Write>, Refusal>, IssueError> {
        let unfit = |unfit| Refusal::Unfit { issuer: issuer.name.clone(), unfit };
        let IssuedCa { ca, above, roots } = match granted {
            Ok(granted) => granted,
            Err(error) => return Ok(Err(unfit(error))),
        };
        let mut kept = self.view.kept.clone();
        let is_new = |it: &Ca| !kept.cas.iter().any(|ca| ca.certificate == it.certificate);
        let above: Vec<_> = above.into_iter().filter(is_new).collect();
        kept.cas.extend(above);
        kept.cas.insert(0, ca.clone());
        let ways = self.ways_from(&ca, &kept)?;
        let name = "its root".to_owned();
        let holder = TrustHolder { name, trusted: roots, hosts: self.hosts() };
        if let Some(Lockout { reason, .. }) =
            locked_out(&ways, &[holder], self.view.now).into_iter().next()
        {
            return Ok(Err(unfit(IssuedCaFault::NoWay(reason.to_string()))));
        }
        let lockouts = self.view.newly_locked_out(&ways);
        if !lockouts.is_empty() && !is_forced(&self.view.state.asked, reason) {
            return Ok(Err(Refusal::LocksOut(lockouts)));
        }
        Ok(Ok(vec![kept_with(kept, &ca, ways, self.view.now)]))
    }

    pub(super) fn new_ca(&mut self) -> Result<Ca, IssueError> {
        let key = (self.generate)(CertificateKind::Ca)?;
        let certificate = issue_ca(&key, self.policy.validity, self.view.now)?;
        Ok(Ca { certificate, key: Some(Arc::new(CaKey::new(key))) })
    }

    /// Certificates that would be sent with a new CA, for any leaf: the path to the other CAs.
    fn ways_from(&self, new: &Ca, kept: &CaStore) -> Result<Vec<Certificate>, IssueError> {
        let signer = new.signer().ok_or(IssueError::NoSigner)?;
        let links = Links { kept, ..self.view.links() };
        let begin = links.begin(&new.certificate);
        let validity = Validity { begin, end: new.certificate.not_after };
        let leaf = issue_serving(signer.key, &self.hosts(), signer, validity)?;
        links.chain(&leaf, &new.certificate)
    }

    /// Hosts of a trial certificate.
    fn hosts(&self) -> Vec<Host> {
        let served = self.view.chain.first().map(|leaf| leaf.hosts.iter().cloned().collect());
        served.filter(|hosts: &Vec<_>| !hosts.is_empty()).unwrap_or_else(|| {
            let wanted = wanted_hosts(self.view);
            if wanted.is_empty() { vec![Host::Name("localhost".to_owned())] } else { wanted }
        })
    }

    /// Reason to refuse a new CA: the certificates that it would sign lock a machine out. The trial uses a present key:
    /// a refused request is judged again at every look, and generating a key takes long for some algorithms.
    fn refusal(&self) -> Result<Option<Refusal>, IssueError> {
        let present = self.view.kept.signer_at(self.view.now);
        let Some(key) = present.and_then(|ca| ca.key.clone()) else { return Ok(None) };
        let certificate = issue_ca(&key.pair, self.policy.validity, self.view.now)?;
        let trial = Ca { certificate, key: Some(key) };
        let certificate = &trial.certificate;
        let chain = self.ways_from(&trial, &self.view.kept)?;
        let bytes = handshake_bytes(&chain);
        let room = RENEWALS * (certificate.der().len() + 5);
        if bytes + room > MAX_CHAIN_BYTES {
            return Ok(Some(Refusal::TooLarge { bytes, most: MAX_CHAIN_BYTES - room }));
        }
        let mut lockouts = self.view.newly_locked_out(&chain);
        // A cross-certificate that does not verify was not sent. Its fault explains more than a missing issuer.
        let begin = self.view.links().begin(certificate);
        let ways = self.view.kept.signers().into_iter().filter_map(Ca::signer);
        let ways = ways.filter_map(|signer| cross_sign(certificate, signer, begin).ok());
        let with_ways: Vec<_> = chain.into_iter().chain(ways).collect();
        let reasons = self.view.newly_locked_out(&with_ways);
        for lockout in &mut lockouts {
            if let Some(known) = reasons.iter().find(|it| it.holder == lockout.holder) {
                lockout.reason = known.reason.clone();
            }
            // The trial CA is never stored, and would have another name at the next look.
            if let LockoutReason::IssuerMissing { issuer, .. } = &mut lockout.reason
                && *issuer == certificate.title()
            {
                "the new CA".clone_into(issuer);
            }
        }
        Ok((!lockouts.is_empty()).then_some(Refusal::LocksOut(lockouts)))
    }
}
