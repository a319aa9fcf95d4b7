//! One answer: a config's bytes with its headers, or the reason why there is none.

use std::sync::{Arc, OnceLock};

use data_encoding::HEXLOWER;
use http::header::InvalidHeaderValue;
use http::{HeaderName, HeaderValue};
use ignition::{Form, SpecVersion};
use model::objects::FirstBootMachine;
use model::refusal::RefusalCode;
use model::render::{MergeBase, PoolInputs, SelectError};
use prometheus_client::metrics::counter::Counter;
use sha2::{Digest as _, Sha256};

use super::segments::Segments;

/// A config in one spec and form, ready to send.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    /// Config as JSON.
    pub(crate) body: Segments,
    /// Value of `Content-Length`.
    pub(crate) length: HeaderValue,
    /// Value of `ETag`, strong: the body's SHA-256.
    pub(crate) etag: HeaderValue,
    /// Name of the MachineConfig.
    pub(crate) configuration: Arc<str>,
    /// Name of the pool's present configuration, if it cannot be rendered and this is an older one.
    pub(crate) pending: Option<HeaderValue>,
    /// True if only clients with a proof get it.
    pub(crate) is_restricted: bool,
    /// Counter of the requests with this answer.
    pub(crate) requests: Counter,
    /// The config that overlays of machines are merged into.
    pub(super) base: Arc<OverlayBase>,
}

/// Version and form of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Variant {
    pub(super) version: SpecVersion,
    pub(super) form: Form,
}

impl Variant {
    pub(super) const COUNT: usize = SpecVersion::ALL.len() * Form::ALL.len();

    pub(super) fn all() -> impl Iterator<Item = Self> {
        let forms = |version| Form::ALL.map(|form| Self { version, form });
        SpecVersion::ALL.into_iter().flat_map(forms)
    }

    pub(super) fn index(self) -> usize {
        self.version.index() * Form::ALL.len() + self.form.index()
    }
}

/// The inputs of an answer, and what is prepared of them when the first machine with an overlay asks.
#[derive(Debug)]
pub(super) struct OverlayBase {
    inputs: PoolInputs,
    variant: Variant,
    prepared: OnceLock<Result<Box<MergeBase>, String>>,
}

impl OverlayBase {
    pub(super) fn new(inputs: &PoolInputs, variant: Variant) -> Self {
        Self { inputs: inputs.clone(), variant, prepared: OnceLock::new() }
    }

    fn prepared(&self) -> Result<&MergeBase, String> {
        let Variant { version, form } = self.variant;
        let prepare = || {
            let base = MergeBase::new(&self.inputs, (version, form));
            base.map(Box::new).map_err(|error| error.to_string())
        };
        self.prepared.get_or_init(prepare).as_deref().map_err(Clone::clone)
    }
}

impl Answer {
    /// The answer for a machine with an overlay. Blocks while it is merged.
    ///
    /// # Errors
    /// The reason why the overlay cannot be merged, one line.
    pub(crate) fn with_overlay(&self, machine: &FirstBootMachine) -> Result<Self, String> {
        let overlay = machine.spec.overlay.as_ref().map_or("{}", |overlay| overlay.as_str());
        let body = self.base.prepared()?.with(overlay, &machine.spec.replaces);
        let body = body.map_err(|error| error.to_string())?;
        let etag = etag(&body).map_err(|error| error.to_string())?;
        Ok(Self { length: body.len().into(), body: body.into(), etag, ..self.clone() })
    }

    /// SHA-256 of the body in hexadecimal.
    pub(crate) fn sha256(&self) -> &str {
        // It consists of digits and quotes.
        self.etag.to_str().unwrap_or_default().trim_matches('"')
    }
}

/// Header with the configuration that cannot be rendered, in an answer with the last good one.
pub(crate) const PENDING: HeaderName = HeaderName::from_static("machine-config-server-pending");

pub(super) fn etag(body: &[u8]) -> Result<HeaderValue, InvalidHeaderValue> {
    HeaderValue::try_from(format!("\"{}\"", HEXLOWER.encode(&Sha256::digest(body))))
}

/// Reasons for no answer, for clients. Details of a config's fault are in the log and in readiness.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("the inputs have not been read yet")]
    NotRead,
    #[error("{0}")]
    Unselected(#[from] SelectError),
    /// The config is invalid, or cannot be expressed in this spec.
    #[error("the pool's config cannot be rendered in Ignition spec {0}")]
    Unrenderable(SpecVersion),
}

impl Refusal {
    pub(crate) fn code(&self) -> RefusalCode {
        match self {
            Self::NotRead => RefusalCode::InputsNotRead,
            Self::Unselected(unselected) => unselected.code(),
            Self::Unrenderable(_) => RefusalCode::NotRenderable,
        }
    }
}
