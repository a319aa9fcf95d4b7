//! Ignition configs, from the JSON in a machine config to the JSON that a machine gets.
//!
//! Everything here is pure. A config flows through like this:
//!
//! ```text
//!  JSON ──normalise──> JSON of the declared spec ──> spec3::Body ───────────────┐
//!          (fields)                              └─> spec2::Body ──rules, lift──┴──rules──> Config
//!
//!  Config ──edit──> Config ──lower──> rules of the spec asked for
//!                                     ├─ 3.x: downgrade (fields) ───────────────┐
//!                                     └─ 2.2: downgrade, to_spec2, rules::spec2 ┴──> Lowered ──> JSON
//! ```
//!
//! - Configs are merged as Ignition merges them ([`merge()`]), held as [`Part`]s.
//! - A config is held in the newest spec ([`Config`]), whatever it was written in. Each newer spec 3 only adds, so
//!   lifting is reading; lowering drops what says nothing, and refuses the rest by name.
//! - What a config says that its spec does not know is reported by [`ignored()`].
//! - Which spec brought which field is written once, in `fields`, with how each list is merged, and which rule holds in
//!   which spec once, in `rules`.
//! - The answers for configs of spec 3.5 and older are the reference server's, also where it leaves something out
//!   (`lower` says where); 3.0 and 3.6 are served besides.
//!
//! [`contents`] unpacks what is in files, [`secrets`] tells which parts of a config are secret.
//!
//! Which spec a client reads is negotiated by [`negotiate`], whether it gets it compact by [`Form::of`]; [`pointer()`]
//! makes the config that a machine starts with.
#![forbid(unsafe_code)]

mod accept;
mod config;
pub mod contents;
pub mod data_url;
mod downgrade;
mod edit;
mod error;
mod fields;
mod form;
mod go_json;
mod ignored;
mod lift;
mod lower;
mod merge;
mod normalise;
mod pointer;
mod rules;
pub mod secrets;
mod spec2;
pub mod spec3;
mod unit_file;
mod url;
mod version;

pub use accept::{NotServable, negotiate};
pub use config::{Config, Lowered};
pub use error::Error;
pub use form::Form;
pub use go_json::{members, names_field};
pub use ignored::{Ignored, IgnoredReason, ignored};
pub use merge::{Member, Merged, Origin, Part, merge};
pub use pointer::{POINTER_SPEC, ca_source, pointer};
pub use version::SpecVersion;
