//! API servers that tests hand on from one to the next: to start one takes longer than most tests.
//!
//! `tests/run` names a folder in `TEST_CLUSTERS`, and ends what runs in it. A place in there has the servers of one test at a
//! time, by a lock that ends with the test's process. The next test with the same template resets etcd's store to it, and
//! waits until the API server has seen that; one with another template starts its own there. They run on between tests: after
//! a stop by a signal the API server's caches can stay behind etcd for good.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::cluster_servers::{Servers, Template, end_in};
use super::wait_until;

/// Maximum number of servers: as many as tests run at a time.
const PLACES: usize = 6;

const JSON: &str = "application/json";

/// Name of the objects that a reset writes last.
const LAST: &str = "written-last";

/// Kubernetes' own kinds of which the API server knows what its lists show, and by their versions.
const BUILT_IN: [(&str, &[&str]); 6] = [
    ("/api/v1", &["configmaps", "events", "namespaces", "nodes", "pods", "secrets"]),
    ("/apis/apps/v1", &["daemonsets", "deployments"]),
    ("/apis/certificates.k8s.io/v1", &["certificatesigningrequests"]),
    ("/apis/coordination.k8s.io/v1", &["leases"]),
    ("/apis/networking.k8s.io/v1", &["networkpolicies"]),
    (
        "/apis/rbac.authorization.k8s.io/v1",
        &["clusterrolebindings", "clusterroles", "rolebindings", "roles"],
    ),
];

/// Locks of the places in use. They end with the process, by when a test's programs have ended.
static LOCKS: Mutex<Vec<File>> = Mutex::new(Vec::new());

/// Returns servers with this template. `start` starts them in an empty folder, if there are none. `None` if each test
/// has its own.
pub(super) fn take(template: &str, start: impl FnOnce(&Path) -> Servers) -> Option<Servers> {
    let folder = PathBuf::from(env::var_os("TEST_CLUSTERS")?).canonicalize().ok()?;
    let mut places: Vec<_> = (0..PLACES).map(|place| folder.join(place.to_string())).collect();
    places.sort_by_cached_key(|place| match recorded(place) {
        Some((name, _)) if name == template => (0, None),
        None => (1, None),
        // The one that was not used for the longest time.
        Some(_) => (2, fs::metadata(record(place)).and_then(|file| file.modified()).ok()),
    });
    let (place, lock) = places.into_iter().find_map(|place| {
        let lock = File::create(place.with_extension("lock")).ok()?;
        lock.try_lock().ok()?;
        Some((place, lock))
    })?;
    LOCKS.lock().expect("no panic with it").push(lock);
    let earlier = recorded(&place).filter(|(name, _)| name == template);
    // There is a record only between two tests: servers that one has not handed on are not used again.
    let _ = fs::remove_file(record(&place));
    if let Some((_, mut servers)) = earlier {
        servers.owned = true;
        if servers.run_both() && servers.answer_soon() && reset(&mut servers) {
            return Some(servers);
        }
    }
    end_in(&place);
    if place.exists() {
        fs::remove_dir_all(&place).expect("a folder of this run");
    }
    fs::create_dir(&place).expect("a writable folder");
    let mut servers = start(&place);
    let answer = servers.ask_etcd("range", &json!({"key": STANDARD.encode("\0")}));
    servers.template = Some(Template { name: template.to_owned(), revision: revision(&answer) });
    Some(servers)
}

fn record(place: &Path) -> PathBuf {
    place.join("record")
}

/// Servers that a test has handed on, with the name of their template.
fn recorded(place: &Path) -> Option<(String, Servers)> {
    let servers: Servers = serde_json::from_slice(&fs::read(record(place)).ok()?).ok()?;
    Some((servers.template.as_ref()?.name.clone(), servers))
}

/// Leaves servers with a template to the next test.
pub(super) fn hand_on(servers: &mut Servers) {
    if servers.template.is_none() || !servers.run_both() {
        return;
    }
    // What programs that have ended asked for last.
    wait_until("requests to end", || {
        let path = "/debug/api_priority_and_fairness/dump_requests";
        let answer = servers.request("GET", path, JSON, &json!({}));
        // A head, and this request.
        answer.body.trim_ascii().split(|byte| *byte == b'\n').count() <= 2
    });
    let record = record(&servers.folder);
    let new = record.with_extension("new");
    fs::write(&new, serde_json::to_vec(servers).expect("JSON")).expect("a writable folder");
    fs::rename(new, record).expect("a rename within a folder");
    servers.owned = false;
}

/// Resets the store to the template. Returns `false` if the API server would keep something of what a test has left.
fn reset(servers: &mut Servers) -> bool {
    let Some(Template { revision: before, .. }) = &servers.template else { return false };
    let then = keys(servers, &json!({"revision": before}));
    let now = keys(servers, &json!({}));
    let all: BTreeSet<&String> = then.keys().chain(now.keys()).collect();
    let changed = all.into_iter().filter(|key| then.get(*key) != now.get(*key));
    let changed: Vec<&String> = changed.filter(|key| !is_of_api_server(key)).collect();
    let kinds: BTreeSet<&str> = changed.iter().map(|key| kind(key)).collect();
    let lists = kinds.iter().map(|kind| lists(servers, kind)).collect::<Option<Vec<_>>>();
    let Some(lists) = lists else {
        eprintln!("the API server starts anew after changes of {kinds:?}");
        return false;
    };
    if changed.is_empty() {
        return true;
    }
    let encode = |key: &str| STANDARD.encode(key);
    let (old, new): (Vec<&String>, _) = changed.iter().partition(|key| then.contains_key(**key));
    let reads =
        old.iter().map(|key| json!({"requestRange": {"key": encode(key), "revision": before}}));
    let read = transaction(servers, &reads.collect::<Vec<_>>());
    let responses = read["responses"].as_array().into_iter().flatten();
    let restored = responses.map(|response| {
        let pair = &response["response_range"]["kvs"][0];
        json!({"requestPut": {"key": pair["key"], "value": pair["value"]}})
    });
    let removed = new.iter().map(|key| json!({"requestDeleteRange": {"key": encode(key)}}));
    let mut revision =
        revision(&transaction(servers, &restored.chain(removed).collect::<Vec<_>>()));
    for path in lists.iter().flatten() {
        let path =
            format!("{path}?limit=1&resourceVersion={revision}&resourceVersionMatch=NotOlderThan");
        wait_until("the API server to have seen the reset", || {
            let status = servers.request("GET", &path, JSON, &json!({})).status;
            // A version can be one that is not served.
            [200, 404].contains(&status)
        });
    }
    if kinds.iter().any(|kind| kind.contains("role")) {
        revision = pass_on_rights(servers);
    }
    if let Some(template) = &mut servers.template {
        template.revision = revision;
    }
    true
}

/// Waits until the API server judges by the rights that are in the store: rights that are written last are known last.
/// Returns the store's revision without them.
fn pass_on_rights(servers: &Servers) -> String {
    let group = "rbac.authorization.k8s.io";
    let of_scope = |(kind, folder, verb): (&str, &str, &str)| {
        let metadata =
            json!({"name": LAST, "namespace": folder.trim_end_matches('/'), "uid": LAST});
        let object = |kind: &str| json!({"apiVersion": format!("{group}/v1"), "kind": kind, "metadata": metadata});
        let mut role = object(kind);
        role["rules"] = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": [verb]}]);
        let mut binding = object(&format!("{kind}Binding"));
        binding["subjects"] = json!([{"apiGroup": group, "kind": "User", "name": LAST}]);
        binding["roleRef"] = json!({"apiGroup": group, "kind": kind, "name": LAST});
        let kinds = kind.to_lowercase();
        [
            (format!("/registry/{kinds}s/{folder}{LAST}"), role),
            (format!("/registry/{kinds}bindings/{folder}{LAST}"), binding),
        ]
    };
    let objects = [("ClusterRole", "", "get"), ("Role", "default/", "list")].map(of_scope);
    let objects = objects.as_flattened();
    let put = |(key, value): &(String, Value)| {
        let [key, value] = [key.clone(), value.to_string()].map(|text| STANDARD.encode(text));
        json!({"requestPut": {"key": key, "value": value}})
    };
    transaction(servers, &objects.iter().map(put).collect::<Vec<_>>());
    for verb in ["get", "list"] {
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
            "spec": {"user": LAST, "resourceAttributes": {
                "verb": verb, "resource": "pods", "namespace": "default",
            }},
        });
        wait_until("the API server to know the rights", || {
            let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
            let answer = servers.request("POST", path, JSON, &review).whole_json();
            answer["status"]["allowed"] == true
        });
    }
    let remove =
        |(key, _): &(String, Value)| json!({"requestDeleteRange": {"key": STANDARD.encode(key)}});
    revision(&transaction(servers, &objects.iter().map(remove).collect::<Vec<_>>()))
}

fn transaction(servers: &Servers, operations: &[Value]) -> Value {
    servers.ask_etcd("txn", &json!({"success": operations}))
}

/// Paths of the lists of a kind, in each of its versions. `None` if the API server keeps more of it than these.
fn lists(servers: &Servers, kind: &str) -> Option<Vec<String>> {
    let name = kind.strip_prefix("/registry/")?;
    let Some((group, name)) = name.split_once('/') else {
        let name = if name == "minions" { "nodes" } else { name };
        let (version, _) = BUILT_IN.iter().find(|(_, names)| names.contains(&name))?;
        return Some(vec![format!("{version}/{name}")]);
    };
    if group.ends_with("k8s.io") {
        return None;
    }
    let known = servers.get(&format!("/apis/{group}"))?;
    let versions = known["versions"].as_array()?.iter();
    versions.map(|it| Some(format!("/apis/{}/{name}", it["groupVersion"].as_str()?))).collect()
}

/// Revisions of all keys in etcd's store.
fn keys(servers: &Servers, options: &Value) -> BTreeMap<String, String> {
    let mut asked = json!({"key": "AA==", "range_end": "AA==", "keys_only": true});
    asked.as_object_mut().expect("an object").extend(options.as_object().expect("one").clone());
    let answer = servers.ask_etcd("range", &asked);
    let pairs = answer["kvs"].as_array().expect("keys");
    pairs
        .iter()
        .map(|pair| {
            let [key, revision] =
                ["key", "mod_revision"].map(|field| pair[field].as_str().expect("text"));
            let key = STANDARD.decode(key).expect("base64");
            (String::from_utf8(key).expect("text"), revision.to_owned())
        })
        .collect()
}

/// Revision of etcd's store at its answer.
fn revision(answer: &Value) -> String {
    answer["header"]["revision"].as_str().expect("a revision").to_owned()
}

/// Whether the API server itself keeps the object of this key up to date.
fn is_of_api_server(key: &str) -> bool {
    let own = [
        "/registry/ipaddresses/10.0.0.1",
        "/registry/leases/kube-system/apiserver-",
        "/registry/peerserverleases/",
        "compact_rev_key",
    ];
    own.iter().any(|prefix| key.starts_with(prefix))
}

/// `/registry/KIND` or `/registry/GROUP/KIND` of a key.
fn kind(key: &str) -> &str {
    let depth = if key.split('/').nth(2).is_some_and(|it| it.contains('.')) { 3 } else { 2 };
    key.match_indices('/').nth(depth).map_or(key, |(end, _)| &key[..end])
}
