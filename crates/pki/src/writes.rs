//! Turns a planned step into writes of whole objects, with their certificates issued.
//!
//! A controller observes, calls [`next()`], applies the writes in their order, and observes again. A directory, a
//! cluster and the tests' model differ only in how they store one [`Write`]. After any of the writes, every machine can
//! still boot.
//!
//! Writes are judged before they are returned: a step that would lock out a machine that can boot ([`locked_out`]) is
//! refused and reported.

use time::OffsetDateTime;

use super::ca_store::{Ca, left_out};
use super::certificate::Certificate;
use super::holder::Lockout;
use super::hosts::Host;
use super::issuer::RequestDuty;
use super::lockout::locked_out;
use super::plan::Step;
use super::plan::{RotationPlan, plan, to_distrust};
use super::policy::Policy;
use super::reason::{IssueError, Reason};
use super::serving::{Generate, choose, is_forced};
use super::state::{CertificateState, Issuer, PointerState, RotationRequest, StoredPair};
use super::view::{Serving, View};
use super::warning::USER_DATA_LIMITS;
use super::warning::{CertificateKind, Refusal, Refused, Warning};

/// Upper bound for the number of steps until any state is settled.
pub const MAX_STEPS: usize = 32;

/// Explanation for entries of [`Write::left_out`].
pub const LEFT_OUT: &str = "it has expired, and newer ones need the space";

/// Next step of an administrator after [`LEFT_OUT`].
pub const LEFT_OUT_FIX: &str = "give machines that trust nothing newer a pointer config of today";

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
    #[must_use]
    pub fn left_out(&self, before: Option<&StoredPair>) -> Vec<String> {
        match (self, before) {
            (Self::Ca(after) | Self::Store(after), Some(before)) => left_out(before, after),
            _ => Vec::new(),
        }
    }

    /// Requests that remain open of `asked` once this is stored. Distrust is permanent, and is stored with the CA.
    #[must_use]
    pub fn leaves(&self, asked: &RotationRequest) -> RotationRequest {
        match self {
            Self::Ca(_) => RotationRequest { ca: false, ..asked.clone() },
            Self::Serving(_) => RotationRequest { serving: false, ..asked.clone() },
            Self::Store(_) | Self::Bundle(_) | Self::Pointer { .. } => asked.clone(),
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
        state.asked = write.leaves(&state.asked);
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
    Forget,
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
    let mut request_action = RequestAction::of(state);
    let mut maker = WriteBuilder { view: &view, policy, generate };
    for step in steps {
        // A request for a CA includes the pair that it signs: if the CA is refused, both stay.
        let is_for_naught = matches!(step, Step::Serving(Reason::Requested, _))
            && attention.iter().any(is_refused_ca);
        if is_for_naught {
            continue;
        }
        if let (Step::Ca(reason), Some(issuer)) = (&step, &state.issuer) {
            let (duty, due) = issuer.duty(now);
            times.extend(due);
            attention.extend(issuer.delay(now).map(|why| delayed(issuer, reason, why)));
            request_action = match duty {
                RequestDuty::Ask => RequestAction::Ask(reason.clone()),
                RequestDuty::Wait | RequestDuty::Take => RequestAction::Nothing,
            };
            if duty != RequestDuty::Take {
                continue;
            }
        }
        match maker.make(&step)? {
            Ok(writes) if writes.is_empty() => {}
            Ok(writes) => return Ok(NextAction::Step { step, writes }),
            Err(refused) => {
                let is_unfit = matches!(refused.refusal, Refusal::Unfit { .. });
                if is_unfit && state.issuer.as_ref().is_some_and(|it| it.asks_again(now)) {
                    request_action = RequestAction::Ask(refused.because.clone());
                }
                attention.extend(reported(refused));
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
#[must_use]
pub fn trusted_by_somebody(state: &CertificateState, now: OffsetDateTime) -> Vec<Certificate> {
    View::of(state, now).anchors().into_iter().cloned().collect()
}

/// Present lockouts for administrators.
#[must_use]
pub fn reported_lockouts(state: &CertificateState, now: OffsetDateTime) -> Vec<Lockout> {
    View::of(state, now).reported_lockouts()
}

/// Warnings about pointer configs that exceed a platform's limit of user data, or whose CAs cannot be replaced.
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

/// Holders of `known` that could not boot from the chain that `state` serves, with the CAs that it distrusts.
#[must_use]
pub fn lockouts_of(
    state: &CertificateState,
    known: &CertificateState,
    now: OffsetDateTime,
) -> Vec<Lockout> {
    locked_out(&state.chain(), &View::of(known, now).reported_holders(), now)
}

impl RequestAction {
    /// The action if no CA is wanted.
    fn of(state: &CertificateState) -> Self {
        let has_request = state.issuer.as_ref().is_some_and(|issuer| issuer.request.is_some());
        if has_request { Self::Forget } else { Self::Nothing }
    }
}

fn delayed(issuer: &Issuer, because: &Reason, reason: String) -> Warning {
    Warning::Issuer { issuer: issuer.name.clone(), because: because.clone(), reason }
}

/// The warning about a refusal. A pair that stays until its own end because some machines trust no other CA causes
/// none.
fn reported(refused: Refused) -> Option<Warning> {
    let is_quiet = matches!(refused.because, Reason::NewerCa | Reason::Restored | Reason::Chain);
    (!is_quiet).then_some(Warning::Refused(refused))
}

fn is_refused_ca(attention: &Warning) -> bool {
    matches!(
        attention,
        Warning::Refused(Refused { what: CertificateKind::Ca, because: Reason::Requested, .. })
    )
}

/// Makes the writes of a step.
pub(super) struct WriteBuilder<'a> {
    pub(super) view: &'a View<'a>,
    pub(super) policy: &'a Policy,
    pub(super) generate: Generate<'a>,
}

pub(super) type Writes = Result<Vec<Write>, Refused>;

impl WriteBuilder<'_> {
    fn make(&mut self, step: &Step) -> Result<Writes, IssueError> {
        match step {
            Step::Ca(reason) => self.ca(reason),
            Step::Store(reason) => self.store(reason),
            Step::Bundle(pem) => Ok(Ok(self.bundle(pem))),
            Step::Pointers => Ok(Ok(self.pointers())),
            Step::Serving(reason, hosts) => self.serving(reason, hosts),
        }
    }

    /// Writes the store in another order, or without distrusted CAs.
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
            // The last CA is distrusted: the store always has one.
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
        // Certificates that leave the bundle and are stored nowhere else are kept.
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

    /// Stale pointer configs, except those from which no machine could boot if they were written now.
    fn pointers(&self) -> Vec<Write> {
        let write = |pointer: &super::state::PointerTrust| {
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
            // The pair would be lost: the store that keeps replaced pairs cannot be written.
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
        // A pair that cannot be issued again here is kept in the store.
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
