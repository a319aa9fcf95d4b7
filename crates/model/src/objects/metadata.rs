//! What all kinds have in common: metadata, and that null is the same as absence.

use serde::{Deserialize, Deserializer};

/// What every object says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Metadata {
    /// The object's name, unique in its namespace for its kind.
    #[serde(default, deserialize_with = "null_as_default")]
    pub name: String,
    /// The namespace, empty for objects of the whole cluster.
    #[serde(default, deserialize_with = "null_as_default")]
    pub namespace: String,
}

/// Reads `null` as the type's default, as Go's decoder does.
pub(super) fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}
