//! Decisions about what machines get, without I/O; the clock, randomness and the environment are arguments.
//!
//! From the bottom up, as `tests/it/layers` checks:
//!
//! - [`objects`]: Kubernetes objects, only the fields that are read; [`fetched_pools`]: pools whose configs a config
//!   fetches; [`refusal`]: codes for answers without a config; [`recovery`]: what a machine needs once the cause of a
//!   failed boot is removed; [`network`]: networks of addresses; [`ignition_version`]: versions of Ignition;
//!   [`presence`]: what became of objects that a directory no longer has; [`history`]: recent changes of what is served.
//! - [`ledger`]: machines that requested a config, with answer and result. [`access`]: access to configs by tokens and
//!   networks, and rotation of tokens. [`registry_ca`]: CAs of image registries that machines trust,
//!   [`registry_credentials`]: their credentials for registries. [`merged_pool`]: a pool's configuration, merged from
//!   the MachineConfigs that it selects.
//! - [`pointer_config`]: pointer configs, the verdict if a machine boots from one, and updates of their CAs and tokens.
//! - [`inputs`]: the immutable value from which configs are rendered. [`render`]: the config of a pool in an Ignition
//!   spec version and a form, as JSON.
//! - [`snapshot`]: inputs, tokens and keys at one time: the served configs, and access to them.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

pub mod access;
mod by_network;
pub mod fetched_pools;
pub mod history;
pub mod ignition_version;
pub mod inputs;
pub mod ledger;
pub mod merged_pool;
pub mod network;
pub mod objects;
pub mod pointer_config;
pub mod presence;
pub mod recovery;
pub mod refusal;
pub mod registry_ca;
pub mod registry_credentials;
pub mod render;
pub mod snapshot;

pub use escape;
