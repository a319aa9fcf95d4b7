//! Tells a program that is built for use which commit it was built from. One for development does not say it: all of it would be
//! compiled anew after each commit.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-env-changed=MCS_COMMIT");
    println!("cargo::rerun-if-changed=build.rs");
    // An image is built without the repository; its builder sets the variable.
    let mut commit = std::env::var("MCS_COMMIT").ok();
    if commit.is_none() && std::env::var("PROFILE").as_deref() == Ok("release") {
        // Git tells where they are: elsewhere in a second work tree, nowhere without a repository. A file
        // that is not there would have all built anew each time.
        for file in ["HEAD", "logs/HEAD"] {
            let path = git(&["rev-parse", "--git-path", file]);
            if let Some(path) = path.filter(|path| std::path::Path::new(path).exists()) {
                println!("cargo::rerun-if-changed={path}");
            }
        }
        commit = git(&["rev-parse", "--short=12", "HEAD"]);
    }
    println!("cargo::rustc-env=MCS_COMMIT={}", commit.as_deref().unwrap_or("unknown"));
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let line = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (output.status.success() && !line.is_empty()).then_some(line)
}
