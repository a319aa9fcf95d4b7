//! The Kubernetes and OpenShift objects that are read, and only the fields of them that matter here.
//!
//! Each type is made from a JSON value, because that is what a manifest file and the Kubernetes
//! API both come down to. A field that is absent or null has its Go zero value, as it has for the
//! reference server.

mod api_server;
mod cluster;
mod defect;
mod label_selector;
mod layering;
mod machine_config;
mod machine_config_pool;
mod metadata;
mod object_name;
mod secret_name;
mod unread;

pub use self::defect::Defect;
pub use api_server::{ApiServer, TlsProfile};
pub use cluster::{ConfigMap, ControllerConfig, ImageConfig, Kubeconfig, Secret};
pub use label_selector::{InvalidSelector, LabelSelector};
pub use layering::{MachineOsBuild, MachineOsConfig, REGISTRY_NAMESPACE, Route, Service};
pub use machine_config::{MachineConfig, MachineConfigSpec};
pub use machine_config_pool::{MachineConfigPool, ROLE_LABEL};
pub use metadata::Metadata;
pub use object_name::is_object_name;
pub use secret_name::{InvalidName, SecretName};
pub use unread::{is_misspelt, unread_fields, unread_kind, unread_version};

use std::sync::Arc;

use serde_json::Value;

/// Where OpenShift's machine-config-operator lives, and so do servers and controller with what is theirs.
pub const OPERATOR_NAMESPACE: &str = "openshift-machine-config-operator";

/// An object of one of the kinds that are read. Those that live on in what is served are shared.
#[derive(Debug, Clone)]
pub enum Object {
    /// `machineconfiguration.openshift.io/v1 MachineConfigPool`
    MachineConfigPool(Arc<MachineConfigPool>),
    /// `machineconfiguration.openshift.io/v1 MachineConfig`
    MachineConfig(Arc<MachineConfig>),
    /// `machineconfiguration.openshift.io/v1 ControllerConfig`
    ControllerConfig(ControllerConfig),
    /// `v1 ConfigMap`
    ConfigMap(ConfigMap),
    /// `v1 Secret`
    Secret(Secret),
    /// `v1 Config`, what `kubectl` calls a kubeconfig
    Kubeconfig(Kubeconfig),
    /// `config.openshift.io/v1 APIServer`
    ApiServer(ApiServer),
    /// `config.openshift.io/v1 Image`
    ImageConfig(ImageConfig),
    /// `machineconfiguration.openshift.io/v1 MachineOSConfig`
    MachineOsConfig(MachineOsConfig),
    /// `machineconfiguration.openshift.io/v1 MachineOSBuild`
    MachineOsBuild(MachineOsBuild),
    /// `v1 Service`
    Service(Service),
    /// `route.openshift.io/v1 Route`
    Route(Route),
}

/// Why a manifest's document is no object that can be used.
#[derive(Debug, thiserror::Error)]
pub enum ObjectError {
    /// The document is a scalar or a list.
    #[error("a manifest must be a mapping, this is {0}")]
    NotAMapping(&'static str),
    /// The document does not say what it is.
    #[error("a manifest needs a `kind`")]
    NoKind,
    /// A field has another type than its kind's schema gives it, or a name is missing.
    #[error("{kind} {name:?}: {}", defect.reason)]
    Malformed {
        /// The object's kind.
        kind: String,
        /// The object's name, empty where it has none.
        name: String,
        /// What is wrong, with the field where the parser knows it.
        defect: Defect,
    },
}

impl ObjectError {
    /// What is wrong, without the object's kind and name.
    #[must_use]
    pub fn defect(&self) -> Defect {
        match self {
            Self::Malformed { defect, .. } => defect.clone(),
            Self::NotAMapping(_) | Self::NoKind => self.to_string().into(),
        }
    }
}

impl Object {
    /// Reads one document. `Ok(None)` is a well-formed object of a kind that is not read here.
    ///
    /// A kind is recognised whatever its group says about the version, because the reference
    /// server's own test data carries group names that the API never had.
    pub fn from_value(value: Value) -> Result<Option<Self>, ObjectError> {
        let Value::Object(fields) = &value else {
            return Err(ObjectError::NotAMapping(type_name(&value)));
        };
        let kind = match fields.get("kind") {
            Some(Value::String(kind)) if !kind.is_empty() => kind.clone(),
            _ => return Err(ObjectError::NoKind),
        };
        let group = fields.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
        let core = group == "v1";
        let object = match kind.as_str() {
            "MachineConfigPool" => Self::MachineConfigPool(Arc::new(decode(&kind, value)?)),
            "MachineConfig" => Self::MachineConfig(Arc::new(decode(&kind, value)?)),
            "ControllerConfig" => Self::ControllerConfig(decode(&kind, value)?),
            "MachineOSConfig" => Self::MachineOsConfig(decode(&kind, value)?),
            "MachineOSBuild" => Self::MachineOsBuild(decode(&kind, value)?),
            "APIServer" => Self::ApiServer(decode(&kind, value)?),
            "Image" if group.starts_with("config.openshift.io/") => {
                Self::ImageConfig(decode(&kind, value)?)
            }
            "Route" if group.starts_with("route.openshift.io/") => {
                Self::Route(decode(&kind, value)?)
            }
            "Service" if core => Self::Service(decode(&kind, value)?),
            "ConfigMap" if core => Self::ConfigMap(decode(&kind, value)?),
            "Secret" if core => Self::Secret(decode(&kind, value)?),
            "Config" if core => Self::Kubeconfig(decode(&kind, value)?),
            _ => return Ok(None),
        };
        Ok(Some(object))
    }
}

fn decode<T: serde::de::DeserializeOwned>(kind: &str, value: Value) -> Result<T, ObjectError> {
    let name =
        value.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
    let malformed = |defect: Defect| ObjectError::Malformed {
        kind: kind.to_owned(),
        name: name.clone(),
        defect,
    };
    if !name.is_empty() && !is_object_name(&name) {
        return Err(malformed("metadata.name is no object's name".into()));
    }
    if name.is_empty() && kind != "Config" && kind != "ControllerConfig" {
        return Err(malformed("metadata.name is missing".into()));
    }
    defect::read(value).map_err(|defect| {
        // The values of a secret are nobody's business, not even an administrator's.
        malformed(if kind == "Secret" { defect.without_values() } else { defect })
    })
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
