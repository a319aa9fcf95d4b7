//! Parses the objects of registry CAs, and builds the planned write. The module does no I/O.
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::ConfigMap as StoredMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kubernetes::write::{
    Change, ConfigMapWrite, Malformed, ObjectName, ObjectWrite, Precondition, expect_mapping,
};
use model::objects::{ConfigMap, ImageConfig, Metadata, ObjectKind};
use model::registry_ca::{Contents, MANAGED_NAMESPACE, MERGED_MAP, Write};
use serde_json::Value;

/// Name of the object `Image cluster`, which names the administrator's ConfigMap.
pub(super) fn image_object() -> ObjectName {
    ObjectName::new(ObjectKind::IMAGE, "", "cluster")
}

/// Parses `Image cluster`, without its metadata. A malformed object is an error: treating it as empty would remove all
/// CAs of the administrator.
pub(super) fn image(object: Value) -> Result<ImageConfig, Malformed> {
    let name = image_object();
    expect_mapping(&name, "spec", &object["spec"])?;
    let named = &object["spec"]["additionalTrustedCA"];
    expect_mapping(&name, "spec.additionalTrustedCA", named)?;
    serde_json::from_value(object).map_err(|error| name.malformed(error.to_string()))
}

pub(super) fn config_map(map: &StoredMap) -> ConfigMap {
    let ObjectMeta { name, namespace, .. } = &map.metadata;
    let metadata = Metadata {
        name: name.clone().unwrap_or_default(),
        namespace: namespace.clone().unwrap_or_default(),
    };
    let binary = map.binary_data.iter().flatten();
    let binary = binary.map(|(key, value)| (key.clone(), value.0.clone())).collect();
    ConfigMap::new(metadata, map.data.clone().unwrap_or_default(), binary)
}

/// The planned write, `None` if there is none. `merged` is the present ConfigMap.
pub(super) fn merged_write(
    planned: &Write,
    merged: Option<&StoredMap>,
) -> Result<Option<ConfigMapWrite>, Malformed> {
    let object = ObjectName::config_map(MANAGED_NAMESPACE, MERGED_MAP);
    let change = match (planned, merged) {
        (Write::Nothing, _) => return Ok(None),
        (Write::Create(contents), _) => {
            let new = StoredMap { metadata: object.metadata(), ..StoredMap::default() };
            Change::Create(with_contents(new, contents))
        }
        // The version and all other fields are those that were read.
        (Write::Update(contents), Some(merged)) => {
            Precondition::of(&object, &merged.metadata)?;
            Change::Replace(with_contents(merged.clone(), contents))
        }
        (Write::Update(_), None) => {
            return Err(object.malformed("must be changed, and was not read"));
        }
    };
    Ok(Some(ObjectWrite { object, change }))
}

fn with_contents(map: StoredMap, contents: &Contents) -> StoredMap {
    let Contents { data, binary_data } = contents.clone();
    let binary_data: BTreeMap<_, _> =
        binary_data.into_iter().map(|(key, value)| (key, ByteString(value.into()))).collect();
    StoredMap {
        data: (!data.is_empty()).then_some(data),
        binary_data: (!binary_data.is_empty()).then_some(binary_data),
        ..map
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::ByteString;
    use serde_json::json;

    #[test]
    fn an_image_that_is_not_understood_is_no_image_that_names_nothing() {
        for object in [
            json!({"spec": {"additionalTrustedCA": "registry-cas"}}),
            json!({"spec": {"additionalTrustedCA": []}}),
            json!({"spec": {"additionalTrustedCA": {"name": 1}}}),
            json!({"spec": []}),
            json!("x"),
        ] {
            let error = image(object.clone()).unwrap_err().to_string();
            assert!(error.starts_with("Image cluster: "), "{object}: {error}");
        }
        for object in
            [json!({}), json!({"spec": null}), json!({"spec": {"additionalTrustedCA": null}})]
        {
            assert_eq!(image(object).unwrap().spec.additional_trusted_ca.name, "");
        }
        let named = json!({"spec": {"additionalTrustedCA": {"name": "registry-cas"}}});
        assert_eq!(image(named).unwrap().spec.additional_trusted_ca.name, "registry-cas");
    }

    #[test]
    fn text_and_bytes_of_a_map_are_read_and_written_as_they_are() {
        let stored = StoredMap {
            metadata: ObjectMeta {
                name: Some("a".to_owned()),
                namespace: Some("ns".to_owned()),
                uid: Some("u".to_owned()),
                resource_version: Some("7".to_owned()),
                labels: Some([("kept".to_owned(), "x".to_owned())].into()),
                ..ObjectMeta::default()
            },
            data: Some([("text".to_owned(), "t".to_owned())].into()),
            binary_data: Some([("bytes".to_owned(), ByteString(vec![0xe9]))].into()),
            ..StoredMap::default()
        };
        let map = config_map(&stored);
        assert_eq!((&map.metadata.namespace[..], &map.metadata.name[..]), ("ns", "a"));
        assert_eq!(map.entries(), [("bytes", &[0xe9][..]), ("text", &b"t"[..])].into());
        assert_eq!(map.binary("bytes"), Some(&[0xe9][..]));

        let contents = Contents {
            data: [("new".to_owned(), "n".to_owned())].into(),
            binary_data: BTreeMap::new(),
        };
        let write = merged_write(&Write::Update(contents.clone()), Some(&stored)).unwrap();
        let Change::Replace(new) = write.unwrap().change else { panic!("it is not replaced") };
        assert_eq!(new.metadata, stored.metadata, "with what was read as its precondition");
        assert_eq!(new.data, Some(contents.data.clone()));
        assert_eq!(new.binary_data, None);

        let write = merged_write(&Write::Create(contents.clone()), None).unwrap().unwrap();
        let Change::Create(new) = write.change else { panic!("it is not made") };
        assert_eq!(new.metadata.name.as_deref(), Some(MERGED_MAP));
        assert_eq!(new.data, Some(contents.data.clone()));
        assert!(merged_write(&Write::Nothing, Some(&stored)).unwrap().is_none());

        // An object that was not read is not changed.
        let update = Write::Update(contents);
        assert!(merged_write(&update, None).is_err());
        assert!(merged_write(&update, Some(&StoredMap::default())).is_err());
    }
}
