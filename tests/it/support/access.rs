//! Requests for configs with a token or without one, and pools whose access is restricted.

use std::fs;
use std::path::Path;

use serde_json::Value;
use tempfile::TempDir;

use super::http::{ACCEPT, Client, IGNITION, Response};
use super::manifests::{copy_fixtures, replace};
use super::server::Server;
use super::{in_repository, resource, wait_for};

/// The annotation of a pool.
pub(crate) const ACCESS: &str = "machineconfiguration.openshift.io/access";

/// Requests a pool's config as Ignition does, with a credential or without one.
pub(crate) fn get(client: &Client, pool: &str, credential: Option<&str>) -> Response {
    let authorization = credential.map(|credential| ("Authorization", credential));
    let headers: Vec<_> = [IGNITION, ACCEPT].into_iter().chain(authorization).collect();
    client.request("GET", &format!("/config/{pool}"), &headers)
}

/// `Bearer` and the token in a pointer config, `None` if it has none.
pub(crate) fn credential_in(pointer: &[u8]) -> Option<String> {
    let pointer: Value = serde_json::from_slice(pointer).expect("JSON");
    let header = &pointer["ignition"]["config"]["merge"][0]["httpHeaders"][0];
    assert!(header.is_null() || header["name"] == "Authorization", "{header}");
    header["value"].as_str().map(str::to_owned)
}

/// A pointer config without the headers of its request, as one of an older spec.
pub(crate) fn without_headers(pointer: &[u8]) -> Value {
    let mut pointer: Value = serde_json::from_slice(pointer).expect("JSON");
    let fetch = pointer["ignition"]["config"]["merge"][0].as_object_mut().expect("a fetch");
    fetch.remove("httpHeaders").expect("headers");
    pointer
}

/// `Bearer` and the token of a pool's pointer config, once it has one.
pub(crate) fn credential(server: &Server, pool: &str) -> String {
    wait_for("a token in the pointer config", || credential_in(server.pointer(pool).as_bytes()))
}

/// `Bearer` and the token in a pool's pointer config at this moment.
pub(crate) fn embedded_token(state: &Path, pool: &str) -> Option<String> {
    credential_in(&fs::read(state.join(format!("user-data/{pool}.ign"))).ok()?)
}

/// The CAs that a pointer config trusts, PEM.
pub(crate) fn trusted(pointer: &[u8]) -> Vec<u8> {
    let pointer: Value = serde_json::from_slice(pointer).expect("JSON");
    let cas = &pointer["ignition"]["security"]["tls"]["certificateAuthorities"];
    resource::bytes(&cas[0]).expect("contents")
}

/// A token that no server has issued.
pub(crate) fn unknown() -> String {
    format!("Bearer mcs-{}", "A".repeat(43))
}

/// Asserts that access was refused for good.
pub(crate) fn assert_refused(response: &Response) {
    assert_eq!(response.status, 401, "{response:?}");
    let challenge = response.header("www-authenticate").expect("a challenge");
    assert!(challenge.starts_with("Bearer "), "{challenge}");
    let body = String::from_utf8(response.body.clone()).expect("text");
    assert_eq!(body, "access to this config is restricted, and the request has no valid token\n");
}

/// Serves the sample cluster, of which every pool is enforced.
pub(crate) fn enforcing(flags: &[&str]) -> Server {
    Server::sample_cluster(&[&["--access", "enforce"], flags].concat())
}

/// The manifests of the sample cluster, with an access mode for one pool.
pub(crate) fn with_annotated_pool(pool: &str, access: &str) -> TempDir {
    let directory = tempfile::tempdir().expect("a temporary folder");
    copy_fixtures(directory.path());
    annotate(directory.path(), pool, access);
    directory
}

/// Sets the access mode of one of the sample's pools.
pub(crate) fn annotate(directory: &Path, pool: &str, access: &str) {
    let sample = fs::read_to_string(in_repository("ignition-fixtures/pools.yaml")).expect("text");
    let name = format!("  name: {pool}\n");
    assert!(sample.contains(&name));
    let annotated = format!("{name}  annotations:\n    {ACCESS}: {access}\n");
    replace(directory, "pools.yaml", sample.replacen(&name, &annotated, 1));
}
