//! Layers of the source: the maps in `src/lib.rs` and `crates/model/src/lib.rs` as a check, by the names in the files. The
//! crates' `Cargo.toml` and clippy keep out what no file of a crate may use.

mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use self::source::{File, Mention, Source};
use crate::support::{in_repository, manifests};

/// Modules of a crate, lowest floor first. Those on one floor do not know each other.
type Floors = &'static [&'static [&'static str]];

const PROGRAM: Floors =
    &[&["store"], &["source"], &["serving"], &["server"], &["commands"], &["cli"]];

const MODEL: Floors = &[
    &[
        "by_network",
        "fetched_pools",
        "history",
        "ignition_version",
        "network",
        "presence",
        "recovery",
        "refusal",
    ],
    &["objects"],
    &["access", "ledger", "merged_pool", "registry_ca", "registry_credentials"],
    &["pointer_config"],
    &["inputs"],
    &["render", "snapshot"],
];

/// Crates with I/O. The others are pure as a whole.
const WITH_IO: [&str; 9] = [
    "cmp-http",
    "common",
    "controllers",
    "files",
    "issuer",
    "kubernetes",
    "node-agent",
    "pool-controller",
    "telemetry",
];

/// Rooms of the program that name no leaf. Their tests can, to measure with one.
const CORE: [&str; 4] = ["store", "source", "serving", "server"];

/// Crates that can be skipped until they are changed.
const LEAVES: [&str; 9] = [
    "cmp",
    "cmp-http",
    "inspect",
    "issuer",
    "node-agent",
    "pool-controller",
    "rendered-pools",
    "status",
    "table",
];

/// What no pure file names: I/O as a whole. Calls are clippy's matter.
const IMPURE: &str = "cmp_http common::backoff common::hang common::http_client common::parallel common::reconcile::run \
    common::schedule controllers::certificates::Observer controllers::runtime controllers::until_applied files hyper hyper_util kube \
    kubernetes::Health kubernetes::apply kubernetes::client kubernetes::events kubernetes::leader kubernetes::watch nix \
    notify rustix socket2 std::env std::fs std::net std::os std::process std::thread telemetry tokio tokio_rustls \
    tokio_util tracing";

/// Pure functions of these.
const PURE: [&str; 1] = ["telemetry::faults::fix_of"];

#[test]
fn the_program_keeps_to_its_layers() {
    assert_eq!(faults(&read("src"), PROGRAM), [""; 0]);
}

#[test]
fn the_crates_keep_to_theirs() {
    for name in crates() {
        let floors = if name == "model" { MODEL } else { &[] };
        let source = read(&format!("crates/{name}/src"));
        assert_eq!(faults(&source, floors), [""; 0], "{name}");
        let is_pure = source.files.values().all(|file| file.is_pure);
        assert!(is_pure || WITH_IO.contains(&&name[..]), "{name} is not marked as pure");
    }
}

#[test]
fn crates_of_the_core_name_no_leaf_but_the_one_that_colours_the_log() {
    let is_leaf = |name: &String| LEAVES.contains(&&name[..]);
    let (leaves, core): (Vec<_>, Vec<_>) = crates().into_iter().partition(is_leaf);
    assert_eq!(leaves.len(), LEAVES.len(), "a leaf that is no crate");
    for name in core {
        let manifest = in_repository("crates").join(&name).join("Cargo.toml");
        let manifest = fs::read_to_string(manifest).expect("text");
        let mut named: Vec<_> =
            manifest.lines().filter_map(|line| line.split(" = ").next()).collect();
        named.retain(|named| *named != "table" && LEAVES.contains(named));
        assert_eq!(named, [""; 0], "{name}");
    }
}

/// Names of all crates below the program.
fn crates() -> Vec<String> {
    let entries = fs::read_dir(in_repository("crates")).expect("a folder");
    entries.map(|it| it.expect("an entry").file_name().into_string().expect("a name")).collect()
}

fn read(directory: &str) -> Source {
    let directory = in_repository(directory);
    let mut files = manifests::files(&directory);
    // The program's own crate is above all that the library has.
    files
        .retain(|file| file.extension().is_some_and(|it| it == "rs") && !file.ends_with("main.rs"));
    let text = |file: &PathBuf| fs::read_to_string(directory.join(file)).expect("text");
    let texts: Vec<_> = files.iter().map(|file| (file.to_string_lossy(), text(file))).collect();
    Source::parse(texts.iter().map(|(name, text)| (&name[..], &text[..])))
}

/// One line for each fault.
fn faults(source: &Source, floors: Floors) -> Vec<String> {
    let mut found = off_floors(source, floors);
    for (module, file) in &source.files {
        for mention in &file.mentions {
            let why = upwards(module, mention, floors)
                .or_else(|| impurity(source, module, mention))
                .or_else(|| detour(source, module, mention))
                .or_else(|| leaf(module, mention));
            let (name, line, path) = (&file.name, mention.line, mention.path.join("::"));
            found.extend(why.map(|why| format!("src/{name}:{line}: names {path}, but {why}")));
        }
    }
    found.extend(circles(source));
    found
}

fn off_floors(source: &Source, floors: Floors) -> Vec<String> {
    let rooms = source.files.keys().filter_map(|module| module.get(1));
    let rooms: BTreeSet<&str> = rooms.map(String::as_str).collect();
    let placed: BTreeSet<&str> = floors.concat().into_iter().collect();
    let wrong = rooms.symmetric_difference(&placed).filter(|_| !floors.is_empty());
    wrong.map(|room| format!("module {room} is on a floor or in src, and not in both")).collect()
}

/// Tests keep to it too: what is tested with a higher floor belongs into that floor's tests.
fn upwards(module: &[String], mention: &Mention, floors: Floors) -> Option<String> {
    let floor = |room: &String| floors.iter().position(|floor| floor.contains(&&room[..]));
    let (own, room) = (module.get(1)?, mention.path.get(1)?);
    let is_wrong = mention.path[0] == "crate" && own != room && floor(room)? >= floor(own)?;
    is_wrong.then(|| format!("{own} is not on a higher floor than {room}"))
}

fn impurity(source: &Source, module: &[String], mention: &Mention) -> Option<String> {
    let file = &source.files[module];
    if !file.is_pure || mention.is_test {
        return None;
    }
    let path = mention.path.join("::");
    let is_within = |name: &str| path == name || path.starts_with(&format!("{name}::"));
    if !PURE.contains(&&path[..]) && IMPURE.split(' ').any(is_within) {
        return Some("the file is pure".to_owned());
    }
    let (target, name) = source.target(&mention.path)?;
    // A type of the same room is only data.
    let is_data = name.starts_with(char::is_uppercase) && mention.path.get(1) == module.get(1);
    (!target.is_pure && !is_data).then(|| format!("src/{} is not pure", target.name))
}

/// A name that comes from the list of an enclosing module, which in turn has it from the file that defines it.
fn detour(source: &Source, module: &[String], mention: &Mention) -> Option<String> {
    let (target, _) = source.target(&mention.path)?;
    let is_file = |to: &usize| source.files.contains_key(&mention.path[..*to]);
    let list = &mention.path[..(1..mention.path.len()).rev().find(is_file)?];
    let is_enclosing = module.len() > list.len() && module.starts_with(list);
    let is_detour = is_enclosing && !mention.is_test && source.files[list].name != target.name;
    is_detour.then(|| format!("src/{} defines it", target.name))
}

fn leaf(module: &[String], mention: &Mention) -> Option<String> {
    let is_core = module.get(1).is_some_and(|room| CORE.contains(&&room[..])) && !mention.is_test;
    let leaf = LEAVES.iter().find(|leaf| leaf.replace('-', "_") == mention.path[0])?;
    is_core.then(|| format!("crates/{leaf} is a leaf"))
}

/// The names that tie files into circles: what stays without files that need none of the rest, or that none needs.
fn circles(source: &Source) -> Vec<String> {
    let mut ties: BTreeMap<(&str, &str), String> = BTreeMap::new();
    for file in source.files.values() {
        let File { name: from, mentions, .. } = file;
        for mention in mentions.iter().filter(|it| !it.is_test && !it.is_reexport) {
            let Some((to, name)) = source.target(&mention.path) else { continue };
            let tie = || {
                format!(
                    "a circle of files: src/{from}:{} names {name} of src/{}",
                    mention.line, to.name
                )
            };
            ties.entry((from, &to.name)).or_insert_with(tie);
        }
    }
    ties.retain(|(from, to), _| from != to);
    loop {
        let before = ties.len();
        let (from, to): (BTreeSet<&str>, BTreeSet<&str>) = ties.keys().copied().unzip();
        ties.retain(|(a, b), _| to.contains(a) && from.contains(b));
        if ties.len() == before {
            return ties.into_values().collect();
        }
    }
}

/// Files that keep to their layers, the lower floor pure.
const SOUND: [(&str, &str); 7] = [
    ("lib.rs", "mod pure; mod other; mod shell;"),
    ("other.rs", "pub struct Other; pub fn other() { std::fs::read(\"x\"); }"),
    ("pure/mod.rs", "PURE mod a; mod b; pub use a::{A, a};"),
    ("pure/a.rs", "use core::net::IpAddr; use super::b::B; pub struct A(B, IpAddr); pub fn a() {}"),
    (
        "pure/b.rs",
        "pub(in crate::pure) struct B { name: &'static str }
         #[cfg(test)] mod tests { use super::super::A; fn read() { std::fs::read(\"x\"); } }",
    ),
    (
        "shell/mod.rs",
        "mod decide; use crate::pure::{A, a}; pub struct Seen; pub fn run() { decide::decide() }",
    ),
    ("shell/decide.rs", "PURE use crate::pure::a; pub fn decide() { a() }"),
];

/// Faults of the sound files once one of them has this line more.
fn with(file: &str, more: &str) -> Vec<String> {
    let text = |(name, text): &(&str, &str)| {
        let text = text.replace("PURE", source::PURE);
        if *name == file { format!("{text}\n{more}") } else { text }
    };
    let files: Vec<_> = SOUND.iter().map(|it| (it.0, text(it))).collect();
    let source = Source::parse(files.iter().map(|(name, text)| (*name, &text[..])));
    faults(&source, &[&["pure", "other"], &["shell"]])
}

#[test]
fn sound_files_have_no_faults() {
    assert_eq!(with("pure/b.rs", ""), [""; 0]);
}

#[test]
fn a_pure_file_that_names_something_impure_is_reported_with_its_line() {
    for (text, named) in [
        ("use tokio::time::sleep;", "tokio::time::sleep"),
        ("use kube::{runtime::watcher as w};", "kube::runtime::watcher"),
        ("use std::{fmt, io::{self, Read}, fs}; ", "std::fs"),
        ("fn f() { assert!(x == std::env::var(\"X\")) }", "std::env::var"),
        ("mod inner { fn f() { tracing::info!(\"x\") } }", "tracing::info"),
    ] {
        let expected = format!("src/pure/b.rs:3: names {named}, but the file is pure");
        assert_eq!(with("pure/b.rs", text), [expected], "{text}");
    }
    let run = "src/shell/decide.rs:2: names crate::shell::run, but src/shell/mod.rs is not pure";
    assert_eq!(with("shell/decide.rs", "use super::run;")[0], run);
    assert!(with("shell/decide.rs", "use super::Seen;")[0].starts_with("a circle of files"));
}

#[test]
fn an_arrow_upwards_or_across_is_reported_in_tests_too() {
    for text in [
        "fn f() { crate::shell::run() }",
        "#[cfg(test)] mod more { use crate::shell::run; }",
        "pub use crate::shell::run;",
        "fn f() { super::super::shell::run() }",
        "fn f() { println!(\"{}\", crate::shell::run()) }",
    ] {
        let upwards = "src/pure/b.rs:3: names crate::shell::run, but pure is not on a higher floor than shell";
        assert_eq!(with("pure/b.rs", text)[0], upwards, "{text}");
    }
    let across =
        "src/other.rs:2: names crate::pure::A, but other is not on a higher floor than pure";
    assert_eq!(with("other.rs", "use crate::pure::A;"), [across]);
}

#[test]
fn a_leaf_is_reported_if_the_core_names_it_outside_of_tests() {
    let text = "fn f() { cmp_http::send() } #[cfg(test)] mod tests { use status::page; }";
    let found = |name| faults(&Source::parse([(name, text)]), &[]);
    let expected = "src/serving/a.rs:1: names cmp_http::send, but crates/cmp-http is a leaf";
    assert_eq!(found("serving/a.rs"), [expected]);
    assert_eq!(found("commands/a.rs"), [""; 0]);
}

#[test]
fn a_name_from_the_list_of_an_enclosing_module_is_reported() {
    let expected = "src/shell/decide.rs:2: names crate::shell::A, but src/pure/a.rs defines it";
    assert_eq!(with("shell/decide.rs", "use super::A;"), [expected]);
    assert_eq!(with("shell/decide.rs", "use crate::pure::A;"), [""; 0]);
}

#[test]
fn a_circle_of_files_is_reported_with_the_names_that_tie_it() {
    let expected = [
        "a circle of files: src/pure/a.rs:1 names B of src/pure/b.rs",
        "a circle of files: src/pure/b.rs:3 names A of src/pure/a.rs",
    ];
    // By its file, by a re-export, by an import of the room.
    for text in [
        "use super::a::A;",
        "use super::A;",
        "use crate::pure; fn f(a: pure::A) {}",
        "fn f() { println!(\"{}\", super::A) }",
    ] {
        let mut faults = with("pure/b.rs", text);
        faults.retain(|it| it.starts_with("a circle"));
        assert_eq!(faults, expected, "{text}");
    }
    // Passing names on ties nothing; defining one that a child uses does.
    assert_eq!(with("pure/mod.rs", "pub use b::B;"), [""; 0]);
    let [decide, room] = &with("shell/decide.rs", "use super::Seen;")[..] else { panic!() };
    assert!(decide.ends_with("src/shell/decide.rs:2 names Seen of src/shell/mod.rs"), "{decide}");
    assert!(room.ends_with("src/shell/mod.rs:1 names decide of src/shell/decide.rs"), "{room}");
}
