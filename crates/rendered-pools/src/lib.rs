//! Rendered MachineConfigs of a cluster, from creation to deletion, and the pools that are set to them.
//!
//! ```text
//!  pool, its merged MachineConfig ──┐
//!                                   ├── plan ──> PoolPlan: prepare the rendered MachineConfig, set the pool to it
//!  rendered MachineConfigs ─────────┤
//!  boot ledgers ────────────────────┴── expired ──> those to delete
//! ```
//!
//! A rendered MachineConfig is there before a pool names it. One that is there already is written as a whole first,
//! with a new revision: nobody knows what it contains, and a controller that planned to delete it, and was held up, has
//! its write refused then. The crate does no I/O.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

mod plan;
mod retention;
mod size;
mod state;

pub use plan::{
    Fault, HoldReason, LostConfig, PoolField, PoolPlan, Prepare, Rendering, faults, plan,
};
pub use retention::{MAX_UNNAMED, expired};
pub use size::{LargeConfig, MAX_STORED_BYTES};
pub use state::{GENERATOR, Origin, PoolState, RenderedConfig, RenderedConfigs};

#[cfg(test)]
mod tests;
