//! Encrypted volumes.
//!
//! Source: the specs' section `storage.luks`, since 3.2.

use super::super::error::FieldPath;
use super::super::fields::Spec;
use super::super::spec3::{Clevis, ClevisCustom, Luks, Tang};
use super::super::url::Url;
use super::common::{Checked, all_unique, check_path, each, says};
use super::resource;

/// Maximum label in bytes: the field of the LUKS 2 header without its terminator.
const LABEL_MAX: usize = 47;

pub(super) fn check(volumes: &[Luks], spec: Spec, at: &FieldPath<'_>) -> Checked {
    each(volumes, at, |luks, at| check_volume(luks, spec, at))?;
    all_unique(volumes, at, |luks| &luks.name)
}

fn check_volume(luks: &Luks, spec: Spec, at: &FieldPath<'_>) -> Checked {
    if luks.name.contains('/') {
        return Err(at.field("name").invalid("contains a slash"));
    }
    if luks.label.as_ref().is_some_and(|label| label.len() > LABEL_MAX) {
        return Err(at.field("label").invalid(format!("is longer than {LABEL_MAX} bytes")));
    }
    check_path(luks.device.as_deref().unwrap_or_default(), &at.field("device"))?;
    resource::check(&luks.key_file, spec, &at.field("keyFile"))?;
    check_clevis(&luks.clevis, spec, &at.field("clevis"))?;
    if luks.cex.enabled == Some(true) {
        if binds(&luks.clevis) {
            return Err(at.field("cex").invalid("cannot be used with clevis"));
        }
        if says(luks.key_file.source.as_ref()) {
            return Err(at.field("cex").invalid("cannot be used with a key file"));
        }
    }
    all_unique(&luks.open_options, &at.field("openOptions"), String::as_str)
}

/// Returns `true` if Clevis unlocks the volume.
fn binds(clevis: &Clevis) -> bool {
    says(clevis.custom.pin.as_ref()) || binds_without_custom(clevis)
}

fn binds_without_custom(clevis: &Clevis) -> bool {
    !clevis.tang.is_empty() || clevis.tpm2 == Some(true) || clevis.threshold.is_some_and(|t| t != 0)
}

fn check_clevis(clevis: &Clevis, spec: Spec, at: &FieldPath<'_>) -> Checked {
    let custom = &clevis.custom;
    // In 3.2 a non-empty object counts, later specs look at its pin.
    let is_custom =
        says(custom.pin.as_ref()) || (spec <= (3, 2) && *custom != ClevisCustom::default());
    if is_custom && binds_without_custom(clevis) {
        return Err(at.invalid("custom cannot be used with tang, tpm2 or threshold"));
    }
    check_custom(custom, spec, &at.field("custom"))?;
    let at = at.field("tang");
    each(&clevis.tang, &at, check_tang)?;
    all_unique(&clevis.tang, &at, |tang| &tang.url)
}

fn check_custom(custom: &ClevisCustom, spec: Spec, at: &FieldPath<'_>) -> Checked {
    let pin = custom.pin.as_deref().unwrap_or_default();
    let has_config = says(custom.config.as_ref());
    if pin.is_empty() && !has_config && custom.needs_network != Some(true) {
        return Ok(());
    }
    if pin.is_empty() {
        return Err(at.field("pin").invalid("is missing"));
    }
    // Since 3.6, Ignition accepts any pin.
    if spec < (3, 6) && !matches!(pin, "tpm2" | "tang" | "sss") {
        return Err(resource::needs(&at.field("pin"), &format!("{pin:?}"), (3, 6)));
    }
    if has_config { Ok(()) } else { Err(at.field("config").invalid("is missing")) }
}

fn check_tang(tang: &Tang, at: &FieldPath<'_>) -> Checked {
    if !Url::parse(&tang.url).is_some_and(Url::is_http) {
        return Err(at.field("url").invalid("is not an http or https URL"));
    }
    if !says(tang.thumbprint.as_ref()) {
        return Err(at.field("thumbprint").invalid("is missing"));
    }
    let advertisement = tang.advertisement.as_deref().filter(|text| !text.is_empty());
    match advertisement.map(serde_json::from_str::<serde::de::IgnoredAny>) {
        Some(Err(error)) => Err(at.field("advertisement").invalid(format!("is not JSON: {error}"))),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tests::verdict;

    #[test]
    fn volumes_keep_the_rules_of_their_spec() {
        let tang = json!([{"url": "http://t", "thumbprint": "x"}]);
        let custom = |pin: &str| json!({"pin": pin, "config": "{}"});
        let alone = "clevis: custom cannot be used with tang, tpm2 or threshold";
        for (minor, fields, reason) in [
            (2, json!({"clevis": {"tang": tang, "threshold": 1, "tpm2": true}}), "valid"),
            (2, json!({"clevis": {"custom": custom("sss")}}), "valid"),
            (6, json!({"clevis": {"custom": custom("pkcs11")}}), "valid"),
            (3, json!({"clevis": {"custom": {"needsNetwork": false}, "tang": tang}}), "valid"),
            (5, json!({"cex": {"enabled": true}}), "valid"),
            (
                5,
                json!({"clevis": {"custom": custom("pkcs11")}}),
                "clevis.custom.pin: \"pkcs11\" needs spec 3.6",
            ),
            (2, json!({"clevis": {"custom": {"needsNetwork": false}, "tang": tang}}), alone),
            (6, json!({"clevis": {"custom": custom("sss"), "tpm2": true}}), alone),
            (6, json!({"clevis": {"custom": {"config": "{}"}}}), "clevis.custom.pin: is missing"),
            (6, json!({"clevis": {"custom": {"pin": "tpm2"}}}), "clevis.custom.config: is missing"),
            (
                6,
                json!({"clevis": {"tang": [{"url": "t", "thumbprint": "x"}]}}),
                "clevis.tang[0].url: is not an http or https URL",
            ),
            (
                6,
                json!({"clevis": {"tang": [{"url": "http://t"}]}}),
                "clevis.tang[0].thumbprint: is missing",
            ),
            (
                5,
                json!({"cex": {"enabled": true}, "clevis": {"tpm2": true}}),
                "cex: cannot be used with clevis",
            ),
            (
                5,
                json!({"cex": {"enabled": true}, "keyFile": {"source": "data:,k"}}),
                "cex: cannot be used with a key file",
            ),
            (6, json!({"openOptions": ["a", "a"]}), "openOptions[1]: appears twice"),
            (6, json!({"options": ["a", "a"]}), "valid"),
            (6, json!({"name": "a/b"}), "name: contains a slash"),
            (6, json!({"label": "l".repeat(47)}), "valid"),
            (6, json!({"label": "l".repeat(48)}), "label: is longer than 47 bytes"),
            (6, json!({"device": null}), "device: is empty"),
            (
                6,
                json!({"keyFile": {"source": "ftp://h"}}),
                "keyFile.source: \"ftp\" is not a scheme that Ignition fetches",
            ),
        ] {
            let mut luks = json!({"name": "a", "device": "/dev/a"});
            luks.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            let verdict = verdict(minor, "storage", &json!({"luks": [luks]}));
            assert_eq!(verdict.trim_start_matches("storage.luks[0]."), reason);
        }
    }

    #[test]
    fn an_advertisement_is_json() {
        let advertise = |text: &str| {
            let tang = json!({"url": "http://t", "thumbprint": "x", "advertisement": text});
            verdict(4, "storage", &json!({"luks": [{"device": "/a", "clevis": {"tang": [tang]}}]}))
        };
        assert_eq!(advertise(""), "valid");
        assert_eq!(advertise("{\"payload\": \"\"}"), "valid");
        assert!(
            advertise("{").starts_with("storage.luks[0].clevis.tang[0].advertisement: is not JSON")
        );
    }
}
