//! Who gets a config: tokens that pointer configs carry, modes by flag and by pool, and what strangers
//! get.

mod modes;
mod requests;
mod tokens;

use std::fs;
use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;

use crate::first_boot::pointer;
use crate::support::http::{Client, Response};
use crate::support::in_repository;
use crate::support::server::Server;
use crate::support::wait_for;

const IGNITION: (&str, &str) = ("User-Agent", "Ignition/2.14.0");
const ACCEPT: (&str, &str) = ("Accept", "application/vnd.coreos.ignition+json;version=3.3.0");

/// The annotation of a pool.
const ACCESS: &str = "machineconfiguration.openshift.io/access";

/// `Bearer` and the token that the pool's pointer config carries.
pub(crate) fn credential(server: &Server, pool: &str) -> String {
    wait_for("a token in the pointer config", || {
        let pointer: Value = serde_json::from_str(&pointer(server, pool)).ok()?;
        let header = &pointer["ignition"]["config"]["merge"][0]["httpHeaders"][0];
        assert!(header.is_null() || header["name"] == "Authorization", "{header}");
        header["value"].as_str().map(str::to_owned)
    })
}

pub(crate) fn get(client: &Client, pool: &str, credential: Option<&str>) -> Response {
    let authorization = credential.map(|credential| ("Authorization", credential));
    let headers: Vec<_> = [IGNITION, ACCEPT].into_iter().chain(authorization).collect();
    client.request("GET", &format!("/config/{pool}"), &headers)
}

pub(crate) fn enforcing(flags: &[&str]) -> Server {
    let flags: Vec<_> = ["--access", "enforce"].iter().chain(flags).copied().collect();
    Server::serve(&in_repository("ignition-fixtures"), &flags)
}

/// A token that nobody has issued.
pub(crate) fn unknown() -> String {
    format!("Bearer mcs-{}", "A".repeat(43))
}

pub(crate) fn assert_refused(response: &Response) {
    assert_eq!(response.status, 401, "{response:?}");
    let challenge = response.header("www-authenticate").expect("a challenge");
    assert!(challenge.starts_with("Bearer "), "{challenge}");
    let body = String::from_utf8(response.body.clone()).expect("text");
    assert_eq!(body, "access to this config is restricted, and the request has no valid token\n");
}

/// A folder of manifests with the sample cluster's, of which one pool says something of its access.
pub(crate) fn with_annotated_pool(pool: &str, access: &str) -> TempDir {
    let directory = tempfile::tempdir().expect("a temporary folder");
    let sample = in_repository("ignition-fixtures");
    for entry in walk(&sample) {
        let target = directory.path().join(entry.strip_prefix(&sample).expect("below"));
        fs::create_dir_all(target.parent().expect("a folder")).expect("a writable folder");
        fs::copy(&entry, target).expect("a copy");
    }
    annotate(directory.path(), pool, access);
    directory
}

fn walk(directory: &Path) -> Vec<std::path::PathBuf> {
    let entries =
        fs::read_dir(directory).expect("a folder").map(|entry| entry.expect("one").path());
    entries.flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path] }).collect()
}

/// Has the sample's file of pools say so, replaced as a careful program does.
pub(crate) fn annotate(directory: &Path, pool: &str, access: &str) {
    let sample = fs::read_to_string(in_repository("ignition-fixtures/pools.yaml")).expect("text");
    let name = format!("  name: {pool}\n");
    assert!(sample.contains(&name));
    let annotated = format!("{name}  annotations:\n    {ACCESS}: {access}\n");
    let text = sample.replacen(&name, &annotated, 1);
    fs::write(directory.join(".pools.new"), text).expect("a writable folder");
    fs::rename(directory.join(".pools.new"), directory.join("pools.yaml")).expect("a rename");
}

fn printed(output: &std::process::Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).expect("text")
}
