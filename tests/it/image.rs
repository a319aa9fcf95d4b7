//! The image, as `deploy/image` makes it: that its digest stands for its content, and what that is. Pods
//! of it run in [`super::node`].

use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::process::Command;

use flate2::read::GzDecoder;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::support::{image, in_repository};

const IMAGE: &str = "registry.example.com/machine-config-server:0.1.0";

/// A program that is packed in a moment.
const SMALL: [&str; 2] = ["--binary", "/bin/true"];

/// Makes it below a folder, with further flags; its digest.
fn made(directory: &Path, flags: &[&str]) -> String {
    let mut command = image::command(&directory.join("image"));
    let output = command.args(flags).output().expect("deploy/image");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    String::from_utf8(output.stdout).expect("text").trim().to_owned()
}

/// What a digest stands for.
fn blob(directory: &Path, digest: &Value) -> Vec<u8> {
    let digest = digest.as_str().and_then(|text| text.strip_prefix("sha256:")).expect("a digest");
    let bytes = fs::read(directory.join("image/blobs/sha256").join(digest)).expect("a blob");
    assert_eq!(data_encoding::HEXLOWER.encode(&Sha256::digest(&bytes)), digest);
    bytes
}

fn document(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).expect("JSON")
}

fn output(command: &mut Command) -> String {
    let output = command.output().expect("a command");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn the_image_has_what_the_program_needs_and_nothing_else_and_the_same_digest_each_time() {
    let directories = [(); 2].map(|()| tempfile::tempdir().expect("a temporary folder"));
    let [digest, again] = directories.each_ref().map(|directory| made(directory.path(), &SMALL));
    assert_eq!(digest, again);
    let archive =
        |i: usize| fs::read(directories[i].path().join("image.tar")).expect("the archive");
    assert!(archive(0) == archive(1), "two archives");

    let at = directories[0].path();
    let digest = made(at, &[]);
    let index = document(&fs::read(at.join("image/index.json")).expect("the index"));
    let [listed] = index["manifests"].as_array().expect("a list").as_slice() else {
        panic!("one image: {index}");
    };
    assert_eq!(listed["digest"], digest);
    // What the manifests in deploy/ name.
    assert_eq!(listed["annotations"]["io.containerd.image.name"], IMAGE);
    let kustomization = in_repository("deploy/kubernetes/kustomization.yaml");
    let kustomization = fs::read_to_string(kustomization).expect("the file");
    for part in IMAGE.split(':') {
        assert!(kustomization.contains(part), "another image: {kustomization}");
    }

    let manifest = document(&blob(at, &listed["digest"]));
    let config = document(&blob(at, &manifest["config"]["digest"]));
    assert_eq!(config["config"]["User"], "65532:65532");
    assert_eq!(config["config"]["Entrypoint"], json!(["/usr/bin/machine-config-server"]));
    let labels = &config["config"]["Labels"];
    for label in ["title", "description", "licenses", "version", "revision", "created"] {
        let label = format!("org.opencontainers.image.{label}");
        assert!(labels[&label].as_str().is_some_and(|text| !text.is_empty()), "{labels}");
    }

    let [layer] = manifest["layers"].as_array().expect("a list").as_slice() else {
        panic!("one layer: {manifest}");
    };
    let mut tar = Vec::new();
    let compressed = blob(at, &layer["digest"]);
    GzDecoder::new(compressed.as_slice()).read_to_end(&mut tar).expect("gzip");
    let content = format!("sha256:{}", data_encoding::HEXLOWER.encode(&Sha256::digest(&tar)));
    assert_eq!(config["rootfs"]["diff_ids"], json!([content]));
    fs::write(at.join("layer.tar"), tar).expect("a writable folder");
    has_nothing_else(&at.join("layer.tar"));

    // It runs on nothing but what is in it, as the user that it is for.
    let root = at.join("root");
    fs::create_dir(&root).expect("a folder");
    output(Command::new("tar").arg("xf").arg(at.join("layer.tar")).arg("-C").arg(&root));
    let mut version = Command::new("chroot");
    version.arg("--userspec=65532:65532").arg(&root);
    let said = output(version.args(["/usr/bin/machine-config-server", "version"]));
    assert!(said.contains(labels["org.opencontainers.image.revision"].as_str().expect("text")));
}

/// A layer of root's files, where they belong.
fn has_nothing_else(layer: &Path) {
    let listing = output(Command::new("tar").arg("tvf").arg(layer));
    for line in listing.lines() {
        let fields: Vec<_> = line.split_whitespace().collect();
        assert_eq!(fields[1], "0/0", "root's: {line}");
        assert!(["drwxr-xr-x", "-rw-r--r--", "-rwxr-xr-x"].contains(&fields[0]), "{line}");
        let path = fields[5];
        let is_known = ["./etc/", "./lib/", "./lib64/", "./usr/share/doc/", "./var/lib/dpkg/"]
            .iter()
            .any(|directory| path.starts_with(directory));
        let is_program = path == "./usr/bin/machine-config-server";
        assert!(is_known || is_program || path.ends_with('/'), "{line}");
    }
    assert!(listing.contains("machine-config-server.cdx.json"), "no bill of materials: {listing}");
    assert!(listing.contains("status.d/libc6"), "scanners do not see the C library: {listing}");
}

#[test]
fn an_image_that_is_too_large_is_refused() {
    let directory = tempfile::tempdir().expect("a temporary folder");
    let documents = directory.path().join("documents");
    fs::create_dir(&documents).expect("a folder");
    // What does not get smaller.
    let mut bytes = Vec::new();
    let mut random = fs::File::open("/dev/urandom").expect("the device").take(21 << 20);
    random.read_to_end(&mut bytes).expect("random bytes");
    fs::write(documents.join("large"), bytes).expect("a writable folder");
    let mut command = image::command(&directory.path().join("image"));
    let output = command.args(SMALL).arg("--documents").arg(&documents).output();
    let output = output.expect("deploy/image");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("bytes, and may have 20971520"), "{said}");
}
