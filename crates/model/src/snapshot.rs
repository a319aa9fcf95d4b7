//! What is served and to whom, made of everything that decides it.
//!
//! ```text
//!  inputs ─────┐
//!  records ────┼─> Snapshot::new ─> tightened policy ─> publish inputs ─> policy
//!  signing keys┘
//! ```
//!
//! Publishing goes in that order: a config with contents for few is never rendered while many may have it.

use std::sync::Arc;

use crate::access::{
    AccessMode, KnownTokens, Modes, Networks, Policy, Records, SignedTokens, Verifier, WantedModes,
};
use crate::inputs::Inputs;

/// Access rules that hold as long as the process runs.
#[derive(Debug, Default)]
pub struct AccessRules {
    /// Mode of pools that have no annotation.
    pub mode: AccessMode,
    /// Networks that may ask.
    pub networks: Networks,
}

/// Everything that decides what is served, each part as it was read last.
#[derive(Debug, Default)]
pub struct Known {
    /// Pools and machine configs, once they were read.
    pub inputs: Option<Inputs>,
    /// Tokens, once they were read.
    pub records: Option<Records>,
    /// Keys of another issuer of tokens.
    pub signed: Option<SignedTokens>,
}

/// Inputs that are rendered, and the policy that goes with them.
#[derive(Debug)]
pub struct Snapshot {
    /// The inputs, with the pools that are enforced.
    pub inputs: Inputs,
    /// Who gets what of them.
    pub policy: Policy,
}

impl Snapshot {
    /// The snapshot of what is known, `None` before inputs were read.
    #[must_use]
    pub fn new(known: &Known, wanted: &WantedModes, rules: &AccessRules) -> Option<Self> {
        let modes = wanted.in_force(known.records.as_ref());
        let inputs = known.inputs.clone()?;
        let inputs = Inputs { enforced: modes.enforced(), ..inputs };
        Some(Self { inputs, policy: known.policy(modes, rules) })
    }

    /// The policy while this snapshot takes the place of one with the modes `before`: for each pool the
    /// stricter of the two.
    #[must_use]
    pub fn tightened(&self, before: &Modes) -> Policy {
        Policy {
            modes: before.stricter(&self.policy.modes),
            networks: self.policy.networks.clone(),
            verifiers: self.policy.verifiers.clone(),
        }
    }
}

impl Known {
    /// The policy with these modes, by the tokens and keys that are known.
    #[must_use]
    pub fn policy(&self, modes: Modes, rules: &AccessRules) -> Policy {
        let tokens = self.records.as_ref().map(KnownTokens::new);
        let tokens = tokens.map(|tokens| Arc::new(tokens) as Arc<dyn Verifier>);
        let signed = self.signed.clone().map(|signed| Arc::new(signed) as Arc<dyn Verifier>);
        let verifiers = tokens.into_iter().chain(signed).collect();
        Policy { modes, networks: rules.networks.clone(), verifiers }
    }
}
