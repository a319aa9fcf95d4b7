//! Machines boot for the first time: the real Ignition fetches its config from the running server
//! over TLS, by the pointer config that the server made, and writes it to disk. Every entry of
//! that disk is then compared with what the sample cluster's manifests say, worked out here from
//! the manifests and the specs, with no code of the server's.

use std::collections::BTreeMap;
use std::fs;

use base64::Engine as _;
use serde_json::{Value, json};

use crate::support::ignition_equal::pruned;
use crate::support::machine::Machine;
use crate::support::manifests::{self, Manifest};
use crate::support::server::Server;
use crate::support::tree::{self, Node, Tree, What};
use crate::support::{in_repository, resource, wait_until};

/// Where Ignition says which units are enabled.
const PRESETS: &str = "etc/systemd/system-preset/20-ignition.preset";

#[test]
fn a_machine_of_every_pool_boots_into_what_the_manifests_say() {
    let server = Server::sample_cluster(&[]);
    for pool in ["master", "worker", "edge"] {
        let machine = Machine::new();
        let expected = Expected::of(pool, tree::read(&machine.root()));
        machine.boot(&server.pointer(pool));
        expected.hold_for(&machine);
    }
}

#[test]
fn a_machine_of_a_pool_that_is_merged_boots_into_what_its_machine_configs_say() {
    let server = Server::sample_cluster(&[]);
    let machine = Machine::new();
    machine.boot(&server.pointer("rack"));
    for (path, text) in [("etc/motd", "Welcome to the rack.\n"), ("etc/rack", "12\n")] {
        assert_eq!(fs::read_to_string(machine.root().join(path)).expect("a file"), text);
    }
    let presets = fs::read_to_string(machine.root().join(PRESETS)).expect("a file");
    assert!(presets.contains("enable rack-lights.service"), "{presets}");
}

#[test]
fn pointer_configs_of_an_older_and_a_newer_spec_boot_the_same_machine() {
    let server = Server::sample_cluster(&[]);
    for version in ["3.0.0", "3.3.0"] {
        let mut pointer: Value = serde_json::from_str(&server.pointer("master")).expect("JSON");
        assert_ne!(pointer["ignition"]["version"], version, "the server writes this one itself");
        pointer["ignition"]["version"] = json!(version);
        let machine = Machine::new();
        let expected = Expected::of("master", tree::read(&machine.root()));
        machine.boot(&pointer.to_string());
        expected.hold_for(&machine);
    }
}

#[test]
fn a_machine_that_trusts_another_ca_refuses_the_server() {
    let server = Server::sample_cluster(&[]);
    let other = fs::read(in_repository("certs/registry-main.crt")).expect("another CA");
    let mut pointer: Value = serde_json::from_str(&server.pointer("master")).expect("JSON");
    let source = format!("data:,{}", percent_encoded(&other));
    pointer["ignition"]["security"]["tls"]["certificateAuthorities"] = json!([{"source": source}]);
    let machine = Machine::new();
    let before = tree::read(&machine.root());

    let mut fetch = machine.start("fetch", &pointer.to_string());
    // It tries again for ever, so the second refusal says that the first was not the end.
    wait_until("Ignition to refuse twice", || {
        let log = fetch.log();
        assert!(!log.contains("GET result: OK"), "it fetched a config:\n{log}");
        let refusals = log.matches("x509: certificate signed by unknown authority").count();
        refusals >= 2
    });
    assert!(fetch.is_running(), "it gave up: {}", fetch.log());
    assert!(!machine.fetched_config().exists(), "it took a config");
    assert_eq!(tree::differences(&tree::read(&machine.root()), &before), [""; 0]);
}

fn percent_encoded(bytes: &[u8]) -> String {
    percent_encoding::percent_encode(bytes, percent_encoding::NON_ALPHANUMERIC).to_string()
}

/// What a pool's machine holds after its first boot.
struct Expected {
    disk: Tree,
    /// Documents that are compared as values, by path: their layout is the server's own affair.
    documents: BTreeMap<&'static str, Value>,
    /// Whole lines, or the first fields of them, of the user and group files.
    accounts: Vec<(&'static str, String)>,
}

impl Expected {
    /// Worked out from the manifests, on a machine whose disk is `shipped` before it boots.
    fn of(pool: &str, shipped: Tree) -> Self {
        let manifests = manifests::fixtures();
        let machine_config = served_machine_config(&manifests, pool);
        let config = &machine_config["spec"]["config"];
        let mut expected = Self {
            disk: shipped,
            documents: documents(&manifests, machine_config),
            accounts: Vec::new(),
        };
        let users = Accounts::of(config);
        for directory in list(config, "/storage/directories") {
            expected.put(directory, What::Directory, 0o755, &users);
        }
        for file in list(config, "/storage/files") {
            expected.put_file(file, &users);
        }
        for link in list(config, "/storage/links") {
            expected.put_link(link, &users);
        }
        expected.put_units(config);
        expected.put_keys(config);
        expected.put_served_files(&manifests);
        expected.accounts = users.lines(config);
        expected
    }

    fn hold_for(&self, machine: &Machine) {
        let mut found = tree::read(&machine.root());
        for (path, expected) in &self.documents {
            let Some(Node { what: What::File(bytes), mode: 0o644, user: 0, group: 0 }) =
                found.remove(*path)
            else {
                panic!("/{path} is not a file of root's with mode 0644");
            };
            let text = String::from_utf8(bytes).expect("a document in UTF-8");
            let document = match manifests::yaml_documents(&text).as_slice() {
                [document] => pruned(document.clone()),
                documents => panic!("/{path} holds {} documents", documents.len()),
            };
            assert_eq!(document, pruned(expected.clone()), "/{path}");
        }
        for (path, line) in &self.accounts {
            let Some(Node { what: What::File(bytes), .. }) = found.get(*path) else {
                panic!("/{path} is not a file");
            };
            let text = String::from_utf8_lossy(bytes);
            assert!(text.lines().any(|l| l.starts_with(line)), "no {line:?} in /{path}:\n{text}");
        }
        assert!(found.remove("etc/.ignition-result.json").is_some(), "Ignition's own record");
        let mut expected = self.disk.clone();
        // The files of users and groups are Ignition's tools' work, and compared line by line.
        for path in ["etc/passwd", "etc/shadow", "etc/group", "etc/gshadow"] {
            expected.remove(path);
            found.remove(path);
            found.remove(&format!("{path}-"));
        }
        found.remove("etc/.pwd.lock");
        // Ignition writes its presets in no order.
        if let Some(Node { what: What::File(bytes), .. }) = found.get_mut(PRESETS) {
            let text = String::from_utf8_lossy(bytes);
            let mut lines: Vec<&str> = text.split_inclusive('\n').collect();
            lines.sort_unstable();
            *bytes = lines.concat().into_bytes();
        }
        let differences = tree::differences(&found, &expected);
        assert!(differences.is_empty(), "{}", differences.join("\n"));
    }

    fn put_file(&mut self, file: &Value, users: &Accounts) {
        let path = relative(file);
        let mut bytes = match self.disk.get(&path) {
            Some(Node { what: What::File(shipped), .. }) => shipped.clone(),
            _ => Vec::new(),
        };
        let contents = resource::bytes(&file["contents"]).expect("contents in the manifest");
        // Spec 2 has a flag that says to append the contents, spec 3 a list of what to append.
        if file["append"] != true && file["contents"].is_object() {
            bytes.clear();
        }
        bytes.extend(contents);
        for fragment in list(file, "/append") {
            bytes.extend(resource::bytes(fragment).expect("a fragment in the manifest"));
        }
        self.put(file, What::File(bytes), 0o644, users);
    }

    fn put_link(&mut self, link: &Value, users: &Accounts) {
        let target = link["target"].as_str().expect("a target");
        if link["hard"] != true {
            self.put(link, What::SymbolicLink(target.into()), 0, users);
            return;
        }
        // Both names are of one file, which the tree shows at the first of them.
        let (path, target) = (relative(link), target.trim_start_matches('/').to_owned());
        let file = self.disk.remove(&target).expect("a hard link's target");
        let (first, second) = if path < target { (path, target) } else { (target, path) };
        let other = Node { what: What::HardLink(first.clone()), ..file };
        self.disk.insert(second, other);
        self.disk.insert(first, file);
    }

    fn put_units(&mut self, config: &Value) {
        let mut presets = Vec::new();
        for unit in list(config, "/systemd/units") {
            let name = unit["name"].as_str().expect("a unit's name");
            let directory = "etc/systemd/system";
            if let Some(contents) = unit["contents"].as_str() {
                self.put_of_root(&format!("{directory}/{name}"), contents.as_bytes());
            }
            for dropin in list(unit, "/dropins") {
                let file = dropin["name"].as_str().expect("a drop-in's name");
                let contents = dropin["contents"].as_str().expect("a drop-in's contents");
                self.put_of_root(&format!("{directory}/{name}.d/{file}"), contents.as_bytes());
            }
            if unit["mask"] == true {
                let mask = What::SymbolicLink("/dev/null".into());
                let path = format!("{directory}/{name}");
                self.put_parents(&path);
                self.disk.insert(path, Node { what: mask, mode: 0, user: 0, group: 0 });
            }
            // Spec 2 has an older name for it as well.
            match unit["enabled"].as_bool().or(unit["enable"].as_bool()) {
                Some(true) => presets.push(format!("enable {name}\n")),
                Some(false) => presets.push(format!("disable {name}\n")),
                None => {}
            }
        }
        presets.sort();
        self.put_of_root(PRESETS, presets.concat().as_bytes());
    }

    /// Debian's Ignition keeps a user's keys in a file of its own below `authorized_keys.d`.
    fn put_keys(&mut self, config: &Value) {
        for user in list(config, "/passwd/users") {
            let keys = list(user, "/sshAuthorizedKeys");
            if keys.is_empty() {
                continue;
            }
            assert_eq!(user["name"], "core", "no home for the keys of any other user");
            let lines = keys.iter().map(|key| format!("{}\n", key.as_str().expect("a key")));
            let lines: String = lines.collect();
            let file = "var/home/core/.ssh/authorized_keys.d/ignition";
            for (path, what, mode) in [
                ("var/home/core/.ssh", What::Directory, 0o700),
                ("var/home/core/.ssh/authorized_keys.d", What::Directory, 0o700),
                (file, What::File(lines.into_bytes()), 0o600),
            ] {
                self.disk.insert(path.into(), Node { what, mode, user: 1000, group: 1000 });
            }
        }
    }

    /// What the server adds to every config, or puts in the place of what the config says.
    fn put_served_files(&mut self, manifests: &[Manifest]) {
        let controller = manifests::one(manifests, "ControllerConfig", "machine-config-controller");
        for (path, field) in [
            ("etc/kubernetes/kubelet-ca.crt", "kubeAPIServerServingCAData"),
            (
                "etc/kubernetes/static-pod-resources/configmaps/cloud-config/ca-bundle.pem",
                "cloudProviderCAData",
            ),
        ] {
            let data = controller["spec"][field].as_str().expect("a CA bundle");
            let bundle = base64::engine::general_purpose::STANDARD.decode(data).expect("base64");
            match self.disk.get_mut(path) {
                Some(file) => file.what = What::File(bundle),
                None => self.put_of_root(path, &bundle),
            }
        }
        let registries = manifests::one(manifests, "ConfigMap", "merged-trusted-image-registry-ca");
        let registries = registries["data"].as_object().expect("registries");
        assert!(!registries.is_empty(), "the sample cluster has registries");
        for (key, bundle) in registries {
            // A config map's key has no colon: two dots stand for the one before a port.
            let registry = key.replace("..", ":");
            let bundle = bundle.as_str().expect("a CA bundle");
            let path = format!("etc/docker/certs.d/{registry}/ca.crt");
            self.put_of_root(&path, bundle.as_bytes());
        }
        for path in self.documents.keys().copied().collect::<Vec<_>>() {
            self.put_parents(path);
        }
    }

    fn put_of_root(&mut self, path: &str, bytes: &[u8]) {
        self.put_parents(path);
        let what = What::File(bytes.to_vec());
        self.disk.insert(path.into(), Node { what, mode: 0o644, user: 0, group: 0 });
    }

    /// A file, directory or link of the config. What it does not say about itself stays as it is
    /// where the operating system ships it, and is the default elsewhere.
    fn put(&mut self, entry: &Value, what: What, default_mode: u32, users: &Accounts) {
        let path = relative(entry);
        self.put_parents(&path);
        let shipped = self.disk.get(&path);
        let mode = match entry["mode"].as_u64() {
            Some(mode) => u32::try_from(mode).expect("a mode"),
            None => shipped.map_or(default_mode, |node| node.mode),
        };
        let user = Accounts::id(&entry["user"], &users.users);
        let group = Accounts::id(&entry["group"], &users.groups);
        self.disk.insert(path, Node { what, mode, user, group });
    }

    /// Folders that nothing describes are root's.
    fn put_parents(&mut self, path: &str) {
        for (slash, _) in path.match_indices('/') {
            self.disk.entry(path[..slash].to_owned()).or_insert(Node {
                what: What::Directory,
                mode: 0o755,
                user: 0,
                group: 0,
            });
        }
    }
}

/// Users and groups by name: those of the operating system and those of the config.
struct Accounts {
    users: BTreeMap<String, u32>,
    groups: BTreeMap<String, u32>,
}

impl Accounts {
    fn of(config: &Value) -> Self {
        let shipped = || BTreeMap::from([("root".to_owned(), 0), ("core".to_owned(), 1000)]);
        let mut accounts = Self { users: shipped(), groups: shipped() };
        for (known, place, field) in [
            (&mut accounts.users, "/passwd/users", "uid"),
            (&mut accounts.groups, "/passwd/groups", "gid"),
        ] {
            for account in list(config, place) {
                let name = account["name"].as_str().expect("a name").to_owned();
                if let Some(id) = account[field].as_u64() {
                    known.insert(name, u32::try_from(id).expect("an id"));
                }
            }
        }
        accounts
    }

    /// The owner that a file names, by name or by number; root where it names none.
    fn id(owner: &Value, known: &BTreeMap<String, u32>) -> u32 {
        match (owner["name"].as_str(), owner["id"].as_u64()) {
            (Some(name), _) => known[name],
            (None, Some(id)) => u32::try_from(id).expect("an id"),
            (None, None) => 0,
        }
    }

    /// What the files of users and groups say of the config's own.
    fn lines(&self, config: &Value) -> Vec<(&'static str, String)> {
        let mut lines = Vec::new();
        for user in list(config, "/passwd/users") {
            let text = |field: &str| user[field].as_str().unwrap_or_default();
            let name = text("name");
            let id = self.users[name];
            let hash = user["passwordHash"].as_str().unwrap_or("*");
            lines.push(("etc/shadow", format!("{name}:{hash}:")));
            let Some(group) = user["primaryGroup"].as_str() else {
                lines.push(("etc/passwd", format!("{name}:x:{id}:")));
                continue;
            };
            let group = self.groups[group];
            let (gecos, home, shell) = (text("gecos"), text("homeDir"), text("shell"));
            let line = format!("{name}:x:{id}:{group}:{gecos}:{home}:{shell}");
            lines.push(("etc/passwd", line));
        }
        for group in list(config, "/passwd/groups") {
            let name = group["name"].as_str().expect("a name");
            lines.push(("etc/group", format!("{name}:x:{}:", self.groups[name])));
        }
        lines
    }
}

/// The machine config that a pool's new machines get.
fn served_machine_config<'a>(manifests: &'a [Manifest], pool: &str) -> &'a Value {
    let pool = manifests::one(manifests, "MachineConfigPool", pool);
    let rolled_out = pool["status"]["updatedMachineCount"].as_u64().is_some_and(|n| n > 0);
    let from = if rolled_out { "spec" } else { "status" };
    let name = pool[from]["configuration"]["name"].as_str().expect("a rendered config");
    manifests::one(manifests, "MachineConfig", name)
}

/// The documents that the server adds, as values.
fn documents(manifests: &[Manifest], machine_config: &Value) -> BTreeMap<&'static str, Value> {
    let name = &machine_config["metadata"]["name"];
    let annotations = json!({
        "machineconfiguration.openshift.io/currentConfig": name,
        "machineconfiguration.openshift.io/desiredConfig": name,
        "machineconfiguration.openshift.io/firstPivotConfig": name,
        "machineconfiguration.openshift.io/state": "Done",
    });
    let kubeconfig = manifests.iter().find(|m| m.kind() == "Config").expect("a kubeconfig");
    // What a machine config leaves out is written out, as the operator does.
    let mut content = machine_config.clone();
    for (field, unsaid) in [
        ("osImageURL", json!("")),
        ("baseOSExtensionsContainerImage", json!("")),
        ("kernelType", json!("")),
        ("fips", json!(false)),
    ] {
        if content["spec"][field].is_null() {
            content["spec"][field] = unsaid;
        }
    }
    // Ignition 2.14 asks for spec 3.3, and the config in the capsule is empty but for its version.
    let mut capsule = content.clone();
    capsule["spec"]["config"] = json!({"ignition": {"version": "3.3.0"}});
    BTreeMap::from([
        ("etc/machine-config-daemon/node-annotations.json", annotations),
        ("etc/kubernetes/kubeconfig", kubeconfig.document.clone()),
        ("etc/mcs-machine-config-content.json", content),
        ("etc/ignition-machine-config-encapsulated.json", capsule),
    ])
}

/// The array at a JSON pointer; an empty one where there is none.
fn list<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// An entry's path as the tree has it.
fn relative(entry: &Value) -> String {
    entry["path"].as_str().expect("a path").trim_start_matches('/').to_owned()
}
