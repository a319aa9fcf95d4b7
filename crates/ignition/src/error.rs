//! Errors of parsing, validating and converting configs.
//!
//! Each message is one line that starts with the place in the config, for an administrator who looks for the reason
//! that a machine does not boot.

use std::borrow::Cow;
use std::fmt;

use super::version::SpecVersion;

/// Reasons why a config is refused.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The text is not JSON.
    #[error("not JSON: {0}")]
    Json(#[from] serde_json::Error),

    /// The config is JSON, and no object.
    #[error("is not an Ignition config")]
    NoObject,

    /// There is no `ignition.version`.
    #[error("ignition.version: is missing; it says the Ignition spec, such as \"3.4.0\"")]
    NoVersion,

    /// `ignition.version` is not one of 2.0.0, 2.1.0, 2.2.0 and 3.0.0 to 3.6.0.
    #[error(
        "ignition.version: {found:?} is not a known Ignition spec (known are 2.0.0 to 2.2.0 and 3.0.0 to 3.6.0)"
    )]
    UnknownVersion {
        /// The declared version.
        found: String,
    },

    /// Objects and lists are nested more deeply than Ignition reads.
    #[error("not JSON that Ignition reads: nested too deeply")]
    TooDeep,

    /// A value has another JSON type than the field.
    #[error("{path}: {found} where the spec has {wanted}")]
    WrongType {
        /// The place, such as `storage.files[3].mode`.
        path: String,
        /// Expected type.
        wanted: &'static str,
        /// Found type.
        found: &'static str,
    },

    /// The config violates a rule of the Ignition spec.
    #[error("{path}: {reason}")]
    Invalid {
        /// The place, such as `storage.files[3].path`.
        path: String,
        /// The violated rule, and its cause.
        reason: Cow<'static, str>,
    },

    /// Spec 3 cannot express a part of a spec 2 config.
    #[error("{path}: {reason}, so this spec 2 config cannot be lifted to spec 3")]
    NotLiftable {
        /// The place in the spec 2 config.
        path: String,
        /// The missing feature of spec 3.
        reason: Cow<'static, str>,
    },

    /// The config is valid, and the requested spec cannot express it.
    #[error("{path}: cannot be expressed in spec {to}, it needs {needs}")]
    Unsupported {
        /// The place in the config.
        path: String,
        /// First spec that can express it.
        needs: SpecVersion,
        /// Requested spec.
        to: SpecVersion,
    },
}

impl Error {
    /// The place in the config, such as `storage.files[3].path`, where it is known.
    pub fn place(&self) -> Option<&str> {
        match self {
            Self::WrongType { path, .. }
            | Self::Invalid { path, .. }
            | Self::NotLiftable { path, .. }
            | Self::Unsupported { path, .. } => Some(path),
            Self::Json(_)
            | Self::NoObject
            | Self::NoVersion
            | Self::UnknownVersion { .. }
            | Self::TooDeep => None,
        }
    }
}

/// A place in a config: a linked list of steps on the stack, which becomes text only in an error.
#[derive(Clone, Copy)]
pub(super) struct FieldPath<'a> {
    parent: Option<&'a FieldPath<'a>>,
    step: Step<'a>,
}

#[derive(Clone, Copy)]
enum Step<'a> {
    Root,
    Field(&'a str),
    Item(usize),
}

impl<'a> FieldPath<'a> {
    pub(super) const ROOT: FieldPath<'static> = FieldPath { parent: None, step: Step::Root };

    /// The field of this name, or that of a field's field, with a dot between the names.
    pub(super) fn field(&'a self, name: &'a str) -> FieldPath<'a> {
        FieldPath { parent: Some(self), step: Step::Field(name) }
    }

    pub(super) fn item(&'a self, index: usize) -> FieldPath<'a> {
        FieldPath { parent: Some(self), step: Step::Item(index) }
    }

    /// An error at this place.
    pub(super) fn invalid(&self, reason: impl Into<Cow<'static, str>>) -> Error {
        Error::Invalid { path: self.to_string(), reason: reason.into() }
    }
}

impl fmt::Display for FieldPath<'_> {
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
        let storage = FieldPath::ROOT.field("storage");
        let files = storage.field("files");
        let file = files.item(3);
        assert_eq!(file.field("path").to_string(), "storage.files[3].path");
        assert_eq!(file.invalid("is empty").to_string(), "storage.files[3]: is empty");
    }

    #[test]
    fn what_cannot_be_said_names_the_spec_that_can() {
        let (needs, to) = (SpecVersion::V3_2, SpecVersion::V3_1);
        let error = Error::Unsupported { path: "storage.luks".into(), needs, to };
        assert_eq!(
            error.to_string(),
            "storage.luks: cannot be expressed in spec 3.1.0, it needs 3.2.0"
        );
    }
}
