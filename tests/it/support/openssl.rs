//! Certificates of an external CA, made by OpenSSL.

use std::fs;
use std::path::Path;
use std::process::Command;

/// Runs openssl in a folder.
pub(crate) fn openssl(directory: &Path, arguments: &[&str]) {
    let output = Command::new("openssl").args(arguments).current_dir(directory).output();
    let output = output.expect("openssl");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "openssl {arguments:?}: {errors}");
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
