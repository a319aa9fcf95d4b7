//! The layers of the source: the map in `src/lib.rs` as a check.
//!
//! It goes by names, as the compiler resolves them through imports and re-exports: what a pure
//! file does not name it cannot do, but for methods of what it is given.

mod check;
mod tree;

use self::check::{Rules, circles, faults};
use self::tree::Tree;
use crate::support::in_repository;

/// Where every module of the source belongs.
const RULES: Rules = Rules {
    floors: &[
        &["backoff", "flags", "http_client", "parallel"],
        &["cmp_http", "telemetry"],
        &["files", "kubernetes"],
        &["store"],
        &["controllers", "source"],
        &["node_agent", "serving"],
        &["server"],
        &["commands"],
        &["cli"],
        &["main"],
    ],
    pure: &[
        "controllers/certificates/ca_request.rs",
        "controllers/certificates/external_pair.rs",
        "controllers/certificates/infrastructure.rs",
        "controllers/certificates/internal_release_image.rs",
        "controllers/certificates/issuer_ref.rs",
        "controllers/certificates/key_algorithms.rs",
        "controllers/certificates/names.rs",
        "controllers/certificates/objects.rs",
        "controllers/certificates/reference_names.rs",
        "controllers/certificates/retype.rs",
        "controllers/certificates/secret.rs",
        "controllers/certificates/state.rs",
        "controllers/certificates/user_data.rs",
        "controllers/issuer/ca.rs",
        "controllers/issuer/decide.rs",
        "controllers/issuer/issuer_spec.rs",
        "controllers/issuer/objects.rs",
        "controllers/issuer/policy.rs",
        "controllers/issuer/upstream.rs",
        "controllers/machines/objects.rs",
        "controllers/machines/plan.rs",
        "controllers/object_conditions.rs",
        "controllers/registry_ca/objects.rs",
        "kubernetes/lease.rs",
        "kubernetes/write.rs",
        "node_agent/decide.rs",
        "node_agent/layout.rs",
        "node_agent/credential_plan.rs",
        "serving/cluster_use.rs",
        "source/cluster/configs.rs",
        "source/cluster/view.rs",
        "source/credentials.rs",
        "source/manifest/",
        "telemetry/conditions.rs",
    ],
};

/// What is decided, in its own crate; what that may not do is in the crate's clippy.toml.
const MODEL: Rules = Rules {
    floors: &[
        &["by_network", "ignition_version", "network", "refusal", "table"],
        &["objects"],
        &[
            "access",
            "ledger",
            "merged_pool",
            "registry_ca",
            "registry_credentials",
            "rendered_pools",
        ],
        &["pointer_config"],
        &["inputs", "overview"],
        &["render", "snapshot"],
        &["inspect"],
        &["page"],
    ],
    pure: &[],
};

#[test]
fn the_source_keeps_to_its_layers() {
    let name = env!("CARGO_PKG_NAME").replace('-', "_");
    let found = faults(&Tree::read(&in_repository("src"), &name), &RULES);
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
}

#[test]
fn the_pure_crates_keep_to_theirs() {
    let read = |name| Tree::read(&in_repository(&format!("crates/{name}/src")), name);
    let mut found = faults(&read("model"), &MODEL);
    found.extend(["cmp", "ignition", "pki"].iter().flat_map(|name| circles(&read(name))));
    assert!(found.is_empty(), "\n{}\n", found.join("\n"));
}

/// Two floors, the lower one pure.
const SMALL: Rules = Rules {
    floors: &[&["pure", "other"], &["shell"], &["main"]],
    pure: &["pure/", "shell/decide.rs"],
};

/// A crate that keeps to its layers, and uses what the check has to see through to know that.
const SOUND: [(&str, &str); 9] = [
    ("lib.rs", "mod pure; mod other; mod shell;"),
    ("main.rs", "use small::shell::run; fn main() { run() }"),
    ("other.rs", "pub struct Other; pub fn other() { std::fs::read(\"x\"); }"),
    ("pure/mod.rs", "mod a; mod b; mod keys; pub use a::{A, a}; pub use keys::*;"),
    ("pure/a.rs", "use core::net::IpAddr; use super::b::B; pub struct A(B, IpAddr); pub fn a() {}"),
    (
        "pure/b.rs",
        "use time::OffsetDateTime; pub struct B; fn later(now: OffsetDateTime) {}
         #[cfg(test)] mod tests { use super::super::A; fn read() { std::fs::read(\"x\"); } }",
    ),
    ("pure/keys.rs", "pub struct Key;"),
    (
        "shell/mod.rs",
        "mod decide; use crate::pure::{A, a}; pub struct Seen; pub fn run() { decide::decide() }",
    ),
    ("shell/decide.rs", "use crate::pure::{Key, a}; pub fn decide() { let now = a(); a() }"),
];

/// What the check says of the sound crate once a file has this text more.
fn with(file: &str, more: &str) -> Vec<String> {
    let mut found = SOUND.to_vec();
    let text = SOUND.iter().find(|(name, _)| *name == file).map_or("", |(_, text)| text);
    let text = format!("{text}\n{more}");
    found.retain(|(name, _)| *name != file);
    found.push((file, &text));
    faults(&Tree::parse(found, "small"), &SMALL)
}

#[test]
fn a_sound_crate_has_no_faults() {
    assert_eq!(faults(&Tree::parse(SOUND, "small"), &SMALL), [""; 0]);
}

#[test]
fn a_pure_file_that_names_something_impure_is_reported_with_its_line() {
    for (text, named) in [
        ("use tokio::time::sleep;", "tokio::time::sleep"),
        ("use kube::{Api, runtime::watcher as w};", "kube::Api"),
        ("fn f() { std::fs::read(\"x\"); }", "std::fs::read"),
        ("use std::{fmt, io::{self, Read}, fs}; ", "std::fs"),
        ("use std::io; fn f() { io::stdin(); }", "std::io::stdin"),
        ("fn f(a: std::net::IpAddr) {}", "std::net::IpAddr"),
        ("fn f() { std::env::var(\"X\"); }", "std::env::var"),
        ("fn f() { std::process::exit(1) }", "std::process::exit"),
        ("fn f() { std::thread::yield_now() }", "std::thread::yield_now"),
        ("use std::time::Instant; fn f() { Instant::now(); }", "std::time::Instant::now"),
        (
            "use time::OffsetDateTime as T; fn f() { T::now_utc(); }",
            "time::OffsetDateTime::now_utc",
        ),
        ("fn f(t: std::time::Instant) { t.elapsed(); }", ".elapsed()"),
        (
            "use rcgen::KeyPair; fn f() { KeyPair::generate_for(&X); }",
            "rcgen::KeyPair::generate_for",
        ),
        ("fn f(a: Algorithm) { a.generate(); }", ".generate()"),
        ("fn f() -> u8 { rand::random() }", "rand::random"),
        ("fn f(path: &Path) -> bool { path.exists() }", ".exists()"),
        ("fn f() { println!(\"x\") }", "println"),
        ("fn f() { assert!(x == std::env::var(\"X\")) }", "std::env::var"),
        ("mod inner { fn f() { tracing::info!(\"x\") } }", "tracing::info"),
        ("use crate::other::other;", "other of src/other.rs, which is not pure"),
    ] {
        let expected = format!("src/pure/b.rs:3: names {named}, but pure/ is pure");
        let found = with("pure/b.rs", text);
        assert!(found.contains(&expected), "{text}: {found:?}");
    }
    let decide = with("shell/decide.rs", "use std::fs;");
    assert_eq!(decide, ["src/shell/decide.rs:2: names std::fs, but shell/decide.rs is pure"]);
    // What is in an I/O room beside it is impure too; its types are only data.
    let run = "src/shell/decide.rs:2: names run of src/shell/mod.rs, which is not pure, but \
               shell/decide.rs is pure";
    assert_eq!(with("shell/decide.rs", "use super::run;")[0], run);
    assert!(with("shell/decide.rs", "use super::Seen;")[0].starts_with("a circle of files"));
}

#[test]
fn an_arrow_upwards_or_across_is_reported_in_tests_too() {
    let upwards =
        "src/pure/b.rs:3: names crate::shell::run, but pure is on a lower floor than shell";
    for text in [
        "fn f() { crate::shell::run() }",
        "#[cfg(test)] mod more { use crate::shell::run; }",
        "pub use crate::shell::run;",
    ] {
        let found = with("pure/b.rs", text);
        assert!(found.iter().any(|line| line == upwards), "{text}: {found:?}");
    }
    let found = with("pure/b.rs", "fn f() { super::super::shell::run() }");
    let [_, arrow, circles @ ..] = &found[..] else { panic!("{found:?}") };
    assert!(arrow.ends_with("pure is on a lower floor than shell"), "{arrow}");
    let is_circle = |line: &String| line.starts_with("a circle of files");
    assert!(!circles.is_empty() && circles.iter().all(is_circle), "{circles:?}");
    assert_eq!(
        with("other.rs", "use crate::pure::A;"),
        ["src/other.rs:2: names crate::pure::A, but other is on the same floor as pure"]
    );
    assert_eq!(with("lib.rs", "mod new;").len(), 0, "a module without a file is the compiler's");
    assert_eq!(with("new.rs", ""), ["src: module new is on no floor"]);
}

#[test]
fn a_circle_of_files_is_reported_with_the_names_that_tie_it() {
    let expected = "a circle of files: src/pure/a.rs:1 names B of src/pure/b.rs; \
                    src/pure/b.rs:3 names A of src/pure/a.rs";
    // By its file, by a re-export, by an import of the room, by a glob.
    for text in [
        "use super::a::A;",
        "use super::A;",
        "use crate::pure; fn f(a: pure::A) {}",
        "use super::*; fn f(a: A) {}",
        "fn f() { println_like!(super::A) }",
    ] {
        assert_eq!(with("pure/b.rs", text), [expected], "{text}");
    }
    // Handing names on ties nothing; defining one that a child uses does.
    assert_eq!(with("pure/mod.rs", "pub use b::B;"), [""; 0]);
    assert_eq!(
        with("shell/decide.rs", "use super::Seen;"),
        ["a circle of files: src/shell/decide.rs:2 names Seen of src/shell/mod.rs; \
          src/shell/mod.rs:1 names decide of src/shell/decide.rs"]
    );
    assert_eq!(
        with("pure/keys.rs", "use super::A; fn f(a: A) {}").len(),
        0,
        "one arrow is no circle"
    );
}
