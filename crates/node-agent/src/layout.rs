//! Layouts of the files that container runtimes read.
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

use bytes::Bytes;
use clap::ValueEnum;
use model::registry_ca::RegistryHost;

/// The container runtime whose files are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Layout {
    /// `HOST[:PORT]/ca.crt`: CRI-O, podman, docker
    Crio,
    /// `HOST[:PORT]/hosts.toml` next to `ca.crt`: containerd
    Containerd,
}

/// Name of the file with CAs.
const CAS: &str = "ca.crt";
/// Name of the file by which containerd uses the CAs.
const HOSTS: &str = "hosts.toml";

impl Layout {
    /// Directory that the runtime reads.
    pub fn directory(self) -> &'static str {
        match self {
            Self::Crio => "/etc/docker/certs.d",
            Self::Containerd => "/etc/containerd/certs.d",
        }
    }

    /// Names of a registry's files, in the order of writing: a file comes after those that it refers to.
    pub fn names(self) -> &'static [&'static str] {
        match self {
            Self::Crio => &[CAS],
            Self::Containerd => &[CAS, HOSTS],
        }
    }

    /// A registry's files, in the order of writing.
    pub fn files(self, host: &RegistryHost, cas: &Bytes) -> Vec<(&'static str, Bytes)> {
        let contents = |name| if name == CAS { cas.clone() } else { hosts_toml(host).into() };
        self.names().iter().map(|name| (*name, contents(*name))).collect()
    }
}

/// containerd's `hosts.toml` for the registry itself with its CAs. A relative path refers to the directory of this
/// file, wherever it is mounted.
fn hosts_toml(host: &RegistryHost) -> String {
    // Host that containerd uses for a name without one.
    let server = match host.as_str() {
        "docker.io" => "registry-1.docker.io",
        host => host,
    };
    format!("server = \"https://{server}\"\nca = \"{CAS}\"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containerd_is_told_of_the_registry_and_its_cas() {
        let host = RegistryHost::parse("registry.example.com..5000").unwrap();
        let files = Layout::Containerd.files(&host, &Bytes::from("PEM"));
        let expected = "server = \"https://registry.example.com:5000\"\nca = \"ca.crt\"\n";
        assert_eq!(files, [(CAS, "PEM".into()), (HOSTS, expected.into())]);
    }
}
