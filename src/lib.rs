//! Serves Ignition configs to machines that boot for the first time.
//!
//! ```text
//!  manifests in a directory ─┐                                       ┌─ TLS   :22623 ─┐
//!                            ├─> source ─> Inputs ─> render ─> answers ┤                ├─> Ignition, curl
//!  watches of a cluster ─────┘    (I/O)   (a value)  (pure)   (bytes)  └─ plain :22624 ─┘
//! ```
//!
//! [`source`] reads files or follows a cluster, and publishes one immutable [`inputs::Inputs`] for
//! each change. [`render`] is a pure function from the inputs, a pool and an Ignition spec version
//! to JSON; it builds on [`ignition`], which parses, validates, edits and converts configs, and on [`objects`]
//! and [`registry_ca`], which know what Kubernetes objects say. [`answers`] keeps the results as
//! bytes behind an atomically swapped pointer, and [`server`] sends them: nothing on a request's
//! path reads a file, parses YAML or converts a config.
//!
//! Beside that flow are the certificates. [`pki`] decides about and issues them, [`user_data`] is
//! how pointer configs come to trust them, both pure; [`store`] applies what they decide to a
//! folder, and [`controllers`] to a cluster, with the merging of [`registry_ca`]. On running nodes,
//! [`node_ca`] keeps the files of the registries' certificate authorities.
//!
//! [`telemetry`] logs and counts, [`conditions`] has what readiness tells beside the answers,
//! [`kube_client`] finds the API server, [`app`] puts it all together, and [`cli`] is its flags. The clock, randomness
//! and the environment are read at these edges only, and passed on as arguments.
#![forbid(unsafe_code)]

pub mod answers;
pub mod app;
mod backoff;
pub mod cli;
pub mod conditions;
pub mod controllers;
mod folder_watch;
pub mod ignition;
pub mod inputs;
pub mod kube_client;
pub mod node_ca;
pub mod objects;
mod parallel;
pub mod pki;
pub mod registry_ca;
pub mod render;
pub mod server;
pub mod source;
pub mod store;
pub mod telemetry;
pub mod user_data;
