//! Follows the merged ConfigMap of registry CAs.

use kube::Client;
use model::objects::{ConfigMap, Object};
use model::registry_ca::MERGED_MAP;

use super::kind::{Kind, RawObject};
use crate::kubernetes::watch::{Failure, ObjectSeen, ObjectWatch};

/// A watch of the ConfigMap.
pub struct RegistryCaMap {
    watch: ObjectWatch<RawObject>,
    is_failing: bool,
}

impl RegistryCaMap {
    /// Creates a watch, which runs while [`Self::changed`] is awaited.
    #[must_use]
    pub fn new(client: &Client) -> Self {
        let watch = ObjectWatch::new(Kind::RegistryCas.api(client), MERGED_MAP);
        Self { watch, is_failing: false }
    }

    /// Waits for the ConfigMap's present state, for each change, and for failures. It is cancel safe: no change is
    /// lost.
    pub async fn changed(&mut self) -> RegistryCaMapState {
        let seen = self.watch.next().await;
        let is_failing = matches!(seen, ObjectSeen::Failed(_));
        let was_failing = std::mem::replace(&mut self.is_failing, is_failing);
        if was_failing && !is_failing {
            tracing::info!("watch of the ConfigMap of registry CAs works again");
        }
        match seen {
            ObjectSeen::Present(raw) => RegistryCaMapState::of(&raw),
            ObjectSeen::Absent => RegistryCaMapState::Absent,
            ObjectSeen::Failed(failure) => {
                let fix = failure.fix();
                let Failure { reason, .. } = failure;
                if !was_failing {
                    tracing::error!(
                        reason,
                        fix,
                        "cannot watch the ConfigMap of registry CAs, retrying"
                    );
                }
                RegistryCaMapState::Unwatched(reason)
            }
        }
    }
}

#[derive(Debug)]
pub enum RegistryCaMapState {
    /// The present contents.
    Present(ConfigMap),
    /// The ConfigMap does not exist.
    Absent,
    /// The ConfigMap is malformed, for this reason.
    Unreadable(String),
    /// The ConfigMap cannot be watched, for this reason; retries continue.
    Unwatched(String),
}

impl RegistryCaMapState {
    fn of(raw: &RawObject) -> Self {
        let reason = match Kind::RegistryCas.decode(&raw.json) {
            Ok(Object::ConfigMap(map)) => return Self::Present(map),
            Ok(_) => "not a ConfigMap".to_owned(),
            Err(error) => error.defect().reason,
        };
        tracing::error!(
            reason,
            fix = "correct the ConfigMap, or run the controller, which writes it",
            "cannot read the ConfigMap of registry CAs, keeping what was read before"
        );
        Self::Unreadable(reason)
    }
}
