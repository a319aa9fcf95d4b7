//! Ignition configs: reading, checking, editing and saying them in any served spec.
pub mod accept;
mod config;
mod conform;
pub mod data_url;
mod edit;
mod error;
mod fields;
mod fit;
mod lift;
mod lower;
mod pointer;
mod rules;
mod spec2;
mod spec3;
mod unit_file;
mod url;
mod version;

pub use accept::{NotServable, negotiate};
pub use config::{Config, Lowered};
pub use error::Error;
pub use pointer::pointer;
pub use version::SpecVersion;
