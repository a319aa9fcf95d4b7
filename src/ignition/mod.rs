//! Ignition configs: reading, checking, editing and saying them in any served spec.
pub mod accept;
mod conform;
pub mod data_url;
mod error;
mod fields;
mod fit;
mod rules;
mod spec2;
mod spec3;
mod unit_file;
mod url;
mod version;

pub use accept::{NotServable, negotiate};
pub use error::Error;
pub use version::SpecVersion;
