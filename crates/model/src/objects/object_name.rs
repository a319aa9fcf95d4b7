//! Names of objects, and of Secrets in flags and annotations.

/// Returns `true` for a valid name of an object: a DNS subdomain by RFC 1123. Names become parts of paths and URLs.
pub fn is_object_name(name: &str) -> bool {
    let label = |label: &str| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
    };
    name.len() <= 253 && name.split('.').all(label)
}

/// Namespace and name of a Secret.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SecretName {
    /// Namespace of the Secret.
    pub namespace: String,
    /// Name in the namespace.
    pub name: String,
}

/// Error for a text that is no `NAMESPACE/NAME`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected NAMESPACE/NAME")]
pub struct InvalidName;

impl std::str::FromStr for SecretName {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let (namespace, name) = text.split_once('/').ok_or(InvalidName)?;
        // A namespace is a single DNS label.
        let is_namespace =
            is_object_name(namespace) && namespace.len() <= 63 && !namespace.contains('.');
        if !is_namespace || !is_object_name(name) {
            return Err(InvalidName);
        }
        Ok(Self { namespace: namespace.to_owned(), name: name.to_owned() })
    }
}

impl std::fmt::Display for SecretName {
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
