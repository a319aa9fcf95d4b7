//! What comes next, as whole things to be stored, with their certificates issued.
//!
//! Whoever keeps certificates observes, asks [`next()`], applies the writes in their order, and
//! observes again. That is all there is to a rotation, so that a folder, a cluster and the tests'
//! model differ only in how one [`Write`] is stored. Stopping after any of them leaves a state in
//! which every machine can still boot.
//!
//! What a step comes to is judged before it is handed out: one after which a machine could not boot
//! that could before ([`locked_out`]) is refused, and told.

use time::OffsetDateTime;

use super::ca_store::{Ca, left_out};
use super::issuer::RequestDuty;
use super::plan::{RotationPlan, plan, to_distrust};
use super::serving::{Generate, choose, is_forced};
use super::view::{Serving, View};
use super::warning::USER_DATA_LIMITS;
use super::{
    Asked, Certificate, CertificateKind, CertificateState, Host, IssueError, Issuer, Lockout,
    PointerState, Policy, Reason, Refusal, Refused, Step, StoredPair, Warning, locked_out,
};

/// More steps than any state takes to be in order.
pub const MAX_STEPS: usize = 32;

/// What is said of what leaves the store of the signing CA, [`Write::left_out`].
pub const LEFT_OUT: &str = "no longer kept, because it has expired and newer ones need the room";

/// One thing to be stored. Each replaces what is there as a whole, or not at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    /// The signing authority with all that its store holds: the answer to who asks for a new one.
    Ca(StoredPair),
    /// The same, without an answer: a request stays.
    Store(StoredPair),
    /// The bundle of authorities, PEM.
    Bundle(String),
    /// A pointer config.
    Pointer {
        /// Its [`PointerTrust::name`](super::PointerTrust::name).
        name: String,
        /// Its new text.
        text: Vec<u8>,
    },
    /// The serving pair.
    Serving(StoredPair),
}

impl Write {
    /// What leaves the store of the signing CA for good, because it has expired and newer ones need the
    /// room: one line each.
    #[must_use]
    pub fn left_out(&self, before: Option<&StoredPair>) -> Vec<String> {
        match (self, before) {
            (Self::Ca(after) | Self::Store(after), Some(before)) => left_out(before, after),
            _ => Vec::new(),
        }
    }

    /// What is left to ask for of what was `asked`, once this is stored. Distrust is forever, and is
    /// stored with the authority.
    #[must_use]
    pub fn leaves(&self, asked: &Asked) -> Asked {
        match self {
            Self::Ca(_) => Asked { ca: false, ..asked.clone() },
            Self::Serving(_) => Asked { serving: false, ..asked.clone() },
            Self::Store(_) | Self::Bundle(_) | Self::Pointer { .. } => asked.clone(),
        }
    }
}

impl CertificateState {
    /// What it is after a write. Pointer configs are as they will be read then, but for how they stand
    /// to a bundle that is written meanwhile.
    #[must_use]
    pub fn with(&self, write: &Write) -> Self {
        let mut state = self.clone();
        match write {
            Write::Ca(pair) | Write::Store(pair) => state.ca = Some(pair.clone()),
            Write::Bundle(pem) => state.bundle = Some(pem.clone().into()),
            Write::Serving(pair) => state.serving = Some(pair.clone()),
            Write::Pointer { name, .. } => {
                for pointer in state.pointers.iter_mut().filter(|pointer| pointer.name == *name) {
                    if let PointerState::Stale(repaired) =
                        std::mem::replace(&mut pointer.state, PointerState::Kept)
                    {
                        pointer.holders = repaired.holders;
                    }
                }
            }
        }
        if let (Write::Ca(pair) | Write::Store(pair), Some(issuer)) = (write, &mut state.issuer) {
            issuer.has_issued = pair.is_issued_by_another();
        }
        state.asked = write.leaves(&state.asked);
        state
    }
}

/// What comes next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Store these, in their order, and ask again.
    Step {
        /// What they are for.
        step: Step,
        /// At least one.
        writes: Vec<Write>,
    },
    /// There is nothing to do until this time.
    Settled {
        /// When something will be due by itself.
        until: OffsetDateTime,
        /// What is not in order, and stays as it is.
        attention: Vec<Warning>,
        /// What is to be done about the CA that an issuer was asked for, or is to be.
        asking: Asking,
    },
}

/// What is to be done about a CA that somebody else issues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asking {
    /// Nothing: none is wanted, or the answer has not come.
    Nothing,
    /// One is to be asked for, in place of what was asked for before.
    Ask(Reason),
    /// None is wanted any more: what was asked for is to be forgotten.
    Forget,
}

/// Says what comes next. `generate` makes a new key.
pub fn next(
    state: &CertificateState,
    policy: &Policy,
    now: OffsetDateTime,
    generate: Generate<'_>,
) -> Result<Next, IssueError> {
    let view = View::of(state, now);
    let RotationPlan { steps, mut attention, mut times } = plan(&view, policy);
    let mut asking = Asking::of(state);
    let mut maker = Maker { view: &view, policy, generate };
    for step in steps {
        // Whoever asks for a CA wants the pair that it signs: where it is refused, both stay.
        let is_for_naught =
            matches!(step, Step::Serving(Reason::Asked, _)) && attention.iter().any(is_refused_ca);
        if is_for_naught {
            continue;
        }
        if let (Step::Ca(reason), Some(issuer)) = (&step, &state.issuer) {
            let (duty, due) = issuer.duty(now);
            times.extend(due);
            attention.extend(issuer.delay(now).map(|why| delayed(issuer, reason, why)));
            asking = match duty {
                RequestDuty::Ask => Asking::Ask(reason.clone()),
                RequestDuty::Wait | RequestDuty::Take => Asking::Nothing,
            };
            if duty != RequestDuty::Take {
                continue;
            }
        }
        match maker.make(&step)? {
            Ok(writes) if writes.is_empty() => {}
            Ok(writes) => return Ok(Next::Step { step, writes }),
            Err(refused) => {
                let is_unfit = matches!(refused.refusal, Refusal::Unfit { .. });
                if is_unfit && state.issuer.as_ref().is_some_and(|it| it.asks_again(now)) {
                    asking = Asking::Ask(refused.because.clone());
                }
                attention.extend(reported(refused));
            }
        }
    }
    attention.extend(view.reported_lockouts().into_iter().map(Warning::LockedOut));
    attention.extend(pointer_warnings(state));
    let until = times.into_iter().filter(|time| *time > now).min();
    Ok(Next::Settled {
        until: until.unwrap_or(now.saturating_add(policy.renewal)),
        attention,
        asking,
    })
}

/// What a state comes to when all that is due is done, pointer configs left aside, and what would be
/// told then. `generate` makes new keys.
pub fn dry_run(
    state: &CertificateState,
    policy: &Policy,
    now: OffsetDateTime,
    generate: Generate<'_>,
) -> Result<(CertificateState, Vec<Warning>), IssueError> {
    let mut state = state.clone();
    for _ in 0..MAX_STEPS {
        for pointer in &mut state.pointers {
            pointer.state = PointerState::Kept;
        }
        match next(&state, policy, now, generate)? {
            Next::Step { writes, .. } => {
                state = writes.iter().fold(state, |state, write| state.with(write));
            }
            Next::Settled { attention, .. } => return Ok((state, attention)),
        }
    }
    Ok((state, Vec::new()))
}

/// The CAs that somebody may trust.
#[must_use]
pub fn trusted_by_somebody(state: &CertificateState, now: OffsetDateTime) -> Vec<Certificate> {
    View::of(state, now).anchors().into_iter().cloned().collect()
}

/// Those who cannot boot now, as far as an administrator should know.
#[must_use]
pub fn reported_lockouts(state: &CertificateState, now: OffsetDateTime) -> Vec<Lockout> {
    View::of(state, now).reported_lockouts()
}

/// The pointer configs that a platform does not take as user data, and those whose CAs cannot be replaced.
#[must_use]
pub fn pointer_warnings(state: &CertificateState) -> Vec<Warning> {
    let [(_, most), ..] = USER_DATA_LIMITS;
    let warnings = state.pointers.iter().flat_map(|pointer| {
        let name = || pointer.holders.first().map(|holder| holder.name.clone());
        let large = name().filter(|_| pointer.bytes > most);
        let kept = name().filter(|_| pointer.state == PointerState::OutOfReach);
        let large = large.map(|name| Warning::UserData { name, bytes: pointer.bytes });
        large.into_iter().chain(kept.map(|name| Warning::OutOfReach { name }))
    });
    warnings.collect()
}

/// Those of `known` who could not boot from what `state` serves, the CAs that it distrusts included.
#[must_use]
pub fn lockouts_of(
    state: &CertificateState,
    known: &CertificateState,
    now: OffsetDateTime,
) -> Vec<Lockout> {
    locked_out(&state.chain(), &View::of(known, now).reported_holders(), now)
}

impl Asking {
    /// Where no CA is wanted.
    fn of(state: &CertificateState) -> Self {
        let has_request = state.issuer.as_ref().is_some_and(|issuer| issuer.request.is_some());
        if has_request { Self::Forget } else { Self::Nothing }
    }
}

fn delayed(issuer: &Issuer, because: &Reason, reason: String) -> Warning {
    Warning::Issuer { issuer: issuer.name.clone(), because: because.clone(), reason }
}

/// What is told of a refusal. That a pair stays until its own end, because some machines trust nobody
/// else, is as it should be.
fn reported(refused: Refused) -> Option<Warning> {
    let is_quiet = matches!(refused.because, Reason::NewerCa | Reason::Restored | Reason::Chain);
    (!is_quiet).then_some(Warning::Refused(refused))
}

fn is_refused_ca(attention: &Warning) -> bool {
    matches!(
        attention,
        Warning::Refused(Refused { what: CertificateKind::Ca, because: Reason::Asked, .. })
    )
}

/// Makes what a step comes to.
pub(super) struct Maker<'a> {
    pub(super) view: &'a View<'a>,
    pub(super) policy: &'a Policy,
    pub(super) generate: Generate<'a>,
}

pub(super) type Writes = Result<Vec<Write>, Refused>;

impl Maker<'_> {
    fn make(&mut self, step: &Step) -> Result<Writes, IssueError> {
        match step {
            Step::Ca(reason) => self.ca(reason),
            Step::Store(reason) => self.store(reason),
            Step::Bundle(pem) => Ok(Ok(self.bundle(pem))),
            Step::Pointers => Ok(Ok(self.pointers())),
            Step::Serving(reason, hosts) => self.serving(reason, hosts),
        }
    }

    /// What is kept, in another order, or without what is distrusted.
    fn store(&mut self, reason: &Reason) -> Result<Writes, IssueError> {
        let mut kept = self.view.kept.clone();
        if *reason == Reason::Distrusted {
            for certificate in to_distrust(self.view) {
                kept.distrust(&certificate);
            }
        }
        let own = self.view.kept.cas.first().map(|own| &own.certificate);
        let stays =
            kept.cas.iter().find(|ca| *reason == Reason::Joined && Some(&ca.certificate) == own);
        let best = stays.or_else(|| kept.signer_at(self.view.now)).cloned();
        let own = if let Some(best) = best {
            best
        } else {
            // The last one is distrusted: its place is never empty.
            let new = self.new_ca()?;
            kept.cas.insert(0, new.clone());
            new
        };
        let stored = kept.store(&own, self.view.now);
        Ok(Ok(vec![match reason {
            Reason::Joined => Write::Ca(stored),
            _ => Write::Store(stored),
        }]))
    }

    fn bundle(&self, pem: &str) -> Vec<Write> {
        let mut writes = Vec::new();
        // What leaves the bundle, and nobody else has, is kept.
        let mut kept = self.view.kept.clone();
        let wanted = Certificate::read_all(pem.as_bytes());
        let is_kept = |it: &Certificate| kept.cas.iter().any(|ca| ca.certificate == *it);
        let leaving =
            self.view.bundle.iter().filter(|it| {
                !wanted.contains(it) && !is_kept(it) && !self.view.kept.is_distrusted(it)
            });
        let leaving: Vec<_> = leaving.cloned().collect();
        if let (false, None, Some(own)) =
            (leaving.is_empty(), &self.view.fault, self.view.kept.cas.first())
        {
            kept.cas.extend(leaving.into_iter().map(|certificate| Ca { certificate, key: None }));
            writes.push(Write::Store(kept.store(own, self.view.now)));
        }
        writes.push(Write::Bundle(pem.to_owned()));
        writes
    }

    /// The stale pointer configs, but for those from which no machine could boot if they were written
    /// now.
    fn pointers(&self) -> Vec<Write> {
        let write = |pointer: &super::PointerTrust| {
            let PointerState::Stale(repaired) = &pointer.state else { return None };
            if self.view.would_lock_out(&pointer.holders, &repaired.holders) {
                return None;
            }
            Some(Write::Pointer { name: pointer.name.clone(), text: repaired.text.clone() })
        };
        self.view.state.pointers.iter().filter_map(write).collect()
    }

    fn serving(&mut self, reason: &Reason, hosts: &[Host]) -> Result<Writes, IssueError> {
        let is_renewed = self.view.is_of_external();
        if let (Some(fault), Serving::Foreign { .. }) = (&self.view.fault, &self.view.serving)
            && !is_renewed
            && !is_forced(&self.view.state.asked, reason)
        {
            // It would be lost: the store that keeps it beside the CAs cannot be written.
            let refusal = Refusal::Unkept(fault.clone());
            return Ok(Err(Refused {
                what: CertificateKind::Serving,
                because: reason.clone(),
                refusal,
            }));
        }
        let pair = match choose(self.view, self.policy, reason, hosts, self.generate)? {
            Ok(pair) => pair,
            Err(refused) => return Ok(Err(refused)),
        };
        let mut writes = Vec::new();
        // A pair that nobody here can issue again is kept beside the CAs.
        let is_ours = matches!(self.view.serving, Serving::Ours(_) | Serving::Missing);
        if let (false, Some(present)) = (is_ours || is_renewed, &self.view.state.serving)
            && !present.text().trim_ascii().is_empty()
            && let Some(own) = self.view.kept.cas.first()
            && self.view.fault.is_none()
        {
            let mut kept = self.view.kept.clone();
            kept.keep_pair(present);
            writes.push(Write::Store(kept.store(own, self.view.now)));
        }
        writes.push(Write::Serving(pair));
        Ok(Ok(writes))
    }
}
