//! Metadata of all objects of a kind, from a watch, so that no look lists thousands of objects.

use std::collections::BTreeMap;
use std::mem::take;
use std::sync::{Arc, Mutex};

use common::sync::lock;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::DynamicObject;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::Event;

/// Metadata by name, without its managed fields.
pub type AllMetadata = BTreeMap<String, Arc<ObjectMeta>>;

/// Objects that a watch has seen, shared by the watch and the controller.
#[derive(Clone, Default)]
pub struct MetadataCache(Arc<Mutex<CacheState>>);

#[derive(Default)]
struct CacheState {
    objects: AllMetadata,
    listing: AllMetadata,
    is_listed: bool,
}

impl MetadataCache {
    /// All of them, `None` before the first list has ended.
    pub fn all(&self) -> Option<AllMetadata> {
        let state = lock(&self.0);
        state.is_listed.then(|| state.objects.clone())
    }

    /// Takes in what the watch saw.
    pub fn take(&self, event: &Event<PartialObjectMeta<DynamicObject>>) {
        let mut state = lock(&self.0);
        match event {
            Event::Init => state.listing.clear(),
            Event::InitApply(object) => insert(&mut state.listing, object),
            Event::InitDone => {
                state.objects = take(&mut state.listing);
                state.is_listed = true;
            }
            Event::Apply(object) => insert(&mut state.objects, object),
            Event::Delete(object) => {
                state.objects.remove(object.metadata.name.as_deref().unwrap_or_default());
            }
        }
    }
}

fn insert(objects: &mut AllMetadata, object: &PartialObjectMeta<DynamicObject>) {
    let metadata = ObjectMeta { managed_fields: None, ..object.metadata.clone() };
    objects.insert(metadata.name.clone().unwrap_or_default(), Arc::new(metadata));
}
