//! Follows the merged config map of the registries' authorities, and nothing else.

use kube::Client;
use model::objects::{ConfigMap, Object};
use model::registry_ca::MERGED_MAP;

use super::kind::{Kind, Raw};
use crate::kubernetes::watch::{Failure, ObjectSeen, ObjectWatch};

/// The config map, followed.
pub struct RegistryCaMap {
    watch: ObjectWatch<Raw>,
    is_failing: bool,
}

impl RegistryCaMap {
    /// The config map of a cluster. It is followed while somebody waits for what changes.
    #[must_use]
    pub fn new(client: &Client) -> Self {
        let watch = ObjectWatch::new(Kind::RegistryCas.api(client), MERGED_MAP);
        Self { watch, is_failing: false }
    }

    /// Waits for the config map as it is, for each change of it, and for what keeps it from being
    /// seen. May be dropped and called again: no change is lost by that.
    pub async fn changed(&mut self) -> MapSeen {
        let seen = self.watch.next().await;
        let is_failing = matches!(seen, ObjectSeen::Failed(_));
        let was_failing = std::mem::replace(&mut self.is_failing, is_failing);
        if was_failing && !is_failing {
            tracing::info!("the config map is watched again");
        }
        match seen {
            ObjectSeen::Present(raw) => MapSeen::of(&raw),
            ObjectSeen::Absent => MapSeen::Absent,
            ObjectSeen::Failed(Failure { reason, .. }) => {
                if !was_failing {
                    tracing::error!(reason, "the config map cannot be watched; trying again");
                }
                MapSeen::Unwatched(reason)
            }
        }
    }
}

/// What is seen of the config map.
#[derive(Debug)]
pub enum MapSeen {
    /// It is there.
    Present(ConfigMap),
    /// The API server has none.
    Absent,
    /// It does not decode, for this reason.
    Unreadable(String),
    /// It cannot be watched, for this reason; trying again goes on.
    Unwatched(String),
}

impl MapSeen {
    fn of(raw: &Raw) -> Self {
        let reason = match Kind::RegistryCas.decode(&raw.json) {
            Ok(Object::ConfigMap(map)) => return Self::Present(map),
            Ok(_) => "it is no config map".to_owned(),
            Err(error) => error.defect().reason,
        };
        tracing::error!(reason, "the config map cannot be read; what was read before stays");
        Self::Unreadable(reason)
    }
}
