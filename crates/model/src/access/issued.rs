//! The list of tokens in pointer configs, private to the controller that writes them.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

use super::records::read_object;
use super::token::Token;

/// Tokens in plain text, readable only by the controller that writes pointer configs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Issued {
    /// Tokens, the oldest first.
    pub tokens: Vec<IssuedToken>,
    /// Pools that are enforced, a copy of [`Records::enforced`](super::Records::enforced) for the case that the records
    /// are lost or restored.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub enforced: BTreeSet<String>,
    /// Pools that may have been enforced, a copy of [`Records::undetermined`](super::Records::undetermined).
    #[serde(rename = "unsure", skip_serializing_if = "BTreeSet::is_empty")]
    pub undetermined: BTreeSet<String>,
}

impl Issued {
    /// Name of the Secret with the list in a cluster. Only the controller reads it.
    pub const SECRET: &str = "machine-config-server-tokens";
    /// Key in the Secret, and name of the file in a state directory.
    pub const FILE: &str = "tokens.json";

    /// Parses the list's JSON.
    ///
    /// # Errors
    /// The JSON is malformed. A list that is not understood must not be overwritten.
    pub fn read(json: &[u8]) -> Result<Self, serde_json::Error> {
        read_object(json)
    }

    /// The newest token of a pool.
    pub fn newest(&self, pool: &str) -> Option<&Token> {
        self.tokens.iter().rev().find(|issued| issued.pool == pool).map(|issued| &issued.token)
    }
}

/// A token that pointer configs contain, or will contain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IssuedToken {
    /// Token in plain text.
    pub token: Token,
    /// The pool that it opens.
    pub pool: String,
    /// Time of its generation.
    #[serde(with = "time::serde::rfc3339")]
    pub made: OffsetDateTime,
}
