//! What an administrator, another tool or a clock does to a cluster's certificates: no machine that
//! could boot is locked out by it, and what is not done is told.

use std::process::Output;

use ignition::{SpecVersion, pointer as pointer_config};
use pki::{Certificate, Holder, locked_out};
use time::OffsetDateTime;

use super::*;
use crate::support::book;
use crate::support::clock::set_clock;

const DISTRUST: &str = "machineconfiguration.openshift.io/distrust-certificates";
const DISTRUSTED: &str = "BEGIN DISTRUSTED CERTIFICATE";

impl Site {
    /// Writes annotations; `null` removes one.
    fn annotate(&self, path: &str, annotations: &Value) {
        self.cluster.patch(path, &json!({"metadata": {"annotations": annotations}}));
    }

    /// Waits until the controller has looked at everything as it is now: a new pool shows that.
    fn looked_at(&self, pool: &str) {
        self.pool(pool);
        self.object(&user_data(&format!("{pool}-user-data-managed")));
    }

    /// Waits until the log, an event, readiness, which stays 200, a metric and `certs check`, which
    /// fails, tell `text` of this kind.
    fn told(&self, controller: &Controller, kind: &str, text: &str) {
        wait_for("the log to tell", || controller.log().contains(text).then_some(()));
        wait_for("an event", || {
            let events = ["get", "events", "--all-namespaces", "-o", "json"];
            self.cluster.kubectl(&events).contains(text).then_some(())
        });
        let metric = format!("mcs_certificates_attention{{what=\"{kind}\"}} ");
        wait_for("the metric", || {
            let page = controller.metrics();
            let line = page.lines().find_map(|line| line.strip_prefix(&metric)).map(str::to_owned);
            line.filter(|count| count != "0")
        });
        wait_for("readiness to tell", || {
            let (status, lines) = controller.readiness();
            (status == 200 && lines.starts_with("certificates: ")).then_some(())
        });
        let checked = self.certs(&["check"]);
        assert_eq!(checked.status.code(), Some(1));
        assert!(said(&checked).contains(text), "{text} in {}", said(&checked));
    }

    /// Waits until nothing is told any more.
    fn in_order(&self, controller: &Controller) {
        self.settled();
        wait_for("readiness to be in order", || {
            (controller.readiness() == (200, String::new())).then_some(())
        });
    }

    /// The CAs of the bundle.
    fn trusted(&self) -> Vec<Certificate> {
        Certificate::read_all(self.bundle().as_bytes())
    }

    /// What the signing CA's secret holds besides.
    fn previous(&self) -> String {
        let secret = self.object(&authority());
        String::from_utf8(value(&secret, "previous-cas.pem")).expect("text")
    }

    /// An installation whose CA is known by its certificate alone, with a serving pair for these
    /// names. Returns a pointer config that trusts that CA.
    fn old_installation(&self, names: &str) -> String {
        let folder = self.folder.path();
        rsa_pair(folder, "root-ca");
        sign_serving(folder, &format!("subjectAltName={names}"));
        let in_folder = |file: &str| read(&folder.join(file));
        let pair = tls_secret(
            "machine-config-server-tls",
            "kubernetes.io/tls",
            &in_folder("tls.crt"),
            &in_folder("tls.key"),
            &json!({}),
        );
        self.cluster.create(&secrets(NAMESPACE), &pair);
        let root = in_folder("ca.crt");
        let map = json!({"metadata": {"name": "root-ca"}, "data": {"ca.crt": root}});
        self.cluster.create("/api/v1/namespaces/kube-system/configmaps", &map);
        let url = "https://localhost:22623/config/worker";
        let pointer = pointer_config(url, root.as_bytes(), SpecVersion::V3_1).to_string();
        self.make_user_data("worker-user-data", pointer.as_bytes());
        pointer
    }

    /// Whether a machine with this pointer config accepts what is to be served.
    fn boots(&self, pointer: &[u8]) -> bool {
        let holder = Holder {
            name: "a machine".to_owned(),
            trusted: Certificate::read_all(&trusted(pointer)),
            hosts: Vec::new(),
        };
        locked_out(&self.chain(&serving()), &[holder], OffsetDateTime::now_utc()).is_empty()
    }

    /// Puts a pair into a secret as somebody else does.
    fn put_pair(&self, path: &str, certificate: &[u8], key: &[u8]) {
        let data = json!({"tls.crt": BASE64.encode(certificate), "tls.key": BASE64.encode(key)});
        self.cluster.patch(path, &json!({"data": data}));
    }

    /// Runs a line of a shell, with kubectl and the binary at hand, as an administrator does.
    fn shell(&self, folder: &Path, line: &str) -> Output {
        let tools = std::env::var("KUBEBUILDER_ASSETS").expect("tests/run sets it");
        let own =
            Path::new(env!("CARGO_BIN_EXE_machine-config-server")).parent().expect("a folder");
        let path = std::env::var("PATH").unwrap_or_default();
        Command::new("bash")
            .args(["-o", "pipefail", "-ec", line])
            .current_dir(folder)
            .env("PATH", format!("{tools}:{}:{path}", own.display()))
            .env("KUBECONFIG", self.cluster.admin())
            .env("KUBECACHEDIR", self.cluster.kubectl_cache())
            .stdin(Stdio::null())
            .output()
            .expect("bash")
    }
}

/// All that a command has said.
fn said(output: &Output) -> String {
    let [out, errors] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    format!("{out}{errors}")
}

/// The commands of a page of the book, as they are written there.
fn commands(page: &str) -> Vec<String> {
    book::commands(&book::page(page)).into_iter().map(|(command, _)| command).collect()
}

/// The pointer config with the port of the server under test.
fn to_server(pointer: &str, server: &Server) -> String {
    pointer.replace(":22623/", &format!(":{}/", server.secure().port()))
}

#[test]
fn an_old_leaf_that_lacks_a_new_address_stays_and_so_does_one_whose_rotation_is_asked_for() {
    let site = Site::new();
    site.set_addresses(&["192.0.2.5"]);
    let old = site.old_installation("DNS:localhost,DNS:api-int.example.com,IP:192.0.2.5");
    let pair = site.serial(&serving());
    let controller = site.start(&[]);
    site.object(&user_data("worker-user-data-managed"));
    site.in_order(&controller);
    assert_eq!(site.serial(&serving()), pair);
    assert_eq!(
        site.trusted()[0].common_name,
        "root-ca",
        "the first one vouches for what is served"
    );

    site.set_addresses(&["192.0.2.5", "2001:db8::5"]);
    site.told(&controller, "refused", "(it does not name [2001:db8::5]): after it ");
    site.set_addresses(&["192.0.2.6"]);
    site.looked_at("infra");
    let managed = site.user_data("worker-user-data-managed");
    assert!(String::from_utf8_lossy(&managed).contains("//192.0.2.5:"), "it boots, and stays");
    site.set_addresses(&["192.0.2.5"]);
    site.in_order(&controller);

    // Asked by the command, which tells at once; and by the annotation.
    let asked = site.certs(&["rotate", "--ca"]);
    assert_eq!(asked.status.code(), Some(1), "{}", said(&asked));
    assert!(said(&asked).contains("a new certificate authority is refused"), "{}", said(&asked));
    site.annotate(&authority(), &json!({ROTATE: "now"}));
    site.told(&controller, "refused", "a new certificate authority is refused (it was asked for)");
    // A pair alone; one that is asked for beside a CA waits for that.
    site.annotate(&authority(), &json!({ROTATE: null}));
    site.annotate(&serving(), &json!({ROTATE: "now"}));
    site.told(&controller, "refused", "a new serving pair is refused (it was asked for)");
    assert_eq!(site.serial(&serving()), pair);
    let (server, _) = server(&site);
    Machine::new().boot(&to_server(&old, &server));

    // Who takes the request back is left in peace; who insists gets it.
    for path in [authority(), serving()] {
        site.annotate(&path, &json!({ROTATE: null}));
    }
    site.in_order(&controller);
    site.set_addresses(&["192.0.2.6"]);
    site.annotate(&serving(), &json!({ROTATE: "now --force"}));
    wait_for("a new pair", || (site.serial(&serving()) != pair).then_some(()));
    site.in_order(&controller);
    assert!(site.boots(&site.user_data("worker-user-data")));
    assert!(!site.boots(old.as_bytes()), "that is what was insisted on");
    let managed = site.user_data("worker-user-data-managed");
    assert!(String::from_utf8_lossy(&managed).contains("//192.0.2.6:"));
}

/// What `serve` has made in a folder, handed over by the commands of the book.
struct HandedOver {
    serve: Server,
    folder: PathBuf,
}

impl HandedOver {
    fn new() -> Self {
        let serve = Server::serve(&in_repository("ignition-fixtures"), &[]);
        let folder = serve.state().parent().expect("a folder").to_owned();
        Self { serve, folder }
    }

    /// A pointer config as it is now, on the port that the server in the cluster has.
    fn pointer(&self) -> String {
        let port = format!(":{}/", self.serve.secure().port());
        read(&self.serve.state().join("user-data/worker.ign")).replace(&port, ":22623/")
    }

    fn run(&self, site: &Site, line: &str) {
        let output = site.shell(&self.folder, line);
        assert!(output.status.success(), "{line}: {}", said(&output));
    }

    /// The command that hands a secret over.
    fn command(name: &str) -> String {
        let word = format!("create secret tls {name}");
        let mut commands = commands("how-to/kubernetes.md").into_iter();
        commands.find(|command| command.contains(&word)).expect("a command")
    }
}

#[test]
fn what_serve_made_goes_on_booting_after_the_controller_has_taken_over() {
    let site = Site::new();
    let made = HandedOver::new();
    let first = made.pointer();
    made.run(&site, "machine-config-server certs rotate --ca --state-dir state");
    let second = made.pointer();
    assert_ne!(trusted(first.as_bytes()), trusted(second.as_bytes()));
    for name in ["machine-config-server-tls", "machine-config-server-ca"] {
        made.run(&site, &HandedOver::command(name));
    }
    let pair = site.chain(&serving());
    let controller = site.start(&[]);
    site.object(&user_data("worker-user-data-managed"));
    site.in_order(&controller);
    assert_eq!(site.chain(&serving()), pair, "nothing needs to be issued");
    let (server, mounted) = server(&site);
    let boot_all = || {
        for old in [&first, &second] {
            Machine::new().boot(&to_server(old, &server));
        }
        Machine::new().boot(&pointer(&site, &server));
    };
    boot_all();
    site.rotate("now");
    mount(&site, &mounted);
    wait_for("the new pair to be served", || {
        let now = trusted(&site.user_data("worker-user-data-managed"));
        let newest = Certificate::read_all(&now).into_iter().max_by_key(Certificate::made_at)?;
        let client = Client::tls(server.secure(), newest.to_pem().as_bytes());
        client.try_request("GET", "/healthz", &[]).ok()
    });
    boot_all();
}

#[test]
fn a_pair_that_came_without_its_ca_stays_until_the_ca_comes() {
    let site = Site::new();
    let made = HandedOver::new();
    made.run(&site, &HandedOver::command("machine-config-server-tls"));
    let pair = site.serial(&serving());
    let controller = site.start(&[]);
    site.object(&user_data("worker-user-data-managed"));
    site.told(&controller, "locked-out", "the bundle could not boot a machine");
    site.looked_at("infra");
    assert_eq!(site.serial(&serving()), pair);
    assert!(site.boots(made.pointer().as_bytes()));
    let late = HandedOver::command("machine-config-server-ca");
    made.run(&site, &(late + " --dry-run=client -o yaml | kubectl replace -f -"));
    site.in_order(&controller);
    assert_eq!(site.serial(&serving()), pair);
    assert!(site.boots(made.pointer().as_bytes()));
    assert!(site.boots(&site.user_data("worker-user-data-managed")));
}

#[test]
fn a_tool_that_strips_annotations_makes_one_ca_an_hour_at_most() {
    let site = Site::new();
    let controller = site.start(&[]);
    site.object(&user_data("worker-user-data-managed"));
    site.in_order(&controller);
    let strip = |times: u32| {
        for _ in 0..times {
            site.annotate(&authority(), &json!({NOT_AFTER: null}));
            wait_for("the date to be back", || {
                let annotations = site.object(&authority())["metadata"]["annotations"].clone();
                annotations[NOT_AFTER].is_string().then_some(())
            });
            site.settled();
        }
    };
    strip(6);
    assert_eq!(site.trusted().len(), 2);
    assert_eq!(site.chain(&serving()).len(), 2);
    // All of them: that asks for nothing.
    for path in [authority(), serving()] {
        site.annotate(&path, &Value::Null);
    }
    site.looked_at("infra");
    assert_eq!(site.trusted().len(), 2);

    // Force is for one request, not for whatever comes after it.
    site.rotate("now");
    assert_eq!(site.trusted().len(), 3);
    strip(3);
    assert_eq!(site.trusted().len(), 3);
    assert_eq!(site.chain(&serving()).len(), 3);
    let folder = site.folder.path().join("own");
    fs::create_dir(&folder).expect("a new folder");
    let own = Pair::make(&folder, "somebody's own");
    site.put_pair(&serving(), own.pem.as_bytes(), read(&own.key).as_bytes());
    site.told(&controller, "locked-out", "the bundle could not boot a machine");
    site.looked_at("arbiter");
    assert_eq!(site.serial(&serving()), own.pem.as_bytes(), "the administrator's own pair");
}

#[test]
fn a_ca_that_is_distrusted_leaves_everything_for_good() {
    let site = Site::new();
    let controller = site.start(&[]);
    site.object(&user_data("worker-user-data-managed"));
    site.in_order(&controller);
    let leaked = site.trusted().remove(0);
    let key = String::from_utf8(value(&site.object(&authority()), "tls.key")).expect("text");
    let old = site.user_data("worker-user-data-managed");
    site.make_user_data("worker-user-data", &old);
    site.rotate("now");
    assert!(site.previous().contains(&key), "it is kept");

    let before = site.bundle();
    let asked = site.certs(&["distrust", &leaked.common_name]);
    assert_eq!(asked.status.code(), Some(1));
    let text = said(&asked);
    let alone = format!("trusts \"{}\" alone could not boot a machine", leaked.common_name);
    assert!(text.contains(&alone) && text.contains("--yes"), "{text}");
    assert!(site.object(&authority())["metadata"]["annotations"][DISTRUST].is_null());
    assert_eq!(site.bundle(), before);

    let is_gone = |ca: &Certificate| {
        let leads = |it: &Certificate| it.has_key_of(ca) || it.is_issued_by(ca);
        let user_data = ["worker-user-data-managed", "worker-user-data"];
        !site.trusted().contains(ca)
            && !site.chain(&serving()).iter().any(leads)
            && user_data
                .iter()
                .all(|name| !Certificate::read_all(&trusted(&site.user_data(name))).contains(ca))
    };
    let asked = site.certs(&["distrust", &leaked.common_name, "--yes"]);
    assert!(asked.status.success(), "{}", said(&asked));
    wait_for("it to leave", || is_gone(&leaked).then_some(()));
    site.in_order(&controller);
    let holds_key = || {
        let secret = site.object(&authority());
        let texts = ["tls.key", "previous-cas.pem"].map(|name| value(&secret, name));
        texts.iter().any(|text| String::from_utf8_lossy(text).contains(&key))
    };
    assert!(!holds_key(), "its key is deleted");
    assert!(!site.boots(&old));
    assert!(site.boots(&site.user_data("worker-user-data-managed")));

    // It is remembered without the annotation, over later rotations, and where it is brought back.
    site.annotate(&authority(), &json!({DISTRUST: null}));
    site.rotate("again");
    let both = site.bundle() + &leaked.to_pem();
    site.cluster.patch(&bundle(), &json!({"data": {"ca-bundle.crt": both}}));
    site.make_user_data("late-user-data", &old);
    wait_for("it to leave again", || is_gone(&leaked).then_some(()));
    wait_for("late user data to follow", || {
        (trusted(&site.user_data("late-user-data")) == site.bundle().as_bytes()).then_some(())
    });
    site.in_order(&controller);
    assert!(site.previous().contains(DISTRUSTED));

    // By hand: all that there are, the one that signs among them.
    let all = site.trusted();
    let fingerprints: Vec<_> = all.iter().map(Certificate::fingerprint).collect();
    site.annotate(&authority(), &json!({DISTRUST: fingerprints.join(", ")}));
    wait_for("all to leave", || all.iter().all(is_gone).then_some(()));
    site.in_order(&controller);
    assert_eq!(site.trusted().len(), 1);
    let (server, _) = server(&site);
    Machine::new().boot(&pointer(&site, &server));
}

/// The administrator's own CA, which allows none below it, and its key.
fn own_authority(name: &str) -> (String, String) {
    let key = rcgen::KeyPair::generate().expect("a key");
    let mut params = rcgen::CertificateParams::new(Vec::new()).expect("no names");
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Constrained(0));
    params.key_usages = vec![rcgen::KeyUsagePurpose::KeyCertSign];
    let now = OffsetDateTime::now_utc();
    params.not_before = now - time::Duration::days(30);
    params.not_after = now + time::Duration::days(3650);
    (params.self_signed(&key).expect("a certificate").pem(), key.serialize_pem())
}

#[test]
fn a_rotation_that_an_own_ca_does_not_allow_is_refused_until_it_is_insisted_on() {
    let site = Site::new();
    let (own, key) = own_authority("Example Corp CA");
    let secret =
        tls_secret("machine-config-server-ca", "kubernetes.io/tls", &own, &key, &json!({}));
    site.cluster.create(&secrets(NAMESPACE), &secret);
    // A CA that is known here, and signs nothing.
    let (other, _) = own_authority("Other CA");
    let map = json!({
        "metadata": {"name": "machine-config-server-ca"},
        "data": {"ca-bundle.crt": format!("{own}{other}")},
    });
    site.cluster.create(&format!("/api/v1/namespaces/{NAMESPACE}/configmaps"), &map);
    let controller = site.start(&[]);
    let old = site.user_data("worker-user-data-managed");
    site.in_order(&controller);
    let before = site.serial(&serving());

    site.annotate(&authority(), &json!({ROTATE: "now"}));
    let reason = "allows 0 CAs below it (pathlen)";
    site.told(&controller, "refused", reason);
    let asked = site.certs(&["rotate", "--ca"]);
    assert_eq!(asked.status.code(), Some(1), "{}", said(&asked));
    assert!(said(&asked).contains(reason), "{}", said(&asked));
    // What is done meanwhile answers no request but its own.
    let other = Certificate::read_all(other.as_bytes()).remove(0);
    site.annotate(&authority(), &json!({DISTRUST: other.fingerprint()}));
    wait_for("the other one to leave", || (!site.trusted().contains(&other)).then_some(()));
    site.looked_at("infra");
    site.told(&controller, "refused", reason);
    assert_eq!(site.serial(&authority()), own.as_bytes());
    assert_eq!(site.serial(&serving()), before);
    assert!(site.boots(&old));

    site.annotate(&authority(), &json!({ROTATE: "now --force"}));
    wait_for("a new pair", || (site.serial(&serving()) != before).then_some(()));
    assert!(!site.boots(&old), "that is what was insisted on");
    site.told(&controller, "locked-out", "alone could not boot a machine");
    wait_for("user data to boot", || {
        site.boots(&site.user_data("worker-user-data-managed")).then_some(())
    });
    // Who has no machine that trusts it alone says so, and all is in order.
    assert!(site.certs(&["distrust", "Example Corp CA", "--yes"]).status.success());
    site.in_order(&controller);
}

#[test]
fn a_ca_that_cannot_be_used_is_kept_and_told_and_one_that_is_deleted_locks_nobody_out() {
    let site = Site::new();
    let controller = site.start(&[]);
    site.object(&user_data("worker-user-data-managed"));
    site.in_order(&controller);
    let folder = site.folder.path();
    let secret = site.object(&authority());
    let [certificate, key] = ["tls.crt", "tls.key"].map(|name| value(&secret, name));
    fs::write(folder.join("key"), &key).expect("a write");
    let encrypt = ["pkcs8", "-topk8", "-v2", "aes256", "-passout", "pass:x"];
    openssl(folder, &[&encrypt[..], &["-in", "key", "-out", "encrypted"]].concat());
    let encrypted = fs::read(folder.join("encrypted")).expect("a file");
    let pair = site.serial(&serving());
    let bundle_before = site.bundle();
    let garbage = b"\0garbage".to_vec();
    for (certificate, key, told) in [
        (&certificate, &encrypted, "its key is encrypted"),
        (&garbage, &garbage, "there is no certificate in it"),
        (&Vec::new(), &Vec::new(), "it is empty"),
    ] {
        site.put_pair(&authority(), certificate, key);
        let told = format!("the certificate authority is left as it is: {told}");
        site.told(&controller, "authority", &told);
        let secret = site.object(&authority());
        let kept = ["tls.crt", "tls.key"].map(|name| value(&secret, name));
        assert_eq!([certificate, key], [&kept[0], &kept[1]], "nothing is written over it");
        // What else is lost comes back from what there is.
        site.cluster.delete(&bundle());
        wait_for("the bundle", || (site.bundle() == bundle_before).then_some(()));
        assert_eq!(site.serial(&serving()), pair);
    }
    site.put_pair(&authority(), &certificate, &key);
    site.in_order(&controller);
    assert_eq!(site.serial(&serving()), pair);

    let (server, _) = server(&site);
    let old = pointer(&site, &server);
    site.cluster.delete(&authority());
    site.object(&authority());
    site.in_order(&controller);
    assert_eq!(site.serial(&serving()), pair, "nobody can lead to the old CA without its key");
    assert_eq!(site.trusted().len(), 2);
    let first = Holder::of_one(&site.trusted()[0]);
    assert_eq!(locked_out(&site.chain(&serving()), &[first], OffsetDateTime::now_utc()), []);
    site.cluster.delete(&bundle());
    site.object(&bundle());
    site.in_order(&controller);
    assert_eq!(site.trusted().len(), 2);
    Machine::new().boot(&old);
    Machine::new().boot(&pointer(&site, &server));
    // The backup comes back, and with it all that it can sign.
    site.put_pair(&authority(), &certificate, &key);
    site.in_order(&controller);
    assert!(site.boots(old.as_bytes()));
}

#[test]
fn the_first_ca_of_bundle_and_user_data_vouches_for_what_is_served_at_any_moment() {
    let site = Site::new();
    let controller = site.start(&[]);
    let managed = site.user_data("worker-user-data-managed");
    site.in_order(&controller);
    let mut spec_2 = user_data_config("2.2.0", &json!({"source": ""}));
    let pem = trusted(&managed);
    let source = format!("data:;base64,{}", BASE64.encode(pem));
    spec_2["ignition"]["security"]["tls"]["certificateAuthorities"][0]["source"] = source.into();
    site.make_user_data("spec-2-user-data", spec_2.to_string().as_bytes());
    site.settled();
    let stop = AtomicBool::new(false);
    let looks = AtomicU64::new(0);
    std::thread::scope(|scope| {
        let _stopping = StopOnDrop(&stop);
        scope.spawn(|| {
            while !stop.load(Ordering::SeqCst) {
                let names = ["worker-user-data-managed", "spec-2-user-data"];
                let mut texts = names.map(|name| trusted(&site.user_data(name))).to_vec();
                texts.push(site.bundle().into_bytes());
                let first = |pem: &Vec<u8>| Holder::of_one(&Certificate::read_all(pem)[0]);
                let holders: Vec<_> = texts.iter().map(first).collect();
                let lockouts =
                    locked_out(&site.chain(&serving()), &holders, OffsetDateTime::now_utc());
                assert_eq!(lockouts, []);
                looks.fetch_add(1, Ordering::SeqCst);
            }
        });
        for round in 0..4 {
            let before = looks.load(Ordering::SeqCst);
            site.rotate(&round.to_string());
            wait_for("a look", || (looks.load(Ordering::SeqCst) > before + 1).then_some(()));
        }
    });
}

#[test]
fn a_controller_whose_clock_is_wrong_says_so_and_locks_nobody_out_when_it_is_right_again() {
    let site = Site::new();
    let mut first = site.start(&[]);
    site.object(&user_data("worker-user-data-managed"));
    site.in_order(&first);
    first.terminate();
    let state = || {
        [authority(), serving(), bundle(), user_data("worker-user-data-managed")]
            .map(|path| site.object(&path)["data"].clone())
    };
    let before = state();
    let kubeconfig = site.cluster.kubeconfig_of(ACCOUNT, NAMESPACE, site.cluster.address());
    let at = |offset: &str| {
        let mut command = binary();
        set_clock(&mut command, offset);
        Controller::run(command, &kubeconfig, site.folder.path(), &[])
    };
    for behind in ["-2h", "-400d"] {
        let mut controller = at(behind);
        let told = "the clock is behind: ";
        wait_for("the log to tell", || controller.log().contains(told).then_some(()));
        wait_for("the metric", || {
            let metric = "mcs_certificates_attention{what=\"clock\"} 1";
            controller.metrics().contains(metric).then_some(())
        });
        wait_for("readiness", || (controller.readiness().0 == 200).then_some(()));
        site.annotate(&authority(), &json!({ROTATE: behind}));
        // Where the clock is so far behind that no CA can sign, nothing needs to be refused.
        if behind == "-2h" {
            let refused = "a new certificate authority is refused (it was asked for): the clock";
            wait_for("the refusal", || controller.log().contains(refused).then_some(()));
        }
        site.looked_at(&format!("pool{behind}"));
        site.annotate(&authority(), &json!({ROTATE: null}));
        assert_eq!(state(), before, "{behind}");
        controller.terminate();
    }
    let mut next = site.start(&[]);
    site.looked_at("infra");
    site.in_order(&next);
    assert_eq!(state(), before);
    next.terminate();

    // Far ahead it has to make a CA; when the clock is right again, machines boot as before.
    let old = site.user_data("worker-user-data-managed");
    let mut ahead = at("+5000d");
    wait_for("a CA of that time", || {
        ahead.log().contains("issued a new serving pair").then_some(())
    });
    ahead.terminate();
    let last = site.start(&[]);
    wait_for("the old one to be back", || site.boots(&old).then_some(()));
    site.told(&last, "clock", "the clock is behind: ");
    assert!(site.boots(&site.user_data("worker-user-data-managed")));
}

#[test]
fn the_commands_for_keys_that_are_leaked_lost_or_restored_do_what_they_say() {
    const EXAMPLE: &str = "machine-config-server-ca@1795287382-823b";
    let site = Site::new();
    let controller = site.start(&[]);
    site.object(&user_data("worker-user-data-managed"));
    site.in_order(&controller);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let certs = folder.path().join("certs");
    let serve = || Server::serve_with_state(&in_repository("ignition-fixtures"), &certs);
    let running = serve();
    let run = |line: &str| {
        let output = site.shell(folder.path(), line);
        assert!(output.status.success(), "{line}: {}", said(&output));
    };
    let check = "machine-config-server certs check";
    let own = |line: &String| line.starts_with("machine-config-server");
    let in_cluster = |line: &str| format!("{} --kubeconfig \"$KUBECONFIG\"", line.trim_end());
    let newest = || site.trusted().into_iter().max_by_key(Certificate::made_at).expect("one");

    // Leaked, in a directory; in the cluster by the command, and by the annotation.
    let (own_lines, others): (Vec<_>, Vec<_>) =
        commands("how-to/distrust.md").into_iter().partition(own);
    assert_eq!((own_lines.len(), others.len()), (3, 1));
    let in_folder = || Certificate::read_all(&fs::read(certs.join("ca.crt")).expect("a file"));
    let leaked = in_folder().remove(0);
    for (line, expected) in own_lines.iter().zip([0, 1, 0]) {
        let line = line.replace(EXAMPLE, &leaked.common_name);
        let output = site.shell(folder.path(), &line);
        assert_eq!(output.status.code(), Some(expected), "{line}: {}", said(&output));
    }
    run(check);
    assert!(!in_folder().contains(&leaked));
    let leaked = newest();
    for (line, expected) in own_lines.iter().zip([0, 1, 0]) {
        let line = in_cluster(&line.replace(EXAMPLE, &leaked.common_name));
        let output = site.shell(folder.path(), &line);
        assert_eq!(output.status.code(), Some(expected), "{line}: {}", said(&output));
    }
    wait_for("it to leave", || (!site.trusted().contains(&leaked)).then_some(()));
    site.in_order(&controller);
    let leaked = newest();
    run(&others[0].replace(EXAMPLE, &leaked.common_name));
    wait_for("it to leave", || (!site.trusted().contains(&leaked)).then_some(()));
    site.in_order(&controller);

    // Restored, after everything was lost.
    drop(running);
    let section = commands("how-to/restore.md");
    let [keep, keep_secret, restore, restore_secret, last] = &section[..] else {
        panic!("{section:?}")
    };
    assert_eq!(last.trim_end(), check);
    run(keep);
    run(keep_secret);
    let kept = [site.serial(&authority()), fs::read(certs.join("ca.key")).expect("a file")];
    let old = [site.user_data("worker-user-data-managed"), {
        fs::read(certs.join("user-data/worker.ign")).expect("a file")
    }];
    fs::remove_dir_all(&certs).expect("a folder");
    site.cluster.delete(&authority());
    site.object(&authority());
    site.in_order(&controller);
    run(restore);
    run(restore_secret);
    site.in_order(&controller);
    let running = serve();
    run(check);
    run(&in_cluster(check));
    assert_eq!([site.serial(&authority()), fs::read(certs.join("ca.key")).expect("a file")], kept);
    assert!(site.boots(&old[0]));
    let restored = fs::read(certs.join("user-data/worker.ign")).expect("a file");
    assert_eq!(trusted(&restored), trusted(&old[1]));

    // Lost: what is served stays until somebody insists.
    drop(running);
    let lost_key = commands("how-to/lost-key.md");
    let [lose, lose_secret, force] = &lost_key[..] else { panic!("{lost_key:?}") };
    let served = || [site.serial(&serving()), fs::read(certs.join("tls.crt")).expect("a file")];
    let before = served();
    run(lose);
    run(lose_secret);
    wait_for("a new CA", || site.cluster.get(&authority()));
    site.in_order(&controller);
    let _running = serve();
    run(check);
    assert_eq!(served(), before);
    run(force);
    run(&in_cluster(force));
    wait_for("new pairs", || served().iter().zip(&before).all(|(a, b)| a != b).then_some(()));
    site.in_order(&controller);
    run(check);
}
