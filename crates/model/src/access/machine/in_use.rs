//! Parts that the tokens of machines have in common, in a directory and in a cluster.

use super::super::token::TokenHash;
use super::usage::Usage;

/// Token of a machine, with its use since it was armed.
pub trait TokenInUse: Clone {
    /// Hash of the token.
    fn sha256(&self) -> TokenHash;

    /// Pool that it opens.
    fn pool(&self) -> &str;

    /// Its use since it was armed.
    fn usage(&self) -> &Usage;

    /// The same, to be changed.
    fn usage_mut(&mut self) -> &mut Usage;

    /// True if the token opens nothing, because the machine's object is gone.
    fn is_revoked(&self) -> bool;
}
