//! Pointer configs: the user data of a machine, which only says where its config is and whom to trust for it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::version::SpecVersion;

/// The config that fetches `url`, trusting the certificate authorities in `ca_pem`.
///
/// Spec 2.2 appends what spec 3 merges.
#[must_use]
pub fn pointer(url: &str, ca_pem: &[u8], version: SpecVersion) -> Value {
    let verb = if version == SpecVersion::V2_2 { "append" } else { "merge" };
    let authority = format!("data:text/plain;charset=utf-8;base64,{}", STANDARD.encode(ca_pem));
    json!({
        "ignition": {
            "config": { verb: [{ "source": url }] },
            "security": { "tls": { "certificateAuthorities": [{ "source": authority }] } },
            "version": version.as_str(),
        }
    })
}
