//! Keeps what Butane made of files, so that it runs for changed ones alone.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use common::parallel;

use super::butane::{self, Butane, Converted, NotConverted};

/// Time after which a conversion that has failed is tried again.
const RETRY: Duration = Duration::from_secs(600);
/// Time after which a conversion is tried that was left out, because another one took too long.
const NEXT: Duration = Duration::from_secs(1);

/// Results by file.
#[derive(Debug, Default)]
pub(super) struct Conversions {
    known: BTreeMap<PathBuf, Conversion>,
}

#[derive(Debug)]
struct Conversion {
    text: Bytes,
    result: Result<Converted, NotConverted>,
    /// Time of the next attempt, if it can have another result.
    again: Option<Instant>,
}

/// Result of a look at the files.
#[derive(Debug, Default)]
pub(super) struct LookResult {
    /// True if one of them has another result than before.
    pub(super) is_changed: bool,
    /// Wait until the next attempt.
    pub(super) again_in: Option<Duration>,
}

impl Conversions {
    /// Converts those of the files that have changed. After a failed attempt, the others wait for the next look, which
    /// begins with them: a look takes as long as one of them at most.
    pub(super) fn look(&mut self, program: &Butane, texts: &[(PathBuf, Bytes)]) -> LookResult {
        let now = Instant::now();
        let due: Vec<_> =
            texts.iter().filter(|(path, text)| self.is_due((path, text), now)).collect();
        // Those that failed come last.
        let (failed, others): (Vec<_>, Vec<_>) =
            due.into_iter().partition(|(path, text)| self.has_failed((path, text)));
        let mut is_changed = false;
        let due: Vec<_> = others.into_iter().chain(failed).collect();
        for ((path, text), result) in due.iter().zip(convert_all(program, &due)) {
            is_changed |= self.insert((path, text), result, now);
        }
        let waits = self.known.values().filter_map(|it| it.again);
        let again_in = waits.map(|again| again.saturating_duration_since(now).max(NEXT)).min();
        LookResult { is_changed, again_in }
    }

    /// Result of the last look at a file.
    pub(super) fn of(&self, path: &Path) -> Option<&Result<Converted, NotConverted>> {
        self.known.get(path).map(|it| &it.result)
    }

    /// Messages of the program about files, one line each.
    pub(super) fn messages(&self) -> impl Iterator<Item = (&Path, &str)> {
        self.known.iter().flat_map(|(path, it)| {
            let messages = it.result.iter().flat_map(|converted| &converted.messages);
            messages.map(|message| (&**path, &**message))
        })
    }

    /// Discards the files that `is_there` does not have.
    pub(super) fn retain(&mut self, is_there: impl Fn(&Path) -> bool) {
        self.known.retain(|path, _| is_there(path));
    }

    fn last(&self, (path, text): (&Path, &Bytes)) -> Option<&Conversion> {
        self.known.get(path).filter(|last| last.text == text)
    }

    fn is_due(&self, file: (&Path, &Bytes), now: Instant) -> bool {
        self.last(file).is_none_or(|last| match &last.result {
            // It can have been installed by now.
            Err(NotConverted::Absent(_)) => true,
            _ => last.again.is_some_and(|again| again <= now),
        })
    }

    fn has_failed(&self, file: (&Path, &Bytes)) -> bool {
        let failed = |it: &Conversion| matches!(it.result, Err(NotConverted::Failed(_)));
        self.last(file).is_some_and(failed)
    }

    /// Notes a result. Returns true if it is another one than before.
    fn insert(
        &mut self,
        (path, text): (&Path, &Bytes),
        result: Result<Converted, NotConverted>,
        now: Instant,
    ) -> bool {
        let again = match &result {
            Err(NotConverted::Failed(_)) => Some(now + RETRY),
            Err(NotConverted::LeftOut) => Some(now),
            Ok(_) | Err(NotConverted::Absent(_) | NotConverted::Refused(_)) => None,
        };
        let is_changed = self.known.get(path).is_none_or(|last| last.result != result);
        self.known.insert(path.to_owned(), Conversion { text: text.clone(), result, again });
        is_changed
    }
}

fn convert_all(
    program: &Butane,
    files: &[&(PathBuf, Bytes)],
) -> Vec<Result<Converted, NotConverted>> {
    let found = program.find();
    let has_failed = AtomicBool::new(false);
    parallel::map(files, |(_, text)| {
        let program = found.as_ref().map_err(NotConverted::clone)?;
        if has_failed.load(Ordering::Relaxed) {
            return Err(NotConverted::LeftOut);
        }
        let result = butane::convert(program, text);
        if matches!(result, Err(NotConverted::Failed(_))) {
            has_failed.store(true, Ordering::Relaxed);
        }
        result
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// A stand-in for Butane that notes each of its runs, and does what a file beside it says.
    struct StandIn(tempfile::TempDir);

    impl StandIn {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let (program, path) = (directory.path().join("butane"), directory.path().display());
            let script =
                format!("#!/bin/sh\nread -r name\necho $name >>{path}/runs\n. {path}/$name\n");
            std::fs::write(&program, script).unwrap();
            std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
            Self(directory)
        }

        fn does(&self, name: &str, script: &str) {
            std::fs::write(self.0.path().join(name), script).unwrap();
        }

        /// The files that it was run with since this was called last.
        fn runs(&self) -> Vec<String> {
            let path = self.0.path().join("runs");
            let runs = std::fs::read_to_string(&path).unwrap_or_default();
            let _ = std::fs::remove_file(path);
            let mut runs: Vec<_> = runs.lines().map(str::to_owned).collect();
            runs.sort();
            runs
        }

        fn program(&self) -> Butane {
            self.0.path().join("butane").into()
        }
    }

    fn file(name: &str) -> (PathBuf, Bytes) {
        (name.into(), format!("{name}\n").into())
    }

    #[test]
    fn a_file_is_converted_once_for_each_text() {
        let butane = StandIn::new();
        butane.does("good", "echo {}; echo remark >&2");
        butane.does("bad", "exit 1");
        let mut conversions = Conversions::default();
        let files = [file("good"), file("bad")];
        let looked = conversions.look(&butane.program(), &files);
        assert!(looked.is_changed && looked.again_in.is_none(), "{looked:?}");
        assert_eq!(butane.runs(), ["bad", "good"]);
        assert_eq!(conversions.messages().collect::<Vec<_>>(), [(Path::new("good"), "remark")]);
        let refused = conversions.of(Path::new("bad")).unwrap();
        assert!(matches!(refused, Err(NotConverted::Refused(_))), "{refused:?}");
        assert!(!conversions.look(&butane.program(), &files).is_changed);
        assert_eq!(butane.runs(), [""; 0]);
        let changed = [file("good"), ("bad".into(), "good\n".into())];
        assert!(conversions.look(&butane.program(), &changed).is_changed);
        assert_eq!(butane.runs(), ["good"]);
        conversions.retain(|path| path == Path::new("bad"));
        assert!(conversions.of(Path::new("good")).is_none());
    }

    #[test]
    fn a_program_that_is_installed_later_is_found() {
        let butane = StandIn::new();
        butane.does("good", "echo {}");
        let mut conversions = Conversions::default();
        let absent = PathBuf::from("/nowhere/butane").into();
        assert!(conversions.look(&absent, &[file("good")]).is_changed);
        assert!(!conversions.look(&absent, &[file("good")]).is_changed);
        assert!(conversions.look(&butane.program(), &[file("good")]).is_changed);
        assert!(conversions.of(Path::new("good")).unwrap().is_ok());
    }

    #[test]
    fn a_failed_attempt_keeps_no_other_file_for_longer_than_a_look() {
        let butane = StandIn::new();
        // It ends itself here, so that nobody waits; the file's fault is the same.
        butane.does("fails", "exec cat /dev/zero");
        for name in ["a", "b", "c", "d"] {
            butane.does(name, "sleep 0.1; echo {}");
        }
        let mut conversions = Conversions::default();
        let names = ["fails", "a", "b", "c", "d"];
        let files = names.map(file);
        let is_converted =
            |it: &Conversions, name: &str| it.of(Path::new(name)).is_some_and(Result::is_ok);
        let looked = conversions.look(&butane.program(), &files);
        assert_eq!(looked.again_in.is_some_and(|it| it <= NEXT), !is_converted(&conversions, "d"));
        butane.runs();
        conversions.look(&butane.program(), &files);
        assert!(names[1..].iter().all(|name| is_converted(&conversions, name)));
        assert!(!butane.runs().contains(&"fails".to_owned()), "it is tried again later");
        let later = conversions.look(&butane.program(), &files).again_in.unwrap();
        assert!(later > RETRY / 2, "{later:?}");
    }

    #[test]
    fn those_that_failed_are_tried_last() {
        let mut conversions = Conversions::default();
        let now = Instant::now();
        let (a, b) = (file("a"), file("b"));
        let failed = Err(NotConverted::Failed(String::new()));
        assert!(conversions.insert((&a.0, &a.1), failed.clone(), now));
        assert!(!conversions.insert((&a.0, &a.1), failed, now));
        assert!(conversions.insert((&b.0, &b.1), Err(NotConverted::LeftOut), now));
        assert!(conversions.has_failed((&a.0, &a.1)) && !conversions.has_failed((&b.0, &b.1)));
        assert!(conversions.is_due((&b.0, &b.1), now) && !conversions.is_due((&a.0, &a.1), now));
        assert!(conversions.is_due((&a.0, &a.1), now + RETRY));
        let changed = file("other").1;
        assert!(conversions.is_due((&a.0, &changed), now));
    }
}
