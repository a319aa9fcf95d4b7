//! Tells the program which commit it was built from.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-env-changed=MCS_COMMIT");
    println!("cargo::rerun-if-changed=.git/HEAD");
    println!("cargo::rerun-if-changed=.git/logs/HEAD");
    // An image is built without the repository; its builder sets the variable.
    let commit = std::env::var("MCS_COMMIT").ok().or_else(head);
    println!("cargo::rustc-env=MCS_COMMIT={}", commit.as_deref().unwrap_or("unknown"));
}

fn head() -> Option<String> {
    let output = Command::new("git").args(["rev-parse", "--short=12", "HEAD"]).output().ok()?;
    let commit = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| commit.trim().to_owned()).filter(|commit| !commit.is_empty())
}
