//! Ignition configs, from the JSON in a MachineConfig to the JSON that a machine gets.
//!
//! The crate does no I/O. The flow of a config:
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
//! - Configs are merged as Ignition merges them ([`merge()`]), held as [`MergeInput`]s.
//! - A [`Config`] is held in the newest spec. Each newer spec 3 only adds fields, so lifting is parsing. Lowering drops
//!   fields without effect, and refuses the others by name.
//! - [`ignored()`] reports fields that a config's spec lacks.
//! - `spec2` and `spec3` declare the fields: the spec that introduced each, and how lists are merged. `rules` defines the
//!   rules, with the specs that they hold in.
//! - The answers for configs of spec 3.5 and older are the reference server's, also where it leaves something out
//!   (`lower` says where); 3.0 and 3.6 are served too.
//!
//! [`contents`] unpacks files. [`negotiate`] chooses the spec for a client, and [`Form::of`] the form; [`pointer()`]
//! makes the config that a machine starts with.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

mod accept;
mod config;
pub mod contents;
pub mod data_url;
mod downgrade;
mod edit;
mod error;
mod fields;
mod file_sources;
mod files_stage;
mod form;
mod go_json;
mod ignored;
mod lift;
mod lower;
mod merge;
mod normalise;
mod pointer;
mod rules;
mod spec2;
pub mod spec3;
mod unit_file;
mod url;
mod version;

pub use accept::{NotServable, negotiate};
pub use config::{Config, LoweredConfig};
pub use error::Error;
pub use file_sources::FileSources;
pub use files_stage::{Unwritable, has_hash};
pub use form::Form;
pub use go_json::{members, names_field};
pub use ignored::{Ignored, IgnoredReason, ignored};
pub use merge::{Member, MergeInput, Merged, Origin, merge};
pub use pointer::{POINTER_SPEC, ca_source, pointer};
pub use version::SpecVersion;
