//! A CA that is to be trusted no more, and the commands of the documents for keys that are leaked, lost or restored.

use std::fs;
use std::path::PathBuf;

use pki::Certificate;
use serde_json::json;
use tempfile::TempDir;

use super::super::{
    ControlledCluster, Controller, bundle, ca, pointer, server, serving, trusted, value,
};
use super::{DISTRUST, DISTRUSTED, commands};
use crate::support::in_repository;
use crate::support::machine::Machine;
use crate::support::server::Server;
use crate::support::{wait_for, wait_until};

/// Whether nothing that is served or trusted leads to this CA.
fn is_gone(site: &ControlledCluster, ca: &Certificate) -> bool {
    let leads = |it: &Certificate| it.has_key_of(ca) || it.is_issued_by(ca);
    let trusts = |name: &&str| Certificate::read_all(&trusted(&site.user_data(name))).contains(ca);
    !site.trusted().contains(ca)
        && !site.chain(&serving()).iter().any(leads)
        && !["worker-user-data-managed", "worker-user-data"].iter().any(trusts)
}

#[test]
fn a_ca_that_is_distrusted_leaves_everything_for_good() {
    let site = ControlledCluster::new();
    let controller = site.start_healthy();
    let leaked = site.trusted().remove(0);
    let key = String::from_utf8(value(&site.object(&ca()), "tls.key")).expect("text");
    let old = site.user_data("worker-user-data-managed");
    site.make_user_data("worker-user-data", &old);
    site.rotate("now");
    assert!(site.previous().contains(&key), "it is kept");

    let before = site.bundle();
    let asked = site.certs(&["distrust", &leaked.common_name]);
    let alone = format!("trusts only \"{}\" cannot boot a machine", leaked.common_name);
    asked.refused(&[&alone, "--yes"]);
    assert!(site.object(&ca())["metadata"]["annotations"][DISTRUST].is_null());
    assert_eq!(site.bundle(), before);

    let is_gone = |ca: &Certificate| is_gone(&site, ca);
    site.certs(&["distrust", &leaked.common_name, "--yes"]).done();
    wait_until("it to leave", || is_gone(&leaked));
    site.healthy(&controller);
    let holds_key = || {
        let secret = site.object(&ca());
        let texts = ["tls.key", "previous-cas.pem"].map(|name| value(&secret, name));
        texts.iter().any(|text| String::from_utf8_lossy(text).contains(&key))
    };
    assert!(!holds_key(), "its key is deleted");
    assert!(!site.boots(&old));
    assert!(site.boots(&site.user_data("worker-user-data-managed")));

    // It is remembered without the annotation, over later rotations, and where it is brought back.
    site.annotate(&ca(), &json!({DISTRUST: null}));
    site.rotate("again");
    let both = site.bundle() + &leaked.to_pem();
    site.cluster.patch(&bundle(), &json!({"data": {"ca-bundle.crt": both}}));
    site.make_user_data("late-user-data", &old);
    wait_until("it to leave again", || is_gone(&leaked));
    wait_until("late user data to follow", || {
        trusted(&site.user_data("late-user-data")) == site.bundle().as_bytes()
    });
    site.healthy(&controller);
    assert!(site.previous().contains(DISTRUSTED));

    // By hand: all that there are, the one that signs among them.
    let all = site.trusted();
    let fingerprints: Vec<_> = all.iter().map(Certificate::fingerprint).collect();
    site.annotate(&ca(), &json!({DISTRUST: fingerprints.join(", ")}));
    wait_until("all to leave", || all.iter().all(is_gone));
    site.healthy(&controller);
    assert_eq!(site.trusted().len(), 1);
    let (server, _) = server(&site);
    Machine::new().boot(&pointer(&site, &server));
}

/// A state directory and a cluster, on which the commands of the documents are run.
struct Documented<'a> {
    site: &'a ControlledCluster,
    controller: &'a Controller,
    directory: TempDir,
}

const CHECK: &str = "machine-config-server certs check";
/// The CA that the documents name.
const EXAMPLE: &str = "machine-config-server-ca@1795287382-823b";

impl Documented<'_> {
    fn certs(&self) -> PathBuf {
        self.directory.path().join("certs")
    }

    fn file(&self, name: &str) -> Vec<u8> {
        fs::read(self.certs().join(name)).expect("a file")
    }

    fn serve(&self) -> Server {
        Server::serve_with_state(&in_repository("ignition-fixtures"), &self.certs())
    }

    fn run_to(&self, status: i32, line: &str) {
        let output = self.site.shell(self.directory.path(), line);
        assert_eq!(output.status, status, "{line}: {}", output.text());
    }

    fn run(&self, line: &str) {
        self.run_to(0, line);
    }

    /// A command of the program's own, asked to do it in the cluster.
    fn in_cluster(line: &str) -> String {
        format!("{} --kubeconfig \"$KUBECONFIG\"", line.trim_end())
    }

    fn newest(&self) -> Certificate {
        self.site.trusted().into_iter().max_by_key(Certificate::made_at).expect("one")
    }

    fn leaves(&self, leaked: &Certificate) {
        wait_until("it to leave", || !self.site.trusted().contains(leaked));
        self.site.healthy(self.controller);
    }

    /// In a directory; in the cluster by the command, and by the annotation.
    fn leaked(&self) {
        let is_own = |line: &String| line.starts_with("machine-config-server");
        let (own, others): (Vec<_>, Vec<_>) =
            commands("how-to/distrust.md").into_iter().partition(is_own);
        assert_eq!((own.len(), others.len()), (3, 1));
        let in_directory = || Certificate::read_all(&self.file("ca.crt"));
        let leaked = in_directory().remove(0);
        for (line, expected) in own.iter().zip([0, 1, 0]) {
            self.run_to(expected, &line.replace(EXAMPLE, &leaked.common_name));
        }
        self.run(CHECK);
        assert!(!in_directory().contains(&leaked));
        let leaked = self.newest();
        for (line, expected) in own.iter().zip([0, 1, 0]) {
            let line = line.replace(EXAMPLE, &leaked.common_name);
            self.run_to(expected, &Self::in_cluster(&line));
        }
        self.leaves(&leaked);
        let leaked = self.newest();
        self.run(&others[0].replace(EXAMPLE, &leaked.common_name));
        self.leaves(&leaked);
    }

    /// After everything was lost.
    fn restored(&self) {
        let section = commands("how-to/restore.md");
        let [keep, keep_secret, restore, restore_secret, last] = &section[..] else {
            panic!("{section:?}")
        };
        assert_eq!(last.trim_end(), CHECK);
        self.run(keep);
        self.run(keep_secret);
        let keys = || [self.site.serial(&ca()), self.file("ca.key")];
        let kept = keys();
        let old =
            [self.site.user_data("worker-user-data-managed"), self.file("user-data/worker.ign")];
        fs::remove_dir_all(self.certs()).expect("a folder");
        self.site.cluster.delete(&ca());
        self.site.object(&ca());
        self.site.healthy(self.controller);
        self.run(restore);
        self.run(restore_secret);
        self.site.healthy(self.controller);
        let _running = self.serve();
        self.run(CHECK);
        self.run(&Self::in_cluster(CHECK));
        assert_eq!(keys(), kept);
        assert!(self.site.boots(&old[0]));
        assert_eq!(trusted(&self.file("user-data/worker.ign")), trusted(&old[1]));
    }

    /// What is served stays until an administrator insists.
    fn lost(&self) {
        let lost_key = commands("how-to/lost-key.md");
        let [lose, lose_secret, force] = &lost_key[..] else { panic!("{lost_key:?}") };
        let served = || [self.site.serial(&serving()), self.file("tls.crt")];
        let before = served();
        self.run(lose);
        self.run(lose_secret);
        wait_for("a new CA", || self.site.cluster.get(&ca()));
        self.site.healthy(self.controller);
        let _running = self.serve();
        self.run(CHECK);
        assert_eq!(served(), before);
        self.run(force);
        self.run(&Self::in_cluster(force));
        wait_until("new pairs", || served().iter().zip(&before).all(|(a, b)| a != b));
        self.site.healthy(self.controller);
        self.run(CHECK);
    }
}

#[test]
fn the_commands_for_keys_that_are_leaked_lost_or_restored_do_what_they_say() {
    let site = ControlledCluster::new();
    let controller = site.start_healthy();
    let directory = tempfile::tempdir().expect("a temporary folder");
    let documented = Documented { site: &site, controller: &controller, directory };
    let running = documented.serve();
    documented.leaked();
    drop(running);
    documented.restored();
    documented.lost();
}
