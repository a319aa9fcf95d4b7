//! Steps of rendering. Their order is a contract: machines and their tools read the resulting files.

use std::collections::HashSet;

use bytes::Bytes;
use ignition::{self, Config, Form, SpecVersion, Unwritable};
use serde::Serialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::compact::CompressedContents;
use super::credentials::add_credentials;
use super::select::PoolInputs;
use crate::inputs::ServingMode;
use crate::objects::{ConfigText, MachineConfig};
use crate::registry_credentials::{self, Unmergeable};

const KUBELET_CA: &str = "/etc/kubernetes/kubelet-ca.crt";
const CLOUD_CA: &str = "/etc/kubernetes/static-pod-resources/configmaps/cloud-config/ca-bundle.pem";
const NODE_ANNOTATIONS: &str = "/etc/machine-config-daemon/node-annotations.json";
const KUBECONFIG: &str = "/etc/kubernetes/kubeconfig";
/// Path of a copy of the MachineConfig on every machine.
pub(super) const MACHINE_CONFIG: &str = "/etc/mcs-machine-config-content.json";
/// Path of the MachineConfig without its Ignition config on every machine.
pub const ENCAPSULATED: &str = "/etc/ignition-machine-config-encapsulated.json";

/// Returns `true` for a path of files that rendering adds for every machine.
pub(super) fn is_of_server(path: &str) -> bool {
    let added = [KUBELET_CA, CLOUD_CA, NODE_ANNOTATIONS, KUBECONFIG, MACHINE_CONFIG, ENCAPSULATED];
    added.contains(&path)
        || path == registry_credentials::PATH
        || path.starts_with("/etc/docker/certs.d/")
}

/// Annotation of a MachineConfig that was rendered for a pre-built image.
const PRE_BUILT_IMAGE: &str = "machineconfiguration.openshift.io/pre-built-image";

/// Newest spec that machine-config-daemon reads in the encapsulated MachineConfig.
const NEWEST_ENCAPSULATED: SpecVersion = SpecVersion::V3_5;

/// Reasons why a pool's config cannot be rendered in a spec.
#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    /// The MachineConfig has no Ignition config.
    #[error("MachineConfig {0} has no Ignition config")]
    NoIgnition(String),
    /// The Ignition config of the MachineConfig is invalid, or the spec cannot express it.
    #[error("MachineConfig {0}: {1}")]
    Ignition(String, ignition::Error),
    /// The MachineConfig has a file of registry credentials that cannot be merged.
    #[error(
        "MachineConfig {0}: {path}: {1}, so that registry credentials cannot be added",
        path = registry_credentials::PATH
    )]
    Credentials(String, Unmergeable),
    /// The MachineConfig has a node at this path, where the server writes a file.
    #[error("MachineConfig {0}: {1}: the server writes it for every machine")]
    OfServer(String, String),
    /// Ignition's files stage cannot write the config with all that is added to it.
    #[error("MachineConfig {0}: {1}{added}", added = added(.1))]
    Unwritable(String, Unwritable),
    /// A value of the MachineConfig has no JSON form.
    #[error("MachineConfig {0}: {1}")]
    Json(String, serde_json::Error),
}

/// Renders the Ignition config for machines of a pool in `version`, as JSON.
///
/// A version without compression is plain in either form. `compressed` is a cache for rendering many configs.
pub fn render(
    inputs: &PoolInputs,
    version: SpecVersion,
    form: Form,
    compressed: &CompressedContents,
) -> Result<Bytes, RenderError> {
    let name = &inputs.configuration;
    let config = prepare(inputs, version, form, compressed)?;
    let lowered =
        config.lower(version).map_err(|error| RenderError::Ignition(name.clone(), error))?;
    // The result is kept for long, so spare capacity is released.
    serde_json::to_vec(&lowered)
        .map(|json| json.into_boxed_slice().into())
        .map_err(|error| RenderError::Json(name.clone(), error))
}

/// The config that [`render`] writes in `version`, before it is lowered.
pub(super) fn prepare(
    inputs: &PoolInputs,
    version: SpecVersion,
    form: Form,
    compressed: &CompressedContents,
) -> Result<Config, RenderError> {
    let name = &inputs.configuration;
    let ignition = |error| RenderError::Ignition(name.clone(), error);
    let json = |error| RenderError::Json(name.clone(), error);

    let text =
        inputs.machine_config.ignition().ok_or_else(|| RenderError::NoIgnition(name.clone()))?;
    let mut config = Config::parse(&text).map_err(ignition)?;
    let mut machine_config = MachineConfig::clone(&inputs.machine_config);

    // Specs before 3.3 have no kernel arguments. machine-config-daemon applies those of the MachineConfig at the first
    // boot, so additions can move there, and removals cannot.
    if version < SpecVersion::V3_3 {
        let moved = config.take_kernel_arguments().map_err(ignition)?;
        if !moved.is_empty() {
            machine_config.spec.kernel_arguments.get_or_insert_default().extend(moved);
        }
    }

    if let Some(controller_config) = &inputs.shared.controller_config {
        for (path, ca) in [
            (KUBELET_CA, &controller_config.spec.kube_api_server_serving_ca),
            (CLOUD_CA, &controller_config.spec.cloud_provider_ca),
        ] {
            if !ca.is_empty() {
                config.set_file(path, ca);
            }
        }
    }

    let annotations = node_annotations(inputs, &machine_config);
    config.append_file(NODE_ANNOTATIONS, annotations.as_bytes());

    if let Some(image) = &inputs.image {
        machine_config.spec.os_image_url.clone_from(image);
    }

    if let Some(kubeconfig) = &inputs.shared.kubeconfig {
        config.append_file(KUBECONFIG, kubeconfig);
    }

    config.append_file(MACHINE_CONFIG, &indented(&machine_config).map_err(json)?);

    for (host, pem) in &inputs.shared.registry_cas {
        config.append_file(&host.certs_d_path(), pem);
    }

    if let Some(credentials) = &inputs.credentials {
        add_credentials(&mut config, credentials)
            .map_err(|error| RenderError::Credentials(name.clone(), error))?;
    }

    let encapsulated = encapsulate(machine_config, inputs.mode, version).map_err(json)?;
    config.append_file(ENCAPSULATED, &encapsulated);

    if let Some(path) = written_twice(&config) {
        return Err(RenderError::OfServer(name.clone(), path.to_owned()));
    }
    config.check_writable().map_err(|fault| RenderError::Unwritable(name.clone(), fault))?;

    if form == Form::Compact && version.has_compressed_data() {
        config.compress_files(|url| compressed.gzipped(url));
    }
    Ok(config)
}

/// Path of two nodes, of which one was added: a parsed config has each path once.
fn written_twice(config: &Config) -> Option<&str> {
    let storage = &config.body().storage;
    let mut seen = HashSet::new();
    let files = storage.files.iter().map(|it| it.path.as_str());
    let directories = storage.directories.iter().map(|it| it.path.as_str());
    let links = storage.links.iter().map(|it| it.path.as_str());
    files.chain(directories).chain(links).find(|path| !seen.insert(*path))
}

/// Remark about a path of the server's that cannot be written.
fn added(fault: &Unwritable) -> String {
    let (path, above) = fault.paths();
    let added = [Some(path), above].into_iter().flatten().find(|path| is_of_server(path));
    added.map_or_else(String::new, |path| format!("; the server writes {path} for every machine"))
}

/// Text from which machine-config-daemon makes the node's annotations.
fn node_annotations(inputs: &PoolInputs, machine_config: &MachineConfig) -> String {
    let configuration = &inputs.configuration;
    let mut annotations = json!({
        "machineconfiguration.openshift.io/currentConfig": configuration,
        "machineconfiguration.openshift.io/desiredConfig": configuration,
        "machineconfiguration.openshift.io/firstPivotConfig": configuration,
        "machineconfiguration.openshift.io/state": "Done",
    });
    let pre_built = machine_config.annotation(PRE_BUILT_IMAGE).filter(|image| !image.is_empty());
    if let Some(image) = pre_built.or_else(|| inputs.image.clone()) {
        annotations["machineconfiguration.openshift.io/currentImage"] = image.as_str().into();
        annotations["machineconfiguration.openshift.io/desiredImage"] = image.into();
    }
    annotations.to_string()
}

/// JSON with an indentation of four spaces.
fn indented(machine_config: &MachineConfig) -> serde_json::Result<Vec<u8>> {
    // As a value, the Ignition config's compact text is indented too.
    let value = serde_json::to_value(machine_config)?;
    let formatter = serde_json::ser::PrettyFormatter::with_indent(b"    ");
    let mut bytes = Vec::new();
    value.serialize(&mut serde_json::Serializer::with_formatter(&mut bytes, formatter))?;
    Ok(bytes)
}

/// The MachineConfig with an empty Ignition config, for the settings that Ignition does not apply.
fn encapsulate(
    mut machine_config: MachineConfig,
    mode: ServingMode,
    version: SpecVersion,
) -> serde_json::Result<Vec<u8>> {
    let version = match mode {
        ServingMode::Bootstrap => NEWEST_ENCAPSULATED,
        ServingMode::Cluster | ServingMode::Manifests => version.min(NEWEST_ENCAPSULATED),
    };
    let empty = json!({"ignition": {"version": version.as_str()}});
    machine_config.spec.config = Some(ConfigText::new(&RawValue::from_string(empty.to_string())?));
    serde_json::to_vec(&machine_config)
}
