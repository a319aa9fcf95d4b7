//! Serves Ignition configs to machines that boot for the first time.
//!
//! ```text
//!  manifests in a directory ─┐                                       ┌─ TLS   :22623 ─┐
//!                            ├─> source ─> Inputs ─> render ─> answers ┤                ├─> Ignition, curl
//!  watches of a cluster ─────┘    (I/O)   (a value)  (pure)   (bytes)  └─ plain :22624 ─┘
//! ```
//!
//! Decisions are made in crates without I/O, whose `Cargo.toml` have no runtime and no kube:
//!
//! - `crates/ignition` parses, validates, edits and converts configs.
//! - `crates/secrets` finds secret parts of a config, and removes them from texts.
//! - `crates/pki` plans rotations, issues certificates, and finds machines that a served chain locks out. It turns a
//!   rotation's steps into writes, which the stores apply.
//! - `crates/model` decides about pools, access, tokens, registries, pointer configs, the boot ledger and rendering.
//! - `crates/escape` limits foreign text, and keeps it within one line.
//! - `crates/cmp` gets certificates from an organisation's CA by CMPv2.
//! - `crates/rendered-pools` decides which rendered MachineConfigs a cluster gets, and which are deleted.
//! - `crates/inspect` describes the machine that a config makes, and the cause if it does not come up.
//! - `crates/status` shows the state of a server or a controller, as JSON and as pages.
//! - `crates/table` formats tables for terminals.
//!
//! Other crates do the I/O below the program:
//!
//! | crate | job | may use |
//! | --- | --- | --- |
//! | `crates/common` | the loop of reconcilers, waits, locks, parsers of flags, an HTTP client | sockets |
//! | `crates/files` | files within bounds, replaced whole, locked, watched | the file system |
//! | `crates/telemetry` | logs, metrics, readiness | standard error |
//! | `crates/kubernetes` | clients, objects, watches, Leases, Events | the API server |
//! | `crates/controllers` | certificates, tokens, machines and registry CAs of a cluster | the API server |
//! | `crates/issuer` | certificates for cert-manager and for Kubernetes' own requests | the API server |
//! | `crates/pool-controller` | rendered MachineConfigs of a cluster's pools | the API server |
//! | `crates/cmp-http` | the transport of CMPv2 | sockets |
//! | `crates/node-agent` | registry CAs and credentials of one node | the file system |
//!
//! The core makes answers from manifests, keeps certificates, and decides on access: `crates/ignition`, `crates/pki`,
//! `crates/model`, `crates/secrets`, `crates/escape`, `crates/common`, `crates/files`, `crates/telemetry`,
//! `crates/kubernetes` and `crates/controllers`, with the modules that read, serve and store. The rest are leaves, which you can skip until you
//! change them: the other crates. The `Cargo.toml` of a core
//! crate names no leaf but `crates/table`, which colours the log, so the compiler refuses to import one. The modules
//! that read, serve and store name none, which `tests/it/layers` checks.
//!
//! The modules of the program, from the bottom up. Each imports only from those below it, which `tests/it/layers`
//! checks. Files that begin by turning on `clippy::disallowed_methods` are as pure as the crates without I/O.
//!
//! | room | job | may use |
//! | --- | --- | --- |
//! | [`store`] | certificates, pointer configs, tokens, approvals and requests in a state directory | `files` |
//! | [`source`] | inputs from a directory or a cluster | `files`, `kubernetes` |
//! | [`serving`] | access policy, rendered answers, serving pair: everything that is swapped while it is served | `files`, `source`, `store` |
//! | [`server`] | listeners, connections, TLS, HTTP: nothing here reads a file, parses YAML or converts a config | sockets |
//! | [`commands`] | one module a subcommand: its settings, which clap reads, and the rooms put together by them | all of them |
//! | [`cli`] | the commands by name, help and exit codes | `commands` |
//!
//! Modules with I/O read the clock, randomness and the environment, and pass them on as arguments.
#![forbid(unsafe_code)]
// Only the program and its tests use this library: a comment is for what a name does not say.
#![allow(missing_docs)]

pub mod cli;
mod commands;
pub mod server;
pub mod serving;
pub mod source;
mod store;
