//! The files that a container runtime looks for.

use bytes::Bytes;
use clap::ValueEnum;
use model::registry_ca::RegistryHost;

/// The container runtime whose files are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Layout {
    /// `HOST[:PORT]/ca.crt`: CRI-O, podman, docker
    Crio,
    /// `HOST[:PORT]/hosts.toml` beside `ca.crt`: containerd
    Containerd,
}

/// The certificate authorities.
const CAS: &str = "ca.crt";
/// What makes containerd use them.
const HOSTS: &str = "hosts.toml";

impl Layout {
    /// The folder that the runtime reads.
    #[must_use]
    pub fn directory(self) -> &'static str {
        match self {
            Self::Crio => "/etc/docker/certs.d",
            Self::Containerd => "/etc/containerd/certs.d",
        }
    }

    /// The names of a registry's files, in the order in which they are written: what refers to
    /// another file comes after it.
    #[must_use]
    pub fn names(self) -> &'static [&'static str] {
        match self {
            Self::Crio => &[CAS],
            Self::Containerd => &[CAS, HOSTS],
        }
    }

    /// The contents of a registry's files, in the order of their names.
    #[must_use]
    pub fn contents(self, host: &RegistryHost, cas: &Bytes) -> Vec<Bytes> {
        match self {
            Self::Crio => vec![cas.clone()],
            Self::Containerd => vec![cas.clone(), hosts_toml(host).into()],
        }
    }
}

/// containerd's `hosts.toml`: the registry itself, by its own authorities. A relative path is one
/// beside this file, wherever the folder is mounted.
fn hosts_toml(host: &RegistryHost) -> String {
    // What containerd asks in place of a name that is no host's.
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
        let contents = Layout::Containerd.contents(&host, &Bytes::from("PEM"));
        let expected = "server = \"https://registry.example.com:5000\"\nca = \"ca.crt\"\n";
        assert_eq!(contents, ["PEM", expected]);
        assert_eq!(contents.len(), Layout::Containerd.names().len());
    }
}
