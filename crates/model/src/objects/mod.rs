//! Kubernetes and OpenShift objects, reduced to the fields that are read.
//!
//! Each type is deserialized from a JSON value, for manifests and the Kubernetes API alike. A field that is absent or
//! null has its Go zero value, as in the reference server.

mod cluster;
mod config_text;
mod defect;
mod first_boot_machine;
mod kind;
mod label_selector;
mod layering;
mod machine_config;
mod machine_config_pool;
mod metadata;
mod object_name;
mod overlay;
mod unread;

pub use self::defect::ObjectDefect;
pub use cluster::{
    ApiServer, ConfigMap, ControllerConfig, ImageConfig, Kubeconfig, Secret, TlsProfile,
};
pub use config_text::ConfigText;
pub use first_boot_machine::{
    APPROVED_ANNOTATION, Content, FIRST_BOOT_MACHINE_VERSION, FirstBootMachine, FirstBootMachines,
    MAX_NAME_BYTES, MAX_NETWORKS, REARM_ANNOTATION,
};
pub use kind::ObjectKind;
pub use label_selector::{InvalidSelector, LabelSelector};
pub use layering::{MachineOsBuild, MachineOsConfig, REGISTRY_NAMESPACE, Route, Service};
pub use machine_config::{Labels, MachineConfig, MachineConfigSpec};
pub use machine_config_pool::{MachineConfigPool, ROLE_LABEL};
pub use metadata::Metadata;
pub use object_name::{InvalidName, SecretName, is_object_name};
pub use overlay::{MAX_OVERLAY_BYTES, Overlay};
pub use unread::{is_misspelt, unread_fields, unread_kind, unread_version};

use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::Value;

/// Namespace of OpenShift's machine-config-operator, and of this project's servers, controller and objects.
pub const OPERATOR_NAMESPACE: &str = "openshift-machine-config-operator";

/// An object of one of the kinds that are read. A copy shares its contents.
#[derive(Debug, Clone)]
pub enum Object {
    /// `machineconfiguration.openshift.io/v1 MachineConfigPool`
    MachineConfigPool(Arc<MachineConfigPool>),
    /// `machineconfiguration.openshift.io/v1 MachineConfig`
    MachineConfig(Arc<MachineConfig>),
    /// `machineconfiguration.openshift.io/v1 ControllerConfig`
    ControllerConfig(Arc<ControllerConfig>),
    /// `v1 ConfigMap`
    ConfigMap(Arc<ConfigMap>),
    /// `v1 Secret`
    Secret(Arc<Secret>),
    /// `v1 Config`, a kubeconfig
    Kubeconfig(Arc<Kubeconfig>),
    /// `config.openshift.io/v1 APIServer`
    ApiServer(Arc<ApiServer>),
    /// `config.openshift.io/v1 Image`
    ImageConfig(Arc<ImageConfig>),
    /// `machineconfiguration.openshift.io/v1 MachineOSConfig`
    MachineOsConfig(Arc<MachineOsConfig>),
    /// `machineconfiguration.openshift.io/v1 MachineOSBuild`
    MachineOsBuild(Arc<MachineOsBuild>),
    /// `v1 Service`
    Service(Arc<Service>),
    /// `route.openshift.io/v1 Route`
    Route(Arc<Route>),
    /// `machine-config-server.io/v1alpha1 FirstBootMachine`
    FirstBootMachine(Arc<FirstBootMachine>),
}

/// Reasons why a manifest's document is refused.
#[derive(Debug, thiserror::Error)]
pub enum ObjectError {
    /// The document is a scalar or a list.
    #[error("a manifest must be a mapping, and this is {0}")]
    NotAMapping(&'static str),
    /// The document has no kind.
    #[error("a manifest needs a `kind`")]
    NoKind,
    /// A field has the wrong type, or the name is missing.
    #[error("{kind} {name:?}: {}", defect.reason)]
    Malformed {
        /// Kind of the object.
        kind: String,
        /// Name of the object, empty if it has none.
        name: String,
        /// Fault, with the field if the parser knows it.
        defect: ObjectDefect,
    },
}

impl ObjectError {
    /// The fault, without the object's kind and name.
    pub fn defect(&self) -> ObjectDefect {
        match self {
            Self::Malformed { defect, .. } => defect.clone(),
            Self::NotAMapping(_) | Self::NoKind => self.to_string().into(),
        }
    }
}

impl Object {
    /// Parses one document. `Ok(None)` is a well-formed object of a kind that is not read.
    ///
    /// A kind is recognised in any API group, because the reference server's test data has groups that the API never
    /// had.
    pub fn from_value(value: Value) -> Result<Option<Self>, ObjectError> {
        let Value::Object(fields) = &value else {
            return Err(ObjectError::NotAMapping(type_name(&value)));
        };
        let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
        let kind = text(fields.get("kind")).filter(|kind| !kind.is_empty());
        let kind = kind.ok_or(ObjectError::NoKind)?;
        let api_version = text(fields.get("apiVersion")).unwrap_or_default();
        let name = text(value.pointer("/metadata/name")).unwrap_or_default();
        Self::of_kind(&kind, &api_version, value).map_err(|defect| ObjectError::Malformed {
            kind,
            name,
            defect,
        })
    }

    /// Address of the contents, which copies share: while an object is held, no other one has it.
    pub fn address(&self) -> *const () {
        match self {
            Self::MachineConfigPool(it) => Arc::as_ptr(it).cast(),
            Self::MachineConfig(it) => Arc::as_ptr(it).cast(),
            Self::ControllerConfig(it) => Arc::as_ptr(it).cast(),
            Self::ConfigMap(it) => Arc::as_ptr(it).cast(),
            Self::Secret(it) => Arc::as_ptr(it).cast(),
            Self::Kubeconfig(it) => Arc::as_ptr(it).cast(),
            Self::ApiServer(it) => Arc::as_ptr(it).cast(),
            Self::ImageConfig(it) => Arc::as_ptr(it).cast(),
            Self::MachineOsConfig(it) => Arc::as_ptr(it).cast(),
            Self::MachineOsBuild(it) => Arc::as_ptr(it).cast(),
            Self::Service(it) => Arc::as_ptr(it).cast(),
            Self::Route(it) => Arc::as_ptr(it).cast(),
            Self::FirstBootMachine(it) => Arc::as_ptr(it).cast(),
        }
    }

    /// Its kind in the API.
    pub fn kind(&self) -> &'static ObjectKind {
        match self {
            Self::MachineConfigPool(_) => ObjectKind::MACHINE_CONFIG_POOL,
            Self::MachineConfig(_) => ObjectKind::MACHINE_CONFIG,
            Self::ConfigMap(_) => ObjectKind::CONFIG_MAP,
            Self::Secret(_) => ObjectKind::SECRET,
            Self::ControllerConfig(_) => ObjectKind::CONTROLLER_CONFIG,
            Self::Kubeconfig(_) => ObjectKind::KUBECONFIG,
            Self::ApiServer(_) => ObjectKind::API_SERVER,
            Self::ImageConfig(_) => ObjectKind::IMAGE,
            Self::MachineOsConfig(_) => ObjectKind::MACHINE_OS_CONFIG,
            Self::MachineOsBuild(_) => ObjectKind::MACHINE_OS_BUILD,
            Self::Service(_) => ObjectKind::SERVICE,
            Self::Route(_) => ObjectKind::ROUTE,
            Self::FirstBootMachine(_) => ObjectKind::FIRST_BOOT_MACHINE,
        }
    }

    fn of_kind(kind: &str, api_version: &str, value: Value) -> Result<Option<Self>, ObjectDefect> {
        let is_core = api_version == "v1";
        let is_of = |kind: &ObjectKind| kind.version_in(api_version).is_some();
        Ok(Some(match kind {
            "MachineConfigPool" => Self::MachineConfigPool(decode(kind, value)?),
            "MachineConfig" => Self::MachineConfig(decode(kind, value)?),
            "ControllerConfig" => Self::ControllerConfig(decode(kind, value)?),
            "MachineOSConfig" => Self::MachineOsConfig(decode(kind, value)?),
            "MachineOSBuild" => Self::MachineOsBuild(decode(kind, value)?),
            "APIServer" => Self::ApiServer(decode(kind, value)?),
            "Image" if is_of(ObjectKind::IMAGE) => Self::ImageConfig(decode(kind, value)?),
            "Route" if is_of(ObjectKind::ROUTE) => Self::Route(decode(kind, value)?),
            "FirstBootMachine" if api_version == FIRST_BOOT_MACHINE_VERSION => {
                let content = Content::of(&value["spec"]);
                let machine: Arc<FirstBootMachine> = decode(kind, value)?;
                let machine = Arc::unwrap_or_clone(machine).with_content(content);
                Self::FirstBootMachine(Arc::new(machine))
            }
            "FirstBootMachine" if is_of(ObjectKind::FIRST_BOOT_MACHINE) => {
                return Err(format!("apiVersion: expected {FIRST_BOOT_MACHINE_VERSION}").into());
            }
            "Service" if is_core => Self::Service(decode(kind, value)?),
            "ConfigMap" if is_core => Self::ConfigMap(decode(kind, value)?),
            "Secret" if is_core => Self::Secret(decode(kind, value)?),
            "Config" if is_core => Self::Kubeconfig(decode(kind, value)?),
            _ => return Ok(None),
        }))
    }
}

fn decode<T: DeserializeOwned>(kind: &str, value: Value) -> Result<Arc<T>, ObjectDefect> {
    let name = value.pointer("/metadata/name").unwrap_or(&Value::Null);
    // YAML takes `n`, `on` and `1e3` for other things than texts.
    if name.is_boolean() || name.is_number() {
        let found = type_name(name);
        return Err(format!("metadata.name is {found}: put it in quotes").into());
    }
    let name = name.as_str().unwrap_or_default();
    // The names of MachineConfigs are in no path. The render controller's library accepts capitals, an API server does not.
    let has_capitals = kind == "MachineConfig" && is_object_name(&name.to_ascii_lowercase());
    if !name.is_empty() && !is_object_name(name) && !has_capitals {
        return Err("metadata.name is not a valid name".into());
    }
    if name.is_empty() && kind != "Config" && kind != "ControllerConfig" {
        return Err("metadata.name is missing".into());
    }
    // Values of a Secret are never shown.
    let is_secret = kind == "Secret";
    let read = defect::read(value).map(Arc::new);
    read.map_err(|it| if is_secret { it.without_values() } else { it })
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "empty",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "a mapping",
    }
}
