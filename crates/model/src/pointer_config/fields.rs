//! Reads the fields of a config, whichever way it comes, and recognises Butane.

use ignition::{Config, SpecVersion};

use super::fault::Fault;
use super::json_text::find;

/// The fields of a config, or what it is instead.
pub(super) fn fields(text: &[u8]) -> Result<(SpecVersion, serde_json::Value), Fault> {
    Config::fields(text)
        .map_err(|error| if is_butane(text) { Fault::Butane } else { Fault::Invalid(error) })
}

/// Returns `true` if a text that is no Ignition config has what each Butane config begins with: a variant, in YAML or in
/// JSON.
pub(super) fn is_butane(text: &[u8]) -> bool {
    let Ok(text) = core::str::from_utf8(text) else { return false };
    let is_variant = |line: &str| {
        let key = line.split_once(':').map(|(key, _)| key.trim_end());
        key.is_some_and(|key| ["variant", "\"variant\"", "'variant'"].contains(&key))
    };
    if text.trim_start().starts_with('{') {
        return find(text, &["variant"]).is_some();
    }
    text.trim_start_matches('\u{feff}').lines().any(is_variant)
}
