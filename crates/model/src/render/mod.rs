//! Renders the config of a pool: a pure function of the inputs, the pool and the Ignition spec version.
//!
//! ```text
//! Inputs ── select ──> PoolInputs ── render(version, form) ──> Ignition config as JSON
//!             │                          │
//!   which machine config          parse and lift, edit in a fixed order,
//!   and image the pool            compact for Ignition, lower to the version
//!   serves now
//! ```

mod compact;
mod credentials;
mod exposed;
mod fetch_round;
mod image;
mod overlay;
mod registries;
mod release;
mod select;
mod steps;

pub use compact::CompressedContents;
pub use exposed::{ExposedPlaces, exposed, exposed_line, kernel_arguments};
pub use overlay::{MergeBase, OverlayError};
pub use registries::registries_without_ca;
pub use release::too_new_for_release;
pub use select::{FETCHES_FOREVER, PoolInputs, SelectError, select};
pub use steps::{ENCAPSULATED, RenderError, render};
