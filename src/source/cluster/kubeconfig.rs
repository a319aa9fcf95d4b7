//! The bootstrap kubeconfig of new machines.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use serde_json::Value;

/// A kubeconfig for kubelet's first connection to the API server at `server`, with cluster `local`, user and context
/// `kubelet` as in the reference server. `cas` is PEM.
pub(super) fn bootstrap_kubeconfig(server: &str, cas: &[u8], token: &str) -> Bytes {
    // A JSON string is always a valid YAML string.
    let quoted = |text: &str| Value::from(text).to_string();
    let text = format!(
        "apiVersion: v1
kind: Config
clusters:
- name: local
  cluster:
    server: {server}
    certificate-authority-data: {cas}
users:
- name: kubelet
  user:
    token: {token}
contexts:
- name: kubelet
  context:
    cluster: local
    user: kubelet
current-context: kubelet
",
        server = quoted(server),
        cas = BASE64.encode(cas),
        token = quoted(token),
    );
    text.into()
}

#[cfg(test)]
mod tests {
    use model::objects::Object;
    use serde_json::json;

    use super::*;
    use crate::source::manifest;

    #[test]
    fn it_is_what_kubelet_reads() {
        let text = bootstrap_kubeconfig("https://api-int.example.com:6443", b"PEM\n", "a.\"b");
        let objects = manifest::parse(&text).unwrap();
        let [Object::Kubeconfig(config)] = &objects[..] else { panic!("{objects:?}") };
        let read: Value = serde_json::from_str(&config.to_json()).unwrap();
        assert_eq!(
            read,
            json!({
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "local", "cluster": {
                    "server": "https://api-int.example.com:6443",
                    "certificate-authority-data": "UEVNCg==",
                }}],
                "users": [{"name": "kubelet", "user": {"token": "a.\"b"}}],
                "contexts": [{"name": "kubelet", "context": {"cluster": "local", "user": "kubelet"}}],
                "current-context": "kubelet",
            })
        );
    }
}
