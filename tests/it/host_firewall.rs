//! The example of rules for servers on the host's network, by the real nftables and between networks of
//! the kernel: `tests/firewall/play` has them.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::support::in_repository;

const EXAMPLE: &str = "deploy/examples/host-network.nft";

/// In a network of its own, so that nothing of this machine's is changed, and for five minutes at most.
fn apart(command: &[&str]) -> Output {
    let output = Command::new("timeout").args(["300", "unshare", "--net"]).args(command).output();
    output.expect("timeout, of coreutils")
}

fn check(file: &Path) -> Output {
    apart(&["nft", "-c", "-f", file.to_str().expect("text")])
}

#[test]
fn the_example_is_what_nftables_reads() {
    let example = in_repository(EXAMPLE);
    let output = check(&example);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = fs::read_to_string(example).expect("the example");
    let directory = tempfile::tempdir().expect("a temporary folder");
    let broken = directory.path().join("broken.nft");
    fs::write(&broken, text.replacen("@machines4", "@machines5", 1)).expect("a file");
    let output = check(&broken);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("machines5"), "{said}");
}

#[test]
fn machines_are_let_in_and_pods_and_unknown_clients_are_not() {
    // Of machines, administrators, pods and unknown clients, with the ports on which they are answered; the last
    // port is nothing of ours.
    let all = ["22623", "22624", "9623", "9999"];
    let sources: [(&str, &[&str]); 8] = [
        ("192.0.2.7", &["22623", "22624", "9999"]),
        ("2001:db8:1::7", &["22623", "22624", "9999"]),
        ("192.0.2.17", &all),
        ("2001:db8:1::17", &all),
        ("10.129.3.4", &["9999"]),
        ("fd01:0:0:3::4", &["9999"]),
        ("203.0.113.9", &["9999"]),
        ("2001:db8:e::9", &["9999"]),
    ];
    let (play, example) = (in_repository("tests/firewall/play"), in_repository(EXAMPLE));
    let mut command = vec![play.to_str().expect("text"), example.to_str().expect("text")];
    command.extend(sources.iter().map(|(source, _)| source));
    let output = apart(&command);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");

    let reported = String::from_utf8(output.stdout).expect("text");
    let reported: BTreeSet<&str> = reported.lines().collect();
    let word = |is_answered: bool| if is_answered { "answered" } else { "dropped" };
    let mut expected: BTreeSet<String> = sources
        .iter()
        .flat_map(|(source, open)| {
            all.map(|port| format!("{source} {port} {}", word(open.contains(&port))))
        })
        .collect();
    expected.extend(
        [
            "here 22623 answered",
            // A pod of this machine asks another one; so does a neighbour of it that is none.
            "10.128.0.9 through 22623 dropped",
            "198.18.0.9 through 22623 answered",
        ]
        .map(str::to_owned),
    );
    let expected: BTreeSet<&str> = expected.iter().map(String::as_str).collect();
    assert_eq!(reported, expected, "{said}");
}
