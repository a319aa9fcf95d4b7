//! Pointer configs: the user data of a new machine, with the URL of its config, the CAs to trust, and optionally a
//! token.
//!
//! ```text
//!                        ┌> Written: its text ──────> trust, bearer: other CAs, a token, every other byte as it was
//!  bytes ─> PointerConfig ┤                     └────> embedded_tokens: what a rotation of tokens sees of it
//!                        └> walk: what Ignition does ─> verdict (with what is served): will it boot
//!                             └> Fetches, also where there are faults ─> holders of trust, hosts
//! ```
//!
//! User data can be anything: another tool's, a script, an Ignition config of any spec with more than a pointer.
//! [`PointerConfig::read`] accepts all of it. A config is judged as Ignition reads it, by its own spec;
//! `tests/it/pointer_corpus` compares the verdict with Ignition. If no known Ignition fetches anything by a config, its
//! text is used as it is: a newer Ignition may.

mod admission;
mod bearer;
mod ca;
mod config;
mod embedded_tokens;
mod fault;
mod fetch;
mod fields;
mod json_text;
mod pem;
mod plain;
mod trust;
mod verdict;
mod walk;
mod written;

pub use self::admission::{Admission, admission};
pub use self::bearer::{Authorization, NoHeader, WrittenFetch};
pub use self::ca::{CaFault, ContentsFault};
pub use self::config::{PointerConfig, pool_url};
pub use self::embedded_tokens::newest_embedded_token;
pub use self::fault::{EC2_LIMIT, Fault, HeaderFault, Warning};
pub use self::fetch::{Fetch, accept};
pub use self::trust::{Assessment, LeftAlone};
pub use self::verdict::{Problem, ServerState, Verdict, pools_of};
pub use self::written::MAX_BYTES;
