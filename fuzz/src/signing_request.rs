//! Certificate signing requests in DER, and what is issued for those that are sound.

use super::{CAS, NOW};
use pki::issue::Validity;
use pki::{OwnCa, Requested, SigningRequest, StoredPair};
use time::Duration;

/// Judges one input.
pub fn run(der: &[u8]) {
    let request = match SigningRequest::from_der(der) {
        Ok(request) => request,
        Err(error) => {
            let _ = error.to_string();
            return;
        }
    };
    let [own, ..] = &*CAS;
    let pair = StoredPair {
        certificates: own.certificate.to_pem().into(),
        key: own.key.serialize_pem().into(),
        ..StoredPair::default()
    };
    let ca = OwnCa::read(&pair, b"", NOW).expect("a CA that is valid now");
    let validity = Validity { begin: NOW, end: NOW + Duration::days(1) };
    let requested =
        Requested { request: &request, usages: &request.usages, is_ca: false, validity };
    if let Ok(issued) = ca.issue(&requested) {
        assert!(issued.chain[0].is_issued_by(&own.certificate));
    }
}
