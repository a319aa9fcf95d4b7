//! Certificates of an external CA, made by OpenSSL, and chains that it verifies.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use pki::Certificate;

/// Runs openssl in a folder.
pub(crate) fn openssl(directory: &Path, arguments: &[&str]) {
    let output = Command::new("openssl").args(arguments).current_dir(directory).output();
    let output = output.expect("openssl");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "openssl {arguments:?}: {errors}");
}

/// Runs `openssl verify` with these flags on a chain, trusting these CAs alone.
pub(crate) fn verify(
    flags: &[impl AsRef<OsStr>],
    chain: &[Certificate],
    trusted: &[Certificate],
) -> Output {
    let directory = tempfile::tempdir().expect("a temporary folder");
    let write = |name: &str, certificates: &[Certificate]| {
        let pem: String = certificates.iter().map(Certificate::to_pem).collect();
        let path = directory.path().join(name);
        fs::write(&path, pem).expect("a writable folder");
        path
    };
    let mut command = Command::new("openssl");
    command.arg("verify").args(flags).arg("-CAfile").arg(write("trusted.pem", trusted));
    command.arg("-untrusted").arg(write("chain.pem", chain));
    command.arg(write("leaf.pem", chain.get(..1).unwrap_or_default()));
    command.output().expect("openssl")
}

/// Makes `tls.crt` for `tls.key`, signed by `ca.crt` with `ca.key`; `names` is a line of an
/// extension file.
pub(crate) fn sign_serving(directory: &Path, names: &str) {
    openssl(
        directory,
        &["req", "-new", "-key", "tls.key", "-subj", "/CN=localhost", "-out", "csr"],
    );
    fs::write(directory.join("names"), names).expect("a writable folder");
    let request = ["x509", "-req", "-in", "csr", "-CA", "ca.crt", "-CAkey", "ca.key"];
    let issued = ["-days", "3650", "-CAcreateserial", "-extfile", "names", "-out", "tls.crt"];
    openssl(directory, &[&request[..], &issued].concat());
}
