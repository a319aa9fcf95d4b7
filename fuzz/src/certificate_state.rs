//! What a rotation makes of whatever is stored: nobody is locked out by it who was not before.
//!
//! An input is a byte for what is asked, and then texts between bars: the signing CA's certificate,
//! its key, its previous ones, the bundle, the serving pair, an older CA, and whom pointers trust. What an
//! issuer is said to have issued, or somebody else to serve, is of the same texts.

use super::{CAS, NOW, expanded, pem_word};
use pki::{
    Answer, Certificate, CertificateState, External, Host, Issuer, PointerState, PointerTrust,
    Policy, Request, RotationRequest, StoredPair, TrustHolder, dry_run, locked_out,
    reported_lockouts, trusted_cas,
};

/// Judges one input.
pub fn run(data: &[u8]) {
    let Some((&first, rest)) = data.split_first() else { return };
    let state = state(first, rest);
    let holders: Vec<_> =
        state.pointers.iter().flat_map(|pointer| pointer.holders.clone()).collect();
    let before = locked_out(&state.chain(), &holders, NOW);
    let generate = &mut |_| Ok(CAS[3].key_again());
    let Ok((after, attention)) = dry_run(&state, &Policy::default(), NOW, generate) else { return };
    for lockout in locked_out(&after.chain(), &holders, NOW) {
        let was = before.iter().any(|earlier| earlier.holder == lockout.holder);
        assert!(was, "{lockout}, after {before:?}");
    }
    let _ = (reported_lockouts(&after, NOW), trusted_cas(&after, NOW));
    let _ = format!("{attention:?}");
}

/// What an input says is stored.
fn state(first: u8, rest: &[u8]) -> CertificateState {
    let mut texts = rest.split(|byte| *byte == b'|').map(|text| expanded(text, pem_word));
    let mut text = || texts.next().unwrap_or_default();
    let some = |text: Vec<u8>| (!text.is_empty()).then_some(text);
    let host: Host = "a.example".parse().expect("a host");
    let ca = StoredPair { certificates: text(), key: text(), previous: text(), unreadable: None };
    let bundle = some(text());
    let serving = some(text()).map(|text| StoredPair::joined(&text));
    let root_ca = some(text());
    let issuer = (first & 16 != 0).then(|| Issuer {
        name: "an issuer".to_owned(),
        has_issued: false,
        request: Some(Request {
            key: ca.key.clone(),
            since: NOW,
            before: u32::from(first),
            answer: Answer::Issued {
                chain: ca.previous.clone(),
                roots: bundle.clone().unwrap_or_default(),
            },
        }),
    });
    let external = (first & 32 != 0).then(|| External {
        name: "somebody".to_owned(),
        pair: Some(StoredPair {
            certificates: ca.previous.clone(),
            key: ca.key.clone(),
            ..StoredPair::default()
        }),
        trust: bundle.clone().unwrap_or_default(),
    });
    let pointers = texts.take(4).enumerate().map(|(index, text)| pointer(index, &text, &host));
    CertificateState {
        issuer,
        external,
        ca: (!ca.certificates.is_empty() || !ca.key.is_empty()).then_some(ca),
        bundle,
        serving,
        root_ca,
        pointers: pointers.collect(),
        hosts: vec![host.clone()],
        are_hosts_used: first & 1 != 0,
        is_shared: first & 2 != 0,
        requested: RotationRequest {
            ca: first & 4 != 0,
            serving: first & 8 != 0,
            force: false,
            distrust: Vec::new(),
        },
    }
}

/// A pointer config that trusts what a text has.
fn pointer(index: usize, text: &[u8], host: &Host) -> PointerTrust {
    let name = format!("pointer {index}");
    let trusted = Certificate::read_all(text);
    let hosts = vec![host.clone()];
    let holders = (!trusted.is_empty()).then(|| TrustHolder {
        name: name.clone(),
        trusted,
        hosts: hosts.clone(),
    });
    PointerTrust {
        name,
        state: PointerState::Kept,
        bytes: text.len(),
        hosts,
        holders: holders.into_iter().collect(),
        faults: Vec::new(),
    }
}
