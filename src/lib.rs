//! Serves Ignition configs to machines that boot for the first time.
//!
//! ```text
//!  manifests in a directory ─┐                                       ┌─ TLS   :22623 ─┐
//!                            ├─> source ─> Inputs ─> render ─> answers ┤                ├─> Ignition, curl
//!  watches of a cluster ─────┘    (I/O)   (a value)  (pure)   (bytes)  └─ plain :22624 ─┘
//! ```
//!
//! The map, from the bottom up; a module knows those on the floors below it and no others, which
//! `tests/it/layers` checks, as it does what is said to be pure.
//!
//! - **What the field knows**, pure: [`ignition`] parses, validates, edits and converts configs,
//!   [`objects`] has the Kubernetes objects, only the fields that are read. Beside them small parts
//!   that others share: [`conditions`], [`escape`], [`kube_client`], [`table`] for what a person reads,
//!   `backoff`, `bounded_file`, `file_stamp`, `folder_watch`, `http_client`, `parallel`.
//! - **[`ledger`]**, pure: which machine asked for a config, what it got, and what came of it.
//! - **What is decided**, pure: [`pki`] when certificates are made anew, how they are issued (its
//!   keys, the one random thing, are made in [`pki::keys`]) and who is locked out by what is served,
//!   [`registry_ca`] which authorities of image registries a machine trusts, [`registry_auth`] which
//!   logins to them it has, [`user_data`] how
//!   pointer configs come to trust others, [`pointer_check`] whether a machine would boot from one. One executor turns a rotation's steps into writes for
//!   whoever stores them.
//! - **[`cmp`]**, pure but for its client and transport: certificates from an organisation's CA by CMPv2.
//! - **[`access`]**, pure: who may have a config, by tokens and networks, and when tokens are made anew.
//! - **[`inputs`]**: one immutable value, everything that can change what a machine is served; and
//!   **[`render`]**, a pure function from it, a pool, an Ignition spec version and a form to JSON.
//! - **[`inspect`]**: what a machine becomes by a config, what differs between two, and why one does not
//!   come up, as text for a person; pure too.
//! - **Where it comes from and goes to**, I/O: [`source`] reads files or follows a cluster, and
//!   publishes inputs; [`store`] keeps certificates in a folder, [`controllers`] in a cluster, with
//!   the merged registry CAs, and sign for others through cert-manager; [`node_ca`] keeps those on running nodes. What is decided in there is
//!   in files of its own, and pure.
//! - **[`overview`]**, pure: all that an administrator wants to see at a glance, as a page and as JSON.
//! - **[`answers`]** keeps what was rendered as bytes behind an atomically swapped pointer, and
//!   **[`server`]** sends them: nothing on a request's path reads a file, parses YAML or converts a
//!   config. [`telemetry`] logs and counts.
//! - **[`app`]** puts it all together from plain settings, which **[`cli`]** makes of flags.
//!
//! The clock, randomness and the environment are read by those that do I/O, and passed on as
//! arguments.
#![forbid(unsafe_code)]

pub mod access;
pub mod answers;
pub mod app;
mod backoff;
mod bounded_file;
pub mod cli;
pub mod cmp;
pub mod conditions;
pub mod controllers;
pub mod escape;
mod file_stamp;
mod folder_watch;
mod http_client;
pub mod ignition;
pub mod inputs;
pub mod inspect;
pub mod kube_client;
pub mod ledger;
pub mod node_ca;
pub mod objects;
pub mod overview;
mod parallel;
pub mod pki;
pub mod pointer_check;
pub mod registry_auth;
pub mod registry_ca;
pub mod render;
pub mod server;
pub mod source;
pub mod store;
pub mod table;
pub mod telemetry;
pub mod user_data;
