//! Origins of merged values: the MachineConfig that each comes from, and those that it overrides.

use super::argument_setter::ArgumentSetter;
use super::ignition_config::{merged, parts};
use super::kernel_arguments::arguments_for_ignition;
use super::merge::{EXTENSIONS_IMAGE, Image, OS_IMAGE, chosen, ordered};
use super::parsed::ParsedMachineConfig;
use super::unmergeable::Unmergeable;
use crate::objects::MachineConfigSpec;

/// Origin of a file, a unit, a kernel argument and so on. Keys can be secret, as kernel arguments are keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// List or value: in the Ignition config as in [`ignition::Origin`], such as `storage.files`; in the MachineConfig
    /// with the prefix `spec.`, such as `spec.kernelArguments`.
    pub place: String,
    /// Key of the item in the list, after the keys of the items around it. Empty for a value outside of lists.
    pub keys: Vec<String>,
    /// Members of the item, with their MachineConfigs. Empty for an image of the ControllerConfig.
    pub members: Vec<Member>,
    /// Names of the MachineConfigs whose values are overridden.
    pub covered: Vec<String>,
}

/// A member of an item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Name such as `contents.source`; empty for an item that is a text, and for a value outside of lists.
    pub name: String,
    /// Name of the MachineConfig.
    pub machine_config: String,
}

/// Origins of everything that [`super::merge()`] makes of these MachineConfigs: first in the Ignition config, then the
/// rest.
pub fn origins(
    sources: &[&ParsedMachineConfig],
    setter: ArgumentSetter,
) -> Result<Vec<Origin>, Unmergeable> {
    let sources = ordered(sources)?;
    let mut origins = in_ignition(&sources, setter)?;
    if setter == ArgumentSetter::Daemon {
        origins.extend(items(&sources, "spec.kernelArguments", |spec| &spec.kernel_arguments));
    }
    origins.extend(items(&sources, "spec.extensions", |spec| &spec.extensions));
    let fips: Vec<_> = sources.iter().filter(|source| source.spec().fips).collect();
    if !fips.is_empty() {
        let members = fips.into_iter().map(|source| whole(source)).collect();
        origins.push(value("spec.fips", members, Vec::new()));
    }
    let kernels = sources.iter().filter(|source| source.special_kernel().is_some());
    let mut kernels: Vec<_> = kernels.copied().collect();
    if let Some(last) = kernels.pop() {
        let covered = kernels.into_iter().filter(|it| it.special_kernel() != last.special_kernel());
        origins.push(value("spec.kernelType", vec![whole(last)], covered.map(named).collect()));
    }
    let images =
        [("spec.osImageURL", OS_IMAGE), ("spec.baseOSExtensionsContainerImage", EXTENSIONS_IMAGE)];
    origins.extend(images.map(|(place, image)| image_origin(&sources, place, image)));
    Ok(origins)
}

fn in_ignition(
    sources: &[&ParsedMachineConfig],
    setter: ArgumentSetter,
) -> Result<Vec<Origin>, Unmergeable> {
    let arguments = arguments_for_ignition(sources, setter)?;
    let (sources, parts) = parts(sources, &arguments)?;
    let named = |index: usize| sources.get(index).copied().map(named).unwrap_or_default();
    let origins = merged(&parts).origins().into_iter().map(|origin| Origin {
        place: origin.place,
        keys: origin.keys,
        members: origin
            .members
            .into_iter()
            .map(|member| Member { name: member.name, machine_config: named(member.config) })
            .collect(),
        covered: origin.covered.into_iter().map(named).collect(),
    });
    Ok(origins.collect())
}

/// Origins of a list to which all MachineConfigs add items.
fn items(
    sources: &[&ParsedMachineConfig],
    place: &str,
    list: fn(&MachineConfigSpec) -> &Option<Vec<String>>,
) -> Vec<Origin> {
    let items = sources.iter().flat_map(|source| {
        list(source.spec()).iter().flatten().map(|item| (item.clone(), whole(source)))
    });
    let origin =
        |(item, member)| Origin { keys: vec![item], ..value(place, vec![member], Vec::new()) };
    items.map(origin).collect()
}

fn image_origin(sources: &[&ParsedMachineConfig], place: &str, image: Image) -> Origin {
    let last = chosen(sources, image).next_back();
    let is_other = |source: &&&ParsedMachineConfig| {
        let its = image(source.spec());
        !its.is_empty() && last.is_none_or(|last| image(last.spec()) != its)
    };
    let covered = sources.iter().filter(is_other).map(|source| named(source)).collect();
    value(place, last.map(whole).into_iter().collect(), covered)
}

fn value(place: &str, members: Vec<Member>, covered: Vec<String>) -> Origin {
    Origin { place: place.to_owned(), keys: Vec::new(), members, covered }
}

fn whole(source: &ParsedMachineConfig) -> Member {
    Member { name: String::new(), machine_config: named(source) }
}

fn named(source: &ParsedMachineConfig) -> String {
    source.name().to_owned()
}
