//! Names of the ConfigMaps.

/// Namespace of the administrator's ConfigMap.
pub const ADMINISTRATOR_NAMESPACE: &str = "openshift-config";
/// Namespace of the registry operator's and of the merged ConfigMap.
pub const MANAGED_NAMESPACE: &str = "openshift-config-managed";
/// Name of the registry operator's ConfigMap.
pub const OPERATOR_MAP: &str = "image-registry-ca";
/// Name of the merged ConfigMap.
pub const MERGED_MAP: &str = "merged-trusted-image-registry-ca";
