//! The certificate authorities of image registries: how config maps name registries, and which of
//! them a machine is to trust. Nothing here does I/O.
//!
//! ```text
//!  openshift-config/NAME ────────────────────────────┐
//!   (named by images.config.openshift.io/cluster)    ├─> plan ─> merged-trusted-image-registry-ca
//!  openshift-config-managed/image-registry-ca ───────┤
//!  merged-trusted-image-registry-ca as it is now ────┘
//! ```
//!
//! OpenShift's enhancement on certificate authorities for image registries is the source of the
//! rules: the administrator's config map is named by `images.config.openshift.io/cluster`, the
//! registry operator's is `image-registry-ca`, both are merged into
//! `merged-trusted-image-registry-ca`, the administrator's entry wins over the operator's, and a
//! key is `host` or `host..port` because a config map's key cannot hold a colon.
//!
//! # Trust is not taken away by accident
//!
//! Every node follows the merged config map, so that what is missing there is trusted nowhere. Its
//! own values are therefore an input of [`plan`], as what was last good:
//!
//! - While the administrator's config map is named and missing, all that the merged one holds is
//!   kept, except that a registry which the operator's map has gets the operator's value. Nothing
//!   in the merged map tells whose entry was whose. An operator's entry that is not the same there
//!   may be an older one of the operator's own, and the cluster's registry would be lost when its
//!   authority is replaced; that the administrator had overridden it is the rarer case. The other
//!   way round, an entry that the operator takes away meanwhile stays until the administrator's
//!   map is back, or is no longer named. Naming no map removes what the administrator had.
//! - A registry whose entry holds no certificate any more, and for which there is no other entry,
//!   keeps what the merged map has. Removing the key removes the authority.
//! - What would make the map larger than the API allows is refused in favour of what is in it.
//!
//! The map is emptied when the last authority goes, and never deleted: that there is no map says
//! that nobody knows, and who follows it keeps what it has.

mod entries;
mod host;
mod merge;

pub use entries::{Cas, Entries, Reason, Refused, read};
pub use host::{InvalidHost, RegistryHost};
pub use merge::{
    Administrators, Contents, MAX_BYTES, MergePlan, RegistryCaMaps, Write, collect, plan,
};

use crate::objects::is_misspelt;

/// The namespace of the administrator's config map.
pub const ADMINISTRATOR_NAMESPACE: &str = "openshift-config";
/// The namespace of the registry operator's and of the merged config map.
pub const MANAGED_NAMESPACE: &str = "openshift-config-managed";
/// The registry operator's config map.
pub const OPERATOR_MAP: &str = "image-registry-ca";
/// The config map that both are merged into.
pub const MERGED_MAP: &str = "merged-trusted-image-registry-ca";

/// Why a config map is not read that is nearly called like one of these, if it is: each is read in its own namespace.
#[must_use]
pub fn misplaced(namespace: &str, name: &str) -> Option<String> {
    let is_name = |known: &str| name == known || is_misspelt(name, known);
    let meant = [MERGED_MAP, OPERATOR_MAP].into_iter().find(|known| is_name(known))?;
    let is_read = (namespace, name) == (MANAGED_NAMESPACE, meant);
    // The other name may be used for other things elsewhere.
    let is_meant = meant == MERGED_MAP
        || namespace == MANAGED_NAMESPACE
        || is_misspelt(namespace, MANAGED_NAMESPACE);
    (is_meant && !is_read)
        .then(|| format!("metadata: not read: {meant} is read in namespace {MANAGED_NAMESPACE}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn config_maps_of_another_name_or_namespace_are_named() {
        for (namespace, name) in [
            ("openshift-machine-config-operatr", MERGED_MAP),
            ("", MERGED_MAP),
            (MANAGED_NAMESPACE, "merged-trusted-image-registry-cas"),
            ("openshift-config-manged", OPERATOR_MAP),
            (MANAGED_NAMESPACE, "image-registry-Ca"),
        ] {
            let reported = misplaced(namespace, name).unwrap_or_default();
            assert!(
                reported.ends_with("is read in namespace openshift-config-managed"),
                "{name}: {reported}"
            );
        }
        for (namespace, name) in [
            (MANAGED_NAMESPACE, MERGED_MAP),
            (MANAGED_NAMESPACE, OPERATOR_MAP),
            (MANAGED_NAMESPACE, "trusted-ca-bundle"),
            ("openshift-image-registry", OPERATOR_MAP),
            (ADMINISTRATOR_NAMESPACE, "registry-cas"),
        ] {
            assert_eq!(misplaced(namespace, name), None, "{namespace}/{name}");
        }
    }
}
