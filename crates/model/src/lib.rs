//! What is decided, from values alone; the clock, randomness and the environment are arguments.
//!
//! From the bottom up, as `tests/it/layers` checks:
//!
//! - [`objects`]: Kubernetes objects, only the fields that are read; [`escape`] and [`table`] for what a person reads;
//!   [`refusal`]: codes for answers without a config.
//! - [`ledger`]: which machine asked for a config, what it got, and what came of it. [`access`]: who may have a config,
//!   by tokens and networks, and when tokens are made anew. [`registry_ca`]: which authorities of image registries a
//!   machine trusts, [`registry_credentials`] which logins to them it has.
//! - [`merged_pool`]: a pool's configuration out of the MachineConfigs that it selects.
//! - [`pointer_config`]: pointer configs, whether a machine would boot from one, and how they come to trust other CAs and
//!   to carry tokens.
//! - [`inputs`]: one immutable value, everything that can change what a machine is served. [`render`]: from it, a pool,
//!   an Ignition spec version and a form to JSON.
//! - [`snapshot`]: inputs, tokens and keys together: what is served, and to whom.
//! - [`inspect`]: what a machine becomes by a config, what differs between two, and why one does not come up, as text.
//! - [`overview`]: all that an administrator wants to see at a glance, as JSON. [`page`]: the same and more as HTML.
#![forbid(unsafe_code)]
// Tests make keys.
#![cfg_attr(test, allow(clippy::disallowed_methods))]

pub mod access;
pub mod inputs;
pub mod inspect;
pub mod ledger;
pub mod merged_pool;
pub mod objects;
pub mod overview;
pub mod page;
pub mod pointer_config;
pub mod refusal;
pub mod registry_ca;
pub mod registry_credentials;
pub mod render;
pub mod snapshot;
pub mod table;

pub use escape;
