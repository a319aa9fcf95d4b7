//! A private image registry: TLS by an unknown CA, and credentials.

use std::fs::{self};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use serde_json::json;
use tempfile::TempDir;

use super::logged::Logged;
use super::wait_for;

pub(crate) const USER: &str = "machine";
pub(crate) const PASSWORD: &str = "a password: with $, \"quotes\" and a colon";

/// Debian's `docker-registry`, which ends when the value is dropped.
pub(crate) struct Registry {
    _program: Logged,
    name: String,
    directory: TempDir,
}

impl Registry {
    /// Starts the registry at an address, by a command that runs the program. Clients use the name `host`.
    pub(crate) fn start(mut program: Command, at: SocketAddr, host: &str) -> Self {
        let directory = tempfile::tempdir().expect("a temporary folder");
        make_pair(directory.path(), host);
        let path = |name: &str| directory.path().join(name);
        // The cheapest hash suffices.
        let hashed = bcrypt::hash(PASSWORD, 4).expect("a hash");
        fs::write(path("htpasswd"), format!("{USER}:{hashed}\n")).expect("a writable folder");
        let config = json!({
            "version": "0.1",
            "storage": {"filesystem": {"rootdirectory": path("images")}},
            "http": {
                "addr": at.to_string(),
                "tls": {"certificate": path("registry.crt"), "key": path("registry.key")},
            },
            "auth": {"htpasswd": {"realm": "registry", "path": path("htpasswd")}},
        });
        fs::write(path("config.yml"), config.to_string()).expect("a writable folder");
        let command = program.arg("serve").arg(path("config.yml"));
        let program = Logged::start("docker-registry", command);
        wait_for("the registry to be up", || TcpStream::connect(at).ok());
        Self { _program: program, name: format!("{host}:{}", at.port()), directory }
    }

    /// Name of the registry with its port.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// CA of the registry in PEM.
    pub(crate) fn ca(&self) -> String {
        fs::read_to_string(self.cas().join("ca.crt")).expect("the authority")
    }

    /// Directory that contains only the CA.
    pub(crate) fn cas(&self) -> PathBuf {
        self.directory.path().join("authorities")
    }

    /// User and password for most programs.
    pub(crate) fn credentials() -> String {
        format!("{USER}:{PASSWORD}")
    }

    /// User and password in the form of a Docker config.
    pub(crate) fn credential() -> String {
        BASE64.encode(Self::credentials())
    }
}

/// Makes the registry's certificate and its CA.
fn make_pair(directory: &Path, host: &str) {
    let key = KeyPair::generate().expect("a key");
    let mut ca = CertificateParams::new([]).expect("no names");
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let pem = ca.self_signed(&key).expect("a certificate").pem();
    let names = [host, "127.0.0.1"].map(str::to_owned);
    let own_key = KeyPair::generate().expect("a key");
    let leaf = CertificateParams::new(names).expect("names");
    let leaf = leaf.signed_by(&own_key, &Issuer::new(ca, key)).expect("a certificate");
    fs::create_dir(directory.join("authorities")).expect("a new folder");
    fs::write(directory.join("authorities/ca.crt"), pem).expect("a writable folder");
    fs::write(directory.join("registry.crt"), leaf.pem()).expect("a writable folder");
    fs::write(directory.join("registry.key"), own_key.serialize_pem()).expect("a writable folder");
}
