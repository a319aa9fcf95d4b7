//! Follows the merged ConfigMap of registry CAs.

use std::sync::Arc;

use kube::Client;
use kubernetes::seen::ObjectSeen;
use kubernetes::watch::ObjectWatch;
use model::objects::{ConfigMap, Object};
use model::registry_ca::MERGED_MAP;

use super::kind::{Kind, RawObject};

pub struct RegistryCaMap {
    watch: ObjectWatch<RawObject>,
    is_failing: bool,
}

impl RegistryCaMap {
    /// Creates a watch, which runs while [`Self::changed`] is awaited.
    pub fn new(client: &Client) -> Self {
        let watch = ObjectWatch::new(Kind::RegistryCas.api(client), MERGED_MAP);
        Self { watch, is_failing: false }
    }

    /// Waits for the ConfigMap's present state, or why it is malformed, for each change, and for failures. It is cancel
    /// safe: no change is lost.
    pub async fn changed(&mut self) -> ObjectSeen<Result<ConfigMap, String>> {
        let seen = self.watch.next().await;
        let was_failing = std::mem::replace(&mut self.is_failing, seen.is_failed());
        match &seen {
            ObjectSeen::Failed(failure) if !was_failing => tracing::error!(
                reason = failure.reason,
                fix = failure.fix(),
                "cannot watch the ConfigMap of registry CAs, retrying"
            ),
            ObjectSeen::Present(_) | ObjectSeen::Absent if was_failing => {
                tracing::info!("watch of the ConfigMap of registry CAs works again");
            }
            _ => {}
        }
        seen.map(|raw| read(&raw))
    }
}

fn read(raw: &RawObject) -> Result<ConfigMap, String> {
    let reason = match Kind::RegistryCas.decode(&raw.json) {
        Ok(Object::ConfigMap(map)) => return Ok(Arc::unwrap_or_clone(map)),
        Ok(_) => "not a ConfigMap".to_owned(),
        Err(error) => error.defect().reason,
    };
    tracing::error!(
        reason,
        fix = "correct the ConfigMap, or run the controller, which writes it",
        "cannot read the ConfigMap of registry CAs, keeping what was read before"
    );
    Err(reason)
}
