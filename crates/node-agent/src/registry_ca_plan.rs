//! Plans changes of the registries' directories of CAs, without I/O.
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

use super::plan::Action;

/// State of a registry's directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RegistryDirectory {
    /// The directory does not exist.
    Absent,
    /// A file, a symbolic link or similar has its name.
    NoDirectory,
    /// A directory, of this program or another party.
    Directory {
        /// State of the layout's files, the worst of all.
        files: State,
        /// True if the directory has no other files.
        is_pure: bool,
    },
}

/// State of a file, or of a directory with its files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum State {
    /// Contents, mode and owner are right.
    Same,
    /// The contents are right, but others can write, or not everyone can read.
    Exposed,
    /// Other contents, none, or no regular file.
    Other,
}

/// Decides on the action for a registry.
pub(super) fn decide(is_wanted: bool, is_listed: bool, present: RegistryDirectory) -> Action {
    use RegistryDirectory::{Absent, Directory, NoDirectory};
    match (is_wanted, is_listed, present) {
        // Of the last, another party created the directory, with all that is needed.
        (false, false, _)
        | (true, true, Directory { files: State::Same, .. })
        | (true, false, Directory { files: State::Same | State::Exposed, is_pure: false }) => {
            Action::Leave
        }
        (false, true, Directory { .. }) => Action::Remove,
        (false, true, Absent | NoDirectory) => Action::Forget,
        (true, _, Absent) => Action::Make,
        (true, true, NoDirectory) => Action::Exchange,
        (true, true, Directory { .. }) => Action::Repair,
        (true, false, NoDirectory | Directory { files: State::Other, .. }) => Action::Foreign,
        (true, false, Directory { is_pure: true, .. }) => Action::Adopt,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn directory(files: State, is_pure: bool) -> RegistryDirectory {
        RegistryDirectory::Directory { files, is_pure }
    }

    #[test]
    fn what_another_program_made_is_left_alone_or_adopted() {
        use Action::{Adopt, Foreign, Leave, Make};
        for (present, action) in [
            (RegistryDirectory::Absent, Make),
            (RegistryDirectory::NoDirectory, Foreign),
            (directory(State::Same, true), Adopt),
            (directory(State::Exposed, true), Adopt),
            (directory(State::Same, false), Leave),
            (directory(State::Exposed, false), Leave),
            (directory(State::Other, true), Foreign),
            (directory(State::Other, false), Foreign),
        ] {
            assert_eq!(decide(true, false, present), action, "{present:?}");
            assert_eq!(decide(false, false, present), Leave, "{present:?}");
        }
    }

    #[test]
    fn what_was_made_here_is_repaired_and_removed() {
        use Action::{Exchange, Forget, Leave, Make, Remove, Repair};
        for (present, wanted, unwanted) in [
            (RegistryDirectory::Absent, Make, Forget),
            (RegistryDirectory::NoDirectory, Exchange, Forget),
            (directory(State::Same, true), Leave, Remove),
            (directory(State::Same, false), Leave, Remove),
            (directory(State::Exposed, true), Repair, Remove),
            (directory(State::Exposed, false), Repair, Remove),
            (directory(State::Other, true), Repair, Remove),
            (directory(State::Other, false), Repair, Remove),
        ] {
            assert_eq!(decide(true, true, present), wanted, "{present:?}");
            assert_eq!(decide(false, true, present), unwanted, "{present:?}");
        }
    }
}
