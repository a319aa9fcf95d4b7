//! Tracks the Secrets with registry credentials, without I/O.
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kubernetes::seen::{Cause, ObjectSeen};
use model::inputs::Problem;
use model::objects::{MachineConfigPool, Secret, SecretName};
use model::registry_credentials::{self, Credentials, RegistryCredentials};

#[derive(Debug, Default)]
pub(super) struct SeenCredentials {
    auth: RegistryCredentials,
    problems: BTreeMap<SecretName, Vec<Problem>>,
}

impl SeenCredentials {
    /// Creates a tracker; `secret` is the one for all pools.
    pub(super) fn new(secret: Option<SecretName>) -> Self {
        let auth = RegistryCredentials { secret, ..RegistryCredentials::default() };
        Self { auth, problems: BTreeMap::new() }
    }

    /// The Secrets to watch for `pools`. The state of others is dropped.
    pub(super) fn wanted<'a>(
        &mut self,
        pools: impl Iterator<Item = &'a MachineConfigPool>,
    ) -> BTreeSet<SecretName> {
        let wanted = self.auth.wanted(pools);
        self.auth.known.retain(|name, _| wanted.contains(name));
        self.problems.retain(|name, _| wanted.contains(name));
        wanted
    }

    /// Applies the state of a Secret. Returns the reason why machines do without it, if they do.
    ///
    /// The last good credentials stay, even if the Secret is deleted: an empty one removes them. A server without the
    /// permission to read it behaves as if none was configured.
    pub(super) fn seen(&mut self, name: SecretName, seen: ObjectSeen<Secret>) -> Option<String> {
        let before = self.auth.known.get(&name).cloned().flatten();
        let place = name.to_string();
        match seen {
            ObjectSeen::Present(secret) => {
                let problems = match registry_credentials::read(&secret) {
                    Ok(entries) => {
                        let credentials = entries.or_last_good(&before.unwrap_or_default());
                        self.insert(name.clone(), Some(credentials));
                        let refused = entries.refused.iter();
                        refused.map(|it| Problem::part(&place, &it.to_string())).collect()
                    }
                    Err(reason) => {
                        // A malformed Secret is not the same as a missing one: machines wait for it.
                        if before.is_none() {
                            self.auth.known.remove(&name);
                        }
                        vec![Problem::whole(&place, reason)]
                    }
                };
                self.problems.insert(name, problems);
                None
            }
            ObjectSeen::Absent if before.is_some() => {
                let reason = "was removed; its last registry credentials are served";
                self.problems.insert(name, vec![Problem::whole(&place, reason)]);
                None
            }
            ObjectSeen::Absent => {
                self.problems.remove(&name);
                self.insert(name, None);
                Some("not found; machines get no registry credentials from it".to_owned())
            }
            ObjectSeen::Failed(failure) => {
                if failure.cause == Cause::Forbidden && !self.auth.known.contains_key(&name) {
                    self.insert(name, None);
                }
                Some(format!("cannot be watched: {}", failure.reason))
            }
        }
    }

    fn insert(&mut self, name: SecretName, credentials: Option<Credentials>) {
        self.auth.known.insert(name, credentials.map(Arc::new));
    }

    pub(super) fn auth(&self) -> RegistryCredentials {
        self.auth.clone()
    }

    pub(super) fn problems(&self) -> impl Iterator<Item = Problem> {
        self.problems.values().flatten().cloned()
    }
}

#[cfg(test)]
mod tests {
    use kubernetes::seen::Failure;
    use serde_json::json;

    use super::*;

    fn secret(text: &str) -> ObjectSeen<Secret> {
        let secret = json!({"metadata": {"name": "b"}, "stringData": {".dockerconfigjson": text}});
        ObjectSeen::Present(serde_json::from_value::<Secret>(secret).unwrap())
    }

    fn failed(is_forbidden: bool) -> ObjectSeen<Secret> {
        let cause = if is_forbidden { Cause::Forbidden } else { Cause::Other };
        ObjectSeen::Failed(Failure { reason: "why".to_owned(), cause })
    }

    #[derive(Debug, PartialEq)]
    enum Machines {
        Wait,
        DoWithout,
        LogInTo(Vec<String>),
    }

    fn machines(credentials: &SeenCredentials) -> Machines {
        let name = credentials.auth.secret.as_ref().unwrap();
        match credentials.auth.known.get(name) {
            None => Machines::Wait,
            Some(None) => Machines::DoWithout,
            Some(Some(credentials)) => {
                Machines::LogInTo(credentials.keys().map(|it| it.as_str().to_owned()).collect())
            }
        }
    }

    fn reported(credentials: &SeenCredentials) -> Vec<String> {
        credentials.problems().map(|problem| problem.to_string()).collect()
    }

    const GOOD: &str = r#"{"auths": {"q": {"auth": "dTpw"}}}"#;

    #[test]
    fn what_was_good_last_stays_whatever_becomes_of_the_secret() {
        let name: SecretName = "a/b".parse().unwrap();
        let mut credentials = SeenCredentials::new(Some(name.clone()));
        let good = Machines::LogInTo(vec!["q".to_owned()]);
        assert_eq!(machines(&credentials), Machines::Wait);
        assert_eq!(credentials.seen(name.clone(), secret(GOOD)), None);
        assert_eq!(machines(&credentials), good);
        for (seen, problem) in [
            (
                secret("SECRET"),
                "Secret a/b: key \".dockerconfigjson\": not JSON (line 1, column 1)",
            ),
            (secret(r#"{"auths": {"q": {}}}"#), "Secret a/b: the entry for q has no `auth`"),
            (
                ObjectSeen::Absent,
                "Secret a/b: was removed; its last registry credentials are served",
            ),
        ] {
            assert_eq!(credentials.seen(name.clone(), seen), None);
            assert_eq!(machines(&credentials), good, "{problem}");
            assert_eq!(reported(&credentials), [problem]);
        }
        for is_forbidden in [false, true] {
            assert!(credentials.seen(name.clone(), failed(is_forbidden)).is_some());
            assert_eq!(machines(&credentials), good);
        }
        assert_eq!(credentials.seen(name, secret(r#"{"auths": {}}"#)), None);
        assert_eq!(machines(&credentials), Machines::LogInTo(vec![]));
        assert_eq!(reported(&credentials), [""; 0]);
    }

    #[test]
    fn machines_do_without_a_secret_that_is_not_there_or_forbidden_and_wait_for_others() {
        let name: SecretName = "a/b".parse().unwrap();
        let first = |seen| {
            let mut credentials = SeenCredentials::new(Some(name.clone()));
            let reported = credentials.seen(name.clone(), seen);
            (machines(&credentials), reported)
        };
        let without = "not found; machines get no registry credentials from it";
        assert_eq!(first(ObjectSeen::Absent), (Machines::DoWithout, Some(without.to_owned())));
        let unwatched = Some("cannot be watched: why".to_owned());
        assert_eq!(first(failed(true)), (Machines::DoWithout, unwatched.clone()));
        assert_eq!(first(failed(false)), (Machines::Wait, unwatched));
        assert_eq!(first(secret("SECRET")), (Machines::Wait, None));

        // The Secret is created, and malformed.
        let mut credentials = SeenCredentials::new(Some(name.clone()));
        credentials.seen(name.clone(), ObjectSeen::Absent);
        credentials.seen(name, secret("SECRET"));
        assert_eq!(machines(&credentials), Machines::Wait);
    }

    #[test]
    fn a_secret_that_no_pool_names_any_more_is_discarded() {
        let mut credentials = SeenCredentials::new(Some("a/b".parse().unwrap()));
        let own: SecretName = "c/d".parse().unwrap();
        credentials.seen(own.clone(), secret("SECRET"));
        credentials.seen(own, ObjectSeen::Absent);
        assert_eq!(credentials.wanted(std::iter::empty()), ["a/b".parse().unwrap()].into());
        assert_eq!((credentials.auth.known.len(), credentials.problems.len()), (0, 0));
    }
}
