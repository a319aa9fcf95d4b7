//! Parses the stored state once, as input of a plan.

use time::OffsetDateTime;

use super::ca_store::{Ca, CaStore};
use super::certificate::{Certificate, unique};
use super::chain::Links;
use super::holder::{Lockout, LockoutReason, TrustHolder};
use super::lockout::refusals;
use super::reason::Unusable;
use super::servable::holds_encrypted_key;
use super::state::CertificateState;
use super::trust::Trust;

/// The state, parsed and judged.
pub(super) struct View<'a> {
    pub(super) state: &'a CertificateState,
    pub(super) now: OffsetDateTime,
    pub(super) store: CaStore,
    /// Fault of the CA that the store names.
    pub(super) fault: Option<Unusable>,
    pub(super) bundle: Vec<Certificate>,
    pub(super) chain: Vec<Certificate>,
    pub(super) serving: Serving,
    /// CA of an older installation, whose key is not stored.
    roots: Vec<Certificate>,
    /// CAs of an external pair.
    pub(super) external: Trust,
    /// Stored CAs that external CAs issued: machines that trust the issuer need no trust in these.
    subordinates: Vec<Certificate>,
    /// CAs that machines trust instead of `subordinates`.
    anchors: Vec<Certificate>,
    holders: Vec<KnownHolder>,
}

/// Origin of the serving pair.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Serving {
    Missing,
    /// The pair cannot be served. A foreign one is never replaced.
    Unusable {
        fault: Unusable,
        is_foreign: bool,
    },
    /// A distrusted CA issued it, or its own key is distrusted.
    Distrusted,
    /// A stored CA issued it, and can issue it again.
    Ours(Certificate),
    /// An unknown or external CA issued it.
    Foreign {
        leaf: Certificate,
        /// True if a known holder trusts its issuer.
        is_known: bool,
    },
}

/// A holder that may be locked out.
struct KnownHolder {
    holder: TrustHolder,
    /// True for a holder that is known to exist, false for one that a machine may have.
    is_present: bool,
    /// True if its lockout is reported next to those of pointer configs: the holder is known to exist, or can be
    /// helped.
    is_reported: bool,
    /// Reason why it is locked out by the served chain.
    before: Option<LockoutReason>,
}

impl<'a> View<'a> {
    pub(super) fn of(state: &'a CertificateState, now: OffsetDateTime) -> Self {
        let (store, fault) = state.ca.as_ref().map(CaStore::read).unwrap_or_default();
        let bundle = state.trusted();
        let chain = state.chain();
        let roots = Certificate::read_all(state.root_ca.as_deref().unwrap_or_default());
        let external = state.external.as_ref().map(|it| it.trust(&chain, &bundle, now));
        let mut view = Self {
            state,
            now,
            store,
            fault,
            bundle,
            chain,
            serving: Serving::Missing,
            roots,
            external: external.unwrap_or_default(),
            subordinates: Vec::new(),
            anchors: Vec::new(),
            holders: Vec::new(),
        };
        (view.subordinates, view.anchors) = subordinates(&view.store, now);
        view.serving = view.read_serving();
        view.holders = view.find_holders();
        let before = view.judge(&view.chain, view.holders());
        for (known, reason) in view.holders.iter_mut().zip(before) {
            known.before = reason;
        }
        view
    }

    pub(super) fn links(&self) -> Links<'_> {
        let foreign = match &self.serving {
            Serving::Foreign { leaf, .. } => Some(leaf.not_after),
            _ => None,
        };
        let kept = self.store.pairs().filter_map(|pair| Some(pair.leaf()?.not_after));
        Links {
            store: &self.store,
            known: [&self.chain, &self.bundle, &self.roots],
            now: self.now,
            irreplaceable_until: kept.chain(foreign).max(),
        }
    }

    /// CAs that a machine may trust, each once.
    pub(super) fn anchors(&self) -> Vec<&Certificate> {
        self.trusted_beside(self.store.certificates().filter(|ca| !self.subordinates.contains(ca)))
    }

    /// All known CAs, each once: those that a machine may trust, and those below them.
    pub(super) fn known_cas(&self) -> Vec<&Certificate> {
        self.trusted_beside(self.store.certificates())
    }

    /// Returns `true` if machines trust this CA instead of one that it issued, or because it comes with an external
    /// pair.
    pub(super) fn is_top(&self, ca: &Certificate) -> bool {
        self.anchors.contains(ca) || self.external.taken.contains(ca)
    }

    /// These CAs, and those that holders, bundle and older installations trust.
    fn trusted_beside<'b>(
        &'b self,
        stored: impl Iterator<Item = &'b Certificate>,
    ) -> Vec<&'b Certificate> {
        let holders = self.state.pointers.iter().flat_map(|pointer| &pointer.holders);
        let trusted = holders.flat_map(|holder| &holder.trusted);
        let others = [&self.bundle, &self.roots, &self.external.taken].into_iter().flatten();
        let all = stored.chain(others).chain(trusted);
        unique(all.filter(|ca| !self.store.is_distrusted(ca)))
    }

    /// The topmost certificate of the served chain.
    pub(super) fn top(&self) -> Option<&Certificate> {
        let mut top = self.chain.first()?;
        // A circle of cross-certificates has no top.
        for _ in &self.chain {
            match self.chain.iter().find(|it| *it != top && top.is_issued_by(it)) {
                Some(above) => top = above,
                None => break,
            }
        }
        Some(top)
    }

    /// Returns `true` if a machine that trusts only this CA boots from the served chain.
    pub(super) fn vouches(&self, ca: &Certificate) -> bool {
        self.judge(&self.chain, [&TrustHolder::of_one(ca)]) == [None]
    }

    /// Returns `true` if an earlier version of the external pair is served.
    pub(super) fn is_of_external(&self) -> bool {
        let trusted = self.external.taken.clone();
        self.judge(&self.chain, [&TrustHolder { trusted, ..TrustHolder::default() }]) == [None]
    }

    /// Returns `true` if the served chain has a cross-certificate that a distrusted CA issued.
    pub(super) fn sends_distrusted(&self) -> bool {
        self.chain.iter().skip(1).any(|certificate| self.store.is_tainted(certificate))
    }

    /// Holders that this chain locks out and the served one does not: all, or only those that are known to exist.
    pub(super) fn new_lockouts(&self, chain: &[Certificate], only_present: bool) -> Vec<Lockout> {
        let judged = self.judged(chain, only_present).filter(|(known, _)| known.before.is_none());
        judged.filter_map(|(known, reason)| known.holder.lockout(reason)).collect()
    }

    /// Returns `true` if a pointer config boots from the served chain, and its updated form would not.
    pub(super) fn would_lock_out(&self, present: &[TrustHolder], repaired: &[TrustHolder]) -> bool {
        let boots = |holders| self.judge(&self.chain, holders).iter().all(Option::is_none);
        !present.is_empty() && boots(present) && !boots(repaired)
    }

    /// Number of known holders that a chain locks out, or only of those that are known to exist.
    pub(super) fn lockouts_by(&self, chain: &[Certificate], only_present: bool) -> usize {
        self.judged(chain, only_present).filter(|(_, reason)| reason.is_some()).count()
    }

    pub(super) fn lockouts_now(&self) -> usize {
        self.holders.iter().filter(|known| known.before.is_some()).count()
    }

    /// Present lockouts for administrators: by the served chain, and by faults of pointer configs. Empty if nothing is
    /// served.
    pub(super) fn reported_lockouts(&self) -> Vec<Lockout> {
        if self.chain.is_empty() {
            return Vec::new();
        }
        let holders = self.reported_holders();
        let reasons = self.judge(&self.chain, &holders).into_iter().zip(&holders);
        let lockouts = reasons.filter_map(|(reason, holder)| holder.lockout(reason));
        let faults = self.state.pointers.iter().flat_map(|pointer| pointer.faults.iter().cloned());
        let mut reported: Vec<_> = lockouts.chain(faults).collect();
        reported.dedup();
        reported
    }

    /// Holders whose lockouts are reported. Pointer configs with faults boot no machine and are left out; machines of
    /// any other trust its CAs, even distrusted ones.
    pub(super) fn reported_holders(&self) -> Vec<TrustHolder> {
        let sound = self.state.pointers.iter().filter(|pointer| pointer.faults.is_empty());
        let others =
            self.holders.iter().filter(|known| known.is_reported).map(|known| &known.holder);
        sound.flat_map(|pointer| &pointer.holders).chain(others).cloned().collect()
    }

    fn judge<'b>(
        &self,
        chain: &'b [Certificate],
        holders: impl IntoIterator<Item = &'b TrustHolder>,
    ) -> Vec<Option<LockoutReason>> {
        refusals(chain, holders, self.now)
    }

    /// Judges a chain for all known holders, or for those that are known to exist.
    fn judged(
        &self,
        chain: &[Certificate],
        only_present: bool,
    ) -> impl Iterator<Item = (&KnownHolder, Option<LockoutReason>)> {
        let judged = self.holders.iter().zip(self.judge(chain, self.holders()));
        judged.filter(move |(known, _)| known.is_present || !only_present)
    }

    fn holders(&self) -> impl Iterator<Item = &TrustHolder> {
        self.holders.iter().map(|known| &known.holder)
    }

    fn find_holders(&self) -> Vec<KnownHolder> {
        let known = |holder, is_present, is_reported| KnownHolder {
            holder,
            is_present,
            is_reported,
            before: None,
        };
        let pointers = self.state.pointers.iter().flat_map(|pointer| pointer.holders.clone());
        let (name, trusted) = ("the trust bundle".to_owned(), self.bundle.clone());
        let bundle = known(TrustHolder { name, trusted, hosts: Vec::new() }, true, true);
        let pointers = pointers.map(|holder| known(holder, true, false));
        // No machine trusts only a CA that has not signed a served certificate yet.
        let issuer = match &self.serving {
            Serving::Ours(leaf) => self.store.issuer_of(leaf).map(|ca| ca.certificate.made_at()),
            _ => None,
        };
        let is_reported = |ca: &Certificate| {
            issuer.is_some_and(|made| ca.made_at() <= made) && self.store.has(ca)
        };
        let top = self.top().filter(|_| matches!(self.serving, Serving::Foreign { .. }));
        let anchors = self.anchors().into_iter().chain(top).filter(|ca| ca.is_valid_at(self.now));
        let anchors = anchors.map(|ca| known(TrustHolder::of_one(ca), false, is_reported(ca)));
        let mut holders: Vec<_> = pointers.chain([bundle]).chain(anchors).collect();
        for KnownHolder { holder, .. } in &mut holders {
            holder.trusted.retain(|ca| !self.store.is_distrusted(ca));
        }
        holders.retain(|known| !known.holder.trusted.is_empty());
        holders
    }

    fn read_serving(&self) -> Serving {
        let Some(stored) = &self.state.serving else { return Serving::Missing };
        let served = stored.served_chain();
        // The origin can be determined even for a chain that machines cannot read.
        let leaf = self.chain.first().cloned();
        let leaf = leaf.or_else(|| Certificate::read_all(&stored.certificates).into_iter().next());
        if leaf.as_ref().is_some_and(|leaf| self.store.is_tainted(leaf)) {
            return Serving::Distrusted;
        }
        let is_foreign = leaf.as_ref().is_some_and(|leaf| self.store.issuer_of(leaf).is_none());
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
                let is_not_issued_here = matches!(
                    fault,
                    Unusable::Unreadable(_) | Unusable::Ca | Unusable::Refused { .. }
                );
                Serving::Unusable { fault, is_foreign: is_foreign || is_not_issued_here }
            }
            (Ok(_), None) => {
                Serving::Unusable { fault: Unusable::NoCertificate, is_foreign: false }
            }
        }
    }
}

/// Stored CAs with a key below other CAs, and the topmost CAs above those that can be used.
fn subordinates(store: &CaStore, now: OffsetDateTime) -> (Vec<Certificate>, Vec<Certificate>) {
    let (mut subordinates, mut anchors) = (Vec::new(), Vec::new());
    for Ca { certificate, .. } in store.cas.iter().filter(|ca| ca.key.is_some()) {
        let above: Vec<_> = store.anchors(certificate);
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
