//! Input and results of the rotation of tokens.

use std::collections::BTreeMap;

use time::{Duration, OffsetDateTime};

use super::super::issued::Issued;
use super::super::mode::AccessMode;
use super::super::records::Records;
use super::super::token::Token;

/// Settings of the rotation.
#[derive(Debug, Clone, Copy)]
pub struct RotationPolicy {
    /// Age at which a pointer config's token is replaced. Default 7 days.
    pub period: Duration,
    /// Time for which a token is accepted after no pointer config contains it any longer. Default 24 hours.
    pub overlap: Duration,
}

impl Default for RotationPolicy {
    fn default() -> Self {
        Self { period: Duration::days(7), overlap: Duration::hours(24) }
    }
}

/// A fetch in a pointer config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PointerToken {
    /// Unique name of the pointer config.
    pub name: String,
    /// Pool of the fetch.
    pub pool: String,
    /// Credential of the fetch.
    pub credential: FetchCredential,
    /// True if it must not be written at present, because the last write failed. A pointer config that can never be
    /// written [cannot contain a token](FetchCredential::Cannot).
    pub waits: bool,
}

/// Credential of a fetch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FetchCredential {
    /// No credential.
    Nothing,
    /// A token of this server.
    Token(Token),
    /// Another credential, managed by its owner.
    Other,
    /// No credential, and none can be added, for this reason.
    Cannot(String),
}

/// Complete input of the plan.
#[derive(Debug, Clone, Default)]
pub struct ObservedTokens {
    /// Tokens in plain text.
    pub issued: Issued,
    /// Records that servers read.
    pub records: Records,
    /// Fetches of all pointer configs.
    pub pointers: Vec<PointerToken>,
    /// Access modes by pool.
    pub pools: BTreeMap<String, AccessMode>,
}

/// A write of the plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    /// The list of tokens in plain text.
    Issued(Issued),
    /// The records that servers read.
    Records(Records),
    /// Tokens of pointer configs.
    Pointers(Vec<PointerWrite>),
}

/// A token to write into a pointer config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PointerWrite {
    /// Unique name of the pointer config.
    pub name: String,
    /// Pool of the fetch.
    pub pool: String,
    /// Token to write.
    pub token: Token,
}

/// Reasons for a write, as logged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// The pool has no token.
    #[error("pool {0} had no token")]
    First(String),
    /// The pool's token is due for replacement.
    #[error("the token of pool {0} was old")]
    Due(String),
    /// Servers must accept new tokens.
    #[error("publishing new tokens to servers")]
    New,
    /// Pointer configs must contain the newest tokens.
    #[error("writing the newest tokens into pointer configs")]
    Embed,
    /// Tokens are superseded and get an expiry.
    #[error("ending older tokens that no pointer config has any more")]
    Ending,
    /// Expired tokens are deleted, first the text, later the hash.
    #[error("removing expired tokens")]
    Discarded,
    /// Both lists must name the enforced pools.
    #[error("recording the enforced pools with the tokens")]
    Remembered,
    /// The evidence has changed: a pool can or need not be enforced, or a pointer config lacks a token.
    #[error("recording changes of pointer configs")]
    EvidenceChanged,
}

/// Next action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NextAction {
    /// Make this write, then observe and plan again.
    Write(Reason, Write),
    /// Nothing is due.
    Settled {
        /// Time at which something becomes due without any change, if ever.
        until: Option<OffsetDateTime>,
        /// Faults for administrators, one line each.
        attention: Vec<String>,
    },
}
