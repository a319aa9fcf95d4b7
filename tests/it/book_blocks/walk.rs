//! A page's commands, typed one after another.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::shell::{Outcome, Shell, is_server};
use super::shown::missing;
use super::unable;
use crate::support::book::{commands, example};
use crate::support::in_repository;

/// Folders of the repository that commands use. Commands get copies, which they can change.
const COPIES: [&str; 3] = ["ignition-fixtures", "certs", "deploy"];

/// Time for a change to be seen: an object that a controller makes, a file that a server reads.
const SOON: Duration = Duration::from_secs(60);

/// A page with console blocks, and what it takes for granted.
pub(super) struct Page {
    /// The path of the page in the repository.
    pub(super) name: &'static str,
    /// Files that pages show: the path, the page, and a part of the example.
    pub(super) files: &'static [(&'static str, &'static str, &'static str)],
    /// Commands before those of the page.
    pub(super) before: &'static [&'static str],
    /// Commands before the one of the page that begins like this.
    pub(super) between: &'static [(&'static str, &'static str)],
    /// Words for which a reader puts in others.
    pub(super) filled_in: &'static [(&'static str, &'static str)],
    /// Commands, by their beginnings, whose exit code is another than 0.
    pub(super) exits: &'static [(&'static str, i32)],
    /// A check of the working directory at the end.
    pub(super) check: Option<fn(&Path)>,
}

/// A page that takes nothing for granted.
pub(super) const PAGE: Page = Page {
    name: "",
    files: &[],
    before: &[],
    between: &[],
    filled_in: &[],
    exits: &[],
    check: None,
};

/// Programs and variables of a terminal, in addition to this machine's.
#[derive(Default)]
pub(super) struct Terminal<'a> {
    pub(super) programs: Vec<PathBuf>,
    pub(super) variables: Vec<(String, String)>,
    /// Typed before anything else.
    pub(super) before: &'a str,
    /// Called before a command that waits for workloads.
    pub(super) roll_out: Option<&'a dyn Fn()>,
}

/// Text of a page, by its path in the repository.
pub(super) fn text(name: &str) -> String {
    fs::read_to_string(in_repository(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Types the commands of all pages, and fails with those that do something else than their page says.
pub(super) fn walk(pages: &[Page], terminal: &Terminal<'_>) {
    let wanted = std::env::var("BOOK_PAGE").unwrap_or_default();
    let mut faults = Vec::new();
    for page in pages.iter().filter(|page| page.name.contains(&wanted)) {
        let started = Instant::now();
        // All faults of a run are shown at its end.
        let typed = catch_unwind(AssertUnwindSafe(|| page.typed(terminal)));
        let fault = typed.unwrap_or_else(|_| Err("it panics, as shown above".to_owned())).err();
        faults.extend(fault.map(|fault| format!("{}: {fault}", page.name)));
        println!("{}: {:.1?}", page.name, started.elapsed());
    }
    assert!(faults.is_empty(), "{}", faults.join("\n\n"));
}

impl Page {
    fn typed(&self, terminal: &Terminal<'_>) -> Result<(), String> {
        let directory = tempfile::tempdir().expect("a temporary folder");
        for copy in COPIES.map(in_repository) {
            let status = Command::new("cp").arg("-a").arg(copy).arg(directory.path()).status();
            assert!(status.expect("cp").success());
        }
        for (path, page, part) in self.files {
            let path = directory.path().join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            fs::write(path, example(page, part)).expect("a writable folder");
        }
        let mut shell = Shell::start(directory.path(), &terminal.programs, &terminal.variables);
        let before = [terminal.before].into_iter().chain(self.before.iter().copied());
        for command in before.filter(|command| !command.is_empty()) {
            self.enter(&mut shell, command, "")?;
        }
        for (command, expected) in commands(&text(self.name)) {
            for (_, first) in self.between.iter().filter(|(next, _)| command.starts_with(next)) {
                self.enter(&mut shell, first, "")?;
            }
            if unable::is_left_out(self.name, &command) {
                continue;
            }
            let [command, expected] = [command, expected].map(|text| self.filled_in(&text));
            if let Some(roll_out) = terminal.roll_out.filter(|_| command.contains("rollout status"))
            {
                roll_out();
            }
            self.enter(&mut shell, &command, &expected)?;
        }
        if let Some(check) = self.check {
            check(directory.path());
        }
        // It gives up its lease, for which the next one would wait.
        shell.stop("controller");
        Ok(())
    }

    /// A text of the page with the reader's own words.
    pub(super) fn filled_in(&self, text: &str) -> String {
        self.filled_in.iter().fold(text.to_owned(), |text, (word, own)| text.replace(word, own))
    }

    /// Types a command. What can be repeated is typed again until it shows what it should.
    fn enter(&self, shell: &mut Shell, command: &str, expected: &str) -> Result<(), String> {
        if is_server(command) {
            shell.serve(command)?;
            return until(|| match missing(expected, &shell.shown_by_server()) {
                None => Ok(()),
                Some(line) => {
                    Err(format!("{command}\nno {line:?} in\n{}", shell.shown_by_server()))
                }
            });
        }
        let mut run = || self.right(command, expected, &shell.run(command));
        if can_be_repeated(command) { until(run) } else { run() }
    }

    fn right(&self, command: &str, expected: &str, outcome: &Outcome) -> Result<(), String> {
        let Outcome { code, shown } = outcome;
        let listed = self.exits.iter().find(|(begins, _)| command.starts_with(begins));
        let right = listed.map_or(0, |(_, code)| *code);
        // 23 is of curl whose output `head` has cut.
        let is_cut = *code == 23 && command.contains("| head");
        if *code != right && !is_cut {
            return Err(format!("{command}\nexit code {code} instead of {right}\n{shown}"));
        }
        match missing(expected, shown) {
            None => Ok(()),
            Some(line) => Err(format!("{command}\nno {line:?} in\n{shown}")),
        }
    }
}

/// Parts of commands that can be typed again: they change nothing, or kubectl refuses them in the second of the same one before.
const REPEATABLE: [&str; 11] = [
    "curl ",
    " get ",
    " logs ",
    " machines",
    " certs check",
    " certs show",
    " inspect ",
    " list",
    "cmp enroll",
    "ls /",
    " rollout restart ",
];

fn can_be_repeated(command: &str) -> bool {
    REPEATABLE.iter().any(|part| command.contains(part))
}

fn until(mut attempt: impl FnMut() -> Result<(), String>) -> Result<(), String> {
    let started = Instant::now();
    loop {
        let result = attempt();
        if result.is_ok() || started.elapsed() > SOON {
            return result;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}
