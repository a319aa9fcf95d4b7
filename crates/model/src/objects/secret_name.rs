//! How flags and annotations name a secret.

use super::is_object_name;

/// A secret by its namespace and name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SecretName {
    /// The namespace.
    pub namespace: String,
    /// The name in it.
    pub name: String,
}

/// Why a text names no secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected NAMESPACE/NAME")]
pub struct InvalidName;

impl std::str::FromStr for SecretName {
    type Err = InvalidName;

    /// Reads `NAMESPACE/NAME`.
    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let (namespace, name) = text.split_once('/').ok_or(InvalidName)?;
        // A namespace is one label.
        let is_namespace =
            is_object_name(namespace) && namespace.len() <= 63 && !namespace.contains('.');
        if !is_namespace || !is_object_name(name) {
            return Err(InvalidName);
        }
        Ok(Self { namespace: namespace.to_owned(), name: name.to_owned() })
    }
}

impl std::fmt::Display for SecretName {
    /// As an administrator would name it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Secret {}/{}", self.namespace, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_has_a_namespace_and_a_name() {
        let name: SecretName = "openshift-config/pull-secret".parse().unwrap();
        assert_eq!(name.to_string(), "Secret openshift-config/pull-secret");
        for text in [
            "",
            "a",
            "/a",
            "a/",
            "a/b/c",
            "A/b",
            "a/B",
            "a b/c",
            "../c",
            "a.b/c",
            "a/..",
            "./manifests",
        ] {
            assert_eq!(text.parse::<SecretName>(), Err(InvalidName), "{text:?}");
        }
    }
}
