//! States of watched objects.
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

#[derive(Debug)]
pub enum ObjectSeen<K> {
    Present(K),
    Absent,
    /// The object cannot be watched; retries continue.
    Failed(Failure),
}

impl<K> ObjectSeen<K> {
    pub fn is_failed(&self) -> bool {
        matches!(self, Self::Failed(_))
    }

    pub fn map<T>(self, convert: impl FnOnce(K) -> T) -> ObjectSeen<T> {
        match self {
            Self::Present(object) => ObjectSeen::Present(convert(object)),
            Self::Absent => ObjectSeen::Absent,
            Self::Failed(failure) => ObjectSeen::Failed(failure),
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub struct Failure {
    /// The API server's message, or the reason why it is unreachable, in one line.
    pub reason: String,
    pub cause: Cause,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The API server does not have the kind.
    NoSuchKind,
    /// This process lacks the permission.
    Forbidden,
    /// The API server is in trouble, or unreachable.
    Other,
}

impl Failure {
    /// The next step of an administrator, for log lines.
    pub fn fix(&self) -> &'static str {
        match self.cause {
            Cause::NoSuchKind => "install the CustomResourceDefinition of this kind",
            Cause::Forbidden => "grant the service account list and watch of this kind",
            Cause::Other => "check the API server and the network to it",
        }
    }
}
