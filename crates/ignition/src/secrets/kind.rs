//! What can be secret.

use std::fmt;

use super::passed_over::PassedOver;

/// What is secret about a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SecretKind {
    /// A private key.
    PrivateKey,
    /// A kubeconfig with a token, a client's key or a password.
    Kubeconfig,
    /// A key that other data is encrypted with, such as etcd's contents.
    EncryptionKey,
    /// A Secret of Kubernetes as a manifest.
    KubernetesSecret,
    /// Logins to image registries, as in a pull secret.
    RegistryLogin,
    /// A password's hash.
    PasswordHash,
    /// A key that two sides share, such as that of a VPN, a wireless network or a name server.
    SharedKey,
    /// A password.
    Password,
    /// A token, an API key or the like.
    Token,
    /// A password in a URL.
    UrlPassword,
    /// A URL with a signature that lets anyone fetch what it names.
    SignedUrl,
    /// A header that proves who asks.
    Header,
    /// A key that opens a disk.
    DiskKey,
    /// Nobody knows: some of it was passed over.
    Unsearched(PassedOver),
}

impl SecretKind {
    /// How a script names it.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::PrivateKey => "private-key",
            Self::Kubeconfig => "kubeconfig",
            Self::EncryptionKey => "encryption-key",
            Self::KubernetesSecret => "kubernetes-secret",
            Self::RegistryLogin => "registry-login",
            Self::PasswordHash => "password-hash",
            Self::SharedKey => "shared-key",
            Self::Password => "password",
            Self::Token => "token",
            Self::UrlPassword => "url-password",
            Self::SignedUrl => "signed-url",
            Self::Header => "header",
            Self::DiskKey => "disk-key",
            Self::Unsearched(_) => "unsearched",
        }
    }
}

impl fmt::Display for SecretKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PrivateKey => "private key",
            Self::Kubeconfig => "kubeconfig with credentials",
            Self::EncryptionKey => "encryption key",
            Self::KubernetesSecret => "Kubernetes Secret",
            Self::RegistryLogin => "registry logins",
            Self::PasswordHash => "password hash",
            Self::SharedKey => "shared key",
            Self::Password => "password",
            Self::Token => "token",
            Self::UrlPassword => "password in a URL",
            Self::SignedUrl => "signed URL",
            Self::Header => "header that proves who asks",
            Self::DiskKey => "key of a disk",
            Self::Unsearched(passed_over) => return passed_over.fmt(f),
        })
    }
}
