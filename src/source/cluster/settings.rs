//! Settings of a cluster source.

use std::path::PathBuf;

use model::objects::SecretName;

#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// Path of a kubeconfig; `None` for the pod's service account.
    pub kubeconfig: Option<PathBuf>,
    /// URL of the API server for new machines.
    pub apiserver_url: String,
    /// Directory with the bootstrap `token` and `ca.crt`.
    pub token_dir: PathBuf,
    /// Directory of the cache, if there is one.
    pub cache_dir: Option<PathBuf>,
    /// Secret with the registry credentials for machines of all enforced pools; `None` reads no Secret.
    pub registry_credentials: Option<SecretName>,
    /// True if machines with names are served.
    pub machines: bool,
}
