//! Plans changes of a node's file of registry credentials, without I/O.
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

use std::collections::{BTreeMap, BTreeSet};

use data_encoding::HEXLOWER;
use model::registry_credentials::{
    Credential, CredentialFile, Entries, MalformedCredentials, Registry,
};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// Written credentials: registries, each with the SHA-256 of the written value, and of the next one while the file is
/// being replaced.
pub(super) type WrittenDigests = BTreeMap<Registry, BTreeSet<String>>;

/// State of a registry's entry in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Entry {
    /// The file has no entry.
    Absent,
    /// The entry is that of the Secret.
    Same,
    /// Another entry, unchanged since it was written here.
    Ours,
    /// Another entry, which another party wrote or changed.
    Theirs,
}

/// Action for one registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CredentialAction {
    /// Do nothing.
    Leave,
    /// Add it to the list: the entry is as if it had been written here.
    Adopt,
    /// Write the Secret's credentials.
    Write,
    /// Remove the written credentials.
    Remove,
    /// Remove it from the list: the present entry was not written here.
    Forget,
    /// Report the entry of another party.
    Foreign,
}

/// Decides on the action for a registry.
pub(super) fn decide_credential(
    is_wanted: bool,
    is_listed: bool,
    entry: Entry,
) -> CredentialAction {
    match (is_wanted, entry) {
        (true, Entry::Absent | Entry::Ours) => CredentialAction::Write,
        (true, Entry::Same) if is_listed => CredentialAction::Leave,
        (true, Entry::Same) => CredentialAction::Adopt,
        (true, Entry::Theirs) => CredentialAction::Foreign,
        (false, _) if !is_listed => CredentialAction::Leave,
        (false, Entry::Ours) => CredentialAction::Remove,
        (false, Entry::Absent | Entry::Same | Entry::Theirs) => CredentialAction::Forget,
    }
}

#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct CredentialPlan {
    /// New contents, if the file must change.
    pub file: Option<Vec<u8>>,
    /// List before the write: with old and new entries.
    pub before: WrittenDigests,
    /// List after the write.
    pub after: WrittenDigests,
    /// Registries with new or changed credentials.
    pub written: Vec<Registry>,
    /// Registries whose credentials existed already.
    pub adopted: Vec<Registry>,
    /// Registries whose credentials are removed.
    pub removed: Vec<Registry>,
    /// Registries with other credentials of another party.
    pub foreign: Vec<Registry>,
}

impl std::fmt::Debug for CredentialPlan {
    /// Hides the file, which has credentials.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CredentialPlan")
            .field("file", &self.file.as_ref().map(|_| ".."))
            .field("written", &self.written)
            .field("adopted", &self.adopted)
            .field("removed", &self.removed)
            .field("foreign", &self.foreign)
            .finish_non_exhaustive()
    }
}

/// Plans the next contents of a file from the Secret's entries and the list. A registry with a spoilt entry keeps its
/// present one.
pub(super) fn plan_credentials(
    wanted: &Entries,
    listed: &WrittenDigests,
    present: Option<&[u8]>,
) -> Result<CredentialPlan, MalformedCredentials> {
    let mut file = CredentialFile::parse(present.unwrap_or_default())?;
    let mut plan = CredentialPlan {
        before: listed.clone(),
        after: listed.clone(),
        ..CredentialPlan::default()
    };
    let is_unwanted = |registry: &&Registry| {
        !wanted.good.contains_key(*registry) && !wanted.spoilt.contains(*registry)
    };
    let unwanted = listed.keys().filter(is_unwanted).map(|registry| (registry, None));
    let wanted = wanted.good.iter().map(|(registry, credential)| (registry, Some(credential)));
    for (registry, credential) in wanted.chain(unwanted) {
        let entry = entry(&file, registry, credential, listed.get(registry));
        let digest = credential.map(|credential| digest(credential.as_json()));
        match decide_credential(credential.is_some(), listed.contains_key(registry), entry) {
            action @ (CredentialAction::Leave | CredentialAction::Adopt) => {
                // The written credentials are up to date, so older ones are removed from the list.
                plan.after.extend(digest.map(|digest| (registry.clone(), [digest].into())));
                if action == CredentialAction::Adopt {
                    plan.adopted.push(registry.clone());
                }
            }
            CredentialAction::Write => {
                file.set(registry, credential);
                if let Some(digest) = digest {
                    plan.before.entry(registry.clone()).or_default().insert(digest.clone());
                    plan.after.insert(registry.clone(), [digest].into());
                }
                plan.written.push(registry.clone());
            }
            CredentialAction::Remove => {
                file.set(registry, None);
                plan.after.remove(registry);
                plan.removed.push(registry.clone());
            }
            CredentialAction::Forget => {
                plan.after.remove(registry);
            }
            CredentialAction::Foreign => plan.foreign.push(registry.clone()),
        }
    }
    if !plan.written.is_empty() || !plan.removed.is_empty() {
        plan.file = Some(file.to_json());
    }
    Ok(plan)
}

fn entry(
    file: &CredentialFile,
    registry: &Registry,
    wanted: Option<&Credential>,
    listed: Option<&BTreeSet<String>>,
) -> Entry {
    let Some(present) = file.credential(registry) else { return Entry::Absent };
    if wanted.is_some_and(|wanted| wanted.as_json() == present) {
        return Entry::Same;
    }
    let is_ours = listed.is_some_and(|digests| digests.contains(&digest(present)));
    if is_ours { Entry::Ours } else { Entry::Theirs }
}

fn digest(credential: &Value) -> String {
    HEXLOWER.encode(&Sha256::digest(credential.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_somebody_else_wrote_is_left_alone_or_taken_over_as_it_is() {
        use CredentialAction::{Adopt, Foreign, Forget, Leave, Remove, Write};
        for (entry, wanted, listed, no_more) in [
            (Entry::Absent, Write, Write, Forget),
            (Entry::Same, Adopt, Leave, Forget),
            (Entry::Ours, Write, Write, Remove),
            (Entry::Theirs, Foreign, Foreign, Forget),
        ] {
            assert_eq!(decide_credential(true, false, entry), wanted, "{entry:?}");
            assert_eq!(decide_credential(true, true, entry), listed, "{entry:?}");
            assert_eq!(decide_credential(false, true, entry), no_more, "{entry:?}");
            assert_eq!(decide_credential(false, false, entry), Leave, "{entry:?}");
        }
    }

    fn entries(auths: &Value) -> Entries {
        Entries::parse(json!({"auths": auths}).to_string().as_bytes()).unwrap()
    }

    fn credential(user: &str) -> Value {
        json!({"auth": data_encoding::BASE64.encode(format!("{user}:password").as_bytes())})
    }

    fn file(plan: &CredentialPlan) -> Value {
        serde_json::from_slice(plan.file.as_ref().unwrap()).unwrap()
    }

    #[test]
    fn only_what_was_written_here_is_changed_and_removed() {
        let theirs = json!({"auths": {"their.example": credential("them"), "same.example": credential("a")}});
        let wanted = json!({
            "new.example": credential("a"), "same.example": credential("a"), "their.example": credential("a"),
        });
        let present = theirs.to_string();
        let first =
            plan_credentials(&entries(&wanted), &WrittenDigests::new(), Some(present.as_bytes()))
                .unwrap();
        let names = |registries: &[Registry]| -> Vec<String> {
            registries.iter().map(|it| it.as_str().to_owned()).collect()
        };
        assert_eq!(names(&first.written), ["new.example"]);
        assert!(!format!("{first:?}").contains("auth"), "{first:?}");
        assert_eq!(names(&first.adopted), ["same.example"]);
        assert_eq!(names(&first.foreign), ["their.example"]);
        let mut expected = theirs;
        expected["auths"]["new.example"] = credential("a");
        assert_eq!(file(&first), expected);

        // Nothing is left to do.
        let again =
            plan_credentials(&entries(&wanted), &first.after, first.file.as_deref()).unwrap();
        assert_eq!((again.file, &again.after), (None, &first.after));

        // All entries leave the Secret: those of others stay.
        let last =
            plan_credentials(&entries(&json!({})), &first.after, first.file.as_deref()).unwrap();
        assert_eq!(file(&last), json!({"auths": {"their.example": credential("them")}}));
        assert_eq!(names(&last.removed), ["new.example", "same.example"]);
        assert_eq!(last.after, WrittenDigests::new());

        // An entry that another party changed is no longer managed.
        let mut changed = file(&first);
        changed["auths"]["new.example"] = credential("them");
        let text = changed.to_string();
        let plan =
            plan_credentials(&entries(&json!({})), &first.after, Some(text.as_bytes())).unwrap();
        assert_eq!(file(&plan)["auths"]["new.example"], credential("them"));

        // A mistake in the Secret removes nothing.
        let spoilt = entries(&json!({"new.example": {}, "same.example": credential("a")}));
        let plan = plan_credentials(&spoilt, &first.after, first.file.as_deref()).unwrap();
        assert_eq!((plan.file, plan.after), (None, first.after));
    }

    #[test]
    fn whenever_it_dies_what_it_wrote_is_known_to_be_its_own() {
        let users = ["a", "b", "c"];
        let wanted = |user: &str| entries(&json!({"q": credential(user)}));
        // At each step the process dies before the list, before the file, before the second list or not at all; the
        // next one sees the Secret's next state.
        for deaths in 0..4_u32.pow(3) {
            let (mut list, mut present) = (WrittenDigests::new(), None::<Vec<u8>>);
            for (step, user) in users.iter().enumerate() {
                let plan = plan_credentials(&wanted(user), &list, present.as_deref()).unwrap();
                assert_eq!(plan.foreign, [], "{deaths} {step}");
                let death = deaths / 4_u32.pow(u32::try_from(step).unwrap()) % 4;
                if death > 0 {
                    list = plan.before;
                }
                if death > 1 {
                    present = plan.file.or(present);
                }
                if death > 2 {
                    list = plan.after;
                }
            }
            let plan = plan_credentials(&entries(&json!({})), &list, present.as_deref()).unwrap();
            let left = plan.file.or(present).unwrap_or_default();
            let left = CredentialFile::parse(&left).unwrap();
            assert_eq!(left.credential(&Registry::parse("q").unwrap()), None, "{deaths}");
        }
    }

    #[test]
    fn a_file_that_is_not_understood_is_no_one_to_write_to() {
        for text in ["SECRET", "[]", "{\"auths\": 1}"] {
            let wanted = entries(&json!({"q": credential("a")}));
            assert!(
                plan_credentials(&wanted, &WrittenDigests::new(), Some(text.as_bytes())).is_err()
            );
        }
        // An empty file is like none; without entries none is created.
        let plan = plan_credentials(&entries(&json!({})), &WrittenDigests::new(), None).unwrap();
        assert_eq!(plan, CredentialPlan::default());
    }
}
