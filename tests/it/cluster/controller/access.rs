//! Tokens on a cluster: what the controller writes, what servers make of it, and what is left alone.

use super::*;

const ACCESS: &str = "machineconfiguration.openshift.io/access";

fn tokens() -> String {
    format!("{}/machine-config-server-tokens", secrets(NAMESPACE))
}

fn hashes() -> String {
    format!("{}/machine-config-server-access", secrets(NAMESPACE))
}

impl Site {
    /// What the user data carries, once it carries something.
    fn credential(&self, name: &str) -> String {
        wait_for("a token in the user data", || {
            let text = self.user_data(name);
            let pointer: Value = serde_json::from_slice(&text).expect("JSON");
            let header = &pointer["ignition"]["config"]["merge"][0]["httpHeaders"][0]["value"];
            header.as_str().map(str::to_owned)
        })
    }

    fn known(&self) -> Value {
        serde_json::from_slice(&value(&self.object(&hashes()), "access.json")).expect("JSON")
    }

    fn status(&self, server: &Server, pool: &str, credential: Option<&str>) -> u16 {
        let client = Client::tls(server.secure(), self.bundle().as_bytes());
        let authorization = credential.map(|credential| ("Authorization", credential));
        let headers: Vec<_> = authorization.into_iter().collect();
        client.request("GET", &format!("/config/{pool}"), &headers).status
    }

    fn enforced(&self, server: &Server) {
        wait_for("the pool to be enforced", || {
            (self.status(server, "worker", None) == 401).then_some(())
        });
    }

    fn run_tokens(&self, arguments: &[&str]) -> String {
        let mut command = binary();
        command.arg("tokens").args(arguments).arg("--kubeconfig").arg(self.cluster.admin());
        let output = command.output().expect("the built binary");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    }
}

/// A server that enforces tokens, and has in `cache` what the next one needs.
fn server_with(site: &Site, cache: &Path, flags: &[&str]) -> Server {
    let (server, _) = server_at(site, site.cluster.address(), flags);
    let server = server.until_ready();
    site.enforced(&server);
    for (file, part) in [("access.json", r#""enforced":["worker"]"#), ("objects.json", "worker")] {
        wait_for(file, || fs::read_to_string(cache.join(file)).ok()?.contains(part).then_some(()));
    }
    server
}

fn degraded(server: &Server) -> String {
    server.metrics().get("/api/v1/overview").json()["degraded"].to_string()
}

#[test]
fn machines_boot_by_tokens_from_two_servers_while_they_are_replaced() {
    let site = Site::new();
    let _controller = site.start(&["--access", "enforce", "--token-overlap", "4s"]);
    site.settled();
    let first = site.credential("worker-user-data-managed");
    let servers = [(); 2].map(|()| {
        let flags = ["--access", "enforce"];
        server_at(&site, site.cluster.address(), &flags).0.until_ready()
    });
    for server in &servers {
        site.enforced(server);
        assert_eq!(site.status(server, "worker", Some(&first)), 200);
        assert_eq!(site.status(server, "nowhere", Some(&first)), 503);
        let unknown = format!("Bearer mcs-{}", "A".repeat(43));
        assert_eq!(site.status(server, "worker", Some(&unknown)), 503);
        let plain = server.plain().request("GET", "/config/worker", &[("Authorization", &first)]);
        assert_eq!(plain.status, 401);
    }
    let machine = Machine::new();
    machine.boot(&pointer(&site, &servers[0]));

    // Of tokens, servers get hashes.
    let known = site.known().to_string();
    assert!(!known.contains("mcs-") && known.contains("sha256"), "{known}");
    assert_eq!(site.object(&tokens())["type"], "Opaque");

    let mut carried = first;
    for _ in 0..5 {
        site.run_tokens(&["rotate"]);
        let next = wait_for("another token", || {
            // What a machine was given a moment ago opens its config all the time.
            for server in &servers {
                let status = site.status(server, "worker", Some(&carried));
                assert!(matches!(status, 200 | 503), "{status}");
            }
            let now = site.credential("worker-user-data-managed");
            (now != carried).then_some(now)
        });
        for server in &servers {
            wait_for("the new one to be known", || {
                let status = site.status(server, "worker", Some(&next));
                assert!(matches!(status, 200 | 503), "{status}");
                (status == 200).then_some(())
            });
            assert_eq!(site.status(server, "worker", Some(&carried)), 200);
        }
        carried = next;
    }
    let named = site.run_tokens(&["add", "rack-7", "--pool", "worker", "--until", "never"]);
    let named = format!("Bearer {}", named.trim());
    for server in &servers {
        wait_for("it to be known", || {
            (site.status(server, "worker", Some(&named)) == 200).then_some(())
        });
    }
    site.run_tokens(&["revoke", "rack-7"]);
    for server in &servers {
        wait_for("it to be refused", || {
            (site.status(server, "worker", Some(&named)) == 401).then_some(())
        });
    }
    let list = site.run_tokens(&["list"]);
    assert!(list.contains("rack-7") && list.contains("revoked"), "{list}");
    assert!(list.contains("pool worker: all its pointer configs carry tokens"), "{list}");
}

#[test]
fn what_strangers_can_read_and_what_has_no_effect_is_told_by_the_check_of_a_cluster() {
    let site = Site::new();
    let key = "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEE\n-----END EC PRIVATE KEY-----\n";
    let source = format!("data:;base64,{}", BASE64.encode(key));
    let files = json!([{"path": "/etc/key.pem", "contents": {"source": source}}]);
    let mut config = json!({"ignition": {"version": "3.4.0"}, "storage": {"files": files}});
    config["systemd"] = json!({"unit": []});
    site.cluster.patch(&format!("{CONFIGS}/rendered"), &json!({"spec": {"config": config}}));
    let _controller = site.start(&["--access", "enforce"]);
    let told = || String::from_utf8(site.certs(&["check"]).stdout).expect("text");
    site.credential("worker-user-data-managed");
    wait_for("the pool to be enforced", || {
        (site.known()["enforced"] == json!(["worker"])).then_some(())
    });
    assert!(!told().contains("/etc/key.pem"), "{}", told());
    let ignored = "warning: MachineConfig rendered: systemd.unit: unknown field, ignored\n";
    assert!(told().contains(ignored), "{}", told());
    let open = json!({"metadata": {"annotations": {ACCESS: "audit"}}});
    site.cluster.patch(&format!("{POOLS}/worker"), &open);
    let line = "pool worker: whoever reaches the server can read /etc/key.pem (private key)";
    wait_for("it to be told", || told().contains(line).then_some(()));
}

#[test]
fn where_access_is_off_the_controller_writes_nothing_for_it() {
    let site = Site::new();
    let _controller = site.start(&[]);
    site.settled();
    let text = String::from_utf8(site.user_data("worker-user-data-managed")).expect("text");
    assert!(!text.contains("httpHeaders"), "{text}");
    // A pool may say so itself.
    let annotated = json!({"metadata": {"annotations": {ACCESS: "audit"}}});
    assert_eq!((site.cluster.get(&tokens()), site.cluster.get(&hashes())), (None, None));
    site.cluster.patch(&format!("{POOLS}/worker"), &annotated);
    site.credential("worker-user-data-managed");
    assert!(site.known()["enforced"].as_array().expect("a list").is_empty());
}

#[test]
fn what_openshifts_operator_renders_is_left_to_it_and_told() {
    let site = Site::new();
    let mut controller = site.start(&[]);
    site.settled();
    let name = "worker-user-data-managed";
    let rendered = format!("{}\n", String::from_utf8(site.user_data(name)).expect("text"));
    controller.terminate();
    let change = json!({"data": {"userData": BASE64.encode(&rendered)}});
    site.cluster
        .patch(&format!("{}?fieldManager=machine-config-operator", user_data(name)), &change);

    let controller = site.start(&["--access", "enforce"]);
    let told = wait_for("it to be told", || {
        let (_, lines) = controller.readiness();
        lines.lines().find(|line| line.contains("machine-config-operator")).map(str::to_owned)
    });
    for part in ["pool worker: not to be enforced: ", name, "user data of your own"] {
        assert!(told.contains(part), "{told}");
    }
    assert_eq!(site.user_data(name), rendered.as_bytes());
    let (server, _) = server_at(&site, site.cluster.address(), &["--access", "enforce"]);
    let server = server.until_ready();
    wait_for("the reason on the server", || degraded(&server).contains(name).then_some(()));
    assert_eq!(site.status(&server, "worker", None), 200, "it is audited");

    // The way out: user data of one's own, and word that no machine is made from the other.
    site.make_user_data("rack-user-data", rendered.as_bytes());
    let unused = json!({"metadata": {"annotations": {ACCESS: "off"}}});
    site.cluster.patch(&user_data(name), &unused);
    site.enforced(&server);
    let credential = site.credential("rack-user-data");
    assert_eq!(site.status(&server, "worker", Some(&credential)), 200);
    assert_eq!(value(&site.object(&user_data("rack-user-data")), "other"), b"stays");
    assert_eq!(site.user_data(name), rendered.as_bytes());
}

#[test]
fn a_server_that_starts_while_the_api_server_is_away_knows_who_may_have_a_config() {
    let site = Site::new();
    let _controller = site.start(&["--access", "enforce"]);
    site.settled();
    let credential = site.credential("worker-user-data-managed");
    let cache = site.folder.path().join("cache");
    let flags = ["--access", "enforce", "--cache-dir", cache.to_str().expect("text")];
    let mut server = server_with(&site, &cache, &flags);
    server.terminate();
    server.ended();
    let [nowhere] = free_ports();
    let (server, _) = server_at(&site, nowhere, &flags);
    wait_for("an answer by the token", || {
        assert!(site.status(&server, "worker", None) >= 400);
        (site.status(&server, "worker", Some(&credential)) == 200).then_some(())
    });
    assert_eq!(site.status(&server, "worker", None), 401);
    // Without what was kept, nobody is let in, and nobody is refused for good.
    fs::remove_file(cache.join("access.json")).expect("a file");
    let (server, _) = server_at(&site, nowhere, &flags);
    let status = |credential| site.status(&server, "worker", credential);
    assert_eq!([status(None), status(Some(&credential))], [503, 503]);
}

#[test]
fn a_list_of_tokens_that_is_lost_while_nobody_keeps_it_opens_nothing() {
    let site = Site::new();
    let mut controller = site.start(&["--access", "enforce"]);
    site.settled();
    let credential = site.credential("worker-user-data-managed");
    let cache = site.folder.path().join("cache");
    let flags = ["--access", "enforce", "--cache-dir", cache.to_str().expect("text")];
    let mut server = server_with(&site, &cache, &flags);
    controller.terminate();
    site.cluster.delete(&hashes());
    let gone =
        "machine-config-server-access: not found; the tokens that were read last remain in use";
    let holds = |server: &Server| {
        wait_for("the server to say so", || degraded(server).contains(gone).then_some(()));
        assert_eq!(site.status(server, "worker", Some(&credential)), 200);
        assert_eq!(site.status(server, "worker", None), 401);
    };
    holds(&server);
    server.terminate();
    server.ended();
    let (server, _) = server_at(&site, site.cluster.address(), &flags);
    holds(&server.until_ready());
}

/// Strangers ask again and again, while something else is waited for.
fn assert_closed(site: &Site, server: &Server, pool: &str) {
    let status = site.status(server, pool, None);
    assert!(matches!(status, 401 | 503), "a stranger got {status}");
}

#[test]
fn a_list_of_tokens_that_was_never_there_opens_nothing() {
    let site = Site::new();
    let mut controller = site.start(&[]);
    site.settled();
    site.object(&serving());
    let cache = site.folder.path().join("cache");
    let flags = ["--access", "enforce", "--cache-dir", cache.to_str().expect("text")];
    let (mut server, _) = server_at(&site, site.cluster.address(), &flags);
    wait_for("the reason", || {
        assert_closed(&site, &server, "worker");
        let line = "machine-config-server-access: not found: no tokens are known";
        degraded(&server).contains(line).then_some(())
    });
    assert_eq!(site.status(&server, "worker", None), 503, "nobody is refused for good");
    // As the version before kept one that it had not found; and an empty one in the cluster.
    server.terminate();
    server.ended();
    let nothing = r#"{"tokens":[],"enforced":[],"lacking":{}}"#;
    fs::write(cache.join("access.json"), nothing).expect("a writable folder");
    let secret = json!({
        "metadata": {"name": "machine-config-server-access"},
        "data": {"access.json": BASE64.encode("{}")},
    });
    let (server, _) = server_at(&site, site.cluster.address(), &flags);
    let waits = |server: &Server| {
        assert_closed(&site, server, "worker");
        let line = "pool worker: whether its pointer configs carry tokens is not known";
        degraded(server).contains(line).then_some(())
    };
    wait_for("the reason for the pool", || waits(&server));
    site.cluster.create(&secrets(NAMESPACE), &secret);
    wait_for("the list to be read", || {
        waits(&server)?;
        (!degraded(&server).contains("not found")).then_some(())
    });
    // Once somebody keeps tokens, it is enforced.
    controller.terminate();
    let _controller = site.start(&["--access", "enforce"]);
    wait_for("the pool to be enforced", || {
        assert_closed(&site, &server, "worker");
        (site.status(&server, "worker", None) == 401).then_some(())
    });
    let credential = site.credential("worker-user-data-managed");
    assert_eq!(site.status(&server, "worker", Some(&credential)), 200);
}

#[test]
fn a_pool_that_appears_is_never_served_to_strangers() {
    let site = Site::new();
    let mut controller = site.start(&["--access", "enforce"]);
    site.settled();
    let (server, _) = server_at(&site, site.cluster.address(), &["--access", "enforce"]);
    let server = server.until_ready();
    site.enforced(&server);
    // With the controller, which makes its user data and has that carry a token.
    site.pool("infra");
    wait_for("the pool to be enforced", || {
        assert_closed(&site, &server, "infra");
        let is_enforced = site.known()["enforced"] == json!(["infra", "worker"]);
        let user_data = site.cluster.get(&user_data("infra-user-data-managed"))?;
        let is_carried = String::from_utf8_lossy(&value(&user_data, "userData")).contains("mcs-");
        (is_enforced && is_carried).then_some(())
    });
    let credential = site.credential("infra-user-data-managed");
    wait_for("its machines to be served", || {
        assert_closed(&site, &server, "infra");
        (site.status(&server, "infra", Some(&credential)) == 200).then_some(())
    });
    // And without it.
    controller.terminate();
    site.pool("edge");
    wait_for("the reason", || {
        assert_closed(&site, &server, "edge");
        degraded(&server).contains("pool edge: whether its pointer configs").then_some(())
    });
    assert_eq!(site.status(&server, "edge", None), 503);
}

#[test]
fn a_list_of_tokens_that_is_restored_opens_no_pool_that_was_enforced() {
    let site = Site::new();
    let mut controller = site.start(&["--access", "enforce"]);
    site.settled();
    let credential = site.credential("worker-user-data-managed");
    let cache = site.folder.path().join("cache");
    let flags = ["--access", "enforce", "--cache-dir", cache.to_str().expect("text")];
    let mut server = server_with(&site, &cache, &flags);
    controller.terminate();
    let mut older = site.known();
    older["enforced"] = json!([]);
    older["lacking"] =
        json!({"worker": ["rack-user-data: its Ignition spec 2.2.0 has no headers"]});
    let older = json!({"data": {"access.json": BASE64.encode(older.to_string())}});
    site.cluster.patch(&hashes(), &older);
    let holds = |server: &Server| {
        wait_for("the server to say so", || {
            assert_closed(&site, server, "worker");
            degraded(server).contains("pool worker: it was enforced or may have been").then_some(())
        });
        assert_eq!(site.status(server, "worker", None), 503, "nobody is refused for good");
        assert_eq!(site.status(server, "worker", Some(&credential)), 200);
    };
    holds(&server);
    wait_for("the cache", || {
        let kept = fs::read_to_string(cache.join("access.json")).ok()?;
        kept.contains(r#""contested":["worker"]"#).then_some(())
    });
    server.terminate();
    server.ended();
    let (server, _) = server_at(&site, site.cluster.address(), &flags);
    holds(&server.until_ready());
}

#[test]
fn broken_lists_of_tokens_are_named_and_not_written_over() {
    let site = Site::new();
    let mut controller = site.start(&["--access", "enforce"]);
    site.settled();
    let credential = site.credential("worker-user-data-managed");
    let (server, _) = server_at(&site, site.cluster.address(), &["--access", "enforce"]);
    let server = server.until_ready();
    site.enforced(&server);
    let sound = site.known();
    let broken = BASE64.encode("{\"tokens\": [");
    site.cluster.patch(&hashes(), &json!({"data": {"access.json": broken}}));
    let told = wait_for("the controller to say so", || {
        let (_, lines) = controller.readiness();
        lines.lines().find(|line| line.contains("machine-config-server-access")).map(str::to_owned)
    });
    assert!(told.contains("access.json: EOF"), "{told}");
    wait_for("the server to say so", || {
        degraded(&server).contains("machine-config-server-access: access.json: EOF").then_some(())
    });
    assert_eq!(site.status(&server, "worker", Some(&credential)), 200);
    assert_eq!(site.status(&server, "worker", None), 401);
    assert_eq!(site.object(&hashes())["data"]["access.json"], broken);
    let mended = json!({"data": {"access.json": BASE64.encode(sound.to_string())}});
    site.cluster.patch(&hashes(), &mended);
    // A slip in what a pool says opens nothing.
    let slip = json!({"metadata": {"annotations": {ACCESS: "enforcing"}}});
    site.cluster.patch(&format!("{POOLS}/worker"), &slip);
    wait_for("both to say so", || {
        let is_told = controller.readiness().1.contains("expected off, audit or enforce");
        (is_told && degraded(&server).contains("expected off, audit or enforce")).then_some(())
    });
    assert_eq!(site.known()["enforced"], json!(["worker"]));
    assert_eq!(site.status(&server, "worker", None), 401);
    let right = json!({"metadata": {"annotations": {ACCESS: null}}});
    site.cluster.patch(&format!("{POOLS}/worker"), &right);
    // Deleted, it is made anew from what is there; nobody is let in nor locked out meanwhile.
    site.cluster.delete(&hashes());
    wait_for("it to be made anew", || {
        assert_eq!(site.status(&server, "worker", Some(&credential)), 200);
        assert_eq!(site.status(&server, "worker", None), 401);
        let secret = site.cluster.get(&hashes())?;
        String::from_utf8_lossy(&value(&secret, "access.json")).contains("worker").then_some(())
    });
    controller.terminate();
}

#[test]
fn a_write_that_fails_opens_no_pool_and_one_that_is_refused_for_good_is_evidence() {
    let site = Site::new();
    // The API server asks somebody who is not there, and then has an internal error.
    let hooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    let hook = json!({
        "metadata": {"name": "nobody"},
        "webhooks": [{
            "name": "nobody.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "clientConfig": {"url": "https://127.0.0.1:1/"},
            "rules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "resources": ["secrets"], "operations": ["UPDATE"],
            }],
            "matchConditions": [
                {"name": "user-data", "expression": "object.metadata.namespace == 'openshift-machine-api'"},
            ],
        }],
    });
    let mut controller = site.start(&[]);
    site.settled();
    controller.terminate();
    site.cluster.create(hooks, &hook);
    let controller = site.start(&["--access", "enforce"]);
    let server = || {
        let (server, _) = server_at(&site, site.cluster.address(), &["--access", "enforce"]);
        server.until_ready()
    };
    let name = "worker-user-data-managed";
    wait_for("it to be told", || {
        let line = format!("{name}: it carries no token, and could not be written");
        controller.readiness().1.contains(&line).then_some(())
    });
    for _ in 0..2 {
        let server = server();
        wait_for("the reason", || {
            assert_closed(&site, &server, "worker");
            degraded(&server).contains("whether its pointer configs").then_some(())
        });
    }
    // Nobody can write this one, so that its machines would be locked out.
    site.cluster.delete(&format!("{hooks}/nobody"));
    let server = server();
    site.enforced(&server);
    let text = site.user_data(name);
    let mut bare: Value = serde_json::from_slice(&text).expect("JSON");
    let fetch = bare["ignition"]["config"]["merge"][0].as_object_mut().expect("a fetch");
    fetch.remove("httpHeaders").expect("headers");
    let audit = json!({"metadata": {"annotations": {ACCESS: "audit"}}});
    site.cluster.patch(&format!("{POOLS}/worker"), &audit);
    let fixed = json!({
        "metadata": {"name": "fixed-user-data"}, "immutable": true,
        "data": {"userData": BASE64.encode(bare.to_string())},
    });
    site.cluster.create(&secrets(USER_DATA_NAMESPACE), &fixed);
    wait_for("it to be known", || {
        site.known()["lacking"].to_string().contains("immutable").then_some(())
    });
    let enforce = json!({"metadata": {"annotations": {ACCESS: "enforce"}}});
    site.cluster.patch(&format!("{POOLS}/worker"), &enforce);
    wait_for("it to be open on evidence", || {
        let is_held = degraded(&server).contains("fixed-user-data: ");
        (is_held && site.status(&server, "worker", None) == 200).then_some(())
    });
}
