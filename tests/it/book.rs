//! The book is complete and right: its summary has every page, links lead somewhere, its commands are commands of this program,
//! its tables have every flag and command. [`crate::book_blocks`] runs its commands.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use crate::command_line::{all, this_program};
use crate::support::book::{PAGES, anchors, blocks, commands, files, page, pages, without_code};
use crate::support::in_repository;

/// Documents outside the book.
pub(crate) const OTHERS: [&str; 8] = [
    "README.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "CHANGELOG.md",
    "deploy/README.md",
    "deploy/chart/machine-config-server/README.md",
    "ignition-fixtures/README.md",
    "certs/README.md",
];

/// All documents, by their paths in the repository.
fn documents() -> Vec<String> {
    let pages = pages().into_iter().chain(["SUMMARY.md".to_owned()]);
    OTHERS
        .map(str::to_owned)
        .into_iter()
        .chain(pages.map(|page| format!("{PAGES}/{page}")))
        .collect()
}

/// The targets of a text's links, with their lines.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (index, line) in without_code(text).iter().enumerate() {
        for rest in line.split("](").skip(1) {
            let (target, _) =
                rest.split_once(')').unwrap_or_else(|| panic!("an open link: {line}"));
            found.push((index + 1, target.to_owned()));
        }
    }
    found
}

/// `docs/src/a/../b.md` as `docs/src/b.md`.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                assert!(normal.pop(), "{} leaves the repository", path.display());
            }
            part => normal.push(part),
        }
    }
    normal
}

#[test]
fn the_summary_has_every_page_once() {
    let listed: Vec<String> =
        links(&page("SUMMARY.md")).into_iter().map(|(_, target)| target).collect();
    let unique: BTreeSet<String> = listed.iter().cloned().collect();
    assert_eq!(unique.len(), listed.len(), "a page is listed twice");
    assert_eq!(unique, pages());
}

#[test]
fn links_lead_to_files_and_headings_that_exist() {
    let mut pictures = BTreeSet::new();
    let mut count = 0;
    for document in documents() {
        let text = fs::read_to_string(in_repository(&document)).expect("a document");
        for (line, target) in links(&text) {
            if target.starts_with("https://") {
                continue;
            }
            count += 1;
            let (file, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let directory = Path::new(&document).parent().expect("a folder");
            let path = if file.is_empty() {
                PathBuf::from(&document)
            } else {
                normal(&directory.join(file))
            };
            let place = format!("{document}:{line}: {target}");
            assert!(in_repository("").join(&path).is_file(), "{place}: no such file");
            // What is built of the book has its pages alone.
            let leaves = document.starts_with(PAGES) && !path.starts_with(PAGES);
            assert!(!leaves, "{place}: leads out of the book");
            // mdBook makes `index.html` of it, and leaves links as they are.
            let is_index = document.starts_with(PAGES) && file.ends_with("README.md");
            assert!(!is_index || document.ends_with("SUMMARY.md"), "{place}: call it index.md");
            if !anchor.is_empty() {
                let text = fs::read_to_string(in_repository("").join(&path)).expect("a document");
                assert!(anchors(&text).contains(anchor), "{place}: no such heading");
            }
            pictures.insert(path);
        }
    }
    assert!(count > 300, "{count}");
    for picture in files("pictures") {
        let path = Path::new(PAGES).join(&picture);
        assert!(pictures.contains(&path), "{picture} is on no page");
        let size = fs::metadata(in_repository("").join(path)).expect("a picture").len();
        assert!(size < 200_000, "{picture}: {size} bytes");
    }
}

#[test]
fn what_is_new_is_the_changelog() {
    let page = page("reference/whats-new.md");
    let included = page.split("{{#include ").nth(1).expect("an include").split("}}").next();
    let (file, anchor) = included.and_then(|it| it.split_once(':')).expect("a part of a file");
    let path = normal(&Path::new(PAGES).join("reference").join(file));
    assert_eq!(path, Path::new("CHANGELOG.md"));
    let text = fs::read_to_string(in_repository("").join(path)).expect("the changelog");
    for mark in ["ANCHOR", "ANCHOR_END"] {
        assert!(text.contains(&format!("<!-- {mark}: {anchor} -->\n")), "{mark}");
    }
}

#[test]
fn the_readmes_are_short() {
    for (document, most) in [("README.md", 150), ("deploy/README.md", 20)] {
        let text = fs::read_to_string(in_repository(document)).expect("a document");
        assert!(text.lines().count() <= most, "{document} has over {most} lines");
    }
}

/// In the table of `README.md`, the last link of a row leads to the section with the figures and the command that measures them.
#[test]
fn each_figure_of_the_readme_has_its_command() {
    let text = fs::read_to_string(in_repository("README.md")).expect("the README");
    let performance = page("explanation/performance.md");
    let rows =
        text.lines().filter(|line| line.starts_with('|') && line.contains("performance.md#"));
    let rows: Vec<&str> = rows.collect();
    assert!(rows.len() >= 10, "{rows:?}");
    for row in rows {
        let (claim, link) = row.rsplit_once(" ([").expect("a link");
        let (_, anchor) = link.split_once("performance.md#").expect("a section");
        let anchor = anchor.split(')').next().expect("an end");
        let mut sections = performance.split("\n## ").skip(1);
        let is_it = |section: &&str| {
            let heading = format!("# {}", section.lines().next().expect("a heading"));
            anchors(&heading).contains(anchor)
        };
        let section = sections.find(is_it).unwrap_or_else(|| panic!("no section for {row}"));
        assert!(section.contains("```console\n"), "{anchor} has no command");
        let figures = claim.rsplit('|').next().expect("a cell");
        let figures = figures.split(|c: char| !c.is_ascii_digit() && ![',', '.'].contains(&c));
        for figure in figures.map(|it| it.trim_matches([',', '.'])).filter(|it| !it.is_empty()) {
            assert!(section.contains(figure), "{anchor} has no {figure}: {row}");
        }
    }
}

#[test]
fn the_books_command_lines_are_taken() {
    let program = machine_config_server::cli::command();
    let mut count = 0;
    for name in pages() {
        for (command, _) in commands(&page(&name)) {
            let joined = command.replace("\\\n", " ");
            for words in joined.lines().flat_map(this_program) {
                count += 1;
                match program.clone().try_get_matches_from(&words) {
                    Ok(_) => {}
                    Err(error) => assert!(!error.use_stderr(), "{name}: {command}: {error}"),
                }
            }
        }
    }
    assert!(count > 45, "{count}");
}

#[test]
fn the_reference_has_every_command_and_flag_and_no_other() {
    let code = |name: &str| -> BTreeSet<String> {
        page(name).split('`').skip(1).step_by(2).map(str::to_owned).collect()
    };
    let (in_flags, in_commands) = (code("reference/flags.md"), code("reference/commands.md"));
    let mut known = BTreeSet::new();
    for (name, command) in all() {
        let word = name.rsplit(' ').next().expect("a word");
        let is_there = |listed: &String| listed.split(' ').any(|it| it == word);
        let is_group = command.get_subcommands().next().is_some();
        assert!(is_group || in_commands.iter().any(is_there), "commands.md lacks {name}");
        for argument in command.get_arguments() {
            let Some(flag) = argument.get_long().map(|flag| format!("--{flag}")) else { continue };
            // klog's are taken and change nothing.
            let is_listed = argument.is_hide_set() || in_flags.contains(&flag);
            assert!(is_listed, "flags.md lacks {flag} of {name}");
            known.insert(flag);
        }
    }
    for listed in in_flags.iter().filter(|it| it.starts_with("--") && !it.contains(' ')) {
        assert!(known.contains(listed) || listed == "--help", "no command has {listed}");
    }
}

/// What begins the same in several examples, as a kind and its labels do, is shorter.
#[test]
fn no_example_stands_on_three_pages() {
    const LINES: usize = 12;
    let mut seen: BTreeMap<Vec<String>, BTreeSet<String>> = BTreeMap::new();
    for name in pages() {
        for block in blocks(&page(&name)) {
            let lines: Vec<_> = block.text.lines().map(str::to_owned).collect();
            for run in lines.windows(LINES) {
                seen.entry(run.to_vec()).or_default().insert(name.clone());
            }
        }
    }
    assert!(!seen.is_empty());
    for (run, pages) in seen {
        assert!(
            pages.len() < 3,
            "{pages:?} have the same example; link to it:\n{}",
            run.join("\n")
        );
    }
}

/// Functions of a line of the design page, each with its file.
fn functions_of(line: &str) -> Vec<(&str, &str)> {
    let quoted: Vec<&str> = line.split('`').skip(1).step_by(2).collect();
    let is_name = |text: &str| text.chars().all(|c| c.is_alphanumeric() || c == '_');
    let pairs = quoted.windows(2).map(|it| (it[0], it[1]));
    pairs.filter(|(function, file)| is_name(function) && file.contains('/')).collect()
}

#[test]
fn the_functions_of_the_design_page_are_where_it_says() {
    let text = page("explanation/design.md");
    let functions: Vec<_> = text.lines().flat_map(functions_of).collect();
    assert!(functions.len() > 30, "{functions:?}");
    for (function, file) in functions {
        let source = fs::read_to_string(in_repository(file)).unwrap_or_default();
        let begins = |line: &str| line.contains(&format!("fn {function}"));
        assert!(source.lines().any(begins), "{file} has no function {function}");
    }
}

/// Who adds a bound finds the table by this: a constant of each of these names is in it, as often as there are.
#[test]
fn the_book_has_every_bound() {
    let limits = page("reference/limits.md");
    let is_constant = |name: &&str| name.bytes().all(|b| b.is_ascii_uppercase() || b == b'_');
    let mut listed: BTreeMap<&str, usize> = BTreeMap::new();
    for name in limits.split('`').skip(1).step_by(2).filter(is_constant) {
        *listed.entry(name).or_default() += 1;
    }
    let is_bound = |name: &&str| name.starts_with("MAX_");
    let mut present: BTreeMap<String, usize> = BTreeMap::new();
    let mut all = String::new();
    let mut directories = vec![in_repository("src"), in_repository("crates")];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                directories.push(path);
                continue;
            }
            let text = fs::read_to_string(&path).expect("a source file");
            // Those within a function are about a line that is printed.
            for line in text.lines().filter(|line| !line.starts_with(' ')) {
                let name = line.split("const ").nth(1).and_then(|rest| rest.split(':').next());
                if let Some(bound) = name.filter(is_bound) {
                    *present.entry(bound.to_owned()).or_default() += 1;
                }
            }
            all += &text;
        }
    }
    assert!(present.len() > 25, "{present:?}");
    for (name, count) in &present {
        let named = listed.get(&name[..]).copied().unwrap_or_default();
        assert_eq!(named, *count, "reference/limits.md and {name}");
    }
    for name in listed.keys() {
        assert!(all.contains(&format!("const {name}:")), "no constant {name}");
    }
}
