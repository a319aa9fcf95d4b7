//! A network of the bench's own, in which clients come from any IPv6 network.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use nix::sched::{CloneFlags, unshare};

/// What clients come from: documentation's own (RFC 3849).
const NETWORK: &str = "2001:db8::/32";
/// Whether an address may be used that no interface has.
const ANY_ADDRESS: &str = "/proc/sys/net/ipv6/ip_nonlocal_bind";

/// Moves this process into one, and those that it begins later; tells whether it could, which takes
/// root. There is no other thread yet.
pub(crate) fn enter() -> Result<bool> {
    if !rustix::process::geteuid().is_root() || unshare(CloneFlags::CLONE_NEWNET).is_err() {
        return Ok(false);
    }
    ip(&["link", "set", "lo", "up"])?;
    let has_networks = ip(&["-6", "route", "add", "local", NETWORK, "dev", "lo"]);
    Ok(has_networks.is_ok() && fs::write(ANY_ADDRESS, "1").is_ok())
}

fn ip(arguments: &[&str]) -> Result<()> {
    let status = Command::new("ip").args(arguments).status().context("ip, of iproute2")?;
    ensure!(status.success(), "ip {}", arguments.join(" "));
    Ok(())
}
