//! The kind `FirstBootMachine`, which names one machine and gives it a separate pointer config and token.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::metadata::null_as_default;
use super::object_name::is_object_name;
use super::overlay::Overlay;
use crate::network::Network;

/// API group and version of the kind.
pub const FIRST_BOOT_MACHINE_VERSION: &str = "machine-config-server.io/v1alpha1";
/// Annotation of a machine that arms its token again: each new value does so once.
pub const REARM_ANNOTATION: &str = "machine-config-server.io/rearm";
/// Annotation of a machine with the time at which it was approved.
pub const APPROVED_ANNOTATION: &str = "machine-config-server.io/approved";
/// Maximum length of a machine's name in bytes: names of its files and of its Secret are longer.
pub const MAX_NAME_BYTES: usize = 200;
/// Maximum number of networks of one machine.
pub const MAX_NETWORKS: usize = 64;
/// Maximum number of paths that an overlay replaces.
const MAX_REPLACED: usize = 256;
/// Maximum length of the annotation's value in bytes.
const MAX_REARM_BYTES: usize = 256;

/// Machines with names, by name.
pub type FirstBootMachines = BTreeMap<String, Arc<FirstBootMachine>>;

/// A machine with a name.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct FirstBootMachine {
    metadata: MachineMetadata,
    /// Wanted state.
    pub spec: MachineSpec,
    #[serde(skip)]
    content: Content,
}

/// Hash of an object's `spec`, whatever the order of its fields: equal as long as the object has the same content.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Content([u8; 32]);

impl Content {
    pub(super) fn of(spec: &Value) -> Self {
        let mut sorted = spec.clone();
        sorted.sort_all_objects();
        Self(Sha256::digest(sorted.to_string()).into())
    }

    /// The hash's bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct MachineMetadata {
    #[serde(deserialize_with = "machine_name")]
    name: String,
    #[serde(default, deserialize_with = "null_as_default")]
    annotations: Map<String, Value>,
    #[serde(default, rename = "creationTimestamp", deserialize_with = "time_if_valid")]
    created: Option<OffsetDateTime>,
}

/// Wanted state of a machine. A field that is not known is an error, and so is a restriction without a value: a
/// restriction that was meant must not be none.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineSpec {
    /// Pool whose config it gets.
    #[serde(deserialize_with = "object_name")]
    pub pool: String,
    /// Networks that it may ask from; empty for all.
    #[serde(default, rename = "addresses", deserialize_with = "networks")]
    pub networks: Vec<Network>,
    /// Config that is merged into the pool's.
    pub overlay: Option<Overlay>,
    /// Paths of the pool's config that the overlay replaces.
    #[serde(default, deserialize_with = "paths")]
    pub replaces: BTreeSet<String>,
    #[serde(default, deserialize_with = "approval")]
    approval: Option<Approval>,
}

/// Approval that a machine needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Approval {
    /// An administrator must approve each first boot.
    Required,
}

impl FirstBootMachine {
    /// Name of the machine.
    pub fn name(&self) -> &str {
        &self.metadata.name
    }

    pub(super) fn with_content(self, content: Content) -> Self {
        Self { content, ..self }
    }

    /// Hash of what is wanted of the machine.
    pub fn content(&self) -> Content {
        self.content
    }

    /// True if it needs approval, regardless of its pool.
    pub fn needs_approval(&self) -> bool {
        self.spec.approval.is_some()
    }

    /// Time at which an API server created the object, in whole seconds; `None` if none has.
    pub fn created(&self) -> Option<OffsetDateTime> {
        self.metadata.created
    }

    /// Value of [`APPROVED_ANNOTATION`], empty if it is no text.
    pub fn approved(&self) -> Option<&str> {
        let value = self.metadata.annotations.get(APPROVED_ANNOTATION)?;
        Some(value.as_str().unwrap_or_default())
    }

    /// Value of [`REARM_ANNOTATION`], cut to a length that can be stored.
    pub fn rearm(&self) -> Option<&str> {
        let value = self.metadata.annotations.get(REARM_ANNOTATION)?.as_str()?;
        let most = value.len().min(MAX_REARM_BYTES);
        let end = (0..=most).rev().find(|at| value.is_char_boundary(*at)).unwrap_or_default();
        Some(&value[..end]).filter(|it| !it.is_empty())
    }
}

fn time_if_valid<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<OffsetDateTime>, D::Error> {
    let value = Value::deserialize(deserializer)?;
    Ok(value.as_str().and_then(|text| OffsetDateTime::parse(text, &Rfc3339).ok()))
}

fn machine_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let name = object_name(deserializer)?;
    if name.len() > MAX_NAME_BYTES {
        return Err(D::Error::custom(format!("more than {MAX_NAME_BYTES} bytes")));
    }
    Ok(name)
}

fn object_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let name = String::deserialize(deserializer)?;
    if is_object_name(&name) { Ok(name) } else { Err(D::Error::custom("not a valid name")) }
}

fn approval<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Approval>, D::Error> {
    let approval = Option::deserialize(deserializer)?;
    let missing = || D::Error::custom("has no value; without the field, no approval is needed");
    approval.ok_or_else(missing).map(Some)
}

fn networks<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Network>, D::Error> {
    let texts: Vec<String> = null_as_default(deserializer)?;
    if texts.is_empty() {
        return Err(D::Error::custom("names no network; without the field, all are allowed"));
    }
    if texts.len() > MAX_NETWORKS {
        return Err(D::Error::custom(format!("more than {MAX_NETWORKS} networks")));
    }
    let network = |(place, text): (usize, &String)| {
        text.parse().map_err(|error| D::Error::custom(format!("[{place}]: {error}")))
    };
    texts.iter().enumerate().map(network).collect()
}

fn paths<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeSet<String>, D::Error> {
    let paths: Vec<String> = null_as_default(deserializer)?;
    if paths.len() > MAX_REPLACED {
        return Err(D::Error::custom(format!("more than {MAX_REPLACED} paths")));
    }
    match paths.iter().position(|path| !path.starts_with('/')) {
        Some(place) => Err(D::Error::custom(format!("[{place}]: expected an absolute path"))),
        None => Ok(paths.into_iter().collect()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::Object;
    use super::*;

    fn read(name: &str, spec: &Value) -> Result<FirstBootMachine, String> {
        let manifest = json!({
            "apiVersion": FIRST_BOOT_MACHINE_VERSION, "kind": "FirstBootMachine",
            "metadata": {"name": name}, "spec": spec,
        });
        match Object::from_value(manifest).map_err(|error| error.to_string())? {
            Some(Object::FirstBootMachine(machine)) => Ok(FirstBootMachine::clone(&machine)),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_machine_has_a_name_a_pool_and_networks() {
        let spec = json!({"pool": "worker", "addresses": ["192.0.2.7", "2001:db8::/64"]});
        let machine = read("rack-7.example.com", &spec).unwrap();
        assert_eq!((machine.name(), machine.spec.pool.as_str()), ("rack-7.example.com", "worker"));
        let networks: Vec<_> = machine.spec.networks.iter().map(ToString::to_string).collect();
        assert_eq!(networks, ["192.0.2.7/32", "2001:db8::/64"]);
        assert_eq!(machine.rearm(), None);
        assert!(!machine.needs_approval());
        let held = read("n", &json!({"pool": "worker", "approval": "required"})).unwrap();
        assert!(held.needs_approval());
    }

    #[test]
    fn what_is_no_machine_is_refused_by_name_and_field() {
        let most = "n".repeat(MAX_NAME_BYTES);
        assert!(read(&most, &json!({"pool": "worker"})).is_ok());
        let many = vec!["192.0.2.7"; MAX_NETWORKS + 1];
        for (name, spec, reason) in [
            ("n", json!({}), "spec: missing field `pool`"),
            ("n", json!({"pool": ""}), "spec.pool: not a valid name"),
            ("n", json!({"pool": "../master"}), "spec.pool: not a valid name"),
            (
                "n",
                json!({"pool": "worker", "adresses": []}),
                "spec.adresses: unknown field `adresses`",
            ),
            (
                "n",
                json!({"pool": "worker", "addresses": ["192.0.2.7/24"]}),
                "spec.addresses: [0]: expected 192.0.2.0/24, or an address without a length",
            ),
            (
                "n",
                json!({"pool": "worker", "addresses": null}),
                "spec.addresses: names no network; without the field, all are allowed",
            ),
            (
                "n",
                json!({"pool": "worker", "addresses": []}),
                "spec.addresses: names no network; without the field, all are allowed",
            ),
            (
                "n",
                json!({"pool": "worker", "approval": null}),
                "spec.approval: has no value; without the field, no approval is needed",
            ),
            (
                "n",
                json!({"pool": "worker", "addresses": many}),
                "spec.addresses: more than 64 networks",
            ),
            (&format!("{most}n"), json!({"pool": "worker"}), "metadata.name: more than 200 bytes"),
            (
                "n",
                json!({"pool": "worker", "approval": "requried"}),
                "spec.approval: unknown variant `requried`, expected `required`",
            ),
            ("a/b", json!({"pool": "worker"}), "metadata.name is not a valid name"),
            ("..", json!({"pool": "worker"}), "metadata.name is not a valid name"),
        ] {
            let error = read(name, &spec).unwrap_err();
            let expected = format!("FirstBootMachine {name:?}: {reason}");
            assert!(error.starts_with(&expected), "{error} is not {expected}");
            assert_eq!(error.lines().count(), 1);
        }
    }

    #[test]
    fn another_version_of_the_kind_is_refused_and_another_group_is_another_kind() {
        let of = |version: &str| {
            Object::from_value(json!({
                "apiVersion": version, "kind": "FirstBootMachine",
                "metadata": {"name": "n"}, "spec": {"pool": "worker"},
            }))
        };
        assert!(matches!(of("example.com/v1"), Ok(None)));
        let error = of("machine-config-server.io/v2").unwrap_err().to_string();
        assert!(
            error.ends_with("apiVersion: expected machine-config-server.io/v1alpha1"),
            "{error}"
        );
    }
}
