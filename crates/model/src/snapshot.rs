//! Combines inputs, tokens and keys into the served configs and the access policy.
//!
//! ```text
//!  inputs ─────┐
//!  records ────┼─> Snapshot::new ─> tightened policy ─> publish inputs ─> policy
//!  signing keys┘
//! ```
//!
//! They are published in this order, so that a config with secrets is never served under the old, less strict policy.

use std::sync::Arc;

use crate::access::{
    AccessMode, BootRules, KnownMachines, KnownTokens, MinIgnition, Modes, Networks, Policy,
    Records, SignedTokens, WantedModes,
};
use crate::inputs::Inputs;

/// Access rules that are constant while the process runs.
#[derive(Debug, Default)]
pub struct AccessRules {
    /// Mode of pools without an annotation.
    pub mode: AccessMode,
    /// Allowed networks.
    pub networks: Networks,
    /// Oldest Ignition of pools without an annotation.
    pub min_ignition: Option<MinIgnition>,
}

/// Parts of a snapshot, each as it was read last.
#[derive(Debug, Default)]
pub struct SnapshotParts {
    /// Pools and MachineConfigs, once they were read.
    pub inputs: Option<Inputs>,
    /// Records of tokens, once they were read.
    pub records: Option<Records>,
    /// Tokens of single machines.
    pub machines: KnownMachines,
    /// Keys of another issuer of tokens.
    pub signed: Option<SignedTokens>,
}

/// Inputs, with the policy that belongs to them.
#[derive(Debug)]
pub struct Snapshot {
    /// Inputs, with the enforced pools.
    pub inputs: Inputs,
    /// Access policy for the inputs.
    pub policy: Arc<Policy>,
}

impl Snapshot {
    /// Combines the known parts, `None` before inputs were read.
    pub fn new(
        known: &SnapshotParts,
        wanted: &WantedModes,
        boot_rules: &BootRules,
        rules: &AccessRules,
    ) -> Option<Self> {
        let modes = wanted.in_force(known.records.as_ref());
        let inputs = Inputs { enforced: modes.enforced(), ..known.inputs.clone()? };
        Some(Self { inputs, policy: Arc::new(known.policy(modes, boot_rules, rules)) })
    }

    /// Policy while this snapshot replaces one with the modes `before`: the stricter mode of each pool.
    pub fn tightened(&self, before: &Modes) -> Arc<Policy> {
        if *before == self.policy.modes {
            return Arc::clone(&self.policy);
        }
        let modes = before.stricter(&self.policy.modes);
        Arc::new(Policy { modes, ..Policy::clone(&self.policy) })
    }
}

impl SnapshotParts {
    /// Policy with these modes, by the known tokens and keys.
    pub fn policy(&self, modes: Modes, boot_rules: &BootRules, rules: &AccessRules) -> Policy {
        Policy {
            modes,
            networks: rules.networks.clone(),
            boot_rules: boot_rules.clone(),
            machines: self.machines.clone(),
            tokens: self.records.as_ref().map(KnownTokens::new).unwrap_or_default(),
            signed: self.signed.clone(),
        }
    }
}
