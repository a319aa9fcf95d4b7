//! Objects of rendered pools, read and written, without I/O.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::DynamicObject;
use model::merged_pool::GENERATED_BY;
use model::objects::{MachineConfig, MachineConfigPool, ROLE_LABEL};
use model::rendered_pools::{GENERATOR, Origin, Prepare, RenderedConfig};
use serde_json::{Map, Value, json};

use crate::controllers::known::AllMetadata;
use crate::kubernetes::apply::CustomWrite;
use crate::kubernetes::write::{
    Change, FieldsMetadata, FieldsPatch, Malformed, ObjectName, ObjectWrite, Precondition,
};

pub(super) const API_VERSION: &str = "machineconfiguration.openshift.io/v1";
const POOL_KIND: &str = "MachineConfigPool";
const CONFIG_KIND: &str = "MachineConfig";
/// Annotation of a rendered MachineConfig; see [`RenderedConfig::Own`].
const REVISION: &str = "machineconfiguration.openshift.io/rendered-revision";

/// A pool, with the precondition of its writes.
#[derive(Clone)]
pub(super) struct Pool {
    pub(super) object: MachineConfigPool,
    pub(super) uid: String,
    pub(super) is_paused: bool,
    precondition: Precondition,
}

pub(super) fn pool_object(name: &str) -> ObjectName {
    ObjectName::new(POOL_KIND, "", name)
}

pub(super) fn config_object(name: &str) -> ObjectName {
    ObjectName::new(CONFIG_KIND, "", name)
}

/// Reads a pool.
pub(super) fn pool(object: DynamicObject) -> Result<Pool, Malformed> {
    let DynamicObject { metadata, data, .. } = object;
    let name = pool_object(metadata.name.as_deref().unwrap_or_default());
    let precondition = Precondition::of(&name, &metadata)?;
    // Any other value pauses the pool: leaving it alone does no harm.
    let is_paused = !matches!(data["spec"]["paused"], Value::Null | Value::Bool(false));
    let value = json!({
        "metadata": {"name": metadata.name, "annotations": metadata.annotations},
        "spec": data["spec"], "status": data["status"],
    });
    let pool = serde_json::from_value(value).map_err(|error| name.malformed(error.to_string()))?;
    let is_paused = is_paused || metadata.deletion_timestamp.is_some();
    Ok(Pool { object: pool, uid: precondition.uid.clone(), is_paused, precondition })
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

/// All MachineConfigs, by their origin.
pub(super) fn rendered(all: &AllMetadata) -> impl Iterator<Item = (String, RenderedConfig)> {
    all.iter().map(|(name, it)| (name.clone(), RenderedConfig::of(name, &origin(it))))
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

/// The write that makes a rendered MachineConfig, or gives an existing one to `pool`. `present` is the metadata of
/// the existing one.
pub(super) fn prepare_write(
    pool: &Pool,
    config: &MachineConfig,
    prepare: Prepare,
    present: Option<&ObjectMeta>,
) -> Result<PrepareWrite, Malformed> {
    let object = config_object(config.name());
    let (Prepare::Create(revision) | Prepare::Reuse(revision)) = prepare;
    let metadata = own_metadata(pool, revision);
    if let Prepare::Reuse(_) = prepare {
        let present = present.ok_or_else(|| object.malformed("was not read"))?;
        let precondition = Precondition::of(&object, present)?;
        let metadata = FieldsMetadata { precondition, fields: metadata };
        return Ok(PrepareWrite::Patch(Box::new((
            object,
            FieldsPatch { metadata, spec: Map::new() },
        ))));
    }
    let failed = |error: serde_json::Error| object.malformed(error.to_string());
    let mut value = serde_json::to_value(config).map_err(failed)?;
    for (key, field) in metadata {
        match (value["metadata"].get_mut(&key), field) {
            (Some(Value::Object(present)), Value::Object(fields)) => present.extend(fields),
            (_, field) => value["metadata"][key] = field,
        }
    }
    let change = Change::Create(serde_json::from_value(value).map_err(failed)?);
    Ok(PrepareWrite::Create(Box::new(ObjectWrite { object, change })))
}

/// A write to a rendered MachineConfig.
pub(super) enum PrepareWrite {
    Create(Box<CustomWrite>),
    Patch(Box<(ObjectName, FieldsPatch)>),
}

fn own_metadata(pool: &Pool, revision: u64) -> Map<String, Value> {
    // Without blockOwnerDeletion, which takes a right to the finalizers of pools.
    let owner = json!({
        "apiVersion": API_VERSION, "kind": POOL_KIND, "name": pool.object.name(), "uid": pool.uid,
        "controller": true,
    });
    let generator = format!("{GENERATOR}{}", env!("CARGO_PKG_VERSION"));
    let annotations = json!({GENERATED_BY: generator, REVISION: revision.to_string()});
    [("annotations".to_owned(), annotations), ("ownerReferences".to_owned(), json!([owner]))]
        .into_iter()
        .collect()
}

/// The write that sets a pool to a rendered MachineConfig, made of `sources`.
pub(super) fn pool_write(pool: &Pool, config: &str, sources: &BTreeSet<&str>) -> FieldsPatch {
    let reference =
        |name: &&str| json!({"apiVersion": API_VERSION, "kind": CONFIG_KIND, "name": name});
    let source: Vec<Value> = sources.iter().map(reference).collect();
    let configuration = json!({"name": config, "source": source});
    let precondition = pool.precondition.clone();
    FieldsPatch {
        metadata: FieldsMetadata { precondition, fields: Map::new() },
        spec: [("configuration".to_owned(), configuration)].into_iter().collect(),
    }
}

/// The write that deletes a rendered MachineConfig that was read.
pub(super) fn delete_write(name: &str, present: &ObjectMeta) -> Result<CustomWrite, Malformed> {
    let object = config_object(name);
    let change = Change::Delete(Precondition::of(&object, present)?);
    Ok(ObjectWrite { object, change })
}

/// A pool, as events refer to it.
pub(super) fn reference(pool: &Pool) -> ObjectReference {
    ObjectReference {
        api_version: Some(API_VERSION.to_owned()),
        kind: Some(POOL_KIND.to_owned()),
        name: Some(pool.object.name().to_owned()),
        uid: Some(pool.uid.clone()),
        ..ObjectReference::default()
    }
}
