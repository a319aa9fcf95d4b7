//! What holds for machines with names in a directory and in a cluster alike: each scenario is a test of both.

use serde_json::{Value, json};

use crate::support::access::get;
use crate::support::command::Said;
use crate::support::http::{Client, Response};
use crate::support::manifests::first_boot_machine;
use crate::support::server::Server;
use crate::support::{wait_for, wait_until};

pub(crate) const APPROVED: &str = "machine-config-server.io/approved";

/// The pools `worker` and `infra`, and what an administrator does with their machines.
pub(crate) trait MachineSite {
    fn with_pools() -> Self;
    fn serve(&self) -> Server;
    /// PEM of the CAs that a server's certificate is signed by.
    fn cas(&self) -> Vec<u8>;
    /// Stores a machine's object, a new one or another state of it. In a cluster, annotations that it had stay.
    fn put(&self, object: &Value);
    fn remove(&self, name: &str);
    /// `Bearer` and the token in the machine's pointer config, once it has one.
    fn credential(&self, name: &str) -> String;
    /// `machines` with these arguments.
    fn machines(&self, arguments: &[&str]) -> Said;
    /// Waits until the site has stored what an approval is for. In a directory, the server does so before it answers.
    fn has_recorded_approval(&self, _name: &str) {}
}

/// A site with a machine `rack-7` that needs approval, between two others.
struct Held<S> {
    site: S,
}

impl<S: MachineSite> Held<S> {
    fn new() -> Self {
        let held = Self { site: S::with_pools() };
        for name in ["rack-7", "rack-8", "rack-9"] {
            held.site.put(&first_boot_machine(name, &spec("worker")));
        }
        held
    }

    fn put(&self, spec: &Value) {
        self.site.put(&first_boot_machine("rack-7", spec));
    }

    fn ask(&self, server: &Server, pool: &str, credential: &str) -> Response {
        get(&Client::tls(server.secure(), &self.site.cas()), pool, Some(credential))
    }

    fn waits(&self, server: &Server, pool: &str, credential: &str) {
        wait_until("the machine to be held", || {
            let answer = self.ask(server, pool, credential);
            let code = answer.header("machine-config-server-refusal");
            code == Some("approval-pending")
        });
    }

    fn has_status(&self, server: &Server, pool: &str, credential: &str, status: u16) {
        wait_until(&format!("status {status}"), || {
            self.ask(server, pool, credential).status == status
        });
    }

    fn approve(&self, server: &Server, pool: &str, credential: &str) {
        self.site.machines(&["approve", "rack-7"]).done();
        self.has_status(server, pool, credential, 200);
        self.site.has_recorded_approval("rack-7");
    }

    fn remove(&self, server: &Server, credential: &str) {
        self.site.remove("rack-7");
        self.has_status(server, "worker", credential, 401);
    }

    /// Approves the machine. After `change`, which returns the server, the machine's pool and its token, it waits for
    /// another approval, also at another server.
    fn approval_ends_when(
        self,
        change: impl FnOnce(&Self, Server, String) -> (Server, &'static str, String),
    ) {
        let server = self.site.serve();
        let credential = self.site.credential("rack-7");
        self.waits(&server, "worker", &credential);
        self.approve(&server, "worker", &credential);
        let (server, pool, credential) = change(&self, server, credential);
        self.waits(&server, pool, &credential);
        server.stop();
        let server = self.site.serve();
        self.waits(&server, pool, &credential);
        self.approve(&server, pool, &credential);
    }
}

fn spec(pool: &str) -> Value {
    json!({"pool": pool, "approval": "required"})
}

/// The spec of a machine whose networks are named.
fn narrowed() -> Value {
    json!({"pool": "worker", "approval": "required", "addresses": ["127.0.0.0/8"]})
}

/// The present time, as an annotation has it.
pub(crate) fn now() -> String {
    let now = time::OffsetDateTime::now_utc();
    now.format(&time::format_description::well_known::Rfc3339).expect("a time")
}

pub(crate) fn an_approval_ends_when_the_pool_changes<S: MachineSite>() {
    Held::<S>::new().approval_ends_when(|held, server, credential| {
        held.put(&spec("infra"));
        let another = || Some(held.site.credential("rack-7")).filter(|it| *it != credential);
        let credential = wait_for("another token", another);
        (server, "infra", credential)
    });
}

pub(crate) fn an_approval_ends_when_the_networks_change<S: MachineSite>() {
    Held::<S>::new().approval_ends_when(|held, server, credential| {
        held.put(&narrowed());
        (server, "worker", credential)
    });
}

pub(crate) fn an_approval_ends_when_the_token_is_armed_again<S: MachineSite>() {
    Held::<S>::new().approval_ends_when(|held, server, credential| {
        held.site.machines(&["rearm", "rack-7"]).done();
        (server, "worker", credential)
    });
}

pub(crate) fn an_approval_ends_when_the_object_is_made_again<S: MachineSite>() {
    Held::<S>::new().approval_ends_when(|held, server, credential| {
        held.remove(&server, &credential);
        held.put(&spec("worker"));
        let credential = held.site.credential("rack-7");
        (server, "worker", credential)
    });
}

pub(crate) fn an_approval_ends_when_the_object_changes_while_no_server_runs<S: MachineSite>() {
    Held::<S>::new().approval_ends_when(|held, server, credential| {
        server.stop();
        let server = held.site.serve();
        held.has_status(&server, "worker", &credential, 200);
        server.stop();
        held.put(&narrowed());
        (held.site.serve(), "worker", credential)
    });
}

pub(crate) fn an_object_that_is_made_again_with_its_approval_waits_for_a_later_one<
    S: MachineSite,
>() {
    let held = Held::<S>::new();
    let server = held.site.serve();
    let credential = held.site.credential("rack-7");
    held.waits(&server, "worker", &credential);
    let mut approved = first_boot_machine("rack-7", &spec("worker"));
    approved["metadata"]["annotations"] = json!({APPROVED: now()});
    held.site.put(&approved);
    held.has_status(&server, "worker", &credential, 200);
    held.remove(&server, &credential);
    // The time at which an object was made has whole seconds.
    let second = || now().split('.').next().map(str::to_owned);
    let before = second();
    wait_until("another second", || second() != before);
    held.site.put(&approved);
    let credential = held.site.credential("rack-7");
    held.waits(&server, "worker", &credential);
    server.stop();
    let server = held.site.serve();
    held.waits(&server, "worker", &credential);
    approved["metadata"]["annotations"] = json!({APPROVED: now()});
    held.site.put(&approved);
    held.has_status(&server, "worker", &credential, 200);
}

/// The scenarios as tests of a kind of site.
macro_rules! machine_scenarios {
    ($site:ty: $($scenario:ident)*) => {
        $(#[test]
        fn $scenario() {
            crate::machine_sites::$scenario::<$site>();
        })*
    };
    ($site:ty) => {
        $crate::machine_sites::machine_scenarios! {
            $site:
            an_approval_ends_when_the_pool_changes
            an_approval_ends_when_the_networks_change
            an_approval_ends_when_the_token_is_armed_again
            an_approval_ends_when_the_object_is_made_again
            an_approval_ends_when_the_object_changes_while_no_server_runs
            an_object_that_is_made_again_with_its_approval_waits_for_a_later_one
        }
    };
}
pub(crate) use machine_scenarios;
