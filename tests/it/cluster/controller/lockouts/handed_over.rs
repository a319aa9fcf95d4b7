//! What `serve` has made, handed over to a controller by the commands of deploy/README.md.

use std::path::PathBuf;

use pki::Certificate;

use super::super::{ControlledCluster, mount, pointer, read, server, serving, trusted, user_data};
use super::{commands, to_server};
use crate::support::http::Client;
use crate::support::machine::Machine;
use crate::support::server::Server;
use crate::support::wait_for;

/// What `serve` has made in a folder, handed over by the commands of the book.
struct HandedOver {
    serve: Server,
    directory: PathBuf,
}

impl HandedOver {
    fn new() -> Self {
        let serve = Server::sample_cluster(&[]);
        let directory = serve.state().parent().expect("a folder").to_owned();
        Self { serve, directory }
    }

    /// A pointer config as it is now, on the port that the server in the cluster has.
    fn pointer(&self) -> String {
        let port = format!(":{}/", self.serve.secure().port());
        read(&self.serve.state().join("user-data/worker.ign")).replace(&port, ":22623/")
    }

    fn run(&self, site: &ControlledCluster, line: &str) {
        let output = site.shell(&self.directory, line);
        assert_eq!(output.status, 0, "{line}: {}", output.text());
    }

    /// The command that hands a secret over.
    fn command(name: &str) -> String {
        let word = format!("create secret tls {name}");
        let mut commands = commands("how-to/kubernetes.md").into_iter();
        commands.find(|command| command.contains(&word)).expect("a command")
    }
}

#[test]
fn what_serve_made_continues_to_boot_machines_after_the_controller_has_taken_over() {
    let site = ControlledCluster::new();
    let made = HandedOver::new();
    let first = made.pointer();
    made.run(&site, "machine-config-server certs rotate --ca --state-dir state");
    let second = made.pointer();
    assert_ne!(trusted(first.as_bytes()), trusted(second.as_bytes()));
    for name in ["machine-config-server-tls", "machine-config-server-ca"] {
        made.run(&site, &HandedOver::command(name));
    }
    let pair = site.chain(&serving());
    let _controller = site.start_healthy();
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
    let site = ControlledCluster::new();
    let made = HandedOver::new();
    made.run(&site, &HandedOver::command("machine-config-server-tls"));
    let pair = site.serial(&serving());
    let controller = site.start(&[]);
    site.object(&user_data("worker-user-data-managed"));
    site.reported(&controller, "locked-out", "the trust bundle cannot boot a machine");
    site.looked_at("infra");
    assert_eq!(site.serial(&serving()), pair);
    assert!(site.boots(made.pointer().as_bytes()));
    let late = HandedOver::command("machine-config-server-ca");
    made.run(&site, &(late + " --dry-run=client -o yaml | kubectl replace -f -"));
    site.healthy(&controller);
    assert_eq!(site.serial(&serving()), pair);
    assert!(site.boots(made.pointer().as_bytes()));
    assert!(site.boots(&site.user_data("worker-user-data-managed")));
}
