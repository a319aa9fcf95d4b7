//! CAs of image registries: parses them from ConfigMaps, and merges those that machines trust. The module does no I/O.
//!
//! ```text
//!  openshift-config/NAME ────────────────────────────┐
//!   (named by images.config.openshift.io/cluster)    ├─> plan ─> merged-trusted-image-registry-ca
//!  openshift-config-managed/image-registry-ca ───────┤
//!  merged-trusted-image-registry-ca as it is now ────┘
//! ```
//!
//! The rules are those of OpenShift's enhancement on CAs for image registries: `images.config.openshift.io/cluster`
//! names the administrator's ConfigMap, the registry operator's is `image-registry-ca`, both are merged into
//! `merged-trusted-image-registry-ca`, the administrator's entry overrides the operator's, and a key is `host` or
//! `host..port` because a ConfigMap's key cannot have a colon.
//!
//! # Trust is not taken away by accident
//!
//! Every node follows the merged ConfigMap, so a CA that is missing there is trusted nowhere. Therefore [`plan`] takes
//! its present values as the last good ones:
//!
//! - While the administrator's ConfigMap is named and missing, the merged values are kept, except that registries in
//!   the operator's ConfigMap get the operator's value. The merged ConfigMap does not record origins. If an operator's
//!   entry differs there, it may be an older one of the operator, and keeping it would break the cluster's registry
//!   when its CA is replaced; an override by the administrator is the rarer case. An entry that the operator removes
//!   meanwhile stays until the administrator's ConfigMap is back, or is not named any longer. Naming none removes the
//!   administrator's entries.
//! - A registry whose only entry has no certificate keeps its merged value. Removing the key removes the CA.
//! - Entries beyond the API's size limit are refused in favour of present ones.
//!
//! The ConfigMap is emptied when the last CA is removed, and never deleted: without it nodes keep what they have.

mod entries;
mod host;
mod merge;

pub use entries::{Cas, Entries, Reason, Refused, holds_certificate, read};
pub use host::{InvalidHost, RegistryHost};
pub use merge::{
    ADMINISTRATOR_NAMESPACE, Administrators, Contents, MANAGED_NAMESPACE, MAX_BYTES, MERGED_MAP,
    MergePlan, OPERATOR_MAP, RegistryCaMaps, Write, collect, plan,
};

use crate::objects::is_misspelt;

/// Reason why a ConfigMap is not read whose name or namespace is nearly that of one of these.
pub fn misplaced(namespace: &str, name: &str) -> Option<String> {
    let is_name = |known: &str| name == known || is_misspelt(name, known);
    let meant = [MERGED_MAP, OPERATOR_MAP].into_iter().find(|known| is_name(known))?;
    let is_read = (namespace, name) == (MANAGED_NAMESPACE, meant);
    // ConfigMaps of other namespaces can use the other name.
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
