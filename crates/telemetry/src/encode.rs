//! Writes metrics as text.

use prometheus_client::registry::Registry;

/// One label of a metric, with its value.
pub(super) type Label = [(&'static str, &'static str); 1];

/// Metrics that `register` adds to a registry, as text. They are shared, so a new registry for each call is cheap.
pub(super) fn encode(register: impl FnOnce(&mut Registry)) -> Result<String, std::fmt::Error> {
    let mut registry = Registry::with_prefix("mcs");
    register(&mut registry);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry)?;
    Ok(text)
}
