//! Makes a new CA, or takes one that an external CA issued, after a check of the chain that it would lead to.

use std::sync::Arc;

use time::OffsetDateTime;

use super::ca_store::{Ca, CaKey, CaStore};
use super::certificate::{Certificate, extend_unique};
use super::chain::{Links, MAX_CHAIN_BYTES};
use super::holder::{Lockout, LockoutReason, TrustHolder};
use super::hosts::Host;
use super::issue::{Validity, cross_sign, issue_ca, issue_serving};
use super::issuer::{IssuedCa, IssuedCaFault};
use super::lockout::{handshake_bytes, locked_out};
use super::plan::wanted_hosts;
use super::reason::{IssueError, Reason};
use super::serving::is_forced;
use super::state::Issuer;
use super::warning::{CertificateKind, Refusal, StepError};
use super::writes::{Write, WriteBuilder};

/// Number of renewals for which a chain has room while older CAs are still valid.
const RENEWALS: usize = 2;

/// Adds a new CA to the store as its own, with the cross-certificates to the others: their keys may be missing when
/// these are needed again.
fn store_with(mut store: CaStore, new: &Ca, path: Vec<Certificate>, now: OffsetDateTime) -> Write {
    let links: Vec<_> = path.into_iter().skip(1).filter(|link| !store.has(link)).collect();
    extend_unique(&mut store.cross_certificates, links);
    store.cas.retain(|ca| ca.certificate != new.certificate);
    store.cas.insert(0, new.clone());
    Write::Ca(store.encode(new, now))
}

impl WriteBuilder<'_> {
    /// Makes a new CA, and keeps all others.
    pub(super) fn ca(&mut self, reason: &Reason) -> Result<Vec<Write>, StepError> {
        if let Some(issuer) = &self.view.state.issuer {
            let granted = issuer.request.as_ref().and_then(|it| it.granted(self.view.now));
            return granted.map_or(Ok(Vec::new()), |granted| self.take(issuer, reason, granted));
        }
        if *reason == Reason::Requested
            && !self.view.state.requested.force
            && let Some(refusal) = self.refusal()?
        {
            return Err(refusal.of(CertificateKind::Ca, reason).into());
        }
        let new = self.new_ca()?;
        let path = self.path_from(&new, &self.view.store)?;
        Ok(vec![store_with(self.view.store.clone(), &new, path, self.view.now)])
    }

    /// Takes a CA that an external CA issued, if machines can boot with it.
    fn take(
        &self,
        issuer: &Issuer,
        reason: &Reason,
        granted: Result<IssuedCa, IssuedCaFault>,
    ) -> Result<Vec<Write>, StepError> {
        let unfit = |unfit| {
            Refusal::Unfit { issuer: issuer.name.clone(), unfit }.of(CertificateKind::Ca, reason)
        };
        let IssuedCa { ca, above, roots } = granted.map_err(unfit)?;
        let mut store = self.view.store.clone();
        let above: Vec<_> = above.into_iter().filter(|it| !store.has(&it.certificate)).collect();
        store.cas.extend(above);
        store.cas.insert(0, ca.clone());
        let path = self.path_from(&ca, &store)?;
        let holder = TrustHolder { trusted: roots, hosts: self.hosts(), ..TrustHolder::default() };
        if let Some(Lockout { reason, .. }) = locked_out(&path, &[holder], self.view.now).first() {
            return Err(unfit(IssuedCaFault::NoPath(reason.to_string())).into());
        }
        let lockouts = self.view.new_lockouts(&path, false);
        if !lockouts.is_empty() && !is_forced(&self.view.state.requested, reason) {
            return Err(Refusal::LocksOut(lockouts).of(CertificateKind::Ca, reason).into());
        }
        Ok(vec![store_with(store, &ca, path, self.view.now)])
    }

    pub(super) fn new_ca(&mut self) -> Result<Ca, IssueError> {
        let key = (self.generate)(CertificateKind::Ca)?;
        let certificate = issue_ca(&key, self.policy.validity, self.view.now)?;
        Ok(Ca { certificate, key: Some(Arc::new(CaKey::new(key))) })
    }

    /// Certificates that would be sent with a new CA, for any leaf: the path to the other CAs.
    fn path_from(&self, new: &Ca, store: &CaStore) -> Result<Vec<Certificate>, IssueError> {
        let signer = new.signer()?;
        let links = Links { store, ..self.view.links() };
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
        let present = self.view.store.signer_at(self.view.now);
        let Some(key) = present.and_then(|ca| ca.key.clone()) else { return Ok(None) };
        let certificate = issue_ca(&key.pair, self.policy.validity, self.view.now)?;
        let trial = Ca { certificate, key: Some(key) };
        let certificate = &trial.certificate;
        let chain = self.path_from(&trial, &self.view.store)?;
        let bytes = handshake_bytes(&chain);
        let room = RENEWALS * (certificate.der().len() + 5);
        if bytes + room > MAX_CHAIN_BYTES {
            return Ok(Some(Refusal::TooLarge { bytes, most: MAX_CHAIN_BYTES - room }));
        }
        let mut lockouts = self.view.new_lockouts(&chain, false);
        // A cross-certificate that does not verify was not sent. Its fault explains more than a missing issuer.
        let begin = self.view.links().begin(certificate);
        let signers = self.view.store.signers().into_iter().flat_map(Ca::signer);
        let links = signers.flat_map(|signer| cross_sign(certificate, signer, begin));
        let with_links: Vec<_> = chain.into_iter().chain(links).collect();
        let reasons = self.view.new_lockouts(&with_links, false);
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
