//! What to do about one registry. Nothing here does I/O.

/// What lies where a registry's folder should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Present {
    /// Nothing.
    Nothing,
    /// A file, a symbolic link or the like.
    NoDirectory,
    /// One of ours, or somebody's own.
    OpenDirectory {
        /// The files by their place in the layout.
        files: Vec<File>,
        /// Whether it holds nothing else.
        is_pure: bool,
        /// Whether everybody may look into it, and only its owner may write.
        has_mode: bool,
    },
}

/// What lies where a file should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum File {
    /// The file with the right contents, mode and owner.
    Same,
    /// The right contents, but others may write to it, or not everybody may read it.
    Exposed,
    /// Other contents, or no regular file; a new one can take its place.
    Other,
    /// Nothing.
    Absent,
    /// A folder, whose place no file can take.
    OpenDirectory,
}

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Nothing.
    Leave,
    /// Take over a folder that is as it would be if it had been made here.
    Adopt,
    /// Make the folder.
    Make,
    /// Put a folder in the place of what is there.
    Exchange,
    /// Write the files that are not as they should be.
    Repair,
    /// Remove the files, and the folder if nothing else is in it.
    Remove,
    /// Strike it off the list: what is there is not what was made here, if anything is.
    Forget,
    /// Nothing, and tell of it: somebody else made what is there.
    Foreign,
}

/// Decides about a registry that should have files, or `None` of them.
#[must_use]
pub fn decide(is_wanted: bool, is_owned: bool, present: &Present) -> Action {
    if !is_wanted {
        return match present {
            _ if !is_owned => Action::Leave,
            Present::OpenDirectory { .. } => Action::Remove,
            Present::Nothing | Present::NoDirectory => Action::Forget,
        };
    }
    match present {
        Present::Nothing => Action::Make,
        Present::NoDirectory if is_owned => Action::Exchange,
        Present::NoDirectory => Action::Foreign,
        Present::OpenDirectory { files, has_mode, .. } if is_owned => {
            let is_same = *has_mode && files.iter().all(|file| *file == File::Same);
            if is_same { Action::Leave } else { Action::Repair }
        }
        Present::OpenDirectory { files, is_pure, .. } => {
            let has_contents = files.iter().all(|f| matches!(f, File::Same | File::Exposed));
            match (has_contents, is_pure) {
                (true, true) => Action::Adopt,
                // It is somebody else's, and all that is needed here.
                (true, false) => Action::Leave,
                (false, _) => Action::Foreign,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(file: File, is_pure: bool, has_mode: bool) -> Present {
        Present::OpenDirectory { files: vec![file], is_pure, has_mode }
    }

    #[test]
    fn what_somebody_else_made_is_left_alone_or_taken_over_as_it_is() {
        use Action::{Adopt, Foreign, Leave, Make};
        for (present, action) in [
            (Present::Nothing, Make),
            (Present::NoDirectory, Foreign),
            (directory(File::Same, true, true), Adopt),
            (directory(File::Exposed, true, false), Adopt),
            (directory(File::Same, false, true), Leave),
            (directory(File::Other, true, true), Foreign),
            (directory(File::Absent, true, true), Foreign),
            (directory(File::OpenDirectory, false, true), Foreign),
        ] {
            assert_eq!(decide(true, false, &present), action, "{present:?}");
            assert_eq!(decide(false, false, &present), Leave, "{present:?}");
        }
    }

    #[test]
    fn what_was_made_here_is_repaired_and_removed() {
        use Action::{Exchange, Forget, Leave, Make, Remove, Repair};
        for (present, wanted, unwanted) in [
            (Present::Nothing, Make, Forget),
            (Present::NoDirectory, Exchange, Forget),
            (directory(File::Same, true, true), Leave, Remove),
            (directory(File::Same, false, true), Leave, Remove),
            (directory(File::Same, true, false), Repair, Remove),
            (directory(File::Exposed, true, true), Repair, Remove),
            (directory(File::Other, true, true), Repair, Remove),
            (directory(File::Absent, true, true), Repair, Remove),
            (directory(File::OpenDirectory, false, true), Repair, Remove),
        ] {
            assert_eq!(decide(true, true, &present), wanted, "{present:?}");
            assert_eq!(decide(false, true, &present), unwanted, "{present:?}");
        }
    }
}
