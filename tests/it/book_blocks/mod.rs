//! The commands of the book, of `README.md` and of `CONTRIBUTING.md`, run as they are typed.
//!
//! The `console` blocks of a page are typed into one bash, in their order. A command must end with exit code 0, or with the code
//! that the page's entry names, and print the lines that follow it on the page; numbers, dates and hashes are not compared.
//! A command that only looks is typed again until it shows what it should, for a minute at most. A server runs
//! until the next one is started or the page ends.
//!
//! Each page has a working directory with copies of `ignition-fixtures`, `certs` and `deploy`, the built program in the `PATH`,
//! and, in namespaces of the kernel, a network, `/etc`, `/var/lib` and `/run` that are not this machine's. So ports, paths and
//! host names, even `HOST`, are those of the page, and nothing is substituted but what a page's entry has in `filled_in`:
//! names of objects that are different each time, and `cargo run --release --`, which is `machine-config-server`.
//!
//! [`directory`] has the pages that need no cluster, [`image`] the one that needs a registry, [`cluster`] those that need a kube-apiserver, [`release`] those that need helm too, [`machine`] the tutorial that
//! boots a virtual machine. Commands about pods are typed in `tests/it/node/book.rs`. A command that is not run is in
//! the table of [`unable`], with the reason.

mod cluster;
mod directory;
mod image;
mod join;
mod machine;
mod release;
mod shell;
mod shown;
mod unable;
mod walk;

use std::collections::BTreeSet;

use self::walk::{Page, text};
use crate::support::book::{PAGES, commands, pages};

/// All pages with commands that are run.
fn walked() -> impl Iterator<Item = &'static Page> {
    directory::PAGES
        .iter()
        .chain(image::PAGES)
        .chain(machine::PAGES)
        .chain(join::PAGES)
        .chain(cluster::pages())
        .chain(release::PAGES)
}

/// Documents with commands, by their paths in the repository.
fn documents() -> Vec<String> {
    let pages = pages().into_iter().map(|page| format!("{PAGES}/{page}"));
    ["README.md", "CONTRIBUTING.md"].map(str::to_owned).into_iter().chain(pages).collect()
}

#[test]
fn every_command_is_run_or_has_a_reason() {
    let names: Vec<&str> = walked().map(|page| page.name).collect();
    let unique: BTreeSet<&str> = names.iter().copied().collect();
    assert_eq!(unique.len(), names.len(), "a page is run twice");
    let mut faults = Vec::new();
    let mut used = BTreeSet::new();
    for name in documents() {
        let listed = |command: &str| unable::entry(&name, command);
        let commands: Vec<String> = commands(&text(&name)).into_iter().map(|it| it.0).collect();
        used.extend(commands.iter().filter_map(|command| listed(command)));
        let is_left_out = |command: &&String| unable::is_left_out(&name, command);
        let mut left = commands.iter().filter(|it| !is_left_out(it)).peekable();
        if unique.contains(&*name) {
            assert!(left.peek().is_some(), "{name}: nothing of it is run");
        } else {
            faults.extend(left.map(|command| format!("{name}: {command}")));
        }
    }
    assert!(faults.is_empty(), "neither run nor listed:\n{}", faults.join("\n"));
    for (index, (page, command, _)) in unable::TABLE.iter().enumerate() {
        assert!(used.contains(&index), "{page} has no command that begins with {command:?}");
    }
}

#[test]
fn what_a_page_takes_for_granted_is_used() {
    for page in walked() {
        let typed: Vec<String> = commands(&text(page.name)).into_iter().map(|it| it.0).collect();
        let begins = |begin: &str| typed.iter().any(|command| command.starts_with(begin));
        for (next, _) in page.between {
            assert!(begins(next), "{}: no command begins with {next:?}", page.name);
        }
        for (word, _) in page.filled_in {
            assert!(text(page.name).contains(word), "{}: has no {word:?}", page.name);
        }
        let own = page.before.iter().copied().chain(page.between.iter().map(|(_, own)| *own));
        let own: Vec<&str> = own.collect();
        for (begin, _) in page.exits {
            let is_own = own.iter().any(|command| command.starts_with(begin));
            let mut filled_in = typed.iter().map(|command| page.filled_in(command));
            let is_typed = filled_in.any(|command| command.starts_with(begin));
            assert!(is_typed || is_own, "{}: no command begins with {begin:?}", page.name);
        }
    }
}
