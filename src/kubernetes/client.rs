//! A client for the Kubernetes API, set up the same way for everything that asks there.

use std::path::PathBuf;
use std::time::Duration;

use kube::config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::core::{ApiResource, DynamicResourceScope, GroupVersionKind};
use kube::{Api, Client, Resource};

/// A connection to the API server that takes longer than this to be made has failed.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Silence longer than this, on a connection that is waited on, is a failure. The API server ends
/// a watch sooner than that.
const READ_TIMEOUT: Duration = Duration::from_secs(75);

/// Why there is no way to the API server at all.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The kubeconfig cannot be used.
    #[error("--kubeconfig {}: {}", path.display(), reason(error))]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        error: KubeconfigError,
    },
    /// There is no kubeconfig, and this is no pod.
    #[error("no --kubeconfig is given, and there is no service account: {}", reason(.0))]
    NoServiceAccount(InClusterError),
    /// The credentials or certificate authorities cannot be used.
    #[error("cannot make a client for the API server: {}", reason(.0))]
    Client(kube::Error),
}

/// Prepares a client by a kubeconfig, `None` for the pod's own service account. Nothing is asked of
/// the API server yet. Call it within a runtime.
pub async fn connect(kubeconfig: Option<PathBuf>) -> Result<Client, ConnectError> {
    // An empty path is none, as it is for the reference.
    let mut config = match kubeconfig.filter(|path| !path.as_os_str().is_empty()) {
        Some(path) => {
            let failed = |error| ConnectError::Kubeconfig { path: path.clone(), error };
            let kubeconfig = Kubeconfig::read_from(&path).map_err(failed)?;
            let options = KubeConfigOptions::default();
            kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(failed)?
        }
        None => kube::Config::incluster().map_err(ConnectError::NoServiceAccount)?,
    };
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.read_timeout = Some(READ_TIMEOUT);
    config.reset_reader_on_write = true;
    // What failed is told at once, and tried again where it was told.
    config.default_retry = false;
    Client::try_from(config).map_err(ConnectError::Client)
}

/// A kind of a group, in one of its versions.
pub(crate) fn resource(group: &str, version: &str, kind: &str, plural: &str) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
}

/// The objects of a kind in a namespace, or in the whole cluster where that is empty.
pub(crate) fn api<K>(client: &Client, namespace: &str, resource: &ApiResource) -> Api<K>
where
    K: Resource<DynamicType = ApiResource, Scope = DynamicResourceScope>,
{
    match namespace {
        "" => Api::all_with(client.clone(), resource),
        namespace => Api::namespaced_with(client.clone(), namespace, resource),
    }
}

/// What was found: nothing where there is no such object, or no such kind. That a cluster does not know a
/// kind is told without a status object, which `Api::get_opt` does not take for "not found".
pub(crate) fn found<T>(answer: kube::Result<T>) -> kube::Result<Option<T>> {
    match answer {
        Ok(found) => Ok(Some(found)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error),
    }
}

/// An error with its causes in one line; many of the library's say what happened only there.
pub(crate) fn reason(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let detail = error.to_string();
        if !text.contains(&detail) {
            text = format!("{text}: {detail}");
        }
        cause = error.source();
    }
    text.replace(['\n', '\r'], " ")
}
