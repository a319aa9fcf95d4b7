//! Merges MachineConfigs into one.

use std::sync::Arc;

use data_encoding::HEXLOWER;
use sha2::{Digest as _, Sha256};

use super::argument_setter::ArgumentSetter;
use super::ignition_config::ignition_config;
use super::parsed::{DEFAULT_KERNEL, KERNEL_DEVEL, ParsedMachineConfig};
use super::unmergeable::Unmergeable;
use crate::objects::{ConfigText, ControllerConfig, MachineConfig, MachineConfigSpec, ROLE_LABEL};

const WORKER: &str = "worker";
/// Annotation of MachineConfigs made by OpenShift's controllers. The images in these are the cluster's own.
pub const GENERATED_BY: &str = "machineconfiguration.openshift.io/generated-by-controller-version";
/// Annotation of a merged MachineConfig whose operating system image an administrator chose.
const IMAGE_OVERRIDDEN: &str = "machineconfiguration.openshift.io/os-image-url-overridden";

/// Merges MachineConfigs, given in any order, into one that is named after `pool` and its own contents.
///
/// Kernel arguments and extensions are concatenated; with `setter` Ignition, the arguments are in the Ignition config
/// instead. FIPS is on if one MachineConfig has it; the last kernel type that is not the default wins. Images are those of
/// the last MachineConfig of an administrator, otherwise the ControllerConfig's.
pub fn merge(
    pool: &str,
    sources: &[&ParsedMachineConfig],
    controller_config: Option<&ControllerConfig>,
    setter: ArgumentSetter,
) -> Result<MachineConfig, Unmergeable> {
    let sources = ordered(sources)?;
    let kernel_type = kernel_type(&sources)?.to_owned();
    let (config, conflict) = ignition_config(pool, &sources, setter)?;
    let base = controller_config.map_or("", |it| &it.spec.base_os_image);
    let base_extensions = controller_config.map_or("", |it| &it.spec.base_os_extensions_image);
    let image = |image: Image, base: &str| {
        chosen(&sources, image).next_back().map_or(base, |source| image(source.spec())).to_owned()
    };
    let all = |list: fn(&MachineConfigSpec) -> &Option<Vec<String>>| {
        Some(sources.iter().flat_map(|source| list(source.spec())).flatten().cloned().collect())
    };
    let merged = MachineConfigSpec {
        os_image_url: image(OS_IMAGE, base),
        base_os_extensions_container_image: image(EXTENSIONS_IMAGE, base_extensions),
        config: Some(ConfigText::new(&config)),
        kernel_arguments: match setter {
            ArgumentSetter::Daemon => all(|spec| &spec.kernel_arguments),
            ArgumentSetter::Ignition => Some(Vec::new()),
        },
        extensions: all(|spec| &spec.extensions),
        fips: sources.iter().any(|source| source.spec().fips),
        kernel_type,
    };
    let digest = digest(&merged)?;
    let is_overridden = merged.os_image_url != base;
    let annotations = is_overridden.then(|| (IMAGE_OVERRIDDEN.to_owned(), "true".to_owned()));
    let annotations = annotations.into_iter().collect();
    let name = format!("rendered-{pool}-{digest}");
    let merged = MachineConfig::new(&name, &annotations, merged);
    match conflict {
        Some((names, conflict)) => {
            Err(Unmergeable::Conflict { names, conflict, merged: Arc::new(merged) })
        }
        None => Ok(merged),
    }
}

/// Sorts MachineConfigs for merging: those of workers first, so that those of a custom pool override them, then by
/// name.
pub(super) fn ordered<'a>(
    sources: &[&'a ParsedMachineConfig],
) -> Result<Vec<&'a ParsedMachineConfig>, Unmergeable> {
    let mut keyed = Vec::new();
    for source in sources {
        let labels = source.machine_config().labels();
        let labels = labels.ok_or_else(|| Unmergeable::NoLabels(source.name().to_owned()))?;
        let is_worker = labels.get(ROLE_LABEL).and_then(Option::as_deref) == Some(WORKER);
        keyed.push(((!is_worker, source.name()), *source));
    }
    keyed.sort_by_key(|(key, _)| *key);
    Ok(keyed.into_iter().map(|(_, source)| source).collect())
}

fn kernel_type<'a>(sources: &[&'a ParsedMachineConfig]) -> Result<&'a str, Unmergeable> {
    let special = sources.iter().rev().find_map(|source| source.special_kernel());
    let Some(kernel_type) = special else { return Ok(DEFAULT_KERNEL) };
    let wants_headers = |source: &&&ParsedMachineConfig| {
        source.spec().extensions.iter().flatten().any(|extension| extension == KERNEL_DEVEL)
    };
    if !sources.iter().any(|source| wants_headers(&source)) {
        return Ok(kernel_type);
    }
    let has_kernel = |source: &&&ParsedMachineConfig| source.special_kernel() == Some(kernel_type);
    let concerned = sources.iter().filter(|source| has_kernel(source) || wants_headers(source));
    let names = concerned.map(|source| source.name().to_owned()).collect();
    Err(Unmergeable::KernelDevel(names, kernel_type.to_owned()))
}

/// Getter of a field with an image's pull spec.
pub(super) type Image = fn(&MachineConfigSpec) -> &str;
pub(super) const OS_IMAGE: Image = |spec| &spec.os_image_url;
pub(super) const EXTENSIONS_IMAGE: Image = |spec| &spec.base_os_extensions_container_image;

/// The sources that choose an image, the last of which wins. Those made by controllers repeat the cluster's and are
/// ignored.
pub(super) fn chosen<'a>(
    sources: &[&'a ParsedMachineConfig],
    image: Image,
) -> impl DoubleEndedIterator<Item = &'a ParsedMachineConfig> {
    sources.iter().copied().filter(move |source| {
        let generated_by = source.machine_config().annotation(GENERATED_BY);
        generated_by.is_none_or(|it| it.is_empty()) && !image(source.spec()).is_empty()
    })
}

/// True if a MachineConfig's name ends with the digest of its contents, as [`merge()`] names it.
pub fn has_contents_of_name(config: &MachineConfig) -> bool {
    let named = config.name().rsplit_once('-').map_or("", |(_, digest)| digest);
    digest(&config.spec).is_ok_and(|digest| digest == named)
}

/// Half of a SHA-256, with as many digits as the render controller uses in names. An API server changes the order of
/// fields, so they are sorted.
fn digest(spec: &MachineConfigSpec) -> serde_json::Result<String> {
    let mut spec = serde_json::to_value(spec)?;
    spec.sort_all_objects();
    let digest = Sha256::digest(serde_json::to_vec(&spec)?);
    Ok(HEXLOWER.encode(&digest[..16]))
}
