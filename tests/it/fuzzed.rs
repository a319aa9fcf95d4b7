//! The targets of `fuzz/` without a fuzzer: over their seeds, the words of their dictionaries, what a fuzzer has found
//! here before (`fuzz/corpus`), and inputs made of seeds and words at random, the same in every run. `.ci/full fuzz` has
//! a fuzzer look for others.

use std::collections::BTreeSet;
use std::fs;
use std::panic::catch_unwind;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use crate::fuzz;
use crate::support::in_repository;
use crate::support::manifests::files;
use crate::support::random::Random;

/// New inputs of a target.
const INPUTS: usize = 2_000;
/// As long as those of `fuzz/run`.
const MAX_LENGTH: usize = 4096;

macro_rules! targets {
    ($($name:ident)*) => {
        const TARGETS: &[&str] = &[$(stringify!($name)),*];
        $(#[test]
        fn $name() {
            judge(stringify!($name), fuzz::$name::run);
        })*
    };
}

targets! {
    accept
    authorization
    bearer
    certificate
    certificate_state
    cmp
    data_url
    host
    ignition_2
    ignition_3
    lockout
    machine_status
    manifest
    network
    path
    pem
    proxy_protocol
    registry_merge
    signed
    signing_request
    token_records
    user_data
}

#[test]
fn every_target_has_seeds_and_is_tested() {
    let listed: BTreeSet<String> = TARGETS.iter().map(|&name| name.to_owned()).collect();
    for directory in ["fuzz/fuzz_targets", "fuzz/seeds"] {
        let entries = fs::read_dir(in_repository(directory)).expect("a folder");
        let name = |path: &Path| path.file_stem().expect("a name").to_string_lossy().into_owned();
        let present = entries.map(|entry| name(&entry.expect("an entry").path())).collect();
        assert_eq!(listed, present, "{directory}");
    }
    for name in TARGETS {
        let file = in_repository(&format!("fuzz/fuzz_targets/{name}.rs"));
        let text = fs::read_to_string(file).expect("a target");
        assert!(text.contains(&format!("::{name}::run(data)")), "{name}.rs fuzzes another target");
    }
    for dictionary in files(&in_repository("fuzz/dictionaries")) {
        let name = dictionary.file_stem().expect("a name").to_string_lossy().into_owned();
        assert!(
            TARGETS.iter().any(|target| *target == name || shared(target) == name),
            "no target {name}"
        );
    }
}

/// Has a target judge its seeds, and inputs made of them.
fn judge(name: &str, target: fn(&[u8])) {
    let all = |directory: &str| {
        let directory = in_repository(directory).join(name);
        let files = if directory.exists() { files(&directory) } else { Vec::new() };
        files.into_iter().map(move |file| fs::read(directory.join(file)).expect("an input"))
    };
    let seeds: Vec<Vec<u8>> = all("fuzz/seeds").collect();
    assert!(!seeds.is_empty(), "{name} has no seeds");
    let words = words(name);
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let made = (0..INPUTS).map(|_| mutated(&seeds, &words, &mut random)).collect::<Vec<_>>();
    // The corpus is not the same on every machine: no inputs are made of it.
    let corpus = all("fuzz/corpus").collect::<Vec<_>>();
    for input in [&seeds, &words, &made, &corpus, &vec![Vec::new()]].into_iter().flatten() {
        let verdict = catch_unwind(|| target(input));
        assert!(verdict.is_ok(), "{name}: an input of {}", BASE64.encode(input));
    }
}

/// The name of a dictionary for several targets.
fn shared(name: &str) -> &str {
    name.rsplit_once('_').map_or(name, |(shared, _)| shared)
}

/// What a target's dictionary has, unquoted.
fn words(name: &str) -> Vec<Vec<u8>> {
    let file =
        [name, shared(name)].map(|name| in_repository(&format!("fuzz/dictionaries/{name}.dict")));
    let text = file.iter().find_map(|file| fs::read_to_string(file).ok()).unwrap_or_default();
    let quoted = text.lines().filter_map(|line| line.split_once('"')?.1.strip_suffix('"'));
    quoted.map(unquoted).collect()
}

/// A dictionary's word: `\xNN` is a byte, and a backslash before another character is left out.
fn unquoted(quoted: &str) -> Vec<u8> {
    let mut word = Vec::new();
    let mut rest = quoted.bytes();
    while let Some(byte) = rest.next() {
        word.push(match (byte, if byte == b'\\' { rest.next() } else { None }) {
            (_, Some(b'x')) => {
                let digits: Vec<u8> = rest.by_ref().take(2).collect();
                let digits = str::from_utf8(&digits).expect("hexadecimal digits");
                u8::from_str_radix(digits, 16).expect("hexadecimal digits")
            }
            (byte, escaped) => escaped.unwrap_or(byte),
        });
    }
    word
}

/// One seed with some changes: a bit, a byte, a cut, a word, a piece of another seed, or one of its own again.
fn mutated(seeds: &[Vec<u8>], words: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut input = seeds[random.index(seeds.len())].clone();
    for _ in 0..=random.below(4) {
        let at = random.index(input.len() + 1);
        let end = at + random.index(input.len() - at + 1);
        let other = &seeds[random.index(seeds.len())];
        match random.below(7) {
            0 if at < input.len() => input[at] ^= 1 << random.below(8),
            1 if at < input.len() => input[at] = random.below(256).to_le_bytes()[0],
            2 => input.truncate(at),
            3 => drop(input.drain(at..end)),
            4 if !words.is_empty() => {
                let word = words[random.index(words.len())].clone();
                drop(input.splice(at..at, word));
            }
            5 => {
                let from = random.index(other.len() + 1);
                drop(input.splice(at..end, other[from..].iter().copied()));
            }
            _ => {
                let again = input[at..end].to_vec();
                drop(input.splice(at..at, again));
            }
        }
        input.truncate(MAX_LENGTH);
    }
    input
}
