//! Machines that boot while tokens are replaced, modes change and servers die, and unauthenticated clients that ask all
//! the time.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::access::{annotate, embedded_token, get, with_annotated_pool};
use crate::support::http::{Client, Response, loopback};
use crate::support::in_repository;
use crate::support::machine::Machine;
use crate::support::random::Random;
use crate::support::server::{Server, binary, free_ports, serving};
use crate::support::stop::Stop;
use crate::support::{wait_asking, wait_for, wait_until};

/// Fetches as Ignition does: what may heal is asked again, at first after 200 ms and at last every 5 s.
/// Tells the answer that it ends with.
fn boot(client: &Client, pool: &str, credential: &str) -> Response {
    let mut wait = Duration::from_millis(200);
    let started = Instant::now();
    loop {
        let answer = get(client, pool, Some(credential));
        if answer.status < 500 || started.elapsed() > Duration::from_secs(60) {
            return answer;
        }
        thread::sleep(wait);
        wait = (wait * 2).min(Duration::from_secs(5));
    }
}

fn assert_nothing_of_a_config(answer: &Response) {
    assert!(matches!(answer.status, 401 | 503), "{answer:?}");
    assert!(answer.body.len() < 200, "{answer:?}");
}

/// What machines and unauthenticated clients see of a server.
struct Storm<'a> {
    server: &'a Server,
    stop: &'a AtomicBool,
    boots: AtomicU64,
    /// Boots with a token that no pointer config carried any more.
    late: AtomicU64,
    /// Odd from when the server was seen to refuse until it is asked not to.
    phase: AtomicU64,
    refused: AtomicU64,
    /// Boots by the real Ignition.
    real: AtomicU64,
}

/// How the pool is restricted, one after the other.
const MODES: [&str; 8] =
    ["enforce", "\"off\"", "audit", "enforce", "audit", "enforce", "\"off\"", "enforce"];

impl<'a> Storm<'a> {
    fn new(server: &'a Server, stop: &'a AtomicBool) -> Self {
        let zero = || AtomicU64::new(0);
        let [boots, late, phase, refused, real] = [zero(), zero(), zero(), zero(), zero()];
        Self { server, stop, boots, late, phase, refused, real }
    }

    /// Machines that take what the pointer config says when they are made, and boot so much later.
    fn machines(&self, number: u8, later: Duration) {
        let client = self.server.tls().from(loopback(100 + number));
        while !self.stop.load(Ordering::SeqCst) {
            let credential = embedded_token(&self.server.state(), "worker").expect("a token");
            let started = Instant::now();
            while started.elapsed() < later && !self.stop.load(Ordering::SeqCst) {
                thread::sleep(Duration::from_millis(20));
            }
            let is_late =
                embedded_token(&self.server.state(), "worker").as_ref() != Some(&credential);
            let answer = boot(&client, "worker", &credential);
            assert_eq!(answer.status, 200, "after {:?}: {answer:?}", started.elapsed());
            self.boots.fetch_add(1, Ordering::SeqCst);
            self.late.fetch_add(u64::from(is_late), Ordering::SeqCst);
        }
    }

    /// A client without a token, on each port in turn.
    fn unauthenticated_client(&self, number: u8) {
        let clients = [self.server.tls(), self.server.plain()].map(|it| it.from(loopback(number)));
        for client in clients.iter().cycle() {
            if self.stop.load(Ordering::SeqCst) {
                return;
            }
            let before = self.phase.load(Ordering::SeqCst);
            let answer = get(client, "worker", None);
            let is_enforced = before % 2 == 1 && before == self.phase.load(Ordering::SeqCst);
            if is_enforced {
                assert_nothing_of_a_config(&answer);
                self.refused.fetch_add(1, Ordering::SeqCst);
            }
        }
    }

    /// Machines that boot by the real Ignition, one after the other.
    fn real_machines(&self) {
        while !self.stop.load(Ordering::SeqCst) {
            let path = self.server.state().join("user-data/worker.ign");
            Machine::new().boot(&fs::read_to_string(path).expect("a pointer config"));
            self.real.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Writes the mode into the manifests, and waits until an unauthenticated client is answered by it.
    fn set_mode(&self, manifests: &Path, mode: &str, unauthenticated: &Client) {
        let is_enforced = mode == "enforce";
        let is_odd = || self.phase.load(Ordering::SeqCst) % 2;
        if !is_enforced {
            self.phase.fetch_add(is_odd(), Ordering::SeqCst);
        }
        annotate(manifests, "worker", mode);
        let status = if is_enforced { 401 } else { 200 };
        wait_until("the mode", || {
            assert!(!self.stop.load(Ordering::SeqCst), "a machine was refused");
            get(unauthenticated, "worker", None).status == status
        });
        if is_enforced {
            self.phase.fetch_add(1 - is_odd(), Ordering::SeqCst);
        }
    }

    fn await_boots(&self, more: u64) {
        let before = self.boots.load(Ordering::SeqCst);
        wait_until("machines to boot", || {
            let is_over = self.stop.load(Ordering::SeqCst);
            assert!(!is_over, "a machine was refused");
            self.boots.load(Ordering::SeqCst) >= before + more
        });
    }
}

#[test]
fn a_storm_of_boots_continues_while_tokens_rotate_and_modes_change() {
    let manifests = with_annotated_pool("worker", "audit");
    let server = Server::serve(manifests.path(), &["--token-overlap", "60s"]);
    wait_for("a token", || embedded_token(&server.state(), "worker"));
    let stop = AtomicBool::new(false);
    let storm = Storm::new(&server, &stop);
    let mut seen = BTreeSet::new();
    thread::scope(|threads| {
        let going_on = Stop(&stop);
        for number in 0..8_u8 {
            let (storm, later) = (&storm, [0, 0, 0, 100, 300, 1_000, 2_000, 4_000]);
            let later = Duration::from_millis(later[usize::from(number)]);
            threads.spawn(move || {
                let _stop = Stop(storm.stop);
                storm.machines(number, later);
            });
        }
        for number in [31, 32] {
            let storm = &storm;
            threads.spawn(move || {
                let _stop = Stop(storm.stop);
                storm.unauthenticated_client(number);
            });
        }
        threads.spawn(|| {
            let _stop = Stop(&stop);
            storm.real_machines();
        });
        for (rotation, mode) in (0..10_u8).zip(MODES.iter().cycle()) {
            storm.set_mode(manifests.path(), mode, &server.plain().from(loopback(200 + rotation)));
            storm.await_boots(15);
            let before = embedded_token(&server.state(), "worker").expect("a token");
            assert!(tokens(&server.state(), &["rotate"]).wait().expect("a process").success());
            if *mode != "\"off\"" {
                wait_for("another token", || {
                    embedded_token(&server.state(), "worker").filter(|now| *now != before)
                });
            }
            seen.insert(before);
            storm.await_boots(15);
            println!("rotation {rotation}, {mode}: {} boots", storm.boots.load(Ordering::SeqCst));
        }
        wait_until("real machines", || storm.real.load(Ordering::SeqCst) >= 2);
        wait_until("late machines", || storm.late.load(Ordering::SeqCst) >= 3);
        drop(going_on);
    });
    let counts = [&storm.boots, &storm.late, &storm.refused, &storm.real];
    let [boots, late, refused, real] = counts.map(|count| count.load(Ordering::SeqCst));
    println!("{boots} boots, {late} of them late, {real} real; {refused} refusals");
    assert!(seen.len() >= 7 && refused >= 20, "{} tokens, {refused} refusals", seen.len());
    assert!(!server.log().contains("mcs-"), "no token is in the log");
}

/// Runs `tokens` on a state directory.
fn tokens(state: &Path, arguments: &[&str]) -> Child {
    let mut command = binary();
    command.arg("tokens").args(arguments).arg("--state-dir").arg(state);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().expect("the built binary")
}

/// A server that may be killed at any moment, on the same ports each time.
struct Mortal {
    state: PathBuf,
    ports: [std::net::SocketAddr; 3],
}

impl Mortal {
    fn start(&self) -> Child {
        let [secure, insecure, metrics] = self.ports;
        let mut command = serving(&in_repository("ignition-fixtures"), &self.state);
        command.args(["--access", "enforce", "--listen-address", "127.0.0.1"]);
        command.args(["--secure-port", &secure.port().to_string()]);
        command.args(["--insecure-port", &insecure.port().to_string()]);
        command.args(["--metrics-address", &metrics.to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().expect("the built binary")
    }

    fn tls(&self) -> Option<Client> {
        let ca = fs::read(self.state.join("ca.crt")).ok()?;
        Some(Client::tls(self.ports[0], &ca))
    }

    fn plain(&self) -> Client {
        Client::plain(self.ports[1])
    }

    /// Waits until a machine with this token has its config: it is never refused for good.
    fn opens(&self, credential: &str) {
        let authorization = [("Authorization", credential)];
        wait_asking("a machine to boot", || {
            let answer = self.tls()?.try_request("GET", "/config/worker", &authorization).ok()?;
            assert!(matches!(answer.status, 200 | 503), "{answer:?}");
            (answer.status == 200).then_some(())
        });
    }
}

#[test]
fn whenever_a_server_is_killed_no_machine_is_refused_and_no_unauthenticated_client_served() {
    let directory = tempfile::tempdir().expect("a temporary folder");
    let mortal = Mortal { state: directory.path().join("state"), ports: free_ports() };
    let stop = AtomicBool::new(false);
    let refused = AtomicU64::new(0);
    let mut random = Random(0x6d63_7321);
    let mut handed_out = BTreeSet::new();
    thread::scope(|threads| {
        let going_on = Stop(&stop);
        threads.spawn(|| {
            let _stop = Stop(&stop);
            // Over both ports, from before there is a server.
            while !stop.load(Ordering::SeqCst) {
                let clients = [mortal.tls(), Some(mortal.plain())].into_iter().flatten();
                for client in clients.map(|client| client.from(loopback(33))) {
                    if let Ok(answer) = client.try_request("GET", "/config/worker", &[]) {
                        assert_nothing_of_a_config(&answer);
                        refused.fetch_add(1, Ordering::SeqCst);
                    }
                }
            }
        });
        // On a busy machine, more deaths come before a rotation has ended.
        let is_enough =
            |tokens: &BTreeSet<String>| tokens.len() >= 8 && refused.load(Ordering::SeqCst) >= 15;
        for death in 0.. {
            if death >= 15 && (is_enough(&handed_out) || death == 60) {
                break;
            }
            let mut server = mortal.start();
            // In the middle of its start, or of a rotation that an administrator asks it for.
            let is_early = death % 3 == 2;
            if !is_early {
                let credential = wait_for("a token", || embedded_token(&mortal.state, "worker"));
                mortal.opens(&credential);
                handed_out.insert(credential);
                for credential in &handed_out {
                    mortal.opens(credential);
                }
            }
            let mut asking = tokens(&mortal.state, &["rotate"]);
            thread::sleep(Duration::from_millis(random.below(if is_early { 250 } else { 120 })));
            if random.below(4) == 0 {
                // It may have ended already.
                let _ = kill_process(Pid::from_child(&asking), Signal::KILL);
            }
            kill_process(Pid::from_child(&server), Signal::KILL).expect("a process");
            server.wait().expect("a process");
            asking.wait().expect("a process");
            handed_out.extend(embedded_token(&mortal.state, "worker"));
            assert!(!stop.load(Ordering::SeqCst), "an unauthenticated client was served");
        }
        let mut server = mortal.start();
        for credential in &handed_out {
            mortal.opens(credential);
        }
        drop(going_on);
        server.kill().expect("a process");
        server.wait().expect("a process");
    });
    let refused = refused.load(Ordering::SeqCst);
    println!("{} tokens, {refused} unauthenticated clients refused", handed_out.len());
    assert!(handed_out.len() >= 8 && refused >= 15);
}

/// As many as a large site has, which get their tokens one after the other.
#[test]
fn pools_that_come_all_at_once_are_open_at_no_moment() {
    const POOLS: usize = 100;
    let manifests = with_annotated_pool("worker", "enforce");
    let server = Server::serve(manifests.path(), &[]);
    let sample = fs::read_to_string(manifests.path().join("pools.yaml")).expect("text");
    let worker = sample.split("---\n").find(|pool| pool.contains("name: worker\n"));
    let worker = worker.expect("the pool").to_owned();
    let pools: Vec<_> = (0..POOLS)
        .map(|number| worker.replacen("name: worker\n", &format!("name: p{number}\n"), 1))
        .collect();
    let stop = AtomicBool::new(false);
    thread::scope(|threads| {
        let going_on = Stop(&stop);
        threads.spawn(|| {
            let _stop = Stop(&stop);
            for number in (0..POOLS).cycle() {
                if stop.load(Ordering::SeqCst) {
                    return;
                }
                let answer = get(&server.plain(), &format!("p{number}"), None);
                // A pool that there is not is as the flag says, and has nothing to give out.
                assert_nothing_of_a_config(&answer);
            }
        });
        fs::write(manifests.path().join(".new"), pools.join("---\n")).expect("a writable folder");
        fs::rename(manifests.path().join(".new"), manifests.path().join("more.yaml"))
            .expect("a rename");
        for number in [0, POOLS / 2, POOLS - 1] {
            let pool = format!("p{number}");
            let credential = wait_for("a token", || embedded_token(&server.state(), &pool));
            assert_eq!(boot(&server.tls(), &pool, &credential).status, 200);
            assert!(!stop.load(Ordering::SeqCst), "an unauthenticated client was served");
        }
        drop(going_on);
    });
    let log = server.log();
    assert!(!log.contains("not finished after"), "{log}");
}
