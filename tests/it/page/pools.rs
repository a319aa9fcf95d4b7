//! A pool's page: what machines become by its config, without what is secret, and what changed.
use std::path::Path;

use serde_json::json;

use crate::support::manifests::{machine_config, pool, write};
use crate::support::server::Server;
use crate::support::wait_for;

fn write_config(folder: &Path, name: &str, motd: &str) {
    let file = |path: &str, text: &str| json!({"path": path, "mode": 420, "contents": {"source": format!("data:,{text}")}});
    let key = "-----BEGIN%20PRIVATE%20KEY-----%0Ac2VjcmV0IG9mIHRoZSBwb29s%0A-----END%20PRIVATE%20KEY-----%0A";
    let config = json!({
            "ignition": {"version": "3.4.0"},
            "passwd": {"users": [{"name": "core", "passwordHash": "$6$salt$hashofthepassword"}]},
            "storage": {"files": [
                file("/etc/motd", motd),
                file("/etc/<b>bold</b>", "x"),
                file("/etc/secret.key", key),
            ]},
            "systemd": {"units": [{"name": "a.service", "enabled": true, "contents": "[Unit]\n"}]},
    });
    write(folder, "config.json", machine_config(name, &config));
}

#[test]
fn a_pools_page_shows_what_its_machines_become_and_what_changed() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    write_config(folder.path(), "rendered", "hello%0A");
    write(folder.path(), "pool.json", pool("worker", "rendered"));
    let server = Server::serve(folder.path(), &[]);
    let first = server.page("/pools/worker");
    for text in [
        "<td data-label=\"PATH\">/etc/motd</td>",
        "<td data-label=\"PATH\">/etc/&#60;b&#62;bold&#60;/b&#62;</td>",
        "<td data-label=\"NAME\">a.service</td>",
        "SECRET: private key",
        "set, not shown",
        "Secrets (values are not shown): ",
        "This server has served no other config of this pool",
    ] {
        assert!(first.contains(text), "{text} in {first}");
    }
    write_config(folder.path(), "rendered", "good%20bye%0A");
    let second = wait_for("the difference", || {
        Some(server.page("/pools/worker")).filter(|page| page.contains("Changes of this config to"))
    });
    for text in [
        "<span class=\"changed\">changed</span> file /etc/motd",
        "<span class=\"minus\">-hello</span>",
        "<span class=\"plus\">+good bye</span>",
    ] {
        assert!(second.contains(text), "{text} in {second}");
    }
    for page in [&first, &second] {
        for secret in ["c2VjcmV0IG9m", "hashofthepassword", "<b>bold"] {
            assert!(!page.contains(secret), "{secret} in {page}");
        }
    }
    assert_eq!(server.metrics().get("/pools/gpu").status, 404);
    assert_eq!(server.metrics().get("/pools/%3Cb%3E").status, 404);
}
