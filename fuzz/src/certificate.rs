//! Certificates in DER.

use super::{CAS, NOW};
use pki::{Certificate, TrustHolder, locked_out};

/// Judges one input.
pub fn run(der: &[u8]) {
    let Some(certificate) = Certificate::from_der(der) else { return };
    let pem = certificate.to_pem();
    assert_eq!(Certificate::read_all(pem.as_bytes()), std::slice::from_ref(&certificate));
    assert!(certificate.is_called(&certificate.fingerprint()));
    assert!(certificate.has_key_of(&certificate));
    let _ = certificate.weakness();
    let _ = (certificate.made_at(), certificate.is_issued_by(&certificate));
    let [own, ..] = &*CAS;
    let _ = certificate.matches(&own.key);
    let hosts = certificate.hosts.iter().cloned().collect();
    let trusted = vec![certificate.clone(), own.certificate.clone()];
    let holder = TrustHolder { name: "a".to_owned(), trusted, hosts };
    for chain in [&[certificate.clone()][..], &[own.certificate.clone(), certificate.clone()]] {
        for lockout in locked_out(chain, std::slice::from_ref(&holder), NOW) {
            let _ = lockout.to_string();
        }
    }
    let _ = format!("{certificate:?} {:?}", TrustHolder::of_one(&certificate));
}
