//! Kinds of objects, as the API has them.
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

/// A kind of objects, in one of its versions.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ObjectKind {
    /// API group; empty for the core API.
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    /// Name in messages and objects, such as `Secret`.
    pub(crate) name: &'static str,
    /// Name in URLs, such as `secrets`.
    pub(crate) plural: &'static str,
}

impl ObjectKind {
    pub(crate) const ARO_CLUSTER: &Self =
        &Self::new("aro.openshift.io", "v1alpha1", "Cluster", "clusters");
    pub(crate) const CERTIFICATE_REQUEST: &Self =
        &Self::new("cert-manager.io", "v1", "CertificateRequest", "certificaterequests");
    pub(crate) const CERTIFICATE_SIGNING_REQUEST: &Self = &Self::new(
        "certificates.k8s.io",
        "v1",
        "CertificateSigningRequest",
        "certificatesigningrequests",
    );
    pub(crate) const CONFIG_MAP: &Self = &Self::new("", "v1", "ConfigMap", "configmaps");
    pub(crate) const CONTROLLER_CONFIG: &Self =
        &Self::operator("ControllerConfig", "controllerconfigs");
    pub(crate) const DEPLOYMENT: &Self = &Self::new("apps", "v1", "Deployment", "deployments");
    pub(crate) const FIRST_BOOT_MACHINE: &Self =
        &Self::new("machine-config-server.io", "v1alpha1", "FirstBootMachine", "firstbootmachines");
    pub(crate) const IMAGE: &Self = &Self::new("config.openshift.io", "v1", "Image", "images");
    pub(crate) const INFRASTRUCTURE: &Self =
        &Self::new("config.openshift.io", "v1", "Infrastructure", "infrastructures");
    pub(crate) const INTERNAL_RELEASE_IMAGE: &Self =
        &Self::operator("InternalReleaseImage", "internalreleaseimages");
    pub(crate) const LEASE: &Self = &Self::new("coordination.k8s.io", "v1", "Lease", "leases");
    pub(crate) const MACHINE_CONFIG: &Self = &Self::operator("MachineConfig", "machineconfigs");
    pub(crate) const MACHINE_CONFIG_POOL: &Self =
        &Self::operator("MachineConfigPool", "machineconfigpools");
    pub(crate) const PKI: &Self = &Self::new("config.openshift.io", "v1alpha1", "PKI", "pkis");
    pub(crate) const SECRET: &Self = &Self::new("", "v1", "Secret", "secrets");

    /// A kind of the machine config operator.
    const fn operator(name: &'static str, plural: &'static str) -> Self {
        Self::new("machineconfiguration.openshift.io", "v1", name, plural)
    }

    pub(crate) const fn new(
        group: &'static str,
        version: &'static str,
        name: &'static str,
        plural: &'static str,
    ) -> Self {
        Self { group, version, name, plural }
    }

    /// Value of `apiVersion` in objects.
    pub(crate) fn api_version(&self) -> String {
        match self.group {
            "" => self.version.to_owned(),
            group => format!("{group}/{}", self.version),
        }
    }
}
