//! Machines with a name, with the state of their tokens.

use core::net::IpAddr;

use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;
use time::OffsetDateTime;
use time::serde::rfc3339;
use utoipa::ToSchema;

use super::in_use::TokenInUse;
use super::usage::{ClockReading, Stage, Window};

/// A machine with a name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NamedMachine {
    /// Name of its object.
    pub name: String,
    /// Pool whose config it gets.
    pub pool: String,
    /// State of its token.
    pub token: TokenState,
    /// Time at which an answer was first delivered in full, since the token was armed.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "rfc3339::option")]
    pub taken: Option<OffsetDateTime>,
    /// Addresses that the token was used from, since it was armed.
    #[schema(value_type = Vec<String>)]
    pub addresses: Vec<IpAddr>,
}

/// State of a machine's token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema, IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
#[serde(rename_all = "lowercase")]
pub enum TokenState {
    /// It waits for its first use.
    Armed,
    /// It is in use, and opens the config.
    Open,
    /// It opens nothing until it is armed again.
    Spent,
    /// It opens nothing any more: its object is gone or is being deleted, or was made again and has no token yet.
    Revoked,
}

impl TokenState {
    /// Word for people: that of the variant.
    pub fn label(self) -> &'static str {
        self.into()
    }
}

impl NamedMachine {
    /// The machine `name` at `now`.
    pub fn of(name: &str, token: &impl TokenInUse, window: Window, now: ClockReading) -> Self {
        let usage = token.usage();
        Self {
            name: name.to_owned(),
            pool: token.pool().to_owned(),
            token: match usage.stage(window, now) {
                _ if token.is_revoked() => TokenState::Revoked,
                Stage::Armed => TokenState::Armed,
                Stage::Begun | Stage::Taken(_) => TokenState::Open,
                Stage::Spent => TokenState::Spent,
            },
            taken: usage.taken(),
            addresses: usage.addresses().iter().copied().collect(),
        }
    }

    /// Addresses for people, in one text.
    pub fn used_from(&self) -> String {
        self.addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    }
}
