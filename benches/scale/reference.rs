//! The machine config operator's own server, which this one replaces.
//!
//! It reads its bootstrap token from one fixed folder, so that each has a mount namespace in which that folder is the
//! bench's; that takes root. It listens on all addresses: begin the bench in a network namespace without any other.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::cluster::Cluster;
use crate::servers::free_address;

/// Makes `/etc/mcs` a folder of this namespace alone, with the token of `$1`, and becomes the program.
const IN_NAMESPACE: &str = "mkdir -p /etc/mcs && mount -t tmpfs tmpfs /etc/mcs && \
    cp -r \"$1\" /etc/mcs/bootstrap-token && shift && exec \"$@\"";

/// Command that starts it at `address`, with an administrator's rights.
pub(crate) fn command(
    binary: &Path,
    cluster: &Cluster,
    token: &Path,
    address: SocketAddr,
) -> Result<Command> {
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "sh", "-c", IN_NAMESPACE, "sh"])
        .args([token, binary])
        .args(["start", "--apiserver-url", "https://api-int.storm.test:6443", "--kubeconfig"])
        .arg(&cluster.admin)
        .arg("--cert")
        .arg(&cluster.pair.certificate)
        .arg("--key")
        .arg(&cluster.pair.key)
        .args(["--secure-port", &address.port().to_string()])
        .args(["--insecure-port", &free_address()?.port().to_string()]);
    Ok(command)
}
