//! User data of any kind: only the authorities of a pointer config change, and once is enough.
//!
//! `@0` to `@3` stand for the data URLs of authorities, the first two of which are the bundle.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use super::{CAS, NOW, expanded, pem_word};
use ignition::ca_source;
use model::pointer_config::{Assessment, PointerConfig, ServerState};
use pki::{Certificate, PointerState};
use serde_json::{Value, json};

static BUNDLE: LazyLock<Vec<Certificate>> =
    LazyLock::new(|| CAS[..2].iter().map(|ca| ca.certificate.clone()).collect());

fn word(letter: u8) -> Option<String> {
    pem_word(letter).filter(|_| letter.is_ascii_digit()).map(|pem| ca_source(pem.as_bytes()))
}

/// All of a config but its authorities.
fn others(text: &[u8]) -> Option<Value> {
    let mut value: Value = serde_json::from_slice(text).ok()?;
    *value.pointer_mut("/ignition/security/tls/certificateAuthorities")? = json!([]);
    Some(value)
}

/// Judges one input.
pub fn run(data: &[u8]) {
    let text = expanded(data, word);
    let known = &[CAS[2].certificate.clone()];
    let config = PointerConfig::read(&text);
    let assessed = config.assess(&BUNDLE, known);
    if let Assessment::Stale(repaired) = &assessed {
        assert_eq!(others(repaired), others(&text));
        let repaired = PointerConfig::read(repaired);
        assert_eq!(repaired.assess(&BUNDLE, known), Assessment::Current);
        let _ = repaired.hosts();
        let trusted = repaired.cas();
        assert!(BUNDLE.iter().all(|wanted| trusted.contains(wanted)));
        for kept in config.cas() {
            let is_ours = CAS[..3].iter().any(|own| own.certificate == kept);
            assert!(is_ours || trusted.contains(&kept), "{kept:?} is gone");
        }
    }
    let is_stale = matches!(assessed, Assessment::Stale(_));
    let pointer = config.trust("a", "a", assessed);
    assert_eq!(matches!(pointer.state, PointerState::Stale(_)), is_stale);
    let _ = (config.fetches_from("https://a:22623/config/worker"), config.is_plain());
    for line in config.faults().iter().map(ToString::to_string) {
        assert!(!line.is_empty());
    }
    assert_eq!(config.fetches().is_empty(), !config.faults().is_empty());
    let pools = BTreeSet::new();
    let known = ServerState { chain: Some(&BUNDLE), records: None, pools: &pools };
    let _ = config.verdict("a", known, NOW);
}
