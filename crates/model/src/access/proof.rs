//! What a request brings along, and what is made of it.

use std::fmt;
use std::sync::Arc;

use time::OffsetDateTime;

use crate::refusal::RefusalCode;

/// What a request brings to prove that it may have the config.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Credential<'a> {
    /// Nothing.
    Missing,
    /// Something that is no `Bearer` credential, or several.
    Malformed,
    /// What follows `Bearer`.
    Bearer(&'a str),
}

impl fmt::Debug for Credential<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Missing => "Missing",
            Self::Malformed => "Malformed",
            Self::Bearer(_) => "Bearer(..)",
        })
    }
}

impl<'a> Credential<'a> {
    /// Of the values of a request's `Authorization` headers, by RFC 9110 section 11.4 and RFC 6750
    /// section 2.1: the scheme in any case, and one blank at least.
    pub fn of(values: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut values = values.into_iter();
        let Some(value) = values.next() else { return Self::Missing };
        let bearer = || {
            let (scheme, credential) = str::from_utf8(value).ok()?.split_once(' ')?;
            let credential = credential.trim_matches(' ');
            let is_one = scheme.eq_ignore_ascii_case("Bearer") && !credential.is_empty();
            (is_one && !credential.contains(char::is_whitespace)).then_some(credential)
        };
        match (bearer(), values.next()) {
            (Some(credential), None) => Self::Bearer(credential),
            _ => Self::Malformed,
        }
    }
}

/// Judges credentials of one kind.
pub trait Verifier: fmt::Debug + Send + Sync {
    /// Whether `credential` opens `pool` at `now`; `None` if it is none of this kind.
    fn verify(
        &self,
        credential: &str,
        pool: &str,
        now: OffsetDateTime,
    ) -> Option<Result<Proof, Refusal>>;

    /// Returns `true` if judging costs so little that whoever fails may go on for ever.
    fn is_cheap(&self) -> bool;
}

/// Why a request may have a config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Proof {
    /// Nobody asks for one.
    NotAsked,
    /// A token, by its name or id.
    Token(Arc<str>),
    /// A signed token, by its subject.
    Signed(Arc<str>),
}

impl fmt::Display for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAsked => f.write_str("not restricted"),
            Self::Token(title) => write!(f, "by token {title}"),
            Self::Signed(subject) => write!(f, "by a signed token of {subject}"),
        }
    }
}

impl Proof {
    /// As metrics have it.
    #[must_use]
    pub fn label(&self) -> &'static str {
        match self {
            Self::NotAsked => "none",
            Self::Token(_) => "token",
            Self::Signed(_) => "signed",
        }
    }
}

/// Why a request may not have a config.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
pub enum Refusal {
    /// It comes from a network that is not allowed.
    #[error("its network is not allowed")]
    OtherNetwork,
    /// It came by the port without TLS, where everybody on the way reads the config.
    #[error("it came by the port without TLS")]
    PlainPort,
    /// It brings no credential.
    #[error("it has no token")]
    Missing,
    /// It brings something that is no credential of any kind that is understood.
    #[error("its token is malformed")]
    Malformed,
    /// Its token looks like one and is not known here, or not yet.
    #[error("its token is not known here")]
    Unknown,
    /// Its token has ended.
    #[error("its token has ended")]
    Expired,
    /// Its token begins in the future.
    #[error("its token is not valid yet")]
    NotYet,
    /// Its token was revoked.
    #[error("its token was revoked")]
    Revoked,
    /// Its token opens other pools.
    #[error("its token is for another pool")]
    OtherPool,
    /// Its token is signed by somebody else, or for somebody else.
    #[error("its token's signature, issuer or audience does not hold")]
    Unsigned,
    /// So many requests from its address have failed that this one has to wait.
    #[error("too many requests from its address have failed")]
    TooMany,
    /// Which tokens there are is not known yet, or whether the pool's pointer configs carry them.
    #[error("the tokens of its pool are not known yet")]
    NotRead,
}

impl Refusal {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::OtherNetwork,
        Self::PlainPort,
        Self::Missing,
        Self::Malformed,
        Self::Unknown,
        Self::Expired,
        Self::NotYet,
        Self::Revoked,
        Self::OtherPool,
        Self::Unsigned,
        Self::TooMany,
        Self::NotRead,
    ];

    /// As metrics and the ledger have it.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::OtherNetwork => "network",
            Self::PlainPort => "plain-port",
            Self::Missing => "missing",
            Self::Malformed => "malformed",
            Self::Unknown => "unknown",
            Self::Expired => "expired",
            Self::NotYet => "not-yet",
            Self::Revoked => "revoked",
            Self::OtherPool => "other-pool",
            Self::Unsigned => "unsigned",
            Self::TooMany => "too-many",
            Self::NotRead => "not-read",
        }
    }

    /// Returns `true` if the same request may be answered in a moment: another server may have been told of the token
    /// already, and time passes.
    #[must_use]
    pub fn may_heal(self) -> bool {
        self.code().status().is_server_error()
    }

    /// The code that its answer carries: what is refused for good has one, whatever the reason.
    #[must_use]
    pub fn code(self) -> RefusalCode {
        match self {
            Self::Unknown => RefusalCode::TokenUnknown,
            Self::TooMany => RefusalCode::TooManyAttempts,
            Self::NotYet | Self::NotRead => RefusalCode::AccessUndecided,
            Self::OtherNetwork
            | Self::PlainPort
            | Self::Missing
            | Self::Malformed
            | Self::Expired
            | Self::Revoked
            | Self::OtherPool
            | Self::Unsigned => RefusalCode::AccessRefused,
        }
    }
}
