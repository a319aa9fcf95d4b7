//! Metadata of objects, and `null` as a default value.

use serde::{Deserialize, Deserializer};

/// Metadata that every kind has.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Metadata {
    /// Name of the object, unique in its namespace for its kind.
    #[serde(default, deserialize_with = "null_as_default")]
    pub name: String,
    /// Namespace, empty for objects of the whole cluster.
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
