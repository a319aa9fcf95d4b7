//! Names of objects.

/// Returns `true` for a valid name of an object: a DNS subdomain by RFC 1123. Names become parts of paths and URLs.
#[must_use]
pub fn is_object_name(name: &str) -> bool {
    let label = |label: &str| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    };
    name.len() <= 253 && name.split('.').all(label)
}
