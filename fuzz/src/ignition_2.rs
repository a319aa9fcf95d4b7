//! Ignition configs of spec 2, lifted and served in every version.

use super::text;

/// Judges one input.
pub fn run(data: &[u8]) {
    let text = text(data);
    super::config(text, &["2.0.0", "2.1.0", "2.2.0"]);
}
