//! Pools of a running server, for the completion of command lines.

use std::ffi::OsStr;
use std::time::Duration;

use clap_complete::engine::{
    ArgValueCandidates, ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter,
};
use serde::Deserialize;
use tokio::time::timeout;

use super::machines::{DEFAULT_SERVER, ask};
use super::process::block_on;

/// Time that a key press waits for the server.
const PATIENCE: Duration = Duration::from_secs(1);

/// Pools of the server at the default address, for a flag or an argument.
pub(super) fn pool_names() -> ArgValueCandidates {
    ArgValueCandidates::new(|| names().into_iter().map(CompletionCandidate::new).collect())
}

/// The same pools and paths, for an argument that can be either.
pub(super) fn pools_and_paths() -> ArgValueCompleter {
    ArgValueCompleter::new(|current: &OsStr| {
        let begun = current.to_string_lossy();
        let pools = names().into_iter().filter(|name| name.starts_with(&*begun));
        pools.map(CompletionCandidate::new).chain(PathCompleter::any().complete(current)).collect()
    })
}

#[derive(Deserialize)]
struct Served {
    pools: Vec<Pool>,
}

#[derive(Deserialize)]
struct Pool {
    name: String,
}

/// Names of the pools; none without a server, as an error would appear on the line that is being written.
fn names() -> Vec<String> {
    match block_on(async { timeout(PATIENCE, ask(DEFAULT_SERVER)).await }) {
        Ok(Ok(Ok(Served { pools }))) => pools.into_iter().map(|pool| pool.name).collect(),
        _ => Vec::new(),
    }
}
