//! Objects of rendered pools, read and written, without I/O.

use std::collections::BTreeSet;
use std::sync::Arc;

use controllers::metadata_cache::AllMetadata;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::DynamicObject;
use kubernetes::apply::CustomWrite;
use kubernetes::write::{Change, Malformed, ObjectName, ObjectWrite, Precondition};
use model::merged_pool::GENERATED_BY;
use model::objects::{MachineConfig, MachineConfigPool, ObjectKind, ROLE_LABEL};
use rendered_pools::{GENERATOR, Origin, Prepare, RenderedConfig, RenderedConfigs};
use serde_json::{Value, json};

const API_VERSION: &str = "machineconfiguration.openshift.io/v1";
const POOL_KIND: &str = ObjectKind::MACHINE_CONFIG_POOL.name;
/// Annotation of a rendered MachineConfig; see [`RenderedConfig::Own`].
const REVISION: &str = "machineconfiguration.openshift.io/rendered-revision";

/// A pool, with the precondition of its writes.
#[derive(Clone)]
pub(super) struct Pool {
    pub(super) object: MachineConfigPool,
    pub(super) is_paused: bool,
    pub(super) is_deleted: bool,
    pub(super) precondition: Precondition,
}

pub(super) fn pool(object: DynamicObject) -> Result<Pool, Malformed> {
    let DynamicObject { metadata, data, .. } = object;
    let name = ObjectName::pool(metadata.name.as_deref().unwrap_or_default());
    let precondition = Precondition::of(&name, &metadata)?;
    // Any other value pauses the pool: leaving it alone does no harm.
    let is_paused = !matches!(data["spec"]["paused"], Value::Null | Value::Bool(false));
    let value = json!({
        "metadata": {"name": metadata.name, "annotations": metadata.annotations},
        "spec": data["spec"], "status": data["status"],
    });
    let pool = serde_json::from_value(value).map_err(|error| name.malformed(error.to_string()))?;
    let is_deleted = metadata.deletion_timestamp.is_some();
    Ok(Pool { object: pool, is_paused: is_paused || is_deleted, is_deleted, precondition })
}

/// Reads a MachineConfig, or returns the reason that it is malformed.
pub(super) fn machine_config(object: DynamicObject) -> Result<MachineConfig, String> {
    let mut object = object;
    object.metadata.managed_fields = None;
    let value = serde_json::to_value(object).map_err(|error| error.to_string())?;
    serde_json::from_value(value).map_err(|error| error.to_string())
}

/// True for a MachineConfig that pools can select: it is not rendered itself.
pub(super) fn is_source(name: &str, metadata: &ObjectMeta) -> bool {
    !origin(metadata).is_rendered(name)
}

/// True for a rendered MachineConfig of this controller.
pub(super) fn is_own(name: &str, metadata: &ObjectMeta) -> bool {
    matches!(RenderedConfig::of(name, &origin(metadata)), RenderedConfig::Own { .. })
}

/// All MachineConfigs, by their origin. `is_changed` tells of one of this controller if its contents were changed.
pub(super) fn rendered(all: &AllMetadata, is_changed: impl Fn(&str) -> bool) -> RenderedConfigs {
    let of = |(name, metadata): (&String, &Arc<ObjectMeta>)| {
        let mut config = RenderedConfig::of(name, &origin(metadata));
        if let RenderedConfig::Own { is_changed: it, .. } = &mut config {
            *it = is_changed(name);
        }
        (name.clone(), config)
    };
    all.iter().map(of).collect()
}

fn origin(metadata: &ObjectMeta) -> Origin<'_> {
    Origin {
        owner: owner(metadata).map(|owner| (owner.name.as_str(), owner.uid.as_str())),
        generated_by: annotation(metadata, GENERATED_BY),
        revision: annotation(metadata, REVISION),
        has_role: metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(ROLE_LABEL)),
    }
}

fn annotation<'a>(metadata: &'a ObjectMeta, key: &str) -> &'a str {
    let annotations = metadata.annotations.as_ref();
    annotations.and_then(|annotations| annotations.get(key)).map_or("", String::as_str)
}

/// The pool that a MachineConfig is rendered for.
fn owner(metadata: &ObjectMeta) -> Option<&OwnerReference> {
    let mut owners = metadata.owner_references.iter().flatten();
    owners.find(|owner| owner.kind == POOL_KIND && owner.controller == Some(true))
}

/// The write that makes a rendered MachineConfig, or writes all of an existing one and gives it to `pool`. `present` is
/// the metadata of the existing one, whose labels stay.
pub(super) fn prepare_write(
    pool: &Pool,
    config: &MachineConfig,
    prepare: Prepare,
    present: Option<&ObjectMeta>,
) -> Result<CustomWrite, Malformed> {
    let object = ObjectName::machine_config(config.name());
    let failed = |error: serde_json::Error| object.malformed(error.to_string());
    let mut value = serde_json::to_value(config).map_err(failed)?;
    let (revision, present) = match prepare {
        Prepare::Create(revision) => (revision, None),
        Prepare::Reuse(revision) | Prepare::Repair(revision) => {
            let present = present.ok_or_else(|| object.malformed("was not read"))?;
            // The version is the precondition.
            Precondition::of(&object, present)?;
            (revision, Some(serde_json::to_value(present).map_err(failed)?))
        }
    };
    let mut metadata = json!({});
    let ours = [value["metadata"].take(), own_metadata(pool, revision)];
    for layer in present.into_iter().chain(ours) {
        set_fields(&mut metadata, layer);
    }
    value["metadata"] = metadata;
    let new = serde_json::from_value(value).map_err(failed)?;
    let change = match prepare {
        Prepare::Create(_) => Change::Create(new),
        Prepare::Reuse(_) | Prepare::Repair(_) => Change::Replace(new),
    };
    Ok(ObjectWrite { object, change })
}

/// Sets fields of metadata; annotations that are not named stay.
fn set_fields(metadata: &mut Value, fields: Value) {
    let Value::Object(fields) = fields else { return };
    for (key, field) in fields {
        match (metadata.get_mut(&key), field) {
            (Some(Value::Object(present)), Value::Object(fields)) => present.extend(fields),
            (_, field) => metadata[key] = field,
        }
    }
}

fn own_metadata(pool: &Pool, revision: u64) -> Value {
    // Without blockOwnerDeletion, which takes a right to the finalizers of pools.
    let owner = json!({
        "apiVersion": API_VERSION, "kind": POOL_KIND, "name": pool.object.name(), "uid": pool.precondition.uid,
        "controller": true,
    });
    let generator = format!("{GENERATOR}{}", env!("CARGO_PKG_VERSION"));
    let annotations = json!({GENERATED_BY: generator, REVISION: revision.to_string()});
    json!({"annotations": annotations, "ownerReferences": [owner]})
}

/// Fields of a pool's spec or status that set it to a rendered MachineConfig, made of `sources`.
pub(super) fn configuration(config: &str, sources: &BTreeSet<&str>) -> Value {
    let kind = ObjectKind::MACHINE_CONFIG.name;
    let reference = |name: &&str| json!({"apiVersion": API_VERSION, "kind": kind, "name": name});
    let source: Vec<Value> = sources.iter().map(reference).collect();
    json!({"configuration": {"name": config, "source": source}})
}

pub(super) fn reference(pool: &Pool) -> ObjectReference {
    ObjectName::pool(pool.object.name()).reference(&pool.precondition.uid)
}
