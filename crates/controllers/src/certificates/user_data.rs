//! Assesses each Secret with user data. The module does no I/O.
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

use std::collections::BTreeMap;

use ignition::{POINTER_SPEC, pointer};
use k8s_openapi::api::core::v1::Secret;
use kubernetes::write::Malformed;
use model::pointer_config::{Assessment, Authorization, PointerConfig, pool_url};
use pki::{Certificate, Host};

use super::names::MANAGED;
use super::state::{ClusterState, Pool, user_data};

const PORT: u16 = 22623;

impl ClusterState {
    /// Assessments of all Secrets with user data, including missing ones.
    pub fn assess_user_data(&self) -> Result<BTreeMap<String, Assessment>, Malformed> {
        let mut assessments = BTreeMap::new();
        let trusted = self.trusted()?;
        if trusted.is_empty() {
            return Ok(assessments);
        }
        let known = self.known()?;
        let is_assessed = |(name, secret): &(&String, &Secret)| {
            is_machine_sets(name) && !is_managed(secret) || Self::is_of_machine(name)
        };
        for (name, secret) in self.user_data.iter().filter(is_assessed) {
            let config = PointerConfig::read(user_data(secret));
            assessments.insert(name.clone(), config.assess(&trusted, &known));
        }
        for pool in &self.pools {
            let name = managed_name(&pool.name);
            let url = self.pointer_url(&pool.name);
            let present = self.user_data.get(&name).map(user_data).unwrap_or_default();
            let config = PointerConfig::read(present);
            // Without a known host, any existing one counts as right.
            let is_there = match &url {
                Some(url) => config.fetches_from(url),
                None => !present.is_empty(),
            };
            let assessment = match (is_there, config.assess(&trusted, &known), url) {
                (true, assessment @ (Assessment::Current | Assessment::Stale(_)), _)
                | (true, assessment, None) => assessment,
                (_, _, Some(url)) => {
                    let new = managed_pointer(&url, &trusted);
                    Assessment::Stale(with_token_of(&config, &pool.name, new))
                }
                (false, _, None) => continue,
            };
            assessments.insert(name, assessment);
        }
        Ok(assessments)
    }

    /// URL of a pool's config in pointer configs, if a host of the servers is known.
    fn pointer_url(&self, pool: &str) -> Option<String> {
        Some(Self::url(self.pointer_host()?, pool))
    }

    /// Host in pointer configs, if one is known.
    pub fn pointer_host(&self) -> Option<&Host> {
        self.infrastructure.pointer_host.as_ref().or(self.hosts.first())
    }

    /// URL of a pool's config at a host.
    pub fn url(host: &Host, pool: &str) -> String {
        pool_url(host, PORT, pool)
    }

    /// Pool of a managed Secret.
    pub fn owner(&self, secret: &str) -> Option<&Pool> {
        self.pools.iter().find(|pool| managed_name(&pool.name) == secret)
    }
}

/// Returns `true` if a Secret's name is that of user data.
pub(super) fn is_user_data(name: &str) -> bool {
    is_machine_sets(name) || name.ends_with("-user-data-managed")
}

fn is_machine_sets(name: &str) -> bool {
    name.ends_with("-user-data")
}

/// Name of the Secret with the pointer config of a pool, or of a machine.
pub fn managed_name(pool: &str) -> String {
    format!("{pool}-user-data-managed")
}

fn is_managed(secret: &Secret) -> bool {
    secret.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(MANAGED))
}

/// The pointer config `new`, with the token of its predecessor.
fn with_token_of(before: &PointerConfig<'_>, pool: &str, new: Vec<u8>) -> Vec<u8> {
    let fetch = before.written_fetches().into_iter().find(|fetch| fetch.pool == pool);
    match fetch.map(|fetch| fetch.authorization) {
        Some(Authorization::Bearer(token)) => {
            PointerConfig::read(&new).with_bearer(pool, &token).unwrap_or(new)
        }
        _ => new,
    }
}

pub(crate) fn managed_pointer(url: &str, trusted: &[Certificate]) -> Vec<u8> {
    let pem: String = trusted.iter().map(Certificate::to_pem).collect();
    pointer(url, pem.as_bytes(), POINTER_SPEC).to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;
    use k8s_openapi::api::core::v1::ConfigMap;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    use model::pointer_config::LeftAlone;
    use pki::KeyAlgorithm;
    use pki::VALIDITY;
    use pki::issue::issue_ca;

    use super::super::names::{BUNDLE_KEY, ROOT_KEY, USER_DATA};
    use super::*;
    use crate::certificates::settings::infrastructure::Infrastructure;

    type Case<'a> = (&'a str, Option<&'a str>, &'a str, Option<&'a [u8]>, Option<Assessment>);

    const URL: &str = "https://api-int.example.com:22623/config/worker";

    fn ca() -> Certificate {
        let key = KeyAlgorithm::P256.generate().unwrap();
        issue_ca(&key, VALIDITY, time::macros::datetime!(2026-11-21 0:00 UTC)).unwrap()
    }

    fn secret(text: &[u8], is_managed: bool) -> Secret {
        Secret {
            metadata: ObjectMeta {
                labels: is_managed.then(|| [(MANAGED.to_owned(), String::new())].into()),
                ..ObjectMeta::default()
            },
            data: Some([(USER_DATA.to_owned(), ByteString(text.to_vec()))].into()),
            ..Secret::default()
        }
    }

    fn map(key: &str, certificates: &[Certificate]) -> ConfigMap {
        let pem = certificates.iter().map(Certificate::to_pem).collect();
        ConfigMap { data: Some([(key.to_owned(), pem)].into()), ..ConfigMap::default() }
    }

    fn state(trusted: &[Certificate], host: Option<&str>) -> ClusterState {
        ClusterState {
            bundle: Some(map(BUNDLE_KEY, trusted)),
            infrastructure: Infrastructure {
                pointer_host: host.map(|host| host.parse().unwrap()),
                ..Infrastructure::default()
            },
            pools: vec![Pool { name: "worker".to_owned(), uid: "u".to_owned(), access: None }],
            ..ClusterState::default()
        }
    }

    #[test]
    fn each_secret_has_its_assessment() {
        let (new, old, unknown) = (ca(), ca(), ca());
        let known = std::slice::from_ref(&old);
        let trusted = std::slice::from_ref(&new);
        let current = managed_pointer(URL, trusted);
        let older = managed_pointer(URL, known);
        let named = managed_pointer(URL, &[unknown]);
        let elsewhere = managed_pointer("https://other.example.com:22623/config/worker", trusted);
        let assessed = PointerConfig::read(&older).assess(trusted, known);
        let Assessment::Stale(repaired) = assessed else { panic!("not stale") };
        let script = b"#cloud-config\n".to_vec();
        let (fine, left) = (Assessment::Current, Assessment::LeftAlone(LeftAlone::NoIgnition));
        let by_name = Assessment::LeftAlone(LeftAlone::NameOnly);
        let write = |text: &[u8]| Some(Assessment::Stale(text.to_vec()));
        let name = Some("api-int.example.com");
        let (managed, plain) = ("worker-user-data-managed", "worker-user-data");
        // The host that pointers name, the secret, its text, and what is due.
        let cases: [Case<'_>; 14] = [
            ("a machine set's", name, plain, Some(&current), Some(fine.clone())),
            ("a stale one", name, plain, Some(&older), write(&repaired)),
            ("of another host", name, plain, Some(&elsewhere), Some(fine.clone())),
            ("a script", name, plain, Some(&script), Some(left.clone())),
            ("one of the name alone", name, plain, Some(&named), Some(by_name)),
            ("of another name", name, "other", Some(&older), None),
            ("a pool's", name, managed, Some(&current), Some(fine.clone())),
            ("a stale pool's", name, managed, Some(&older), write(&repaired)),
            ("a pool's of another host", name, managed, Some(&elsewhere), write(&current)),
            ("a pool's script", name, managed, Some(&script), write(&current)),
            ("a pool's that is missing", name, managed, None, write(&current)),
            ("no host is known", None, managed, Some(&elsewhere), Some(fine)),
            ("no host, and a script", None, managed, Some(&script), Some(left)),
            ("no host, and none there", None, managed, None, None),
        ];
        for (case, host, secret_name, text, expected) in cases {
            let mut state = state(trusted, host);
            state.root = Some(map(ROOT_KEY, known));
            if let Some(text) = text {
                state.user_data.insert(secret_name.to_owned(), secret(text, false));
            }
            let assessments = state.assess_user_data().unwrap();
            assert_eq!(assessments.get(secret_name), expected.as_ref(), "{case}");
        }
    }

    #[test]
    fn nothing_is_due_before_there_is_anything_to_trust() {
        let older = managed_pointer(URL, &[ca()]);
        let mut state = state(&[], Some("api-int.example.com"));
        state.user_data.insert("worker-user-data".to_owned(), secret(&older, false));
        assert!(state.assess_user_data().unwrap().is_empty());
        state.bundle = None;
        assert!(state.assess_user_data().unwrap().is_empty());
        state.bundle = Some(ConfigMap::default());
        assert!(state.assess_user_data().is_err(), "a map without its key says nothing");
    }

    #[test]
    fn what_another_tool_manages_from_the_bundle_is_its_own() {
        let older = managed_pointer(URL, &[ca()]);
        let mut state = state(&[ca()], None);
        state.user_data.insert("other-user-data".to_owned(), secret(&older, true));
        assert!(state.assess_user_data().unwrap().is_empty());
    }
}
