//! The rules of the HTTP contract, written again for the tests.

use std::time::Duration;

use super::http::{Client, Response};
use super::server::Server;
use super::stopwatch::Stopwatch;
use super::{resource, wait_until};

/// Limit for a change to be served.
pub(crate) const SOON: Duration = Duration::from_secs(1);

/// Specs in which a config can be requested.
pub(crate) const VERSIONS: [&str; 8] =
    ["2.2.0", "3.0.0", "3.1.0", "3.2.0", "3.3.0", "3.4.0", "3.5.0", "3.6.0"];

/// Value of `Accept` for a machine that reads only one spec.
pub(crate) fn accept(version: &str) -> String {
    format!("application/vnd.coreos.ignition+json;version={version}")
}

/// A pool's config in one spec.
pub(crate) fn config(client: &Client, pool: &str, version: &str) -> Response {
    client.request("GET", &format!("/config/{pool}"), &[("Accept", &accept(version))])
}

/// A pool's config in one spec, requested as Ignition does.
pub(crate) fn config_for_ignition(client: &Client, pool: &str, version: &str) -> Response {
    let headers = [("User-Agent", "Ignition/2.14.0"), ("Accept", &accept(version))];
    client.request("GET", &format!("/config/{pool}"), &headers)
}

/// Text of a file in a pool's config, or the status of the answer, which is 200 if the config has no such file.
pub(crate) fn served(server: &Server, pool: &str, path: &str) -> Result<String, u16> {
    let response = config(&server.plain(), pool, "3.4.0");
    if response.status != 200 {
        return Err(response.status);
    }
    let config = response.json();
    let mut files = config["storage"]["files"].as_array().expect("files").iter();
    let file = files.find(|file| file["path"] == path).ok_or(200_u16)?;
    let bytes = resource::bytes(&file["contents"]).expect("contents");
    Ok(String::from_utf8(bytes).expect("text"))
}

/// Waits until a file is as expected, which may take a second.
pub(crate) fn served_soon(server: &Server, pool: &str, path: &str, expected: Result<&str, u16>) {
    let changed = Stopwatch::start();
    let what = format!("{path} to be {expected:?} in pool {pool}");
    wait_until(&what, || {
        let found = served(server, pool, path);
        found.as_deref().map_err(|status| *status) == expected
    });
    changed.within(SOON, what);
}

/// Waits until a pool's config has this text in `/etc/marker`.
pub(crate) fn is_served(server: &Server, pool: &str, expected: &str) {
    wait_until(&format!("{expected} from pool {pool}"), || {
        marker(server, pool).as_deref() == Ok(expected)
    });
}

/// Text of `/etc/marker` in a pool's config, or the status of the answer.
pub(crate) fn marker(server: &Server, pool: &str) -> Result<String, u16> {
    served(server, pool, "/etc/marker")
}

/// Waits until `/etc/marker` is as expected, which may take a second.
pub(crate) fn marker_soon(server: &Server, pool: &str, expected: Result<&str, u16>) {
    served_soon(server, pool, "/etc/marker", expected);
}

/// Expected status of a method at a target, from a server of these pools.
pub(crate) fn status(method: &str, target: &str, pools: &[&str]) -> u16 {
    match known_path(target, pools) {
        None => 404,
        Some(_) if !matches!(method, "GET" | "HEAD") => 405,
        Some(status) => status,
    }
}

/// Expected status of GET at a known path.
fn known_path(target: &str, pools: &[&str]) -> Option<u16> {
    let path = target.split('?').next().unwrap_or_default();
    if matches!(path, "/healthz" | "/livez" | "/readyz") {
        return Some(200);
    }
    let segment = path.strip_prefix("/config/")?;
    let segment = segment.strip_suffix('/').unwrap_or(segment);
    // A name that is not UTF-8 matches nothing.
    let pool = percent_encoding::percent_decode_str(segment).decode_utf8().ok()?;
    if pool.is_empty() || pool.contains('/') {
        return None;
    }
    Some(if pools.contains(&&*pool) { 200 } else { 503 })
}

/// Sends a request, and returns the rules that its answer breaks.
pub(crate) fn broken_rules(
    client: &Client,
    method: &str,
    target: &str,
    pools: &[&str],
) -> Vec<String> {
    let expected = status(method, target, pools);
    let answer = client.request(method, target, &[]);
    let mut rules: Vec<(bool, &str)> = vec![
        (answer.status == expected, "another status"),
        (answer.header("location").is_none(), "a redirection"),
        (answer.header("content-length").is_some(), "no Content-Length"),
    ];
    let is_config = expected == 200 && target.starts_with("/config/");
    if is_config {
        rules.push((answer.header("content-type") == Some("application/json"), "another type"));
        let tag = answer.header("etag").unwrap_or_default();
        let strong = tag.len() > 2 && tag.starts_with('"') && tag.ends_with('"');
        rules.push((strong, "no strong ETag"));
    } else if expected == 200 {
        rules.push((answer.body.is_empty(), "a body"));
    }
    if expected == 503 {
        rules.push((answer.header("retry-after") == Some("5"), "no Retry-After: 5"));
    }
    if expected == 503 && method == "GET" {
        let line = String::from_utf8_lossy(&answer.body);
        let one_line = !line.trim().is_empty() && line.trim_end().lines().count() == 1;
        rules.push((one_line, "not one line that says why"));
        let plain = answer.header("content-type").is_some_and(|t| t.starts_with("text/plain"));
        rules.push((plain, "not plain text"));
    }
    if expected == 405 {
        let mut allowed: Vec<&str> =
            answer.header("allow").unwrap_or_default().split(',').map(str::trim).collect();
        allowed.sort_unstable();
        rules.push((allowed == ["GET", "HEAD"], "another Allow"));
    }
    if method == "HEAD" {
        let get = client.request("GET", target, &[]);
        rules.push((answer.body.is_empty(), "a body"));
        let same = answer.comparable_headers() == get.comparable_headers();
        rules.push((same && answer.status == get.status, "not what GET answers"));
    }
    rules
        .into_iter()
        .filter(|(holds, _)| !holds)
        .map(|(_, fault)| format!("{method} {target}: {fault}, expected {expected}: {answer:?}"))
        .collect()
}
