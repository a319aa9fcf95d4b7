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
//! - `crates/cmp` gets certificates from an organisation's CA by CMPv2.
//! - `crates/model` has all else: pools, tokens, registries, pointer configs, the boot ledger, rendering.
//! - `crates/escape` bounds words of others, and keeps them within one line.
//!
//! The rooms of the program, from the bottom up; each knows those below it and no others, which
//! `tests/it/layers` checks, as it does which files are pure.
//!
//! | room | job | may use |
//! | --- | --- | --- |
//! | `flags` | how values of flags are read | nothing |
//! | [`telemetry`] | logs, metrics, readiness | standard error |
//! | [`files`] | files within bounds, replaced whole, locked, watched | the file system |
//! | [`kubernetes`] | clients, objects, watches, Leases, Events | the API server |
//! | [`cmp_http`] | messages of `crates/cmp` to an organisation's CA and back | HTTP |
//! | [`store`] | certificates, pointer configs and tokens in a state directory | `files` |
//! | [`source`] | inputs from a directory or a cluster | `files`, `kubernetes` |
//! | [`controllers`] | certificates, tokens, registry CAs and issuers of a cluster | `kubernetes` |
//! | [`node_agent`] | registry CAs and credentials of one node | `files`, `source` |
//! | [`serving`] | access policy, rendered answers, serving pair: everything that is swapped while it is served | `files`, `source`, `store` |
//! | [`server`] | listeners, connections, TLS, HTTP: nothing here reads a file, parses YAML or converts a config | sockets |
//! | [`commands`] | one module a subcommand: its settings, which clap reads, and the rooms put together by them | all of them |
//! | [`cli`] | the commands by name, help and exit codes | `commands` |
//!
//! The clock, randomness and the environment are read by those that do I/O, and passed on as
//! arguments.
#![forbid(unsafe_code)]

mod backoff;
pub mod cli;
mod cmp_http;
pub mod commands;
pub mod controllers;
pub mod files;
mod flags;
mod http_client;
pub mod kubernetes;
pub mod node_agent;
mod parallel;
pub mod server;
pub mod serving;
pub mod source;
pub mod store;
pub mod telemetry;
