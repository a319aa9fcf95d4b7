//! Turns a planned step into writes of whole objects, with their certificates issued.
//!
//! A controller observes, calls [`next()`], applies the writes in their order, and observes again. A directory, a
//! cluster and the tests' model differ only in how they store one [`Write`]. After any of the writes, every machine can
//! still boot.
//!
//! Writes are judged before they are returned: a step that would lock out a machine that can boot ([`locked_out`]) is
//! refused and reported.

use time::OffsetDateTime;

use super::ca_store::{Ca, dropped};
use super::certificate::Certificate;
use super::holder::Lockout;
use super::hosts::Host;
use super::lockout::locked_out;
use super::plan::{Policy, RotationPlan, Step, plan, to_distrust};
use super::reason::{IssueError, Reason};
use super::serving::{Generate, choose, is_forced};
use super::state::{CertificateState, PointerState, PointerTrust, RotationRequest, StoredPair};
use super::view::{Serving, View};
use super::warning::{CertificateKind, Refusal, Refused, StepError, USER_DATA_LIMITS, Warning};

/// Upper bound for the number of steps until any state is settled.
pub const MAX_STEPS: usize = 32;

/// Explanation for entries of [`Write::dropped`].
pub const DROPPED_REASON: &str = "it has expired, and newer ones need the space";

/// Next step of an administrator after [`DROPPED_REASON`].
pub const DROPPED_FIX: &str = "give machines that trust nothing newer a pointer config of today";

/// One object to be stored. It replaces the previous one as a whole, or not at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    /// The store of the signing CA; it completes a request for a new CA.
    Ca(StoredPair),
    /// The store of the signing CA; a request for a new CA stays open.
    Store(StoredPair),
    /// The trust bundle, PEM.
    Bundle(String),
    /// A pointer config.
    Pointer {
        /// Name of the pointer config, [`PointerTrust::name`](super::state::PointerTrust::name).
        name: String,
        /// New text of the pointer config.
        text: Vec<u8>,
    },
    /// The serving certificate with its key and chain.
    Serving(StoredPair),
}

impl Write {
    /// Keys and pairs that this write removes from the store of the signing CA for good, because they have expired and
    /// newer ones need the room: one line each.
    pub fn dropped(&self, before: Option<&StoredPair>) -> Vec<String> {
        match (self, before) {
            (Self::Ca(after) | Self::Store(after), Some(before)) => dropped(before, after),
            _ => Vec::new(),
        }
    }

    /// Requests that remain open of `requested` once this is stored. Distrust is permanent, and is stored with the CA.
    pub fn leaves(&self, requested: &RotationRequest) -> RotationRequest {
        match self {
            Self::Ca(_) => RotationRequest { ca: false, ..requested.clone() },
            Self::Serving(_) => RotationRequest { serving: false, ..requested.clone() },
            Self::Store(_) | Self::Bundle(_) | Self::Pointer { .. } => requested.clone(),
        }
    }
}

impl CertificateState {
    /// The state after a write. Pointer configs are as they will be read then, without an update of their relation to a
    /// new bundle.
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
        state.requested = write.leaves(&state.requested);
        state
    }
}

/// Next action of a controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NextAction {
    /// Store these in their order, then call [`next()`] again.
    Step {
        /// Step that the writes implement.
        step: Step,
        /// Writes, at least one.
        writes: Vec<Write>,
    },
    /// Nothing is due until this time.
    Settled {
        /// Time at which something may become due without any change.
        until: OffsetDateTime,
        /// Faults that are not repaired.
        attention: Vec<Warning>,
        /// Action for the request to an issuer.
        request_action: RequestAction,
    },
}

/// Action for a CA that an external issuer issues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestAction {
    /// None: no CA is wanted, or the answer is outstanding.
    Nothing,
    /// Replace the previous request with a new one.
    Ask(Reason),
    /// Delete the request: no CA is wanted.
    Discard,
}

/// Returns the next action. `generate` generates a key.
pub fn next(
    state: &CertificateState,
    policy: &Policy,
    now: OffsetDateTime,
    generate: Generate<'_>,
) -> Result<NextAction, IssueError> {
    let view = View::of(state, now);
    let RotationPlan { steps, mut attention, mut times } = plan(&view, policy);
    let has_request = state.issuer.as_ref().is_some_and(|issuer| issuer.request.is_some());
    let mut request_action =
        if has_request { RequestAction::Discard } else { RequestAction::Nothing };
    let mut next_request = None;
    let mut maker = WriteBuilder { view: &view, policy, generate };
    for step in steps {
        // A request for a CA includes the pair that it signs: if the CA is refused, both stay.
        if matches!(step, Step::Serving(Reason::Requested, _))
            && attention.iter().any(is_refused_ca)
        {
            continue;
        }
        if let (Step::Ca(because), Some(issuer)) = (&step, &state.issuer) {
            let is_due;
            (is_due, next_request) = issuer.request_due(now);
            times.extend(next_request);
            attention.extend(issuer.delay(now).map(|reason| Warning::Issuer {
                issuer: issuer.name.clone(),
                because: because.clone(),
                reason,
            }));
            request_action =
                if is_due { RequestAction::Ask(because.clone()) } else { RequestAction::Nothing };
        }
        match maker.make(&step) {
            Ok(writes) if writes.is_empty() => {}
            Ok(writes) => return Ok(NextAction::Step { step, writes }),
            Err(StepError::Issue(error)) => return Err(error),
            Err(StepError::Refused(refused)) => {
                let is_unfit = matches!(refused.refusal, Refusal::Unfit { .. });
                if is_unfit && next_request.is_some_and(|time| time <= now) {
                    request_action = RequestAction::Ask(refused.because.clone());
                }
                // A pair that stays until its own end because some machines trust no other CA causes no warning.
                let is_quiet =
                    matches!(refused.because, Reason::NewerCa | Reason::Restored | Reason::Chain);
                attention.extend((!is_quiet).then_some(Warning::Refused(refused)));
            }
        }
    }
    attention.extend(view.reported_lockouts().into_iter().map(Warning::LockedOut));
    attention.extend(pointer_warnings(state));
    let until = times.into_iter().filter(|time| *time > now).min();
    Ok(NextAction::Settled {
        until: until.unwrap_or(now.saturating_add(policy.renewal)),
        attention,
        request_action,
    })
}

fn is_refused_ca(attention: &Warning) -> bool {
    matches!(
        attention,
        Warning::Refused(Refused { what: CertificateKind::Ca, because: Reason::Requested, .. })
    )
}

/// The state after all due steps except pointer configs, with its warnings. `generate` generates keys.
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
            NextAction::Step { writes, .. } => {
                state = writes.iter().fold(state, |state, write| state.with(write));
            }
            NextAction::Settled { attention, .. } => return Ok((state, attention)),
        }
    }
    Ok((state, Vec::new()))
}

/// CAs that a machine may trust.
pub fn trusted_cas(state: &CertificateState, now: OffsetDateTime) -> Vec<Certificate> {
    View::of(state, now).anchors().into_iter().cloned().collect()
}

/// Present lockouts for administrators.
pub fn reported_lockouts(state: &CertificateState, now: OffsetDateTime) -> Vec<Lockout> {
    View::of(state, now).reported_lockouts()
}

/// Warnings about pointer configs that exceed a platform's limit of user data, or whose CAs cannot be replaced.
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

/// Holders of `known` that could not boot from the chain that `state` serves, with the CAs that it distrusts.
pub fn lockouts_of(
    state: &CertificateState,
    known: &CertificateState,
    now: OffsetDateTime,
) -> Vec<Lockout> {
    locked_out(&state.chain(), &View::of(known, now).reported_holders(), now)
}

/// Makes the writes of a step.
pub(super) struct WriteBuilder<'a> {
    pub(super) view: &'a View<'a>,
    pub(super) policy: &'a Policy,
    pub(super) generate: Generate<'a>,
}

impl WriteBuilder<'_> {
    fn make(&mut self, step: &Step) -> Result<Vec<Write>, StepError> {
        match step {
            Step::Ca(reason) => self.ca(reason),
            Step::Store(reason) => Ok(vec![self.store(reason)?]),
            Step::Bundle(pem) => Ok(self.bundle(pem)),
            Step::Pointers => Ok(self.pointers()),
            Step::Serving(reason, hosts) => self.serving(reason, hosts),
        }
    }

    /// Writes the store in another order, or without distrusted CAs.
    fn store(&mut self, reason: &Reason) -> Result<Write, IssueError> {
        let mut store = self.view.store.clone();
        if *reason == Reason::Distrusted {
            for certificate in to_distrust(self.view) {
                store.distrust(&certificate);
            }
        }
        let stays = store.cas.first().filter(|_| *reason == Reason::Joined);
        let best = stays.or_else(|| store.signer_at(self.view.now)).cloned();
        let own = if let Some(best) = best {
            best
        } else {
            // The last CA is distrusted: the store always has one.
            let new = self.new_ca()?;
            store.cas.insert(0, new.clone());
            new
        };
        let stored = store.encode(&own, self.view.now);
        Ok(if *reason == Reason::Joined { Write::Ca(stored) } else { Write::Store(stored) })
    }

    fn bundle(&self, pem: &str) -> Vec<Write> {
        let mut writes = Vec::new();
        // Certificates that leave the bundle and are stored nowhere else are kept.
        let View { store, fault, bundle, now, .. } = self.view;
        let wanted = Certificate::read_all(pem.as_bytes());
        let is_leaving =
            |it: &&Certificate| !wanted.contains(it) && !store.has(it) && !store.is_distrusted(it);
        let mut leaving = bundle.iter().filter(is_leaving).cloned().peekable();
        if let (Some(_), None, Some(own)) = (leaving.peek(), fault, store.cas.first()) {
            let mut store = store.clone();
            store.cas.extend(leaving.map(|certificate| Ca { certificate, key: None }));
            writes.push(Write::Store(store.encode(own, *now)));
        }
        writes.push(Write::Bundle(pem.to_owned()));
        writes
    }

    /// Stale pointer configs, except those from which no machine could boot if they were written now.
    fn pointers(&self) -> Vec<Write> {
        let write = |pointer: &PointerTrust| {
            let PointerState::Stale(repaired) = &pointer.state else { return None };
            if self.view.would_lock_out(&pointer.holders, &repaired.holders) {
                return None;
            }
            Some(Write::Pointer { name: pointer.name.clone(), text: repaired.text.clone() })
        };
        self.view.state.pointers.iter().filter_map(write).collect()
    }

    fn serving(&mut self, reason: &Reason, hosts: &[Host]) -> Result<Vec<Write>, StepError> {
        let is_renewed = self.view.is_of_external();
        if let (Some(fault), Serving::Foreign { .. }) = (&self.view.fault, &self.view.serving)
            && !is_renewed
            && !is_forced(&self.view.state.requested, reason)
        {
            // The pair would be lost: the store that keeps replaced pairs cannot be written.
            let refusal = Refusal::Unkept(fault.clone());
            return Err(refusal.of(CertificateKind::Serving, reason).into());
        }
        let pair = choose(self.view, self.policy, reason, hosts, self.generate)?;
        let mut writes = Vec::new();
        // A pair that cannot be issued again here is kept in the store.
        let is_ours = matches!(self.view.serving, Serving::Ours(_) | Serving::Missing);
        if let (false, Some(present)) = (is_ours || is_renewed, &self.view.state.serving)
            && !present.text().trim_ascii().is_empty()
            && let Some(own) = self.view.store.cas.first()
            && self.view.fault.is_none()
        {
            let mut store = self.view.store.clone();
            store.insert_pair(present);
            writes.push(Write::Store(store.encode(own, self.view.now)));
        }
        writes.push(Write::Serving(pair));
        Ok(writes)
    }
}
