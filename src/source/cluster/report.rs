//! What the tasks see of the cluster, as values.

use kube::ResourceExt as _;
use model::objects::SecretName;
use serde_json::value::RawValue;

use super::kind::{Kind, Raw};
use crate::kubernetes::watch::Failure;
use crate::source::secret_seen::SecretSeen;

/// What the tasks see.
#[derive(Debug)]
pub(super) enum Report {
    Change(Kind, Change),
    Failed(Kind, Failure),
    Secret(SecretName, SecretSeen),
    /// A machine config was fetched; `None` where there is none of this name.
    Fetched(String, Option<Item>),
    FetchFailed(String, String),
    Connectivity(Result<(), String>),
}

/// An object in a list or a change.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) name: String,
    /// Changes with every change of the object.
    pub(super) version: String,
    /// The whole object, where more than metadata is watched.
    pub(super) json: Option<Box<RawValue>>,
}

impl From<Raw> for Item {
    fn from(raw: Raw) -> Self {
        Self {
            name: raw.name_any(),
            version: raw.resource_version().unwrap_or_default(),
            json: Some(raw.json),
        }
    }
}

impl Item {
    /// Reads an object's text, `None` if it has no metadata.
    pub(super) fn read(json: &RawValue) -> Option<Self> {
        serde_json::from_str::<Raw>(json.get()).ok().map(Self::from)
    }
}

/// What a watch sees.
#[derive(Debug)]
pub(super) enum Change {
    /// A list begins; it replaces all that was known.
    ListBegins,
    Listed(Item),
    ListEnds,
    /// An object is new or other than before.
    Applied(Item),
    Deleted(String),
}
