//! Ignition configs of spec 3, served in every version.

use super::text;

/// Judges one input.
pub fn run(data: &[u8]) {
    let text = text(data);
    super::config(text, &["3.0.0", "3.2.0", "3.4.0", "3.6.0"]);
}
