//! Chooses the Secrets that are read, and merges the credentials of a pool.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::credentials::{Credentials, Entries};
use crate::objects::{MachineConfigPool, Secret, SecretName};

/// Annotation of a pool that names a Secret with credentials of its machines, as `NAMESPACE/NAME`.
pub const POOL_ANNOTATION: &str = "machineconfiguration.openshift.io/registry-auth";

/// Key in a Secret of type `kubernetes.io/dockerconfigjson`.
const KEY: &str = ".dockerconfigjson";

/// Parses the credentials of a Secret. The error contains nothing of the Secret.
pub fn read(secret: &Secret) -> Result<Entries, String> {
    let text = secret.value(KEY).ok_or_else(|| {
        format!("has no key {KEY:?}: expected a Secret of type kubernetes.io/dockerconfigjson")
    })?;
    Entries::parse(text).map_err(|error| format!("key {KEY:?}: {error}"))
}

/// Secrets with registry credentials of machines.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RegistryCredentials {
    /// Secret for all pools. Without it machines get no credentials, and pools' annotations are ignored.
    pub secret: Option<SecretName>,
    /// Contents of the Secrets. `None` is a Secret that does not exist or cannot be read, without which machines do. A
    /// missing entry has not been read yet, or was never understood.
    pub known: BTreeMap<SecretName, Option<Arc<Credentials>>>,
}

/// Reasons why a pool's credentials are not known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unresolved {
    /// The pool's annotation is malformed.
    #[error("its annotation {POOL_ANNOTATION} names no Secret: expected NAMESPACE/NAME")]
    Annotation,
    /// The Secret has not been read yet, or is malformed.
    #[error("its registry credentials are unknown: {0} has not been read")]
    Unread(SecretName),
}

impl RegistryCredentials {
    /// The Secrets that are needed for `pools`.
    pub fn wanted<'a>(
        &self,
        pools: impl Iterator<Item = &'a MachineConfigPool>,
    ) -> BTreeSet<SecretName> {
        let Some(secret) = &self.secret else { return BTreeSet::new() };
        let own = pools.filter_map(|pool| own(pool)?.ok());
        own.chain([secret.clone()]).collect()
    }

    /// The credentials of machines of `pool`, which must be enforced; `None` if there are none.
    pub fn credentials(
        &self,
        pool: &MachineConfigPool,
    ) -> Result<Option<Arc<Credentials>>, Unresolved> {
        let Some(secret) = &self.secret else { return Ok(None) };
        let known = |name: &SecretName| {
            self.known.get(name).cloned().ok_or_else(|| Unresolved::Unread(name.clone()))
        };
        let own = match own(pool) {
            Some(name) => known(&name?)?,
            None => None,
        };
        Ok(match (known(secret)?, own) {
            (Some(all), Some(own)) => {
                let mut merged = Credentials::clone(&all);
                merged.append(&mut Credentials::clone(&own));
                Some(Arc::new(merged))
            }
            (all, own) => own.or(all),
        })
    }
}

/// The Secret in the pool's annotation.
fn own(pool: &MachineConfigPool) -> Option<Result<SecretName, Unresolved>> {
    let name = pool.annotation(POOL_ANNOTATION)?;
    Some(name.parse().map_err(|_| Unresolved::Annotation))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry_credentials::credentials::Registry;
    use serde_json::{Value, json};

    fn secret(value: &Value) -> Secret {
        serde_json::from_value(json!({"metadata": {"name": "s"}, "stringData": value})).unwrap()
    }

    fn credentials(auths: &Value) -> Arc<Credentials> {
        let text = json!({"auths": auths}).to_string();
        Arc::new(read(&secret(&json!({KEY: text}))).unwrap().good)
    }

    fn pool(annotation: Option<&str>) -> MachineConfigPool {
        let annotations = annotation.map(|name| json!({POOL_ANNOTATION: name}));
        let metadata = json!({"name": "worker", "annotations": annotations});
        serde_json::from_value(json!({"metadata": metadata})).unwrap()
    }

    fn name(text: &str) -> SecretName {
        text.parse().unwrap()
    }

    fn auth(known: &[(&str, Option<Arc<Credentials>>)]) -> RegistryCredentials {
        let known = known.iter().map(|(text, credentials)| (name(text), credentials.clone()));
        RegistryCredentials { secret: Some(name("a/all")), known: known.collect() }
    }

    #[test]
    fn a_pools_own_credential_wins_for_its_registry() {
        let all = Some(credentials(&json!({"q": {"auth": "YWxsOnA="}, "r": {"auth": "YWxsOnA="}})));
        let own = Some(credentials(&json!({"r": {"auth": "b3duOnA="}, "s": {"auth": "b3duOnA="}})));
        let auth = auth(&[("a/all", all.clone()), ("b/own", own.clone()), ("c/gone", None)]);
        let merged = auth.credentials(&pool(Some("b/own"))).unwrap().unwrap();
        let merged: Vec<_> = merged
            .iter()
            .map(|(registry, credential)| {
                (registry.as_str(), credential.as_json()["auth"].as_str().unwrap())
            })
            .collect();
        assert_eq!(merged, [("q", "YWxsOnA="), ("r", "b3duOnA="), ("s", "b3duOnA=")]);
        assert_eq!(auth.credentials(&pool(None)), Ok(all.clone()));
        assert_eq!(auth.credentials(&pool(Some("c/gone"))), Ok(all));
        let pools = [pool(None), pool(Some("b/own")), pool(Some("oops"))];
        assert_eq!(auth.wanted(pools.iter()), [name("a/all"), name("b/own")].into());
        let nobody = RegistryCredentials { secret: None, ..auth };
        assert_eq!(nobody.credentials(&pool(Some("b/own"))), Ok(None));
        assert_eq!(nobody.wanted(pools.iter()), BTreeSet::new());
    }

    #[test]
    fn what_is_not_known_is_no_reason_to_go_without() {
        let auth = auth(&[("a/all", None)]);
        assert_eq!(auth.credentials(&pool(None)), Ok(None));
        let unread = auth.credentials(&pool(Some("b/own"))).unwrap_err();
        assert_eq!(
            unread.to_string(),
            "its registry credentials are unknown: Secret b/own has not been read"
        );
        assert_eq!(auth.credentials(&pool(Some("oops"))), Err(Unresolved::Annotation));
        let auth = RegistryCredentials { known: BTreeMap::new(), ..auth };
        assert_eq!(auth.credentials(&pool(None)), Err(Unresolved::Unread(name("a/all"))));
    }

    #[test]
    fn a_secret_of_another_kind_is_refused_without_a_word_of_what_is_in_it() {
        for (value, reported) in [
            (
                json!({"password": "SECRET"}),
                "has no key \".dockerconfigjson\": expected a Secret of type kubernetes.io/dockerconfigjson",
            ),
            (json!({KEY: "SECRET"}), "key \".dockerconfigjson\": not JSON (line 1, column 1)"),
            (json!({KEY: "{}"}), "key \".dockerconfigjson\": has no object `auths`"),
        ] {
            assert_eq!(read(&secret(&value)).unwrap_err(), reported);
        }
        let entries = read(&secret(&json!({KEY: r#"{"auths": {"q": {"auth": "dTpw"}}}"#})));
        assert!(entries.unwrap().good.contains_key(&Registry::parse("q").unwrap()));
    }
}
