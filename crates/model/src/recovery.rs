//! Recovery of machines that did not get a config.

use serde::Serialize;
use strum::IntoStaticStr;
use utoipa::ToSchema;

/// Way of a machine to its config once the cause is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr, Serialize, ToSchema)]
#[strum(serialize_all = "kebab-case")]
#[serde(rename_all = "kebab-case")]
pub enum Recovery {
    /// It retries, and boots.
    Retry,
    /// It must be booted again.
    Restart,
    /// It must be booted again, with another pointer config.
    NewUserData,
}

impl Recovery {
    /// An administrator's next step, and what the machine needs then: one sentence without a full stop.
    pub fn after(self, fix: &str) -> String {
        match self {
            Self::Retry => format!("{fix}; the machine retries, and boots then"),
            Self::Restart => format!("{fix}; then boot the machine again"),
            Self::NewUserData => {
                format!(
                    "{fix}; then boot the machine again with the new pointer config as its user data"
                )
            }
        }
    }

    /// A sentence for after the remedy.
    pub fn sentence(self) -> &'static str {
        match self {
            Self::Retry => "The machine retries, and boots when this is done.",
            Self::Restart => {
                "The machine does not recover by itself: boot it again when this is done."
            }
            Self::NewUserData => {
                "The machine reads its pointer config once: give it the new one as user data, and boot it again."
            }
        }
    }
}
