//! Which MachineConfig everything in a merged one comes from, and which others it covers.

use super::ignition_config::{merged, parts};
use super::merge::{EXTENSIONS_IMAGE, Image, OS_IMAGE, chosen, ordered};
use super::parsed::ParsedMachineConfig;
use super::unmergeable::Unmergeable;
use crate::objects::MachineConfigSpec;

/// Where a file, a unit, a kernel argument and so on comes from. Keys may be secret: kernel arguments are among them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The list or value: of the Ignition config as in [`ignition::Origin`], such as `storage.files`; of the MachineConfig
    /// with `spec.` before it, such as `spec.kernelArguments`.
    pub place: String,
    /// What the item is known by in the list, after what the items around it are known by. Empty for a value that is in
    /// no list.
    pub keys: Vec<String>,
    /// What is said of it, and by whom. Empty for an image that the ControllerConfig has.
    pub members: Vec<Member>,
    /// The names of the MachineConfigs that say something else of it, without effect.
    pub covered: Vec<String>,
}

/// A part of what is said of an item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Such as `contents.source`; empty for an item that is a text, and for a value that is in no list.
    pub name: String,
    /// The MachineConfig's name.
    pub machine_config: String,
}

/// Where everything that [`super::merge()`] makes of these MachineConfigs comes from: what is in the Ignition config, then
/// the rest.
pub fn origins(sources: &[&ParsedMachineConfig]) -> Result<Vec<Origin>, Unmergeable> {
    let sources = ordered(sources)?;
    let mut origins = in_ignition(&sources)?;
    origins.extend(items(&sources, "spec.kernelArguments", |spec| &spec.kernel_arguments));
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

fn in_ignition(sources: &[&ParsedMachineConfig]) -> Result<Vec<Origin>, Unmergeable> {
    let (sources, parts) = parts(sources)?;
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

/// The items of a list that all add to.
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
