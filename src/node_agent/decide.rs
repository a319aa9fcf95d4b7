//! Decides on the action for one registry, without I/O.
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

/// State of a registry's directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RegistryDirectory {
    /// The directory does not exist.
    Absent,
    /// A file, a symbolic link or similar has its name.
    NoDirectory,
    /// A directory, of this program or another party.
    Directory {
        /// State of each file in the layout, in their order.
        files: Vec<File>,
        /// True if the directory has no other files.
        is_pure: bool,
        /// True if everyone can read it, and only its owner can write.
        has_mode: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum File {
    /// Contents, mode and owner are right.
    Same,
    /// The contents are right, but others can write, or not everyone can read.
    Exposed,
    /// Other contents, or no regular file; a new file can replace it.
    Other,
    /// The file does not exist.
    Absent,
    /// A directory, which no file can replace.
    Directory,
}

/// Action for one registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    /// Do nothing.
    Leave,
    /// Add it to the list: the directory is as if it had been created here.
    Adopt,
    Make,
    /// Replace a file or link with a directory.
    Exchange,
    /// Write the files that are wrong.
    Repair,
    /// Remove the files, and the directory if it is empty then.
    Remove,
    /// Remove it from the list: nothing there was created here.
    Forget,
    /// Report the directory, which another party created.
    Foreign,
}

/// Decides on the action for a registry.
pub(super) fn decide(is_wanted: bool, is_owned: bool, present: &RegistryDirectory) -> Action {
    if !is_wanted {
        return match present {
            _ if !is_owned => Action::Leave,
            RegistryDirectory::Directory { .. } => Action::Remove,
            RegistryDirectory::Absent | RegistryDirectory::NoDirectory => Action::Forget,
        };
    }
    match present {
        RegistryDirectory::Absent => Action::Make,
        RegistryDirectory::NoDirectory if is_owned => Action::Exchange,
        RegistryDirectory::NoDirectory => Action::Foreign,
        RegistryDirectory::Directory { files, has_mode, .. } if is_owned => {
            let is_same = *has_mode && files.iter().all(|file| *file == File::Same);
            if is_same { Action::Leave } else { Action::Repair }
        }
        RegistryDirectory::Directory { files, is_pure, .. } => {
            let has_contents = files.iter().all(|f| matches!(f, File::Same | File::Exposed));
            match (has_contents, is_pure) {
                (true, true) => Action::Adopt,
                // Another party created it, with all that is needed.
                (true, false) => Action::Leave,
                (false, _) => Action::Foreign,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(file: File, is_pure: bool, has_mode: bool) -> RegistryDirectory {
        RegistryDirectory::Directory { files: vec![file], is_pure, has_mode }
    }

    #[test]
    fn what_somebody_else_made_is_left_alone_or_taken_over_as_it_is() {
        use Action::{Adopt, Foreign, Leave, Make};
        for (present, action) in [
            (RegistryDirectory::Absent, Make),
            (RegistryDirectory::NoDirectory, Foreign),
            (directory(File::Same, true, true), Adopt),
            (directory(File::Exposed, true, false), Adopt),
            (directory(File::Same, false, true), Leave),
            (directory(File::Other, true, true), Foreign),
            (directory(File::Absent, true, true), Foreign),
            (directory(File::Directory, false, true), Foreign),
        ] {
            assert_eq!(decide(true, false, &present), action, "{present:?}");
            assert_eq!(decide(false, false, &present), Leave, "{present:?}");
        }
    }

    #[test]
    fn what_was_made_here_is_repaired_and_removed() {
        use Action::{Exchange, Forget, Leave, Make, Remove, Repair};
        for (present, wanted, unwanted) in [
            (RegistryDirectory::Absent, Make, Forget),
            (RegistryDirectory::NoDirectory, Exchange, Forget),
            (directory(File::Same, true, true), Leave, Remove),
            (directory(File::Same, false, true), Leave, Remove),
            (directory(File::Same, true, false), Repair, Remove),
            (directory(File::Exposed, true, true), Repair, Remove),
            (directory(File::Other, true, true), Repair, Remove),
            (directory(File::Absent, true, true), Repair, Remove),
            (directory(File::Directory, false, true), Repair, Remove),
        ] {
            assert_eq!(decide(true, true, &present), wanted, "{present:?}");
            assert_eq!(decide(false, true, &present), unwanted, "{present:?}");
        }
    }
}
