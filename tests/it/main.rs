//! Black-box tests of the built binary and of the library's pure parts, all in one program: one
//! link, and what they share is compiled once.
//!
//! Each module is about one thing that a user sees. Those in [`cluster`] need a kube-apiserver and
//! etcd, which `tests/run` provides: `--skip cluster::` leaves them out, `cluster::` takes only them.
//! Those in [`node`] need a kubelet and what goes with it besides, where a machine can run one. Those in
//! [`go_verifier`] need a program that it builds with Go, those in [`alert_rules`] promtool, those in [`chart`]
//! helm, those in [`pointer_corpus`] a current Ignition, those in [`butane`] Butane, those in [`cert_manager`] cert-manager's controllers, those in `cluster::controller::bundles` trust-manager's.
#![allow(clippy::expect_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod access;
mod access_faults;
mod access_orders;
mod access_proofs;
mod access_storm;
mod administrators;
mod alert_rules;
mod bad_input;
mod book;
mod book_blocks;
mod boot_ledger;
mod butane;
mod cert_manager;
mod certificates;
mod changes;
mod chart;
mod check_pointer;
mod cluster;
mod cmp;
mod command_line;
mod compact;
mod conformance;
mod earlier_version;
mod exposed;
mod failure_reports;
mod faults;
mod fetches_forever;
mod files_stage;
mod first_boot;
mod first_words;
mod fixtures_index;
#[allow(unreachable_pub, reason = "a crate of its own to a fuzzer")]
#[path = "../../fuzz/src/lib.rs"]
mod fuzz;
mod fuzzed;
mod go_parser;
mod go_verifier;
mod half_written;
mod health;
mod host_firewall;
mod hostile;
mod hostile_files;
mod http_contract;
mod ignition_properties;
mod image;
mod inspect;
mod join;
mod kernel_arguments;
mod last_good;
mod layers;
mod lockout_cases;
mod machine_sites;
mod memory;
mod merged_pools;
mod monitoring;
mod names;
mod node;
mod node_ca;
mod node_credentials;
mod old_ignition;
mod page;
mod pointer_corpus;
mod prose;
mod proxy_protocol;
mod registry_auth;
mod registry_ca;
mod render;
mod rotation;
mod rotation_of_tokens;
mod service_manager;
mod service_user;
mod state_directory;
mod support;
mod terminal;
mod unreadable_pairs;
mod virtual_machine;
mod without_effect;
mod workflows;
