//! Serves Ignition configs to machines that boot for the first time.
//!
//! ```text
//!  manifests in a directory ─┐                                       ┌─ TLS   :22623 ─┐
//!                            ├─> source ─> Inputs ─> render ─> answers ┤                ├─> Ignition, curl
//!  watches of a cluster ─────┘    (I/O)   (a value)  (pure)   (bytes)  └─ plain :22624 ─┘
//! ```
//!
//! What is decided is in crates that do no I/O, whose `Cargo.toml` have no runtime and no kube:
//!
//! - `crates/ignition` parses, validates, edits and converts configs.
//! - `crates/pki` says when certificates are made anew, issues them, and says who is locked out by what is
//!   served. It turns a rotation's steps into writes, which the stores carry out.
//! - `crates/model` has all else: pools, tokens, registries, pointer configs, the boot ledger, rendering.
//!
//! The map of what is here, from the bottom up; a module knows those on the floors below it and no others,
//! which `tests/it/layers` checks, as it does which files are pure.
//!
//! - Small parts that others share: [`conditions`], [`kube_client`], `backoff`, `bounded_file`, `file_stamp`,
//!   `folder_watch`, `http_client`, `parallel`; [`telemetry`] logs and counts.
//! - **[`cmp`]**, pure but for its client and transport: certificates from an organisation's CA by CMPv2.
//! - **Where it comes from and goes to**, I/O: [`source`] reads files or follows a cluster, and
//!   publishes inputs; [`store`] keeps certificates in a folder, [`controllers`] in a cluster, with
//!   the merged registry CAs, and sign for others through cert-manager; [`node_ca`] keeps those on
//!   running nodes. What is decided in there is in files of its own, and pure.
//! - **[`answers`]** keeps what was rendered as bytes behind an atomically swapped pointer, and
//!   **[`server`]** sends them: nothing on a request's path reads a file, parses YAML or converts a
//!   config.
//! - **[`app`]** puts it all together from plain settings, which **[`cli`]** makes of flags.
//!
//! The clock, randomness and the environment are read by those that do I/O, and passed on as
//! arguments.
#![forbid(unsafe_code)]

pub mod answers;
pub mod app;
mod backoff;
mod bounded_file;
pub mod cli;
pub mod cmp;
pub mod conditions;
pub mod controllers;
mod file_stamp;
mod folder_watch;
mod http_client;
pub mod kube_client;
pub mod node_ca;
mod parallel;
pub mod server;
pub mod source;
pub mod store;
pub mod telemetry;
