//! What a step comes to: whole things to be stored, with their certificates issued.
//!
//! Whoever keeps certificates observes, asks [`next`], applies the writes in their order, and
//! observes again. That is all there is to a rotation, so that a folder, a cluster and the tests'
//! model differ only in how one [`Write`] is stored. Stopping after any of them leaves a state in
//! which every machine can still boot.

use rcgen::KeyPair;
use time::OffsetDateTime;

use super::authority::{new_authority, new_serving};
use super::plan::plan;
use super::{
    Asked, CertificateState, IssueError, PointerState, Policy, RotationPlan, Step, StoredPair,
};

/// More steps than any state takes to be in order.
pub const MOST_STEPS: usize = 32;

/// One thing to be stored. Each replaces what is there as a whole, or not at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    /// The signing authority with its previous CAs.
    Authority(StoredPair),
    /// The bundle of authorities, PEM.
    Bundle(String),
    /// A pointer config.
    Pointer {
        /// Its [`Pointer::name`](super::Pointer::name).
        name: String,
        /// Its new text.
        text: Vec<u8>,
    },
    /// The serving pair.
    Serving(StoredPair),
}

impl Write {
    /// What is left to ask for of what was `asked`, once this is stored.
    #[must_use]
    pub fn leaves(&self, asked: Asked) -> Asked {
        match self {
            Self::Authority(_) => Asked { authority: false, ..asked },
            Self::Serving(_) => Asked { serving: false, ..asked },
            Self::Bundle(_) | Self::Pointer { .. } => asked,
        }
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
    /// All is in order until this time.
    Settled {
        /// When something will be due by itself.
        until: OffsetDateTime,
    },
}

/// Says what comes next. `generate` makes a new key.
pub fn next(
    state: &CertificateState,
    policy: &Policy,
    now: OffsetDateTime,
    generate: &mut dyn FnMut() -> Result<KeyPair, IssueError>,
) -> Result<Next, IssueError> {
    let RotationPlan { step, requeue_at } = plan(state, policy, now);
    let Some(step) = step else { return Ok(Next::Settled { until: requeue_at }) };
    let writes = match &step {
        Step::Authority(_) => {
            vec![Write::Authority(new_authority(state, policy, &generate()?, now)?)]
        }
        Step::Bundle(pem) => vec![Write::Bundle(pem.clone())],
        Step::Pointers => stale_pointers(state),
        Step::Serving(_, hosts) => {
            vec![Write::Serving(new_serving(state, policy, hosts, &generate()?, now)?)]
        }
    };
    Ok(Next::Step { step, writes })
}

fn stale_pointers(state: &CertificateState) -> Vec<Write> {
    let write = |pointer: &super::Pointer| match &pointer.state {
        PointerState::Stale(text) => {
            Some(Write::Pointer { name: pointer.name.clone(), text: text.clone() })
        }
        PointerState::Kept | PointerState::Refused => None,
    };
    state.pointers.iter().filter_map(write).collect()
}
