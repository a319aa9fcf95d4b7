//! Decodes the contents of files by the rules of the specs, without the server's code.

use std::io::Read as _;

use base64::Engine as _;
use serde_json::Value;

/// Bytes that a resource (`source`, `compression`) puts on disk; `None` if they are fetched. A resource without a
/// source is empty.
pub(crate) fn bytes(resource: &Value) -> Option<Vec<u8>> {
    let Some(source) = resource["source"].as_str() else {
        return Some(Vec::new());
    };
    let (head, body) = source.strip_prefix("data:").map(|rest| {
        rest.split_once(',').unwrap_or_else(|| panic!("a data URL without a comma: {source}"))
    })?;
    let body: Vec<u8> = percent_encoding::percent_decode_str(body).collect();
    let body = if head.ends_with(";base64") {
        base64::engine::general_purpose::STANDARD.decode(body).expect("base64")
    } else {
        body
    };
    if resource["compression"] != "gzip" {
        return Some(body);
    }
    let mut plain = Vec::new();
    flate2::read::MultiGzDecoder::new(&body[..]).read_to_end(&mut plain).expect("gzip");
    Some(plain)
}
