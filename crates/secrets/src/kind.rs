//! Kinds of secrets.

use std::fmt;

use super::skipped::Skipped;

/// Kind of a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum SecretKind {
    /// A private key.
    PrivateKey,
    /// A kubeconfig with a token, a client's key or a password.
    Kubeconfig,
    /// A key that encrypts other data, such as etcd's contents.
    EncryptionKey,
    /// A manifest of a Kubernetes Secret.
    KubernetesSecret,
    /// Credentials of image registries, as in a pull secret.
    RegistryLogin,
    /// The hash of a password.
    PasswordHash,
    /// A key shared by two sides, of a VPN, a wireless network or a name server.
    SharedKey,
    /// A password in plain text.
    Password,
    /// A token or an API key.
    Token,
    /// A password in a URL.
    UrlPassword,
    /// A URL with a signature that lets anyone fetch its target.
    SignedUrl,
    /// An HTTP header that authenticates the client.
    Header,
    /// A key that unlocks a disk.
    DiskKey,
    /// Unknown, because a part was not searched.
    Unsearched(Skipped),
}

impl SecretKind {
    /// Name in machine-readable output: that of the variant.
    pub fn label(self) -> &'static str {
        self.into()
    }
}

impl fmt::Display for SecretKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PrivateKey => "private key",
            Self::Kubeconfig => "kubeconfig with credentials",
            Self::EncryptionKey => "encryption key",
            Self::KubernetesSecret => "Kubernetes Secret",
            Self::RegistryLogin => "registry credentials",
            Self::PasswordHash => "password hash",
            Self::SharedKey => "shared key",
            Self::Password => "password",
            Self::Token => "token",
            Self::UrlPassword => "password in a URL",
            Self::SignedUrl => "signed URL",
            Self::Header => "header that authenticates",
            Self::DiskKey => "key of a disk",
            Self::Unsearched(skipped) => return skipped.fmt(f),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_stay_when_a_variant_gets_another_name() {
        for (kind, label) in [
            (SecretKind::PrivateKey, "private-key"),
            (SecretKind::Kubeconfig, "kubeconfig"),
            (SecretKind::EncryptionKey, "encryption-key"),
            (SecretKind::KubernetesSecret, "kubernetes-secret"),
            (SecretKind::RegistryLogin, "registry-login"),
            (SecretKind::PasswordHash, "password-hash"),
            (SecretKind::SharedKey, "shared-key"),
            (SecretKind::Password, "password"),
            (SecretKind::Token, "token"),
            (SecretKind::UrlPassword, "url-password"),
            (SecretKind::SignedUrl, "signed-url"),
            (SecretKind::Header, "header"),
            (SecretKind::DiskKey, "disk-key"),
        ] {
            assert_eq!(kind.label(), label);
        }
    }
}
