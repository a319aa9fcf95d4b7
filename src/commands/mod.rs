//! The commands, composed of the other modules: a source, answers and listeners make a server.
//!
//! Their settings derive `clap::Args`. [`crate::cli`] names the commands.

pub(crate) mod bootstrap;
pub(crate) mod certs;
pub(crate) mod cmp;
pub(crate) mod controller;
pub(crate) mod health;
pub(crate) mod inspect;
pub(crate) mod issuer;
pub(crate) mod machines;
pub(crate) mod node_ca;
mod pool_names;
pub(crate) mod probe;
pub(crate) mod process;
mod remark;
pub(crate) mod render;
mod rendering;
pub(crate) mod serve;
pub(crate) mod server;
pub(crate) mod start;
pub(crate) mod stores;
pub(crate) mod tokens;
pub(crate) mod validate;

use std::io::Write as _;

use model::escape::escaped;
use serde::Serialize;
use time::OffsetDateTime;

#[cfg(not(feature = "fips"))]
pub(crate) const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("MCS_COMMIT"), ")");
/// Version and commit.
#[cfg(feature = "fips")]
pub(crate) const VERSION: &str =
    concat!(env!("CARGO_PKG_VERSION"), " (", env!("MCS_COMMIT"), ", FIPS)");

/// Name, version, commit.
pub(crate) fn version() -> String {
    format!("machine-config-server {VERSION}")
}

/// Keeps private keys out of core dumps, and this process's memory from other processes of the same user. A failure
/// does not prevent serving.
pub(crate) fn make_memory_private() {
    let _ = nix::sys::prctl::set_dumpable(false);
}

/// Prints a line for a person. A closed pipe is ignored.
pub(crate) fn print_line(line: &str) {
    let _ = writeln!(std::io::stdout(), "{}", escaped(line));
}

/// Prints a JSON value on one line.
fn print_json(value: &impl Serialize) -> anyhow::Result<()> {
    print_line(&serde_json::to_string(value)?);
    Ok(())
}

/// Prints a line on standard error.
pub(crate) fn print_stderr(line: &str) {
    let _ = writeln!(std::io::stderr(), "machine-config-server: {}", escaped(line));
}

/// Unique name of this process: pod names and process IDs can repeat.
fn process_name(separator: char) -> String {
    let (host, id) = (host_name().unwrap_or_default(), std::process::id());
    let started = OffsetDateTime::now_utc().unix_timestamp_nanos();
    format!("{host}{separator}{id}{separator}{started}")
}

/// Name of this machine.
fn host_name() -> Option<String> {
    nix::unistd::gethostname().ok()?.into_string().ok()
}
