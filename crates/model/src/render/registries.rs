//! Image registries from which new machines pull their operating system.

use std::collections::{BTreeMap, BTreeSet};

use super::select::select;
use crate::inputs::Inputs;

/// Registries of operating system images without a configured CA, each with its pools. A machine verifies such a
/// registry with its own CAs, and is stuck at its first pull if these do not vouch for it.
pub fn registries_without_ca(inputs: &Inputs) -> BTreeMap<String, BTreeSet<String>> {
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for pool in inputs.pools.keys() {
        let Ok(selected) = select(inputs, pool) else { continue };
        let image = selected.image.as_deref();
        let image = image.unwrap_or(&selected.machine_config.spec.os_image_url);
        let Some(registry) = registry(image) else { continue };
        if inputs.shared.registry_cas.keys().all(|host| host.as_str() != registry) {
            found.entry(registry.to_owned()).or_default().insert(pool.clone());
        }
    }
    found
}

/// The part `host[:port]` of a pull spec. As in container runtimes, the first part of an image's name is a registry if
/// it has a dot or a port, or is `localhost`.
fn registry(image: &str) -> Option<&str> {
    let (first, _) = image.split_once('/')?;
    (first.contains(['.', ':']) || first == "localhost").then_some(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registry_is_what_stands_before_the_first_slash() {
        for (image, host) in [
            ("registry.example.com:5000/os@sha256:ab", Some("registry.example.com:5000")),
            ("quay.io/openshift/os:4.20", Some("quay.io")),
            ("localhost/os", Some("localhost")),
            ("[2001:db8::1]:5000/os", Some("[2001:db8::1]:5000")),
            ("library/os", None),
            ("os", None),
            ("", None),
        ] {
            assert_eq!(registry(image), host, "{image}");
        }
    }
}
