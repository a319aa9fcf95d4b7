//! Black-box tests of the built binary and of the library's pure parts, all in one program: one
//! link, and what they share is compiled once.
//!
//! Each module is about one thing that a user sees. Those in [`cluster`] need a kube-apiserver and
//! etcd, which `tests/run` provides: `--skip cluster::` leaves them out, `cluster::` takes only them.
//! Those in [`go_verifier`] need a program that it builds with Go, those in [`alert_rules`] promtool.
#![allow(clippy::expect_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod alert_rules;
mod bad_input;
mod boot_ledger;
mod certificates;
mod changes;
mod check_pointer;
mod cluster;
mod command_line;
mod compact;
mod conformance;
mod faults;
mod first_boot;
mod fixtures_index;
mod go_verifier;
mod hostile;
mod hostile_files;
mod http_contract;
mod ignition_properties;
mod inspect;
mod layers;
mod lockout_cases;
mod monitoring;
mod node_ca;
mod page;
mod registry_ca;
mod render;
mod rotation;
mod support;
