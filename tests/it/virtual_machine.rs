//! A virtual machine's first boot, from firmware to the login prompt: QEMU hands over the pointer config,
//! Ignition's own units fetch the rest in the initramfs over the machine's own network, the root file system
//! becomes what the pool's config says, and a unit of that config reports.
//!
//! What [`crate::first_boot`] does in a second with Ignition alone takes minutes here: `tests/machine/install`
//! says when these tests run.

mod kernel_arguments;

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::command::Store;
use crate::support::http::{Client, loopback};
use crate::support::registry::Registry;
use crate::support::server::{Server, binary, free_ports};
use crate::support::stopwatch::Stopwatch;
use crate::support::virtual_machine::{self, HOST, VirtualMachine, program};
use crate::support::{in_repository, manifests, wait_for, wait_until};

/// A pool whose machines report and turn themselves off, and a registry that they can pull from.
struct ReportingPool {
    directory: TempDir,
    registry: Registry,
    /// Of the image that is in it.
    digest: String,
}

impl ReportingPool {
    fn new() -> Self {
        let mut site = Self {
            directory: tempfile::tempdir().expect("a temporary folder"),
            registry: Registry::start(program("docker-registry"), free_ports::<1>()[0], HOST),
            digest: String::new(),
        };
        site.digest = push(&site.registry);
        fs::create_dir(site.manifests()).expect("a new folder");
        for (name, object) in [
            ("pool", manifests::pool("worker", "rendered-worker")),
            ("config", machine_config(&image(&site.registry))),
            ("registries", registries(&site.registry)),
            ("logins", credentials(&site.registry)),
        ] {
            manifests::write(&site.manifests(), &format!("{name}.json"), object);
        }
        site
    }

    fn manifests(&self) -> PathBuf {
        self.directory.path().join("manifests")
    }

    fn state(&self) -> PathBuf {
        self.directory.path().join("state")
    }

    fn cas(&self) -> Vec<u8> {
        fs::read(self.state().join("ca.crt")).expect("the authorities")
    }

    /// Gives a machine a name, a static address, and a unit that reports both before the pool's does.
    fn name_machine(&self, name: &str, address: &str) {
        let reporter = "#!/bin/sh\n\
             exec > /dev/ttyS0 2>&1\n\
             echo report: \"$(cat /proc/sys/kernel/hostname) at $(ip -4 -o address show scope global | \
             tr -s ' ' | cut -d ' ' -f 4)\"\n";
        let network =
            format!("[Match]\nType=ether\n[Network]\nAddress={address}\nGateway={HOST}\n");
        let drop_in = "[Service]\nExecStartPre=/usr/local/bin/report-own\n";
        let spec = json!({"pool": "worker", "overlay": {
                "ignition": {"version": "3.4.0"},
                "storage": {"files": [
                    file("/etc/hostname", 0o644, &format!("{name}\n")),
                    file("/etc/systemd/network/05-own.network", 0o644, &network),
                    file("/usr/local/bin/report-own", 0o755, reporter),
                ]},
                "systemd": {"units": [{
                    "name": "report.service",
                    "dropins": [{"name": "10-own.conf", "contents": drop_in}],
                }]},
        }});
        let object = manifests::first_boot_machine(name, &spec);
        manifests::write(&self.manifests(), &format!("{name}.json"), object);
    }

    fn pointer(&self) -> PathBuf {
        self.state().join("user-data/worker.ign")
    }

    /// A server that gives configs and registry credentials to who has a token.
    fn serve(&self, at: SocketAddr, flags: &[&str]) -> Server {
        let mut command = binary();
        command.arg("serve").arg(self.manifests()).arg("--state-dir").arg(self.state());
        command.args(["--host", HOST, "--access", "enforce", "--registry-auth"]).args(flags);
        Server::prepared_at(command, at).until_ready()
    }

    fn rotate(&self) {
        self.state().run(&["certs", "rotate", "--ca", "--force"]).done();
    }

    /// What a machine reports that has become what its pool says.
    fn expected(&self) -> Vec<String> {
        let pulled = format!("pulled {}", self.digest);
        ["the pool's file, 640 of root", &pulled, "end"].map(str::to_owned).into()
    }
}

fn image(registry: &Registry) -> String {
    format!("{}/sample:1", registry.name())
}

/// Puts an image of one file into the registry, and returns its digest.
fn push(registry: &Registry) -> String {
    let directory = tempfile::tempdir().expect("a temporary folder");
    let (root, layout) = (directory.path().join("root"), directory.path().join("layout"));
    fs::create_dir(&root).expect("a new folder");
    fs::write(root.join("file"), "of the image\n").expect("a writable folder");
    let digest = virtual_machine::must(
        Command::new(in_repository("deploy/oci-layout"))
            .args([&root, &layout])
            .args(["sample:1", "{}"])
            .env("SOURCE_DATE_EPOCH", "0"),
    );
    let layout = format!("oci:{}:1", layout.display());
    virtual_machine::push(registry, &layout, &image(registry).replace(HOST, "127.0.0.1"));
    digest.trim().to_owned()
}

/// What the unit runs: only what the config brought tells it what to say and which CA to trust.
fn reporter(image: &str) -> String {
    format!(
        "#!/bin/sh\n\
         exec > /dev/ttyS0 2>&1\n\
         echo report: \"$(cat /etc/marker), $(stat --format='%a of %U' /etc/marker)\"\n\
         skopeo --insecure-policy copy --authfile /var/lib/kubelet/config.json \\\n    \
         docker://{image} dir:/run/image\n\
         echo report: \"pulled sha256:$(sha256sum < /run/image/manifest.json | cut -c-64)\"\n\
         echo report: end\n"
    )
}

fn file(path: &str, mode: u32, text: &str) -> Value {
    let source = format!("data:;base64,{}", BASE64.encode(text));
    // The image has some of them.
    json!({"path": path, "mode": mode, "overwrite": true, "contents": {"source": source}})
}

fn machine_config(image: &str) -> Value {
    let unit = "[Unit]\nAfter=network-online.target\nWants=network-online.target\n\
                [Service]\nType=oneshot\nExecStart=/usr/local/bin/report\n\
                ExecStopPost=/bin/systemctl --no-block poweroff\n\
                [Install]\nWantedBy=multi-user.target\n";
    // The machine's own network, after the initramfs had one.
    let network = "[Match]\nType=ether\n[Network]\nDHCP=ipv4\n";
    let config = json!({
            "ignition": {"version": "3.2.0"},
            "storage": {"files": [
                file("/etc/marker", 0o640, "the pool's file"),
                file("/etc/systemd/network/10-host.network", 0o644, network),
                file("/usr/local/bin/report", 0o755, &reporter(image)),
            ]},
            "systemd": {"units": [
                {"name": "report.service", "enabled": true, "contents": unit},
                {"name": "systemd-networkd.service", "enabled": true},
            ]},
    });
    manifests::machine_config("rendered-worker", &config)
}

fn registries(registry: &Registry) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {
            "name": "merged-trusted-image-registry-ca", "namespace": "openshift-config-managed",
        },
        "data": {registry.name().replace(':', ".."): registry.ca()},
    })
}

fn credentials(registry: &Registry) -> Value {
    let credentials = json!({"auths": {registry.name(): {"auth": Registry::credential()}}});
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson",
        "metadata": {"name": "pull-secret", "namespace": "openshift-config"},
        "stringData": {".dockerconfigjson": credentials.to_string()},
    })
}

#[test]
fn a_machine_boots_into_what_its_pool_says_and_pulls_from_a_registry() {
    let site = ReportingPool::new();
    let [at] = free_ports();
    let server = site.serve(at, &[]);
    let report = VirtualMachine::boot(&site.pointer()).report();
    assert_eq!(report, site.expected());
    // Nobody else gets it.
    assert_eq!(server.plain().get("/config/worker").status, 401);
}

#[test]
fn a_machine_boots_by_its_first_pointer_after_two_rotations() {
    let site = ReportingPool::new();
    let [at] = free_ports();
    // As everyone but Ignition gets it.
    let _server = site.serve(at, &["--compact", "off"]);
    let first = site.directory.path().join("first.ign");
    fs::copy(site.pointer(), &first).expect("a copy");
    for _ in 0..2 {
        let before = site.cas();
        site.rotate();
        wait_until("the rotation", || site.cas() != before);
    }
    assert_ne!(fs::read(&first).expect("a pointer"), fs::read(site.pointer()).expect("a pointer"));
    assert_eq!(VirtualMachine::boot(&first).report(), site.expected());
}

#[test]
fn a_machine_waits_for_an_unavailable_server() {
    const AWAY: Duration = Duration::from_secs(30);
    let site = ReportingPool::new();
    let [at] = free_ports();
    site.serve(at, &[]).stop();
    // A client that calls meanwhile is heard, and gets nothing.
    let nobody = TcpListener::bind(at).expect("the server's port");
    nobody.set_nonblocking(true).expect("a socket");
    let mut machine = VirtualMachine::boot(&site.pointer());
    let mut calls = Vec::new();
    machine.wait_for("it to call again and again", |_| {
        calls.extend(nobody.accept().ok().map(|_| Instant::now()));
        let first = calls.first()?;
        (calls.len() > 1 && first.elapsed() >= AWAY).then_some(())
    });
    drop(nobody);
    let _server = site.serve(at, &[]);
    assert_eq!(machine.report(), site.expected());
}

#[test]
fn a_machine_with_a_name_comes_up_with_its_own_address_and_its_token_opens_nothing_afterwards() {
    let site = ReportingPool::new();
    let [at] = free_ports();
    site.name_machine("rack-7", "10.0.2.77/24");
    let server = site.serve(at, &["--machine-token-window", "20s"]);
    let pointer = site.state().join("user-data/machines/rack-7.ign");
    let text = wait_for("the pointer config", || fs::read_to_string(&pointer).ok());
    let text: Value = serde_json::from_str(&text).expect("JSON");
    let header = &text["ignition"]["config"]["merge"][0]["httpHeaders"][0]["value"];
    let header = header.as_str().expect("a credential").to_owned();
    let copied = || {
        let client = Client::tls(server.secure(), &site.cas()).from(loopback(9));
        client.request("GET", "/config/worker", &[("Authorization", &header)]).status
    };

    let mut machine = VirtualMachine::boot(&pointer);
    let record = site.state().join("machines/rack-7.json");
    machine.wait_for("its first use of the token", |_| {
        let record = fs::read_to_string(&record).ok()?;
        record.contains("127.0.0.1").then_some(())
    });
    let started = Stopwatch::start();
    assert_eq!(copied(), 200, "the window is open");
    wait_until("the report", || server.metric("mcs_machine_tokens_shared") > 0.5);
    started.within(Duration::from_secs(1), "the report of a copied token");

    let expected = ["rack-7 at 10.0.2.77/24".to_owned()].into_iter().chain(site.expected());
    assert_eq!(machine.report(), expected.collect::<Vec<_>>());
    wait_until("the token to be spent", || copied() == 401);
}
