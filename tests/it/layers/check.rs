//! The three rules: pure files name nothing impure, no arrow points upwards, no files form a circle.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::tree::{Kind, Mention, Module, Target, Tree};

/// What a crate has agreed on.
pub(super) struct Rules {
    /// Every top-level module, lowest floor first. Rooms on one floor do not know each other.
    pub(super) floors: &'static [&'static [&'static str]],
    /// Folders, with `/` at their end, and files that do no I/O and know neither time nor chance.
    pub(super) pure: &'static [&'static str],
}

/// One line for each fault, in the order of the files.
pub(super) fn faults(tree: &Tree, rules: &Rules) -> Vec<String> {
    let mut found = tables(tree, rules);
    found.extend(impurities(tree, rules));
    found.extend(upward_arrows(tree, rules));
    found.extend(circles(tree));
    found
}

/// Crates that are I/O as a whole.
const FOREIGN_IO: [&str; 11] = [
    "hyper",
    "hyper_util",
    "kube",
    "nix",
    "notify",
    "rustix",
    "tokio",
    "tokio_rustls",
    "tokio_util",
    "tracing",
    "tracing_subscriber",
];
/// Modules of the standard library that are.
const STANDARD_IO: [&str; 6] = ["env", "fs", "net", "os", "process", "thread"];
const STREAMS: [&str; 3] = ["stderr", "stdin", "stdout"];
const PRINTING: [&str; 5] = ["dbg", "eprint", "eprintln", "print", "println"];
const CLOCKS: [&str; 3] = ["now", "now_local", "now_utc"];
const CHANCE: [&str; 5] = ["RandomState", "SystemRandom", "fastrand", "getrandom", "rand"];
/// Methods that ask the file system or the clock, whatever they are called on.
const ASKING: [&str; 10] = [
    "canonicalize",
    "elapsed",
    "exists",
    "is_dir",
    "is_file",
    "is_symlink",
    "read_dir",
    "read_link",
    "symlink_metadata",
    "try_exists",
];

fn is_in(file: &str, entry: &str) -> bool {
    if entry.ends_with('/') { file.starts_with(entry) } else { file == entry }
}

/// The entry of the table that makes a file pure.
fn purity<'a>(file: &str, rules: &'a Rules) -> Option<&'a str> {
    rules.pure.iter().copied().find(|entry| is_in(file, entry))
}

/// The tables say what is there, and nothing else.
fn tables(tree: &Tree, rules: &Rules) -> Vec<String> {
    let rooms: BTreeSet<&str> = tree.modules().filter_map(Module::room).collect();
    let placed: Vec<&str> = rules.floors.concat();
    let files = tree.files();
    let mut found = Vec::new();
    for room in rooms.iter().filter(|room| !placed.contains(room)) {
        found.push(format!("src: module {room} is on no floor"));
    }
    for room in placed.iter().filter(|room| !rooms.contains(*room)) {
        found.push(format!("the floors have {room}, which is not in src"));
    }
    for room in rooms.iter().filter(|room| placed.iter().filter(|p| p == room).count() > 1) {
        found.push(format!("{room} is on two floors"));
    }
    for entry in rules.pure {
        if !files.iter().any(|file| is_in(file, entry)) {
            found.push(format!("the table of purity has {entry}, which is not in src"));
        }
    }
    found
}

fn impurities(tree: &Tree, rules: &Rules) -> Vec<String> {
    let mut found = BTreeSet::new();
    for module in tree.modules() {
        let file = &module.file;
        let Some(entry) = purity(file, rules) else { continue };
        for mention in module.mentions.iter().filter(|mention| !mention.is_test) {
            if let Some(what) = impurity(tree, module, mention, rules) {
                let line = mention.line;
                let text = format!("src/{file}:{line}: names {what}, but {entry} is pure");
                found.insert((file, line, text));
            }
        }
    }
    found.into_iter().map(|(_, _, text)| text).collect()
}

/// What is impure about a path, if anything is.
fn impurity(tree: &Tree, module: &Module, mention: &Mention, rules: &Rules) -> Option<String> {
    let last = mention.segments.last().expect("a path has a segment");
    if mention.kind == Kind::Method {
        let is_chance = last == "generate" || last.starts_with("generate_");
        return (ASKING.contains(&&last[..]) || is_chance).then(|| format!(".{last}()"));
    }
    let target = tree.resolve(module, &mention.segments);
    match target {
        Target::Foreign(ref path) => is_impure(path).then(|| path.join("::")),
        Target::Name { ref file, ref name, .. } => {
            // A type of the same room is only data here.
            let is_data = name.starts_with(char::is_uppercase) && target.room() == module.room();
            let is_allowed = purity(file, rules).is_some() || is_data;
            (!is_allowed).then(|| format!("{name} of src/{file}, which is not pure"))
        }
        Target::Module(_) => None,
    }
}

fn is_impure(path: &[String]) -> bool {
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    let last = path.last().expect("a path has a segment");
    let by_crate = match path[..] {
        [name] => PRINTING.contains(&name) || FOREIGN_IO.contains(&name),
        ["std" | "core", "io", stream, ..] => STREAMS.contains(&stream),
        ["std", module, ..] => STANDARD_IO.contains(&module),
        [name, ..] => FOREIGN_IO.contains(&name),
        [] => false,
    };
    let is_clock = path.len() > 1 && CLOCKS.contains(last);
    let makes_key = path.iter().rev().nth(1).is_some_and(|name| *name == "KeyPair")
        && last.starts_with("generate");
    let makes_token = path.starts_with(&["model", "access", "generate"]);
    by_crate
        || is_clock
        || makes_token
        || makes_key
        || path.len() > 1 && path.iter().any(|name| CHANCE.contains(name))
}

/// Tests are held to this one too: what is tested with a higher floor belongs into that floor's tests.
fn upward_arrows(tree: &Tree, rules: &Rules) -> Vec<String> {
    let floor = |room: &str| rules.floors.iter().position(|floor| floor.contains(&room));
    let mut found = BTreeSet::new();
    for module in tree.modules() {
        let Some(own) = module.room() else { continue };
        let Some(own_floor) = floor(own) else { continue };
        for mention in module.mentions.iter().filter(|mention| mention.kind != Kind::Method) {
            let target = tree.resolve(module, &mention.segments);
            let Some(room) = target.room() else { continue };
            let Some(their_floor) = floor(room) else { continue };
            let why = match their_floor.cmp(&own_floor) {
                std::cmp::Ordering::Less => continue,
                std::cmp::Ordering::Equal if room == own => continue,
                std::cmp::Ordering::Equal => format!("{own} is on the same floor as {room}"),
                std::cmp::Ordering::Greater => format!("{own} is on a lower floor than {room}"),
            };
            let (file, line) = (&module.file, mention.line);
            let path = mention.segments.join("::");
            found.insert((file, line, format!("src/{file}:{line}: names {path}, but {why}")));
        }
    }
    found.into_iter().map(|(_, _, text)| text).collect()
}

/// From a file to those that it needs, with the first line and path that shows it.
type Needs<'a> = BTreeMap<&'a str, BTreeMap<String, String>>;

/// Circles of imports among files.
pub(super) fn circles(tree: &Tree) -> Vec<String> {
    let mut needs = Needs::new();
    for module in tree.modules() {
        let from = needs.entry(&module.file).or_default();
        for mention in &module.mentions {
            if mention.is_test || mention.kind != Kind::Use {
                continue;
            }
            let target = tree.resolve(module, &mention.segments);
            let Target::Name { file, name, .. } = target else { continue };
            if file != module.file {
                let (here, line) = (&module.file, mention.line);
                let tie = format!("src/{here}:{line} names {name} of src/{file}");
                from.entry(file).or_insert(tie);
            }
        }
    }
    let mut found = BTreeMap::new();
    for start in needs.keys() {
        if let Some(circle) = shortest_circle(start, &needs) {
            let mut files = circle.clone();
            files.sort();
            found.entry(files).or_insert(circle);
        }
    }
    let line = |circle: &Vec<String>| {
        let next = circle.iter().cycle().skip(1);
        let ties: Vec<&str> =
            circle.iter().zip(next).map(|(from, to)| &needs[&from[..]][to][..]).collect();
        format!("a circle of files: {}", ties.join("; "))
    };
    found.values().map(line).collect()
}

/// The shortest way from a file back to itself.
fn shortest_circle(start: &str, needs: &Needs<'_>) -> Option<Vec<String>> {
    let mut came_from: BTreeMap<&str, &str> = BTreeMap::new();
    let mut queue = VecDeque::from([start]);
    while let Some(file) = queue.pop_front() {
        for next in needs.get(file)?.keys() {
            if next == start {
                let mut way = vec![file.to_owned()];
                let mut at = file;
                while at != start {
                    at = came_from[at];
                    way.push(at.to_owned());
                }
                way.reverse();
                return Some(way);
            }
            if !came_from.contains_key(&next[..]) {
                came_from.insert(next, file);
                queue.push_back(next);
            }
        }
    }
    None
}
