//! Parts that objects have in common, and `null` as a default value.

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};

/// An object with a spec, and a status where it is read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(
    default,
    bound = "M: Default + Deserialize<'de>, Spec: Default + Deserialize<'de>, Status: Default + Deserialize<'de>"
)]
pub struct Resource<Spec, Status = IgnoredAny, M = Metadata> {
    /// Name and namespace.
    #[serde(deserialize_with = "null_as_default")]
    pub metadata: M,
    /// Wanted state.
    #[serde(deserialize_with = "null_as_default")]
    pub spec: Spec,
    /// Observed state.
    #[serde(deserialize_with = "null_as_default")]
    pub status: Status,
}

/// Metadata that every kind has.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Metadata {
    /// Name of the object, unique in its namespace for its kind.
    #[serde(deserialize_with = "null_as_default")]
    pub name: String,
    /// Namespace, empty for objects of the whole cluster.
    #[serde(deserialize_with = "null_as_default")]
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
