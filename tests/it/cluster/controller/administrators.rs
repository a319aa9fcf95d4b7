//! Several administrators at once: nobody's request takes the place of another's.

use std::process::Output;
use std::process::Stdio;

use pki::Certificate;
use serde_json::json;

use super::{ROTATE, Site, ca};
use crate::support::server::binary;
use crate::support::wait_for;

const DISTRUST: &str = "machineconfiguration.openshift.io/distrust-certificates";

impl Site {
    /// Runs all of these at once, by the kubeconfig of the cluster's administrator.
    fn at_once(&self, commands: &[Vec<&str>]) -> Vec<Output> {
        let start = |arguments: &Vec<&str>| {
            let mut command = binary();
            command.args(arguments).arg("--kubeconfig").arg(self.cluster.admin());
            let command = command.stdin(Stdio::null());
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the built binary")
        };
        let children: Vec<_> = commands.iter().map(start).collect();
        children.into_iter().map(|it| it.wait_with_output().expect("a child")).collect()
    }

    fn all_done_at_once(&self, commands: &[Vec<&str>]) -> String {
        let outputs = self.at_once(commands);
        let said = |it: &Output| {
            [&it.stdout, &it.stderr].map(|text| String::from_utf8_lossy(text).into_owned()).concat()
        };
        for output in &outputs {
            assert!(output.status.success(), "{}", said(output));
        }
        outputs.iter().map(said).collect()
    }

    fn annotation(&self, key: &str) -> String {
        let secret = self.object(&ca());
        secret["metadata"]["annotations"][key].as_str().unwrap_or_default().to_owned()
    }

    fn fingerprints(&self) -> Vec<String> {
        let bundle = Certificate::read_all(self.bundle().as_bytes());
        bundle.iter().map(Certificate::fingerprint).collect()
    }
}

#[test]
fn cas_that_administrators_distrust_at_once_are_all_distrusted() {
    let site = Site::new();
    let mut controller = Some(site.start_settled(&[]));
    // While the controller is stopped, and while it writes the same secret.
    for round in ["stopped", "running"] {
        for number in 0..5 {
            site.rotate(&format!("{round} {number}"));
        }
        if round == "stopped" {
            controller = None;
        }
        let cas = site.fingerprints();
        assert!(cas.len() >= 6, "{cas:?}");
        let distrust = |ca: &String| ["certs", "distrust", ca, "--yes"].map(str::to_owned).to_vec();
        let commands: Vec<Vec<String>> = cas.iter().map(distrust).collect();
        let commands: Vec<Vec<&str>> =
            commands.iter().map(|it| it.iter().map(String::as_str).collect()).collect();
        let reported = site.all_done_at_once(&commands);
        let listed = site.annotation(DISTRUST);
        for ca in &cas {
            assert!(listed.contains(ca), "{ca} is lost {round}: {listed}");
        }
        assert!(
            reported.contains("cannot boot"),
            "who comes last sees that no CA is left: {reported}"
        );
        controller = controller.or_else(|| Some(site.start(&[])));
        wait_for("all to leave", || {
            site.fingerprints().iter().all(|ca| !cas.contains(ca)).then_some(())
        });
        site.settled();
    }
    drop(controller);
}

#[test]
fn a_forced_rotation_stays_forced_whoever_asks_beside_it() {
    let site = Site::new();
    drop(site.start_settled(&[]));
    for _ in 0..4 {
        site.cluster.patch(&ca(), &json!({"metadata": {"annotations": {ROTATE: null}}}));
        let mut commands = vec![vec!["certs", "rotate", "--ca"]; 5];
        commands.insert(2, vec!["certs", "rotate", "--ca", "--force"]);
        site.all_done_at_once(&commands);
        assert!(site.annotation(ROTATE).ends_with(" --force"), "{}", site.annotation(ROTATE));
    }
    // It is done once, and the next one is not forced.
    let before = site.bundle();
    let _controller = site.start(&[]);
    wait_for("a new CA", || (site.bundle() != before).then_some(()));
    site.settled();
    site.all_done_at_once(&[vec!["certs", "rotate", "--ca"]]);
    assert!(!site.annotation(ROTATE).contains("--force"));
}

#[test]
fn a_dozen_administrators_of_tokens_lose_none_of_each_others_changes() {
    let site = Site::new();
    let mut controller = Some(site.start_settled(&["--access", "enforce"]));
    for round in ["running", "stopped"] {
        if round == "stopped" {
            controller = None;
        }
        let names: Vec<_> = (0..12).map(|number| format!("{round}-{number}")).collect();
        let add = |name| vec!["tokens", "add", name, "--pool", "worker", "--until", "never"];
        let adds: Vec<_> = names.iter().map(|name| add(name.as_str())).collect();
        site.all_done_at_once(&adds);
        let listed = site.all_done_at_once(&[vec!["tokens", "list"]]);
        for name in &names {
            assert!(listed.contains(&format!("{name} ")), "{name} is lost: {listed}");
        }

        let twice = site.at_once(&vec![add("same"); 4]);
        let won = twice.iter().filter(|output| output.status.success()).count();
        assert_eq!(won, usize::from(round == "running"), "of one name there is one token");

        let mut changes: Vec<_> =
            names.iter().map(|name| vec!["tokens", "revoke", name.as_str()]).collect();
        changes.extend(vec![vec!["tokens", "rotate"]; 3]);
        site.all_done_at_once(&changes);
        let listed = site.all_done_at_once(&[vec!["tokens", "list"]]);
        let revoked = listed.lines().filter(|line| line.contains(&format!("{round}-")));
        assert_eq!(revoked.filter(|line| line.ends_with("revoked")).count(), 12, "{listed}");
    }
    drop(controller);
}
