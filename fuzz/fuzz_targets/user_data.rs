//! User data of any kind: only the authorities of a pointer config change, and once is enough.
//!
//! `@0` to `@3` stand for the data URLs of authorities, the first two of which are the bundle.
#![no_main]

use std::sync::LazyLock;

use ignition::authority_source;
use libfuzzer_sys::fuzz_target;
use machine_config_server_fuzz::{AUTHORITIES, NOW, expanded, pem_word};
use model::pointer_check;
use model::user_data::{
    Assessment, assess, authorities, fetches, hosts, is_plain_pointer, observe,
};
use pki::{Certificate, PointerState};
use serde_json::{Value, json};

static BUNDLE: LazyLock<Vec<Certificate>> = LazyLock::new(|| {
    AUTHORITIES[..2].iter().map(|authority| authority.certificate.clone()).collect()
});

fn word(letter: u8) -> Option<String> {
    pem_word(letter).filter(|_| letter.is_ascii_digit()).map(|pem| authority_source(pem.as_bytes()))
}

/// All of a config but its authorities.
fn others(text: &[u8]) -> Option<Value> {
    let mut value: Value = serde_json::from_slice(text).ok()?;
    *value.pointer_mut("/ignition/security/tls/certificateAuthorities")? = json!([]);
    Some(value)
}

fuzz_target!(|data: &[u8]| {
    let text = expanded(data, word);
    let known = &[AUTHORITIES[2].certificate.clone()];
    let assessed = assess(&text, &BUNDLE, known);
    if let Assessment::Stale(mended) = &assessed {
        assert_eq!(assess(mended, &BUNDLE, known), Assessment::Current);
        assert_eq!(others(mended), others(&text));
        let _ = hosts(mended);
        let trusted = authorities(mended);
        assert!(BUNDLE.iter().all(|wanted| trusted.contains(wanted)));
        for kept in authorities(&text) {
            let is_ours = AUTHORITIES[..3].iter().any(|own| own.certificate == kept);
            assert!(is_ours || trusted.contains(&kept), "{kept:?} is gone");
        }
    }
    let pointer = observe("a", &text, &BUNDLE, known);
    assert_eq!(
        matches!(pointer.state, PointerState::Stale(_)),
        matches!(assessed, Assessment::Stale(_))
    );
    let _ = (fetches(&text, "https://a:22623/config/worker"), is_plain_pointer(&text));
    let reading = pointer_check::read(&text);
    for line in reading.faults.iter().map(ToString::to_string) {
        assert!(!line.is_empty());
    }
    if let Some(config) = &reading.config {
        assert!(!config.fetches.is_empty() && config.fetches == reading.found);
        let _ = pointer_check::refusals("a", &config.fetches, &BUNDLE, NOW);
    }
});
