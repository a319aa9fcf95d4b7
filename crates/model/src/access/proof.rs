//! Credentials of requests, and their verification.

use std::fmt;
use std::sync::Arc;

use strum::{EnumString, IntoStaticStr, VariantArray};
use thiserror::Error;

use super::token::ShownToken;
use crate::refusal::RefusalCode;

/// Credential of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Credential<'a> {
    /// No `Authorization` header.
    Missing,
    /// A header that is no `Bearer` credential, or several headers.
    Malformed,
    /// Text after `Bearer`.
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
    /// Parses the values of a request's `Authorization` headers by RFC 9110 section 11.4 and RFC 6750 section 2.1: the
    /// scheme in any case, and at least one space.
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

/// Reason for access.
#[derive(Debug, Clone, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum Proof {
    /// The pool needs no proof.
    #[strum(serialize = "none")]
    NotAsked,
    /// A token, with its name or ID.
    Token(Arc<str>),
    /// A signed token, with its subject.
    Signed(Arc<str>),
    /// The token of a single machine.
    Machine(ShownToken),
}

impl fmt::Display for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAsked => f.write_str("not restricted"),
            Self::Token(title) => write!(f, "by token {title}"),
            Self::Signed(subject) => write!(f, "by a signed token of {subject}"),
            Self::Machine(shown) => write!(f, "by the token of machine {}", shown.machine),
        }
    }
}

impl Proof {
    /// Value of the label in metrics: the name of the variant.
    pub fn label(&self) -> &'static str {
        self.into()
    }
}

/// Reasons for a refusal of access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum Refusal {
    /// The client's network is not allowed.
    #[error("network not allowed")]
    #[strum(serialize = "network")]
    OtherNetwork,
    /// The request came by the port without TLS, where the config can be read on the network.
    #[error("request on the port without TLS")]
    PlainPort,
    /// The request has no credential.
    #[error("no token")]
    Missing,
    /// The credential is of no supported kind.
    #[error("token malformed")]
    Malformed,
    /// The token is well-formed, and unknown to this server so far.
    #[error("token unknown to this server")]
    Unknown,
    /// The token has expired.
    #[error("token expired")]
    Expired,
    /// The token is not valid yet.
    #[error("token not valid yet")]
    NotYet,
    /// The token was revoked.
    #[error("token revoked")]
    Revoked,
    /// The token opens only other pools.
    #[error("token for another pool")]
    OtherPool,
    /// The signature, issuer or audience of the token is wrong.
    #[error("signature, issuer or audience of the token is wrong")]
    Unsigned,
    /// The token of a machine was used, and the window after that has passed.
    #[error("token spent, until `machines rearm` arms it again")]
    Spent,
    /// The use of a machine's token cannot be stored, so that it could be used for ever.
    #[error("use of the token cannot be stored")]
    NotStored,
    /// The object of the machine is missing, and may be back.
    #[error("FirstBootMachine missing")]
    MachineMissing,
    /// Too many requests from the address have failed.
    #[error("too many failed requests from this address")]
    TooMany,
    /// The tokens, or the state of the pool's pointer configs, have not been read yet.
    #[error("tokens of the pool not known yet")]
    NotRead,
    /// The pool is restricted by default, and none of this name has been read.
    #[error("pool unknown to this server")]
    NoPool,
    /// The machine's Ignition is older than the pool accepts.
    #[error("Ignition older than the pool accepts")]
    OldIgnition,
    /// The pool is closed on the port without TLS.
    #[error("pool closed on the port without TLS")]
    PoolPlainPort,
    /// The machine needs approval, and has none.
    #[error("waits for approval, until `machines approve` gives it")]
    NotApproved,
}

impl Refusal {
    /// Value of the label in metrics and in the ledger: the name of the variant.
    pub fn label(self) -> &'static str {
        self.into()
    }

    /// Returns `true` if the same request may succeed later: the server may receive the token, or time passes.
    pub fn is_temporary(self) -> bool {
        self.code().status().is_server_error()
    }

    /// Code of the answer. All permanent refusals have the same one.
    pub fn code(self) -> RefusalCode {
        match self {
            Self::Unknown => RefusalCode::TokenUnknown,
            Self::TooMany => RefusalCode::TooManyAttempts,
            Self::NotYet
            | Self::NotRead
            | Self::NoPool
            | Self::NotStored
            | Self::MachineMissing => RefusalCode::AccessUndecided,
            Self::OldIgnition => RefusalCode::IgnitionTooOld,
            Self::PoolPlainPort => RefusalCode::PlainPortClosed,
            Self::NotApproved => RefusalCode::ApprovalPending,
            Self::OtherNetwork
            | Self::PlainPort
            | Self::Missing
            | Self::Malformed
            | Self::Expired
            | Self::Revoked
            | Self::OtherPool
            | Self::Unsigned
            | Self::Spent => RefusalCode::AccessRefused,
        }
    }
}
