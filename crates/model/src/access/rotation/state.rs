//! What a rotation of tokens sees, and what it comes to.

use std::collections::BTreeMap;

use time::{Duration, OffsetDateTime};

use super::super::issued::Issued;
use super::super::mode::AccessMode;
use super::super::records::Records;
use super::super::token::Token;

/// How tokens are made.
#[derive(Debug, Clone, Copy)]
pub struct RotationPolicy {
    /// How old the token of a pointer config gets. Default 7 days.
    pub period: Duration,
    /// How long a token is accepted after no pointer config carries it any more. Default 24 hours.
    pub overlap: Duration,
}

impl Default for RotationPolicy {
    fn default() -> Self {
        Self { period: Duration::days(7), overlap: Duration::hours(24) }
    }
}

/// A pointer config, or one of several fetches in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PointerToken {
    /// What it is found by again.
    pub name: String,
    /// The pool that it fetches from.
    pub pool: String,
    /// What it brings along.
    pub carries: Carried,
    /// Whether it is not to be written now: it could not be a moment ago. That says nothing of whether it
    /// can be: one that never can [cannot carry a token](Carried::Cannot).
    pub waits: bool,
}

/// What a pointer config brings along.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Carried {
    /// Nothing yet.
    Nothing,
    /// One of our tokens.
    Token(Token),
    /// A proof of another kind, which is its owner's affair.
    Other,
    /// Nothing, nor can it, for this reason.
    Cannot(String),
}

/// All that is known.
#[derive(Debug, Clone, Default)]
pub struct TokenState {
    /// The tokens themselves.
    pub issued: Issued,
    /// What servers are told.
    pub records: Records,
    /// The pointer configs.
    pub pointers: Vec<PointerToken>,
    /// The pools, and what is asked for each.
    pub pools: BTreeMap<String, AccessMode>,
}

/// What is to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    /// The tokens themselves.
    Issued(Issued),
    /// What servers are told.
    Records(Records),
    /// Tokens into pointer configs.
    Pointers(Vec<PointerWrite>),
}

/// A token into a pointer config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PointerWrite {
    /// Which one.
    pub name: String,
    /// Into its fetch of this pool's config.
    pub pool: String,
    /// The token.
    pub token: Token,
}

/// Why something is written, in the words of a log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// A pool has no token.
    #[error("pool {0} had no token")]
    First(String),
    /// A pool's token is old.
    #[error("the token of pool {0} was old")]
    Due(String),
    /// Servers are to accept tokens.
    #[error("servers are told of new tokens")]
    New,
    /// Pointer configs are to carry tokens.
    #[error("pointer configs carry the newest tokens")]
    Carry,
    /// No pointer config carries these any more.
    #[error("no pointer config carries the tokens before, which end")]
    Ending,
    /// They have ended, and nobody needs their text.
    #[error("tokens that end are forgotten")]
    Forgotten,
    /// Both lists are to say which pools are enforced.
    #[error("which pools are enforced is kept with the tokens")]
    Remembered,
    /// Enforcing may begin or has no reason any more, or a pointer config lacks a token.
    #[error("what is known of pointer configs has changed")]
    Standing,
}

/// What comes next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// A write, after which everything is looked at again.
    Write(Reason, Write),
    /// Nothing.
    Settled {
        /// When something will be due by itself, if anything will.
        until: Option<OffsetDateTime>,
        /// What an administrator should know, one line each.
        attention: Vec<String>,
    },
}
