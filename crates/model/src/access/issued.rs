//! The tokens of pointer configs, in the list of whoever writes those.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use super::records::read_object;
use super::token::Token;

/// The tokens themselves, for whoever writes pointer configs and for nobody else.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Issued {
    /// The oldest first.
    #[serde(default)]
    pub tokens: Vec<IssuedToken>,
    /// The pools that are enforced, as [`Records::enforced`](super::Records::enforced) has them: where that
    /// list is lost or restored, this one says so.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub enforced: BTreeSet<String>,
    /// The pools that may have been, as [`Records::unsure`](super::Records::unsure) has them.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub unsure: BTreeSet<String>,
}

impl Issued {
    /// The secret that holds them in a cluster: the controller's alone.
    pub const SECRET: &str = "machine-config-server-tokens";
    /// The key of that, and the file of a state folder.
    pub const FILE: &str = "tokens.json";

    /// Reads what was written as JSON.
    ///
    /// # Errors
    /// What is wrong with it. What is not understood is not to be written anew.
    pub fn read(json: &[u8]) -> Result<Self, serde_json::Error> {
        read_object(json)
    }

    /// The newest token of a pool.
    #[must_use]
    pub fn newest(&self, pool: &str) -> Option<&Token> {
        self.tokens.iter().rev().find(|issued| issued.pool == pool).map(|issued| &issued.token)
    }
}

/// A token that pointer configs carry, or are going to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IssuedToken {
    /// The token.
    pub token: Token,
    /// The pool that it opens.
    pub pool: String,
    /// When it was made.
    #[serde(with = "time::serde::rfc3339")]
    pub made: OffsetDateTime,
}
