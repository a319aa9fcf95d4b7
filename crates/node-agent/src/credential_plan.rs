//! Plans changes of a node's file of registry credentials, without I/O.
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

use std::collections::BTreeSet;

use data_encoding::HEXLOWER;
use model::registry_credentials::{
    Credential, CredentialFile, Entries, MalformedCredentials, Registry,
};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::plan::{Action, List, Plan, registries};

/// State of a registry's entry in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entry {
    /// The file has no entry.
    Absent,
    /// The entry is that of the Secret.
    Same,
    /// Another entry, unchanged since it was written here.
    Ours,
    /// Another entry, which another party wrote or changed.
    Theirs,
}

/// A change of the file.
#[derive(Clone, PartialEq, Eq)]
pub struct NewFile {
    /// Present contents, `None` if there is no file.
    pub replaced: Option<Vec<u8>>,
    pub contents: Vec<u8>,
}

/// Decides on the action for a registry.
fn decide(is_wanted: bool, is_listed: bool, entry: Entry) -> Action {
    match (is_wanted, is_listed, entry) {
        (true, _, Entry::Absent) => Action::Make,
        (true, _, Entry::Ours) => Action::Repair,
        (true, true, Entry::Same) | (false, false, _) => Action::Leave,
        (true, false, Entry::Same) => Action::Adopt,
        (true, _, Entry::Theirs) => Action::Foreign,
        (false, true, Entry::Ours) => Action::Remove,
        (false, true, Entry::Absent | Entry::Same | Entry::Theirs) => Action::Forget,
    }
}

/// Plans the next contents of a file from the Secret's entries and the list.
pub(super) fn plan_credentials(
    wanted: &Entries,
    listed: &List<Registry>,
    present: Option<&[u8]>,
) -> Result<Plan<Registry, NewFile>, MalformedCredentials> {
    let mut file = CredentialFile::parse(present.unwrap_or_default())?;
    let mut plan = Plan::new(listed);
    let mut is_changed = false;
    for (registry, credential) in registries(&wanted.good, &wanted.undecodable, listed) {
        let entry = entry(&file, registry, credential, listed.get(registry));
        let action = decide(credential.is_some(), listed.contains_key(registry), entry);
        if matches!(action, Action::Make | Action::Repair | Action::Remove) {
            file.set(registry, credential);
            is_changed = true;
        }
        plan.push(registry, action, credential.map(|credential| digest(credential.as_json())));
    }
    plan.change = is_changed
        .then(|| NewFile { replaced: present.map(<[u8]>::to_vec), contents: file.to_json() });
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
    fn what_another_program_wrote_is_left_alone_or_adopted() {
        use Action::{Adopt, Foreign, Forget, Leave, Make, Remove, Repair};
        for (entry, wanted, listed, no_more) in [
            (Entry::Absent, Make, Make, Forget),
            (Entry::Same, Adopt, Leave, Forget),
            (Entry::Ours, Repair, Repair, Remove),
            (Entry::Theirs, Foreign, Foreign, Forget),
        ] {
            assert_eq!(decide(true, false, entry), wanted, "{entry:?}");
            assert_eq!(decide(true, true, entry), listed, "{entry:?}");
            assert_eq!(decide(false, true, entry), no_more, "{entry:?}");
            assert_eq!(decide(false, false, entry), Leave, "{entry:?}");
        }
    }

    fn entries(auths: &Value) -> Entries {
        Entries::parse(json!({"auths": auths}).to_string().as_bytes()).unwrap()
    }

    fn credential(user: &str) -> Value {
        json!({"auth": data_encoding::BASE64.encode(format!("{user}:password").as_bytes())})
    }

    fn file(plan: &Plan<Registry, NewFile>) -> Value {
        serde_json::from_slice(contents(plan).unwrap()).unwrap()
    }

    fn contents(plan: &Plan<Registry, NewFile>) -> Option<&[u8]> {
        plan.change.as_ref().map(|file| &file.contents[..])
    }

    fn names(plan: &Plan<Registry, NewFile>, action: Action) -> Vec<&str> {
        plan.registries(action).map(Registry::as_str).collect()
    }

    #[test]
    fn only_what_was_written_here_is_changed_and_removed() {
        let theirs = json!({"auths": {"their.example": credential("them"), "same.example": credential("a")}});
        let wanted = json!({
            "new.example": credential("a"), "same.example": credential("a"), "their.example": credential("a"),
        });
        let present = theirs.to_string();
        let first =
            plan_credentials(&entries(&wanted), &List::new(), Some(present.as_bytes())).unwrap();
        assert_eq!(names(&first, Action::Make), ["new.example"]);
        assert!(!format!("{first:?}").contains("auth"), "{first:?}");
        assert_eq!(names(&first, Action::Adopt), ["same.example"]);
        assert_eq!(names(&first, Action::Foreign), ["their.example"]);
        let mut expected = theirs;
        expected["auths"]["new.example"] = credential("a");
        assert_eq!(file(&first), expected);

        // Nothing is left to do.
        let again = plan_credentials(&entries(&wanted), &first.after, contents(&first)).unwrap();
        assert_eq!((contents(&again), &again.after), (None, &first.after));
        assert!(again.is_done(&first.after));

        // All entries leave the Secret: those of others stay.
        let last = plan_credentials(&entries(&json!({})), &first.after, contents(&first)).unwrap();
        assert_eq!(file(&last), json!({"auths": {"their.example": credential("them")}}));
        assert_eq!(names(&last, Action::Remove), ["new.example", "same.example"]);
        assert_eq!(last.after, List::new());

        // An entry that another party changed is no longer managed.
        let mut changed = file(&first);
        changed["auths"]["new.example"] = credential("them");
        let text = changed.to_string();
        let plan =
            plan_credentials(&entries(&json!({})), &first.after, Some(text.as_bytes())).unwrap();
        assert_eq!(file(&plan)["auths"]["new.example"], credential("them"));

        // A mistake in the Secret removes nothing.
        let undecodable = entries(&json!({"new.example": {}, "same.example": credential("a")}));
        let plan = plan_credentials(&undecodable, &first.after, contents(&first)).unwrap();
        assert_eq!((contents(&plan), &plan.after), (None, &first.after));
    }

    #[test]
    fn whenever_it_dies_what_it_wrote_is_known_to_be_its_own() {
        let users = ["a", "b", "c"];
        let wanted = |user: &str| entries(&json!({"q": credential(user)}));
        // At each step the process dies before the list, before the file, before the second list or not at all; the
        // next one sees the Secret's next state.
        for deaths in 0..4_u32.pow(3) {
            let (mut list, mut present) = (List::new(), None::<Vec<u8>>);
            for (step, user) in users.iter().enumerate() {
                let plan = plan_credentials(&wanted(user), &list, present.as_deref()).unwrap();
                assert_eq!(names(&plan, Action::Foreign), [""; 0], "{deaths} {step}");
                let death = deaths / 4_u32.pow(u32::try_from(step).unwrap()) % 4;
                if death > 0 {
                    list = plan.before;
                }
                if death > 1 {
                    present = plan.change.map(|file| file.contents).or(present);
                }
                if death > 2 {
                    list = plan.after;
                }
            }
            let plan = plan_credentials(&entries(&json!({})), &list, present.as_deref()).unwrap();
            let left = plan.change.map(|file| file.contents).or(present).unwrap_or_default();
            let left = CredentialFile::parse(&left).unwrap();
            assert_eq!(left.credential(&Registry::parse("q").unwrap()), None, "{deaths}");
        }
    }

    #[test]
    fn a_file_that_is_not_understood_is_no_one_to_write_to() {
        for text in ["SECRET", "[]", "{\"auths\": 1}"] {
            let wanted = entries(&json!({"q": credential("a")}));
            assert!(plan_credentials(&wanted, &List::new(), Some(text.as_bytes())).is_err());
        }
        // An empty file is like none; without entries none is created.
        let plan = plan_credentials(&entries(&json!({})), &List::new(), None).unwrap();
        assert!(plan.is_done(&List::new()) && plan.before.is_empty());
    }
}
