//! Clients for the Kubernetes API, with common timeouts.

use std::path::PathBuf;
use std::time::Duration;

use kube::config::{AuthInfo, InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::core::{ApiResource, DynamicResourceScope, GroupVersionKind};
use kube::{Api, Client, Resource};
use model::objects::ObjectKind;

/// Maximum time for a connection to the API server, for what tries again.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum time for a connection of a command, which asks once. It is that of kubectl.
const CONNECT_TIMEOUT_OF_COMMANDS: Duration = Duration::from_secs(30);
/// Maximum silence on a connection. The API server ends watches sooner.
const READ_TIMEOUT: Duration = Duration::from_secs(75);

#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    #[error("--kubeconfig {}: {}", path.display(), reason(error))]
    Kubeconfig { path: PathBuf, error: KubeconfigError },
    #[error("no --kubeconfig is given, and there is no service account: {}", reason(.0))]
    NoServiceAccount(InClusterError),
    /// The credentials or CAs are unusable.
    #[error("cannot make a client for the API server: {}", reason(.0))]
    Client(kube::Error),
}

/// Creates a client from a kubeconfig, `None` for the pod's service account. It sends no request. Must be called within
/// a runtime.
pub async fn connect(kubeconfig: Option<PathBuf>) -> Result<Client, ConnectError> {
    Client::try_from(config(kubeconfig).await?).map_err(ConnectError::Client)
}

/// Creates a client like [`connect`], for a command: it waits longer for an API server that is busy.
pub async fn connect_for_command(kubeconfig: Option<PathBuf>) -> Result<Client, ConnectError> {
    let mut config = config(kubeconfig).await?;
    config.connect_timeout = Some(CONNECT_TIMEOUT_OF_COMMANDS);
    Client::try_from(config).map_err(ConnectError::Client)
}

/// Creates a client like [`connect`], which has this token in place of other credentials.
pub async fn connect_by_token(
    kubeconfig: Option<PathBuf>,
    token: String,
) -> Result<Client, ConnectError> {
    let mut config = config(kubeconfig).await?;
    config.auth_info = AuthInfo { token: Some(token.into()), ..AuthInfo::default() };
    Client::try_from(config).map_err(ConnectError::Client)
}

async fn config(kubeconfig: Option<PathBuf>) -> Result<kube::Config, ConnectError> {
    // An empty path means none, as in the reference.
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
    // Failures are reported at once, and callers retry.
    config.default_retry = false;
    Ok(config)
}

/// The objects of a kind in a namespace, or in the whole cluster if that is empty.
pub fn api<K>(client: &Client, namespace: &str, kind: &ObjectKind) -> Api<K>
where
    K: Resource<DynamicType = ApiResource, Scope = DynamicResourceScope>,
{
    let ObjectKind { group, version, name, plural } = kind;
    let kind = GroupVersionKind::gvk(group, version, name);
    let resource = ApiResource::from_gvk_with_plural(&kind, plural);
    match namespace {
        "" => Api::all_with(client.clone(), &resource),
        namespace => Api::namespaced_with(client.clone(), namespace, &resource),
    }
}

/// Converts 404 to `None`, for a missing object or kind. The answer for an unknown kind has no status object, so
/// `Api::get_opt` does not recognise it.
pub fn found<T>(answer: kube::Result<T>) -> kube::Result<Option<T>> {
    match answer {
        Ok(found) => Ok(Some(found)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error),
    }
}

/// An error with its causes in one line; many errors of the library have details only there.
pub fn reason(error: &dyn std::error::Error) -> String {
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
