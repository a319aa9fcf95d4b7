//! Machines that boot all the time, each over a connection of its own, through the Service.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::site::{BALANCER, HOST, NodeWithFolders};
use crate::support::http::Client;

/// Ignition waits so long for an answer's head.
const TIMEOUT: Duration = Duration::from_secs(10);
const MACHINES: usize = 3;

/// What a machine does when it gets no config.
#[derive(Clone, Copy)]
enum Refused {
    GivesUp,
    /// As Ignition does, for so long here.
    AsksAgain(Duration),
}

pub(super) struct Storm {
    over: Arc<AtomicBool>,
    machines: Vec<JoinHandle<Asked>>,
}

/// What became of one thread's requests.
#[derive(Default)]
struct Asked {
    served: usize,
    failures: Vec<String>,
}

impl Storm {
    /// Machines that give up when they get no config at once.
    pub(super) fn start(site: &NodeWithFolders) -> Self {
        Self::of(site, Refused::GivesUp)
    }

    /// Machines that ask again, as Ignition does, and give up after `patience`.
    pub(super) fn of_patient(site: &NodeWithFolders, timeout: Duration) -> Self {
        Self::of(site, Refused::AsksAgain(timeout))
    }

    fn of(site: &NodeWithFolders, refused: Refused) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let address = format!("{BALANCER}:22623").parse().expect("an address");
        let client = Client::tls(address, site.cas().as_bytes()).named(HOST).patient_as_ignition();
        let machines = (0..MACHINES).map(|_| {
            let (over, client) = (Arc::clone(&over), client.clone());
            let node = site.node.namespaces();
            thread::spawn(move || {
                node.enter();
                let mut asked = Asked::default();
                while !over.load(Ordering::Relaxed) {
                    asked.boot(&client, refused);
                    thread::sleep(Duration::from_millis(10));
                }
                asked
            })
        });
        Self { machines: machines.collect(), over }
    }

    /// Fails when one machine was not served.
    #[track_caller]
    pub(super) fn end(self, what: &str) {
        self.over.store(true, Ordering::Relaxed);
        let asked: Vec<_> =
            self.machines.into_iter().map(|machine| machine.join().expect("no panic")).collect();
        let served: usize = asked.iter().map(|asked| asked.served).sum();
        let failures: Vec<_> = asked.iter().flat_map(|asked| &asked.failures).collect();
        println!("{what}: {served} served, {} failed", failures.len());
        assert!(failures.is_empty(), "{what}: {served} served, and {failures:#?}");
        assert!(served > 50, "{what}: only {served} machines asked");
    }
}

impl Asked {
    fn boot(&mut self, client: &Client, refused: Refused) {
        let started = Instant::now();
        loop {
            let failure = match (once(client), refused) {
                (Ok(()), _) => break self.served += 1,
                (Err(_), Refused::AsksAgain(timeout)) if started.elapsed() < timeout => {
                    thread::sleep(Duration::from_millis(200));
                    continue;
                }
                (Err(failure), _) => failure,
            };
            break self.failures.push(failure);
        }
    }
}

fn once(client: &Client) -> Result<(), String> {
    let accept = ("Accept", "application/vnd.coreos.ignition+json;version=3.3.0, */*;q=0.1");
    let started = Instant::now();
    let answer = client.try_request("GET", "/config/worker", &[accept]);
    let took = started.elapsed();
    match answer {
        Ok(answer) if answer.status == 200 && took < TIMEOUT => Ok(()),
        Ok(answer) => Err(format!("{} after {took:?}", answer.status)),
        Err(error) => Err(format!("{error} after {took:?}")),
    }
}
