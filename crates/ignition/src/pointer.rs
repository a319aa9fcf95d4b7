//! Pointer configs: the user data of a machine, with the URL of its config and the CAs to trust for it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::version::SpecVersion;

/// Oldest spec that has CAs and merged configs, so that old boot images read pointer configs.
pub const POINTER_SPEC: SpecVersion = SpecVersion::V3_1;

/// A config that fetches `url` and trusts the CAs in `ca_pem`.
///
/// Spec 2.2 appends a config where spec 3 merges it.
pub fn pointer(url: &str, ca_pem: &[u8], version: SpecVersion) -> Value {
    let verb = if version == SpecVersion::V2_2 { "append" } else { "merge" };
    let ca = ca_source(ca_pem);
    json!({
        "ignition": {
            "config": { verb: [{ "source": url }] },
            "security": { "tls": { "certificateAuthorities": [{ "source": ca }] } },
            "version": version.as_str(),
        }
    })
}

/// Encodes CAs in PEM as a data URL, in the form of the reference's controller.
pub fn ca_source(ca_pem: &[u8]) -> String {
    format!("data:text/plain;charset=utf-8;base64,{}", STANDARD.encode(ca_pem))
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::*;

    #[test]
    fn a_pointer_is_a_valid_config_of_its_spec() {
        for version in SpecVersion::ALL {
            let config =
                pointer("https://api-int.example.com:22623/config/worker", b"-----BEGIN", version);
            let lowered = Config::parse(&config.to_string()).unwrap().lower(version).unwrap();
            assert_eq!(json!(lowered), config);
        }
    }

    #[test]
    fn the_certificate_ca_is_a_base64_data_url() {
        let config = pointer("https://h/config/master", b"CA", SpecVersion::V3_1);
        let source = &config["ignition"]["security"]["tls"]["certificateAuthorities"][0]["source"];
        assert_eq!(source, "data:text/plain;charset=utf-8;base64,Q0E=");
    }
}
