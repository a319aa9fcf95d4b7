//! Pointer configs: the user data of a new machine, which names a server, the CAs to trust it by, and maybe a token.
//!
//! ```text
//!                        ┌> Written: its text ──────> trust, bearer: other CAs, a token, every other byte as it was
//!  bytes ─> PointerConfig ┤                     └────> carrier: what a rotation of tokens sees of it
//!                        └> walk: what Ignition does ─> verdict (with what is served): will it boot
//!                             └> Fetches, also where there are faults ─> who trusts whom, which hosts are asked
//! ```
//!
//! User data may be anything: another tool's, a script, an Ignition config of any spec with more in it than a pointer.
//! [`PointerConfig::read`] takes all of it. What counts is what Ignition makes of it, so a config is looked at as far as
//! its own spec goes; `tests/it/pointer_corpus` holds that against Ignition itself. What no Ignition that is known here
//! fetches anything by is taken as it is written: a newer one may.

mod admission;
mod bearer;
mod ca;
mod carrier;
mod config;
mod fault;
mod fetch;
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
pub use self::carrier::carried;
pub use self::config::PointerConfig;
pub use self::fault::{EC2_LIMIT, Fault, HeaderFault, Warning};
pub use self::fetch::{Fetch, accept};
pub use self::trust::{Assessment, LeftAlone};
pub use self::verdict::{Known, Problem, Verdict, pools_of};
pub use self::written::MAX_BYTES;
