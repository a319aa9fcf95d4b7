//! Prints what is linked into the server, under which licences, with their texts as the crates have them:
//! `cargo run --example third_party`. Which licences may be there is for `deny.toml` to say.
//!
//! A crate without a text is listed with its authors, which is all it has; its licence has to be this
//! program's own, whose text is beside the list.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// How the files are called that hold a licence or what it wants repeated.
const NAMES: [&str; 5] = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE"];
/// Those that are built for.
const PLATFORMS: [&str; 2] = ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"];
/// This program's own licence.
const OWN: &str = "Apache-2.0";
const RULE: &str =
    "================================================================================";

fn main() -> Result<(), Box<dyn Error>> {
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["metadata", "--locked", "--format-version=1"])
        .args(PLATFORMS.map(|platform| format!("--filter-platform={platform}")))
        .stderr(std::process::Stdio::inherit())
        .output()?;
    if !output.status.success() {
        return Err(format!("cargo metadata: {}", output.status).into());
    }
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    io::stdout().write_all(notices(&linked(&metadata)?)?.as_bytes())?;
    Ok(())
}

/// The packages that are linked into the root, by name and version. Not those that only build or test it.
fn linked(metadata: &Value) -> Result<Vec<&Value>, Box<dyn Error>> {
    let nodes = metadata["resolve"]["nodes"].as_array().ok_or("no nodes")?;
    let nodes: BTreeMap<&str, &Value> =
        nodes.iter().filter_map(|node| Some((node["id"].as_str()?, node))).collect();
    let root = metadata["resolve"]["root"].as_str().ok_or("no root")?;
    let mut found = BTreeSet::new();
    let mut next = vec![root];
    while let Some(id) = next.pop() {
        let dependencies = nodes.get(id).and_then(|node| node["deps"].as_array());
        for dependency in dependencies.into_iter().flatten() {
            let mut kinds = dependency["dep_kinds"].as_array().into_iter().flatten();
            let package = dependency["pkg"].as_str().ok_or("no package")?;
            if kinds.any(|kind| kind["kind"].is_null()) && found.insert(package) {
                next.push(package);
            }
        }
    }
    let packages = metadata["packages"].as_array().ok_or("no packages")?;
    // Those that come from nowhere else are this program's own.
    let is_linked = |package: &&Value| {
        package["source"].is_string() && package["id"].as_str().is_some_and(|id| found.contains(id))
    };
    Ok(packages.iter().filter(is_linked).collect())
}

/// The list, and each text once.
fn notices(packages: &[&Value]) -> Result<String, Box<dyn Error>> {
    let mut list =
        String::from("What is linked into machine-config-server, under which licences.\n\n");
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in packages {
        let text = |key: &str| package[key].as_str().unwrap_or_default();
        let name = format!("{} {}", text("name"), text("version"));
        let directory = Path::new(text("manifest_path")).parent().ok_or("no folder")?;
        let found = licence_files(directory)?;
        write!(list, "{name}: {}", text("license"))?;
        if found.is_empty() {
            if !text("license").contains(OWN) {
                return Err(
                    format!("{name} has no text of its licence, {}", text("license")).into()
                );
            }
            let authors = package["authors"].as_array().into_iter().flatten();
            let authors: Vec<_> = authors.filter_map(Value::as_str).collect();
            write!(list, " (by {})", authors.join(", "))?;
        }
        writeln!(list)?;
        for text in found {
            texts.entry(text).or_default().push(name.clone());
        }
    }
    for (text, names) in texts {
        writeln!(list, "\n{RULE}\n{}\n{RULE}\n\n{}", names.join(", "), text.trim_matches('\n'))?;
    }
    Ok(list)
}

fn licence_files(directory: &Path) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().to_uppercase();
        if NAMES.iter().any(|start| name.starts_with(start)) && entry.file_type()?.is_file() {
            let bytes = fs::read(entry.path())?;
            found.push(String::from_utf8_lossy(&bytes).replace("\r\n", "\n"));
        }
    }
    found.sort();
    Ok(found)
}
