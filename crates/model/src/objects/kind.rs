//! Kinds of objects, as the API has them: the one table of their names, for manifests and the API alike.

/// A kind of objects, in one of its versions.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectKind {
    /// API group; empty for the core API.
    pub group: &'static str,
    /// API version, such as `v1`.
    pub version: &'static str,
    /// Name in messages and objects, such as `Secret`.
    pub name: &'static str,
    /// Name in URLs, such as `secrets`.
    pub plural: &'static str,
}

#[allow(missing_docs, reason = "the names of the kinds")]
impl ObjectKind {
    pub const API_SERVER: &Self = &Self::config("v1", "APIServer", "apiservers");
    pub const ARO_CLUSTER: &Self =
        &Self::new("aro.openshift.io", "v1alpha1", "Cluster", "clusters");
    pub const CERTIFICATE_REQUEST: &Self =
        &Self::new("cert-manager.io", "v1", "CertificateRequest", "certificaterequests");
    pub const CERTIFICATE_SIGNING_REQUEST: &Self = &Self::new(
        "certificates.k8s.io",
        "v1",
        "CertificateSigningRequest",
        "certificatesigningrequests",
    );
    pub const CONFIG_MAP: &Self = &Self::new("", "v1", "ConfigMap", "configmaps");
    pub const CONTROLLER_CONFIG: &Self = &Self::operator("ControllerConfig", "controllerconfigs");
    pub const DEPLOYMENT: &Self = &Self::new("apps", "v1", "Deployment", "deployments");
    pub const FIRST_BOOT_MACHINE: &Self =
        &Self::new("machine-config-server.io", "v1alpha1", "FirstBootMachine", "firstbootmachines");
    pub const IMAGE: &Self = &Self::config("v1", "Image", "images");
    pub const INFRASTRUCTURE: &Self = &Self::config("v1", "Infrastructure", "infrastructures");
    pub const INTERNAL_RELEASE_IMAGE: &Self =
        &Self::operator("InternalReleaseImage", "internalreleaseimages");
    /// A kubeconfig. It is in files only.
    pub const KUBECONFIG: &Self = &Self::new("", "v1", "Config", "");
    pub const LEASE: &Self = &Self::new("coordination.k8s.io", "v1", "Lease", "leases");
    pub const MACHINE_CONFIG: &Self = &Self::operator("MachineConfig", "machineconfigs");
    pub const MACHINE_CONFIG_POOL: &Self =
        &Self::operator("MachineConfigPool", "machineconfigpools");
    pub const MACHINE_OS_BUILD: &Self = &Self::operator("MachineOSBuild", "machineosbuilds");
    pub const MACHINE_OS_CONFIG: &Self = &Self::operator("MachineOSConfig", "machineosconfigs");
    pub const PKI: &Self = &Self::config("v1alpha1", "PKI", "pkis");
    pub const ROUTE: &Self = &Self::new("route.openshift.io", "v1", "Route", "routes");
    pub const SECRET: &Self = &Self::new("", "v1", "Secret", "secrets");
    pub const SERVICE: &Self = &Self::new("", "v1", "Service", "services");
}

impl ObjectKind {
    /// Creates a kind from its group, version, name and plural.
    pub const fn new(
        group: &'static str,
        version: &'static str,
        name: &'static str,
        plural: &'static str,
    ) -> Self {
        Self { group, version, name, plural }
    }

    /// A kind of the machine config operator.
    const fn operator(name: &'static str, plural: &'static str) -> Self {
        Self::new("machineconfiguration.openshift.io", "v1", name, plural)
    }

    /// A kind of the cluster's configuration.
    const fn config(version: &'static str, name: &'static str, plural: &'static str) -> Self {
        Self::new("config.openshift.io", version, name, plural)
    }

    /// Value of `apiVersion` in objects.
    pub fn api_version(&self) -> String {
        match self.group {
            "" => self.version.to_owned(),
            group => format!("{group}/{}", self.version),
        }
    }

    /// The version in an `apiVersion`, if it is of this kind's group.
    pub(super) fn version_in<'a>(&self, api_version: &'a str) -> Option<&'a str> {
        let version = match self.group {
            "" => api_version,
            group => api_version.strip_prefix(group)?.strip_prefix('/')?,
        };
        Some(version).filter(|version| !version.contains('/'))
    }
}
