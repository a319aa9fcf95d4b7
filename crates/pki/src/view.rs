//! What is stored, read once: what a plan decides on.

use std::cell::RefCell;

use time::OffsetDateTime;

use super::ca_store::{Ca, CaStore};
use super::chain::Links;
use super::lockout::{Signatures, refusals};
use super::servable::holds_encrypted_key;
use super::trust::Trust;
use super::{Certificate, CertificateState, Holder, Lockout, LockoutReason, Unusable};

/// The state, and what it comes to.
pub(super) struct View<'a> {
    pub(super) state: &'a CertificateState,
    pub(super) now: OffsetDateTime,
    pub(super) kept: CaStore,
    /// Why the CA that the store names cannot be used.
    pub(super) fault: Option<Unusable>,
    pub(super) bundle: Vec<Certificate>,
    pub(super) chain: Vec<Certificate>,
    pub(super) serving: Serving,
    /// The CA of an older installation, whose key was never kept.
    roots: Vec<Certificate>,
    /// Those that somebody else, who makes the pair, has machines trust.
    pub(super) external: Trust,
    /// CAs that others issued which are kept too: whoever trusts those needs no trust in these.
    subordinates: Vec<Certificate>,
    /// What machines trust in their place.
    anchors: Vec<Certificate>,
    holders: Vec<Known>,
    before: Vec<Option<LockoutReason>>,
    /// What was found out about signatures.
    signatures: RefCell<Signatures>,
}

/// Whose the serving pair is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Serving {
    Missing,
    /// It cannot be served. One that may be somebody's own is left alone.
    Unusable {
        fault: Unusable,
        is_foreign: bool,
    },
    /// A CA that is distrusted has issued it, or it is itself.
    Distrusted,
    /// A CA whose key is kept issued it: it can be issued again.
    Ours(Certificate),
    /// Somebody else issued it.
    Foreign {
        leaf: Certificate,
        /// Whether any of those who are known trusts its issuer.
        is_known: bool,
    },
}

/// Somebody who may be locked out.
struct Known {
    holder: Holder,
    /// Whether it is there, and no machine that may be somewhere.
    is_present: bool,
    /// Whether its lockout is told beside those of pointer configs: it is known to be there, or can be helped.
    is_reported: bool,
}

impl<'a> View<'a> {
    pub(super) fn of(state: &'a CertificateState, now: OffsetDateTime) -> Self {
        let (kept, fault) = match &state.ca {
            Some(stored) => CaStore::read(stored),
            None => (CaStore::default(), None),
        };
        let bundle = state.trusted();
        let chain = state.chain();
        let roots = Certificate::read_all(state.root_ca.as_deref().unwrap_or_default());
        let external = state.external.as_ref().map(|it| it.trust(&chain, &bundle, now));
        let mut view = Self {
            state,
            now,
            kept,
            fault,
            bundle,
            chain,
            serving: Serving::Missing,
            roots,
            external: external.unwrap_or_default(),
            subordinates: Vec::new(),
            anchors: Vec::new(),
            holders: Vec::new(),
            before: Vec::new(),
            signatures: RefCell::default(),
        };
        (view.subordinates, view.anchors) = subordinates(&view.kept, now);
        view.serving = view.read_serving();
        view.holders = view.find_holders();
        view.before = view.judge(&view.chain, view.holders());
        view
    }

    /// What chains are put together from.
    pub(super) fn links(&self) -> Links<'_> {
        let foreign = match &self.serving {
            Serving::Foreign { leaf, .. } => Some(leaf.not_after),
            _ => None,
        };
        let kept = self.kept.pairs().filter_map(|pair| Some(pair.leaf()?.not_after));
        Links {
            kept: &self.kept,
            known: [&self.chain, &self.bundle, &self.roots],
            now: self.now,
            signatures: &self.signatures,
            irreplaceable_until: kept.chain(foreign).max(),
        }
    }

    /// The CAs that somebody may trust, each once.
    pub(super) fn anchors(&self) -> Vec<&Certificate> {
        let kept = self.kept.cas.iter().map(|ca| &ca.certificate);
        self.trusted_beside(kept.filter(|ca| !self.subordinates.contains(ca)))
    }

    /// All CAs that are known, each once: those that somebody may trust, and those that hang on them.
    pub(super) fn known_cas(&self) -> Vec<&Certificate> {
        self.trusted_beside(self.kept.cas.iter().map(|ca| &ca.certificate))
    }

    /// Whether machines are to trust this one: in place of a CA that it has issued, or because somebody else says so.
    pub(super) fn is_top(&self, ca: &Certificate) -> bool {
        self.anchors.contains(ca) || self.external.taken.contains(ca)
    }

    /// These and those that are trusted by what is there.
    fn trusted_beside<'b>(
        &'b self,
        kept: impl Iterator<Item = &'b Certificate>,
    ) -> Vec<&'b Certificate> {
        let holders = self.state.pointers.iter().flat_map(|pointer| &pointer.holders);
        let trusted = holders.flat_map(|holder| &holder.trusted);
        let mut anchors: Vec<&Certificate> = Vec::new();
        let others =
            self.bundle.iter().chain(&self.roots).chain(&self.external.taken).chain(trusted);
        for ca in kept.chain(others) {
            if !anchors.contains(&ca) && !self.kept.is_distrusted(ca) {
                anchors.push(ca);
            }
        }
        anchors
    }

    /// The certificate at the top of what is served: nobody else's signature is known above it.
    pub(super) fn top(&self) -> Option<&Certificate> {
        let mut top = self.chain.first()?;
        for _ in &self.chain {
            let above = self.chain.iter().find(|it| *it != top && top.is_issued_by(it));
            match above {
                Some(above) => top = above,
                None => break,
            }
        }
        Some(top)
    }

    /// Whether a machine that trusts this CA alone boots from what is served.
    pub(super) fn vouches(&self, ca: &Certificate) -> bool {
        let holder = Holder::of_one(ca);
        self.judge(&self.chain, [&holder]) == [None]
    }

    /// Whether what is served is what somebody else, who makes the pair, has made before.
    pub(super) fn is_of_external(&self) -> bool {
        let trusted = self.external.taken.clone();
        let holder = Holder { name: String::new(), trusted, hosts: Vec::new() };
        self.judge(&self.chain, [&holder]) == [None]
    }

    /// Whether what is served holds a certificate by which a CA that is distrusted vouches for another.
    pub(super) fn sends_distrusted(&self) -> bool {
        self.chain.iter().skip(1).any(|certificate| self.kept.is_tainted(certificate))
    }

    /// Those who could boot, and could not if this were served.
    pub(super) fn newly_locked_out(&self, chain: &[Certificate]) -> Vec<Lockout> {
        let after = self.judge(chain, self.holders()).into_iter();
        after
            .zip(&self.before)
            .zip(self.holders())
            .filter_map(|((after, before), holder)| {
                let reason = after.filter(|_| before.is_none())?;
                Some(Lockout { holder: holder.name.clone(), reason })
            })
            .collect()
    }

    /// The same of those that are known to be there.
    pub(super) fn present_newly_locked_out(&self, chain: &[Certificate]) -> Vec<Lockout> {
        let present = |lockout: &Lockout| {
            let mut known = self.holders.iter().filter(|known| known.is_present);
            known.any(|known| known.holder.name == lockout.holder)
        };
        self.newly_locked_out(chain).into_iter().filter(present).collect()
    }

    /// Whether a pointer config boots, and would not as this one from what is served.
    pub(super) fn would_lock_out(&self, present: &[Holder], repaired: &[Holder]) -> bool {
        let boots = |holders| self.judge(&self.chain, holders).iter().all(Option::is_none);
        !present.is_empty() && boots(present) && !boots(repaired)
    }

    /// Who could not boot from a chain, of all that are known, in numbers: the fewer the better. Or
    /// only of those that are known to be there.
    pub(super) fn lockouts_by(&self, chain: &[Certificate], only_present: bool) -> usize {
        let judged = self.judge(chain, self.holders()).into_iter().zip(&self.holders);
        let is_counted = |known: &Known| known.is_present || !only_present;
        judged.filter(|(reason, known)| reason.is_some() && is_counted(known)).count()
    }

    pub(super) fn lockouts_now(&self) -> usize {
        self.before.iter().flatten().count()
    }

    /// Those who cannot boot now, as far as an administrator should know: by what is served, and by what is
    /// wrong with a pointer config in itself. Nobody where nothing is served.
    pub(super) fn reported_lockouts(&self) -> Vec<Lockout> {
        if self.chain.is_empty() {
            return Vec::new();
        }
        let holders = self.reported_holders();
        let reasons = self.judge(&self.chain, &holders).into_iter().zip(&holders);
        let mut reported: Vec<_> = reasons
            .filter_map(|(reason, holder)| {
                Some(Lockout { holder: holder.name.clone(), reason: reason? })
            })
            .chain(self.state.pointers.iter().flat_map(|pointer| pointer.faults.iter().cloned()))
            .collect();
        reported.dedup();
        reported
    }

    /// Those whose lockout is told. A pointer config with faults boots nobody anyway; of any other its machines trust
    /// what is in it, whatever is distrusted here.
    pub(super) fn reported_holders(&self) -> Vec<Holder> {
        let sound = self.state.pointers.iter().filter(|pointer| pointer.faults.is_empty());
        let others =
            self.holders.iter().filter(|known| known.is_reported).map(|known| &known.holder);
        sound.flat_map(|pointer| &pointer.holders).chain(others).cloned().collect()
    }

    fn judge<'b>(
        &self,
        chain: &'b [Certificate],
        holders: impl IntoIterator<Item = &'b Holder>,
    ) -> Vec<Option<LockoutReason>> {
        refusals(chain, holders, self.now, &mut self.signatures.borrow_mut())
    }

    fn holders(&self) -> impl Iterator<Item = &Holder> {
        self.holders.iter().map(|known| &known.holder)
    }

    fn find_holders(&self) -> Vec<Known> {
        let pointers = self.state.pointers.iter().flat_map(|pointer| pointer.holders.clone());
        let pointers =
            pointers.map(|holder| Known { holder, is_present: true, is_reported: false });
        let (name, trusted) = (BUNDLE.to_owned(), self.bundle.clone());
        let bundle = Holder { name, trusted, hosts: Vec::new() };
        let bundle = Known { holder: bundle, is_present: true, is_reported: true };
        let mut known: Vec<_> = pointers.chain([bundle]).collect();
        // Nobody trusts a CA alone that has not signed what is served yet.
        let issuer = match &self.serving {
            Serving::Ours(leaf) => self.kept.issuer_of(leaf).map(|ca| ca.certificate.made_at()),
            _ => None,
        };
        let is_reported = |ca: &Certificate| {
            issuer.is_some_and(|made| ca.made_at() <= made)
                && self.kept.cas.iter().any(|kept| kept.certificate == *ca)
        };
        let top = self.top().filter(|_| matches!(self.serving, Serving::Foreign { .. }));
        known.extend(
            self.anchors().into_iter().chain(top).filter(|ca| ca.is_valid_at(self.now)).map(|ca| {
                Known {
                    holder: Holder::of_one(ca),
                    is_present: false,
                    is_reported: is_reported(ca),
                }
            }),
        );
        for Known { holder, .. } in &mut known {
            holder.trusted.retain(|ca| !self.kept.is_distrusted(ca));
        }
        known.retain(|known| !known.holder.trusted.is_empty());
        known
    }

    fn read_serving(&self) -> Serving {
        let Some(stored) = &self.state.serving else { return Serving::Missing };
        let served = stored.served_chain();
        // Whose it is can be told of one that machines cannot read as well.
        let leaf = self.chain.first().cloned();
        let leaf = leaf.or_else(|| Certificate::read_all(&stored.certificates).into_iter().next());
        if leaf.as_ref().is_some_and(|leaf| self.kept.is_tainted(leaf)) {
            return Serving::Distrusted;
        }
        let is_foreign = leaf.as_ref().is_some_and(|leaf| self.kept.issuer_of(leaf).is_none());
        match (served, leaf) {
            (Ok(_), Some(leaf)) if is_foreign => {
                let top = self.top().unwrap_or(&leaf);
                let is_known =
                    self.known_cas().into_iter().any(|ca| ca == top || top.is_issued_by(ca));
                Serving::Foreign { leaf, is_known }
            }
            (Ok(_), Some(leaf)) => Serving::Ours(leaf),
            (Err(Unusable::NoCertificate), _) if holds_encrypted_key(&stored.key) => {
                Serving::Unusable { fault: Unusable::Encrypted, is_foreign: true }
            }
            (Err(fault), _) => {
                let is_somebodys = matches!(
                    fault,
                    Unusable::Unreadable(_) | Unusable::Ca | Unusable::Refused { .. }
                );
                Serving::Unusable { fault, is_foreign: is_foreign || is_somebodys }
            }
            (Ok(_), None) => {
                Serving::Unusable { fault: Unusable::NoCertificate, is_foreign: false }
            }
        }
    }
}

/// The CAs with a key that hang on others, and the tops of those that can be used.
fn subordinates(kept: &CaStore, now: OffsetDateTime) -> (Vec<Certificate>, Vec<Certificate>) {
    let (mut subordinates, mut anchors) = (Vec::new(), Vec::new());
    for Ca { certificate, .. } in kept.cas.iter().filter(|ca| ca.key.is_some()) {
        let above: Vec<_> = kept.anchors(certificate);
        if above.contains(&certificate) {
            continue;
        }
        subordinates.push(certificate.clone());
        if certificate.not_after >= now {
            anchors.extend(above.into_iter().cloned());
        }
    }
    (subordinates, anchors)
}

const BUNDLE: &str = "the bundle";
