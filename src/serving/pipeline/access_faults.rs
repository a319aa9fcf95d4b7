//! Faults of access control in the log: what happened, and what an administrator does.

/// Part of access control that has a fault.
#[derive(Debug, Clone, Copy)]
pub(in crate::serving) enum AccessFault {
    /// Tokens of machines with a name.
    Machines,
    /// Tokens of pointer configs.
    Tokens,
    /// Annotations with access modes.
    Modes,
    /// Annotations with rules about machines.
    Rules,
    /// Pools with mode `enforce` that are open.
    Audited,
    /// Pools of which too little is known.
    Unknown,
}

impl AccessFault {
    /// Name in readiness.
    pub(in crate::serving) fn thing(self) -> &'static str {
        match self {
            Self::Machines => "machines",
            Self::Tokens => "tokens",
            Self::Modes => "access",
            Self::Rules => "rules about machines",
            Self::Audited => "access is audited instead of enforced",
            Self::Unknown => "access is not known",
        }
    }

    /// Logs the fault. `reason` names its pools, files and objects.
    pub(in crate::serving) fn log(self, reason: &str) {
        match self {
            Self::Machines => tracing::warn!(
                reason,
                fix = "correct the FirstBootMachine or file that the reason names",
                "cannot keep the tokens of all machines with a name"
            ),
            Self::Tokens => tracing::warn!(
                reason,
                fix = "do what the reason names; machine-config-server tokens list has the tokens, \
                    and the pointer configs without one",
                "cannot give each pointer config a valid token"
            ),
            Self::Modes => tracing::warn!(
                reason,
                fix = "correct the annotation; machine-config-server validate DIR and /readyz on \
                    --metrics-address show it until then",
                "cannot read a pool's access mode, keeping the one before"
            ),
            Self::Rules => tracing::warn!(
                reason,
                fix = "correct the annotation; machine-config-server validate DIR and /readyz on \
                    --metrics-address show it until then",
                "cannot read a pool's rules about machines, using strict ones"
            ),
            Self::Audited => tracing::warn!(
                reason,
                fix = "give the pointer configs that the reason names a token; \
                    machine-config-server tokens list has those without one",
                "access is audited instead of enforced"
            ),
            Self::Unknown => tracing::warn!(
                reason,
                fix = "do what the reason names; /readyz on --metrics-address shows the pools until \
                    then",
                "cannot apply the access mode of a pool yet"
            ),
        }
    }
}
