//! Reports of the tasks that observe a cluster.

use kube::ResourceExt as _;
use kubernetes::seen::{Failure, ObjectSeen};
use model::objects::{Secret, SecretName};
use serde_json::value::RawValue;
use tokio::sync::oneshot;

use super::kind::{Kind, RawObject};

#[derive(Debug)]
pub(super) enum Report {
    Change(Kind, Change),
    Failed(Kind, Failure),
    Secret(SecretName, ObjectSeen<Secret>),
    /// The result of a fetch; `None` if the MachineConfig does not exist.
    Fetched(String, Option<WatchedObject>),
    FetchFailed(String, String),
    /// A pool that a machine asks for; `None` if it does not exist.
    PoolFetched(Option<WatchedObject>),
    Connectivity(Result<(), String>),
    /// Result of a read on request.
    Live(Result<Vec<LiveList>, String>, LiveRequest),
}

/// A request for a read of what chooses configs. It is answered with [`Inputs::live_reads`] of the first inputs that
/// include the result, and dropped if nothing can be read.
///
/// [`Inputs::live_reads`]: model::inputs::Inputs::live_reads
pub type LiveRequest = oneshot::Sender<u64>;

/// All objects of a kind at one time.
#[derive(Debug)]
pub(super) struct LiveList {
    pub(super) kind: Kind,
    /// Resource version of the list: what is newer is not in it.
    pub(super) version: String,
    pub(super) items: Vec<WatchedObject>,
}

#[derive(Debug)]
pub(super) struct WatchedObject {
    pub(super) name: String,
    pub(super) version: String,
    /// The whole object, unless only metadata is watched.
    pub(super) json: Option<Box<RawValue>>,
}

impl From<RawObject> for WatchedObject {
    fn from(raw: RawObject) -> Self {
        Self {
            name: raw.name_any(),
            version: raw.resource_version().unwrap_or_default(),
            json: Some(raw.json),
        }
    }
}

impl WatchedObject {
    /// Parses an object's text, `None` if it has no metadata.
    pub(super) fn read(json: &RawValue) -> Option<Self> {
        serde_json::from_str::<RawObject>(json.get()).ok().map(Self::from)
    }
}

#[derive(Debug)]
pub(super) enum Change {
    /// A list begins, which replaces all known objects.
    ListBegins,
    Listed(WatchedObject),
    ListEnds,
    Applied(WatchedObject),
    Deleted(String),
}
