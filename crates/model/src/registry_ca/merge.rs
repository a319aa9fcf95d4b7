//! Plans the contents of the merged ConfigMap.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::entries::{self, Cas, Reason, Refused};
use super::host::RegistryHost;
use crate::objects::{ConfigMap, ImageConfig};

/// Namespace of the administrator's ConfigMap.
pub const ADMINISTRATOR_NAMESPACE: &str = "openshift-config";
/// Namespace of the registry operator's and of the merged ConfigMap.
pub const MANAGED_NAMESPACE: &str = "openshift-config-managed";
/// Name of the registry operator's ConfigMap.
pub const OPERATOR_MAP: &str = "image-registry-ca";
/// Name of the merged ConfigMap.
pub const MERGED_MAP: &str = "merged-trusted-image-registry-ca";
/// Maximum size of all values of a ConfigMap together, in bytes.
pub const MAX_BYTES: usize = 1 << 20;

/// State of the administrator's ConfigMap.
#[derive(Debug, Clone, Copy)]
pub enum Administrators<'a> {
    /// No ConfigMap is named.
    Unnamed,
    /// A ConfigMap is named and does not exist.
    Missing(&'a str),
    /// The named ConfigMap.
    Found(&'a ConfigMap),
}

impl<'a> Administrators<'a> {
    /// The ConfigMap that the object `Image cluster` names; `find` looks it up by its name in the administrator's
    /// namespace.
    pub fn of(
        image: Option<&'a ImageConfig>,
        find: impl FnOnce(&str) -> Option<&'a ConfigMap>,
    ) -> Self {
        match image.map(|it| it.spec.additional_trusted_ca.name.as_str()) {
            None | Some("") => Self::Unnamed,
            Some(name) => find(name).map_or(Self::Missing(name), Self::Found),
        }
    }
}

/// Present ConfigMaps of a cluster.
#[derive(Debug, Clone, Copy)]
pub struct RegistryCaMaps<'a> {
    /// Administrator's ConfigMap, named by the object `Image cluster`.
    pub administrators: Administrators<'a>,
    /// Registry operator's ConfigMap, `None` if it does not exist.
    pub operators: Option<&'a ConfigMap>,
    /// Merged ConfigMap, `None` if it does not exist.
    pub merged: Option<&'a ConfigMap>,
}

/// Plan for the merged ConfigMap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MergePlan {
    /// CAs for machines to trust.
    pub cas: Cas,
    /// Write to the merged ConfigMap.
    pub write: Write,
    /// Entries that are not used.
    pub refused: Vec<Refused>,
    /// Name of the administrator's ConfigMap, if it is missing; its last values are kept.
    pub missing: Option<String>,
}

/// Write to the merged ConfigMap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    /// The values are up to date.
    Nothing,
    /// Create it, even without CAs: an empty ConfigMap means that there are none.
    Create(Contents),
    /// Set `data` and `binaryData`, and keep all other fields.
    Update(Contents),
}

/// Values of the merged ConfigMap.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Contents {
    /// Text values.
    pub data: BTreeMap<String, String>,
    /// Binary values.
    pub binary_data: BTreeMap<String, Bytes>,
}

impl Contents {
    fn of(cas: &Cas) -> Self {
        let mut contents = Self::default();
        for (host, value) in cas {
            let key = host.config_map_key();
            if let Ok(text) = std::str::from_utf8(value) {
                contents.data.insert(key, text.to_owned());
            } else {
                contents.binary_data.insert(key, value.clone());
            }
        }
        contents
    }
}

/// A value for a registry in the merged ConfigMap.
#[derive(Clone)]
struct Candidate {
    host: RegistryHost,
    value: Bytes,
    source: Source,
}

/// Origin of an entry. The registry operator's come first if there is not room for all: they are small, and the
/// cluster's own registry depends on them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Source {
    Merged,
    Operators,
    Administrators,
}

/// Candidates by the identity of their registry.
type Candidates = BTreeMap<String, Candidate>;

/// Plans the merged ConfigMap from the present ConfigMaps.
///
/// The state after a plan needs no further write.
pub fn plan(observed: RegistryCaMaps<'_>) -> MergePlan {
    let last_good = observed.merged.map(|map| entries::read(map).good).unwrap_or_default();
    let (cas, refused) = merge(observed, last_good);
    let write = write(&cas, observed.merged);
    let missing = match observed.administrators {
        Administrators::Missing(name) => Some(name.to_owned()),
        Administrators::Unnamed | Administrators::Found(_) => None,
    };
    MergePlan { cas, write, refused, missing }
}

/// Merges the administrator's and the operator's entries with the last good values. Returns the refused ones too.
fn merge(observed: RegistryCaMaps<'_>, last_good: Cas) -> (Cas, Vec<Refused>) {
    let RegistryCaMaps { administrators, operators, merged } = observed;
    let (administrators, is_missing) = match administrators {
        Administrators::Unnamed => (None, false),
        Administrators::Missing(_) => (None, true),
        Administrators::Found(map) => (Some(map), false),
    };
    let mut candidates = Candidates::new();
    let (mut refused, mut undecodable) = (Vec::new(), Vec::new());
    // The administrator's entries override the operator's.
    for (map, source) in [(operators, Source::Operators), (administrators, Source::Administrators)]
    {
        let entries = map.map(entries::read).unwrap_or_default();
        candidates.extend(by_identity(entries.good, source));
        undecodable.extend(entries.undecodable.iter().map(RegistryHost::identity));
        refused.extend(entries.refused);
    }
    let last_good = by_identity(last_good, Source::Merged);
    for (identity, candidate) in &last_good {
        if is_missing || undecodable.contains(identity) {
            candidates.entry(identity.clone()).or_insert_with(|| candidate.clone());
        }
    }

    let place = |source| {
        let map = match source {
            Source::Operators => operators,
            Source::Administrators => administrators,
            Source::Merged => merged,
        };
        map.map(entries::place).unwrap_or_default()
    };
    let (cas, too_large) = choose(&candidates, &last_good);
    refused.extend(too_large.into_iter().map(|(source, host)| Refused {
        place: place(source),
        key: host.config_map_key(),
        reason: Reason::TooLarge,
    }));
    refused.sort();
    (cas, refused)
}

fn by_identity(cas: Cas, source: Source) -> Candidates {
    let candidate =
        |(host, value): (RegistryHost, Bytes)| (host.identity(), Candidate { host, value, source });
    cas.into_iter().map(candidate).collect()
}

/// Chooses the entries that fit into one ConfigMap, and returns the others.
///
/// A registry with a present value keeps it, if necessary the old one, before another registry gets its first: late
/// additions are refused, and no trust is removed.
fn choose(wanted: &Candidates, last_good: &Candidates) -> (Cas, Vec<(Source, RegistryHost)>) {
    let mut chosen: BTreeMap<&str, &Candidate> = BTreeMap::new();
    let mut total = 0;
    for identity in wanted.keys() {
        let Some(last) = last_good.get(identity) else { continue };
        if total + last.value.len() <= MAX_BYTES {
            total += last.value.len();
            chosen.insert(identity, last);
        }
    }
    let mut order: Vec<_> = wanted.iter().collect();
    order.sort_by_key(|(identity, candidate)| {
        let present = chosen.get(identity.as_str()).map(|last| last.value.len());
        let needs_room = present.is_none_or(|length| candidate.value.len() > length);
        (needs_room, candidate.source, present.is_none(), *identity)
    });
    let mut refused = Vec::new();
    for (identity, candidate) in order {
        let before = chosen.get(identity.as_str()).map_or(0, |last| last.value.len());
        let after = total - before + candidate.value.len();
        if after <= MAX_BYTES {
            total = after;
            chosen.insert(identity, candidate);
        } else {
            refused.push((candidate.source, candidate.host.clone()));
        }
    }
    let cas =
        chosen.into_values().map(|candidate| (candidate.host.clone(), candidate.value.clone()));
    (cas.collect(), refused)
}

/// Compares values regardless of their place in `data` or `binaryData`, which does not matter to readers.
fn write(cas: &Cas, merged: Option<&ConfigMap>) -> Write {
    let Some(merged) = merged else { return Write::Create(Contents::of(cas)) };
    let wanted = cas.iter().map(|(host, value)| (host.config_map_key(), &value[..]));
    let wanted: BTreeMap<_, _> = wanted.collect();
    let is_same = merged.entries().into_iter().eq(wanted.iter().map(|(key, it)| (&key[..], *it)));
    if is_same { Write::Nothing } else { Write::Update(Contents::of(cas)) }
}

/// CAs from the ConfigMaps of a directory, by the rules of a cluster, and faults as place and reason.
///
/// No controller writes the merged ConfigMap in a directory: if it is there alone, it is used; if it is missing,
/// `before` has the last good values.
pub fn collect(
    config_maps: &[&ConfigMap],
    image: Option<&ImageConfig>,
    before: &Cas,
) -> (Cas, Vec<(String, String)>) {
    let find = |namespace: &str, name: &str| {
        config_maps
            .iter()
            .find(|map| map.metadata.namespace == namespace && map.metadata.name == name)
            .copied()
    };
    let administrators = Administrators::of(image, |name| find(ADMINISTRATOR_NAMESPACE, name));
    let operators = find(MANAGED_NAMESPACE, OPERATOR_MAP);
    let merged = find(MANAGED_NAMESPACE, MERGED_MAP);
    let entries = merged.map(entries::read);
    let reported = |refused: &[Refused]| -> Vec<_> {
        refused.iter().map(|refused| (refused.place.clone(), refused.to_string())).collect()
    };
    if let (Administrators::Unnamed, None, Some(entries)) = (administrators, operators, &entries) {
        return (entries.or_last_good(before), reported(&entries.refused));
    }
    let last_good = entries.map_or_else(|| before.clone(), |entries| entries.good);
    let observed = RegistryCaMaps { administrators, operators, merged };
    let (cas, refused) = merge(observed, last_good);
    let mut problems = reported(&refused);
    if let (Administrators::Missing(name), None) = (administrators, merged) {
        problems.push((
            "Image cluster".to_owned(),
            format!(
                "ConfigMap {ADMINISTRATOR_NAMESPACE}/{name} is named, and not found; its last contents are kept"
            ),
        ));
    }
    (cas, problems)
}
