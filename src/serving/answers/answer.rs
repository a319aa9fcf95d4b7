//! One answer: a config's bytes with what its headers say, or why there is none.

use std::sync::Arc;

use data_encoding::HEXLOWER;
use http::header::InvalidHeaderValue;
use http::{HeaderName, HeaderValue};
use ignition::SpecVersion;
use model::refusal::RefusalCode;
use model::render::Unselected;
use prometheus_client::metrics::counter::Counter;
use sha2::{Digest as _, Sha256};

use super::segments::Segments;

/// A config in one spec version, ready to send.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The config, JSON.
    pub body: Segments,
    /// `Content-Length`
    pub length: HeaderValue,
    /// A strong `ETag`: the body's SHA-256.
    pub etag: HeaderValue,
    /// The machine config's name.
    pub configuration: Arc<str>,
    /// The pool's present configuration, where this is one before it because that cannot be rendered.
    pub pending: Option<HeaderValue>,
    /// True if it is for those alone who prove that they may have it.
    pub is_restricted: bool,
    /// Counts the requests that this answers.
    pub requests: Counter,
}

impl Answer {
    /// The body's SHA-256, in hexadecimal.
    #[must_use]
    pub fn sha256(&self) -> &str {
        // It is made of digits and quotes.
        self.etag.to_str().unwrap_or_default().trim_matches('"')
    }
}

/// The header that names the configuration which cannot be rendered, beside the last one that could.
pub const PENDING: HeaderName = HeaderName::from_static("machine-config-server-pending");

/// The tag of these bytes.
pub(super) fn etag(body: &[u8]) -> Result<HeaderValue, InvalidHeaderValue> {
    HeaderValue::try_from(format!("\"{}\"", HEXLOWER.encode(&Sha256::digest(body))))
}

/// Why there is no answer, in words for whoever asked. What is wrong with a config in detail is in
/// the log and in the readiness report.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Nothing was read yet.
    #[error("the inputs have not been read yet")]
    NotRead,
    /// The pool has nothing to serve.
    #[error("{0}")]
    Unselected(#[from] Unselected),
    /// The config is invalid, or cannot be said in this version.
    #[error("the pool's config cannot be rendered in Ignition spec {0}")]
    Unrenderable(SpecVersion),
}

impl Refusal {
    /// The code that its answer carries.
    #[must_use]
    pub fn code(&self) -> RefusalCode {
        match self {
            Self::NotRead => RefusalCode::InputsNotRead,
            Self::Unselected(unselected) => unselected.code(),
            Self::Unrenderable(_) => RefusalCode::NotRenderable,
        }
    }
}
