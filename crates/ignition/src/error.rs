//! Why a config cannot be read, is not valid, or cannot be said in an older spec.
//!
//! Each message is one line that starts with the place in the config, because it is read by whoever looks for the
//! reason that a machine does not boot.

use std::borrow::Cow;
use std::fmt;

use super::version::SpecVersion;

/// Why a config was refused.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The text is not JSON.
    #[error("not JSON: {0}")]
    Json(#[from] serde_json::Error),

    /// `ignition.version` is missing or not one of 2.0.0, 2.1.0, 2.2.0 and 3.0.0 to 3.6.0.
    #[error(
        "ignition.version: {found:?} is not a known Ignition spec (known are 2.0.0 to 2.2.0 and 3.0.0 to 3.6.0)"
    )]
    UnknownVersion {
        /// What the config says, empty if it says nothing.
        found: String,
    },

    /// More objects and lists within each other than Ignition reads.
    #[error("not JSON that Ignition reads: it is nested too deeply")]
    TooDeep,

    /// A value of another JSON type than the spec has there.
    #[error("{path}: {found} where the spec has {wanted}")]
    WrongType {
        /// The place, such as `storage.files[3].mode`.
        path: String,
        /// The type that belongs there.
        wanted: &'static str,
        /// The type that was found.
        found: &'static str,
    },

    /// A rule of the Ignition spec is broken.
    #[error("{path}: {reason}")]
    Invalid {
        /// The place, such as `storage.files[3].path`.
        path: String,
        /// The rule, and what breaks it.
        reason: Cow<'static, str>,
    },

    /// A spec 2 config says something that spec 3 has no words for.
    #[error("{path}: {reason}, so this spec 2 config cannot be lifted to spec 3")]
    NotLiftable {
        /// The place in the spec 2 config.
        path: String,
        /// What spec 3 lacks.
        reason: Cow<'static, str>,
    },

    /// The config is valid, but says something that the spec asked for cannot say.
    #[error("{path}: cannot be said in spec {to}{}", needs.map(|spec| format!(", it needs {spec}")).unwrap_or_default())]
    Unsupported {
        /// The place in the config.
        path: String,
        /// The first spec that can say it, where one can.
        needs: Option<SpecVersion>,
        /// The spec asked for.
        to: SpecVersion,
    },
}

impl Error {
    /// The place in the config, such as `storage.files[3].path`, where it is known.
    #[must_use]
    pub fn place(&self) -> Option<&str> {
        match self {
            Self::WrongType { path, .. }
            | Self::Invalid { path, .. }
            | Self::NotLiftable { path, .. }
            | Self::Unsupported { path, .. } => Some(path),
            Self::Json(_) | Self::UnknownVersion { .. } | Self::TooDeep => None,
        }
    }
}

/// A place in a config: a chain of steps that lives on the stack and becomes text only in an error.
#[derive(Clone, Copy)]
pub(super) struct At<'a> {
    parent: Option<&'a At<'a>>,
    step: Step<'a>,
}

#[derive(Clone, Copy)]
enum Step<'a> {
    Root,
    Field(&'a str),
    Item(usize),
}

impl<'a> At<'a> {
    pub(super) const ROOT: At<'static> = At { parent: None, step: Step::Root };

    pub(super) fn field(&'a self, name: &'a str) -> At<'a> {
        At { parent: Some(self), step: Step::Field(name) }
    }

    pub(super) fn item(&'a self, index: usize) -> At<'a> {
        At { parent: Some(self), step: Step::Item(index) }
    }

    /// A broken rule at this place.
    pub(super) fn invalid(&self, reason: impl Into<Cow<'static, str>>) -> Error {
        Error::Invalid { path: self.to_string(), reason: reason.into() }
    }
}

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            parent.fmt(f)?;
        }
        match (self.step, self.parent.map(|parent| parent.step)) {
            (Step::Root, _) => Ok(()),
            (Step::Item(index), _) => write!(f, "[{index}]"),
            (Step::Field(name), Some(Step::Root) | None) => f.write_str(name),
            (Step::Field(name), _) => write!(f, ".{name}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_reads_as_one_would_write_it() {
        let storage = At::ROOT.field("storage");
        let files = storage.field("files");
        let file = files.item(3);
        assert_eq!(file.field("path").to_string(), "storage.files[3].path");
        assert_eq!(file.invalid("is empty").to_string(), "storage.files[3]: is empty");
    }

    #[test]
    fn what_cannot_be_said_names_the_spec_that_can() {
        let error = |needs| {
            Error::Unsupported { path: "storage.luks".into(), needs, to: SpecVersion::V3_1 }
                .to_string()
        };
        assert_eq!(
            error(Some(SpecVersion::V3_2)),
            "storage.luks: cannot be said in spec 3.1.0, it needs 3.2.0"
        );
        assert_eq!(error(None), "storage.luks: cannot be said in spec 3.1.0");
    }
}
