//! Decides on access to machines' configs.
//!
//! ```text
//!                        ┌─ machines' tokens    ┐
//!                        ├─ networks            │
//!  request ─> decide ────┼─ tokens, by hash     ├─> Verdict: allowed by a proof, or refused for a reason
//!  policy, now ──────────┴─ signed tokens (JWT) ┘
//!
//!  tokens, pointer configs ─> rotation::next ─> Write ─> tokens, pointer configs ─> …
//! ```
//!
//! The module does no I/O: records of tokens, the time and random bytes are arguments. Client certificates are not
//! supported: Ignition cannot present one.

pub mod approval;
mod boot_rules;
mod issued;
pub mod machine;
mod mode;
mod modes;
pub mod network;
mod proof;
mod records;
pub mod rotation;
pub mod signed;
mod token;
mod verdict;

pub use boot_rules::{
    BootRules, BrokenRule, MIN_IGNITION_ANNOTATION, MinIgnition, PLAIN_PORT_ANNOTATION, PoolRules,
};
pub use machine::{DirectoryToken, KnownMachines};
pub use mode::{ACCESS_ANNOTATION, AccessMode, Waiting};
pub use modes::{Modes, WantedModes};
pub use network::{Allowed, Network, NetworkError, Networks};
pub use proof::{Credential, Proof, Refusal};
pub use records::{KnownTokens, Record, Records};
pub use signed::{JwksError, SignedTokens};
pub use token::{ShownToken, Token, TokenHash};
pub use verdict::{Policy, Request, Verdict, decide};
