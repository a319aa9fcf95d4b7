//! Access modes of pools.

use strum::{Display, EnumString, IntoStaticStr};

/// Annotation of a pool with its access mode. On a Secret with user data, `off` means that no machine is made from it.
pub const ACCESS_ANNOTATION: &str = "machineconfiguration.openshift.io/access";

/// Restriction of access to a pool's config.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Display, EnumString, IntoStaticStr,
)]
#[strum(serialize_all = "lowercase", parse_err_ty = String, parse_err_fn = expected)]
pub enum AccessMode {
    /// Every client that reaches the server gets the config.
    #[default]
    Off,
    /// Every client gets the config, and requests without a proof are reported.
    Audit,
    /// Only clients with a proof get the config.
    Enforce,
}

impl AccessMode {
    /// Name in flags and annotations: that of the variant.
    pub fn label(self) -> &'static str {
        self.into()
    }
}

fn expected(_: &str) -> String {
    "expected off, audit or enforce".to_owned()
}

/// Reasons why a pool is neither open nor enforced: a known token opens it, all other requests get 503.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Waiting {
    /// The state of its pointer configs is unknown.
    #[error(
        "it is unknown whether its pointer configs have tokens; the controller reports this if it \
            runs with --access"
    )]
    NotKnown,
    /// The pool was or may have been enforced, and the records do not contain it.
    #[error(
        "it was or could have been enforced, and the records of tokens do not have this any more, \
            as after a loss or an old backup; annotate the pool with audit, then with enforce"
    )]
    Contested,
    /// The pool's annotation is not understood, and no earlier mode is known.
    #[error("its access mode is unknown")]
    Unclear,
    /// The mode is being changed.
    #[error("its access mode is changing")]
    Changing,
}
