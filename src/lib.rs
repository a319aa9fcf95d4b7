//! Serves Ignition configs to machines that boot for the first time.
#![forbid(unsafe_code)]

pub mod answers;
pub mod cli;
pub mod ignition;
pub mod objects;
mod parallel;
pub mod pki;
pub mod registry_ca;
pub mod render;
pub mod server;
pub mod source;
pub mod store;
pub mod telemetry;
