//! Faults other than those of pools and requests: how readiness and the log name each, and what an administrator does.
//!
//! Readiness shows the reason of a fault as long as it lasts, a counter counts each failure, and the log has only
//! changes.

use prometheus_client::metrics::counter::Counter;
use tracing::field::display;

use super::conditions::{Conditions, Status};

/// Effect on readiness, see [`Status`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Effect {
    OutOfService,
    NotReady,
    Degraded,
}

/// Level of the log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    Error,
    Warning,
    /// No line: the log has several about it, from elsewhere.
    Silent,
}

/// A fault, and what it is reported with.
#[derive(Debug, Clone, Copy)]
#[must_use = "the fault is not reported yet"]
pub struct Fault<'a> {
    /// Name in readiness; empty if that is the object's.
    thing: &'static str,
    object: Option<&'a str>,
    effect: Effect,
    /// Words before the reason in readiness.
    state: &'static str,
    level: Level,
    /// Log line at the beginning, and when the reason changes.
    message: &'static str,
    fix: &'a str,
    /// Log line at the end, if there is one.
    end: Option<&'static str>,
    counter: Option<&'a Counter>,
}

impl Fault<'static> {
    const fn new(thing: &'static str, effect: Effect) -> Self {
        let (state, message, fix) = ("", "", "");
        let level = Level::Silent;
        Self { thing, object: None, effect, state, level, message, fix, end: None, counter: None }
    }

    const fn out_of_service(thing: &'static str) -> Self {
        Self::new(thing, Effect::OutOfService)
    }

    const fn not_ready(thing: &'static str) -> Self {
        Self::new(thing, Effect::NotReady)
    }

    const fn degraded(thing: &'static str) -> Self {
        Self::new(thing, Effect::Degraded)
    }

    const fn error(self, message: &'static str, fix: &'static str) -> Self {
        Self { level: Level::Error, message, fix, ..self }
    }

    const fn warning(self, message: &'static str, fix: &'static str) -> Self {
        Self { level: Level::Warning, message, fix, ..self }
    }

    /// Advice of a fault that the log has lines of from elsewhere.
    const fn fix(self, fix: &'static str) -> Self {
        Self { fix, ..self }
    }

    const fn state(self, state: &'static str) -> Self {
        Self { state, ..self }
    }

    const fn end(self, message: &'static str) -> Self {
        Self { end: Some(message), ..self }
    }
}

impl<'a> Fault<'a> {
    /// The fault of one object. The log has the object's name, and readiness too if the fault has none.
    pub const fn of(self, object: &'a str) -> Self {
        Self { object: Some(object), ..self }
    }

    /// The same with the advice of its reason.
    pub const fn with_fix(self, fix: &'a str) -> Self {
        Self { fix, ..self }
    }

    /// The same for several reasons, each of which has its own line in the log.
    pub const fn silent(self) -> Self {
        Self { level: Level::Silent, ..self }
    }

    /// The same with a counter of its failures, which counts repeated ones too.
    pub fn counted_by(self, counter: impl Into<Option<&'a Counter>>) -> Self {
        Self { counter: counter.into(), ..self }
    }

    /// Reports the fault with its reason, or with `None` that it is over. Returns `true` if that is new.
    pub fn report(self, status: &Status, reason: Option<&str>) -> bool {
        if let (Some(counter), Some(_)) = (self.counter, reason) {
            counter.inc();
        }
        let is_new = self.set(status, reason);
        if is_new {
            self.log(reason);
        }
        is_new
    }

    /// Reports the fault with all these reasons, or without reasons that it is over.
    pub fn report_all(self, status: &Status, reasons: &[String]) {
        let all = reasons.join("; ");
        self.report(status, Some(&*all).filter(|all| !all.is_empty()));
    }

    /// Removes the fault from readiness, of a thing that is not needed any longer.
    pub fn clear(self, status: &Status) {
        self.set(status, None);
    }

    /// Returns `true` if the reason has changed.
    fn set(&self, status: &Status, reason: Option<&str>) -> bool {
        let thing = match (self.thing, self.object) {
            ("", Some(object)) => object.to_owned().into(),
            (thing, _) => thing.into(),
        };
        self.conditions(status).set(thing, reason.map(|reason| self.state.to_owned() + reason))
    }

    fn conditions<'s>(&self, status: &'s Status) -> &'s Conditions {
        match self.effect {
            Effect::OutOfService => &status.out_of_service,
            Effect::NotReady => &status.not_ready,
            Effect::Degraded => &status.degraded,
        }
    }

    /// Logs a reason, or with `None` that the fault is over.
    pub fn log(self, reason: Option<&str>) {
        let Self { message, fix, .. } = self;
        let object = self.object.map(display);
        match (reason, self.level) {
            (Some(reason), Level::Error) => tracing::error!(object, reason, fix, "{message}"),
            (Some(reason), Level::Warning) => tracing::warn!(object, reason, fix, "{message}"),
            (Some(_), Level::Silent) => {}
            (None, _) => {
                if let Some(end) = self.end {
                    tracing::info!(object, "{end}");
                }
            }
        }
    }
}

/// Declares the faults, and a list of all.
macro_rules! faults {
    ($($(#[$doc:meta])* $name:ident = $fault:expr;)*) => {
        $($(#[$doc])* pub const $name: Fault<'static> = $fault;)*

        const ALL: &[Fault<'static>] = &[$($name),*];
    };
}

/// Advice about the fault that readiness shows as `thing`, if all faults that it shows so have the same.
pub fn fix_of(thing: &str) -> Option<&'static str> {
    let mut fixes = ALL.iter().filter(|fault| fault.thing == thing).map(|fault| fault.fix);
    let fix = fixes.next()?;
    fixes.all(|other| other == fix).then_some(fix)
}

const DISK: &str = "check space and permissions of the directory";
const ACCESS_ANNOTATION: &str = "correct the annotation; machine-config-server validate DIR and /readyz on \
    --metrics-address show it until then";
/// Advice of a fault that is reported with that of its reason.
const OF_REASON: &str = "do what the reason names";
const API_SERVER: &str = "check the API server and the network to it";

// The whole server.
faults! {
    STOPPING = Fault::out_of_service("server")
        .fix("wait until the server has started again, or start it");
    METRICS_ADDRESS = Fault::degraded("metrics").error(
        "cannot listen for metrics and the status page",
        "choose another address with --metrics-address",
    );

    // Certificates.
    SERVING_PAIR_AWAITED = Fault::out_of_service("serving certificate")
        .state("not found yet: ")
        .warning(
            "waiting for the serving certificate",
            "write the certificate and its key to the paths of --cert and --key",
        );
    SERVING_PAIR_UNREAD = Fault::not_ready("serving certificate").error(
        "cannot load the serving certificate, serving the previous one",
        "correct the files of --cert and --key; the server reads them when they change",
    );
    /// No machine boots with it. All servers have the same one, so none is taken out of service for it.
    SERVING_PAIR_UNUSABLE = Fault::degraded("serving certificate").error(
        "no machine can boot with the serving certificate",
        "replace the serving certificate and its key",
    );
    SERVING_PAIR_SECRET = Fault::degraded("").error(
        "cannot read the serving certificate from its Secret",
        "correct the Secret; the server watches it",
    );
    TLS_PROFILE = Fault::degraded("TLS profile").error(
        "cannot apply the TLS profile, using the previous one",
        "correct spec.tlsSecurityProfile of APIServer cluster",
    );
    /// The log has each warning about them.
    CERTIFICATES = Fault::degraded("certificates")
        .fix("run machine-config-server certs check, which names each fault");

    // What is read from a directory.
    INPUTS = Fault::not_ready("inputs").error(
        "cannot read the inputs, using what was read before",
        "restore the directory, or make it readable for this server",
    );
    MANIFESTS = Fault::degraded("manifests").error(
        "objects are missing from the manifests, keeping what was read before",
        "restore the files; what stays missing is removed after an hour",
    );
    LAST_GOOD = Fault::degraded("last good inputs").error(
        "cannot store what is served; after a restart, files that are broken by then are not served",
        "free space on the disk, or make the state directory writable for this server",
    );
    OPEN_FILES = Fault::degraded("files with tokens").error(
        "files with tokens are not private",
        "give the files to the server's user, with mode 0600",
    );
    ROTATION_REQUESTS = Fault::degraded("requests for rotations").warning(
        "cannot read or begin a request for a rotation, which waits",
        "make it a file that the server's user can read and rename, or remove it",
    );
    /// The log has each write that failed.
    POINTER_CONFIGS = Fault::degraded("pointer configs")
        .fix("do what the reason names: mostly, give the pool a shorter name");

    // What is read from a cluster.
    CLUSTER_UNREAD = Fault::degraded("cluster").state("not read yet: ").fix(
        "compare what is not read with the rights of the server's account, and with the CRDs of the cluster",
    );
    API_SERVER_LOST = Fault::degraded("API server")
        .state("unavailable ")
        .error("API server is unavailable, serving what was read last", API_SERVER)
        .end("API server is available again");
    KIND_UNWATCHED = Fault::degraded("")
        .state("cannot be watched: ")
        .error("cannot watch a kind, retrying", OF_REASON)
        .end("watch works again");
    MACHINE_CONFIG_UNFETCHED = Fault::degraded("")
        .state("cannot be fetched: ")
        .warning(
            "cannot fetch a MachineConfig, retrying",
            "check the API server, and the server's right to get MachineConfigs",
        )
        .end("fetched the MachineConfig");
    LIVE_READS = Fault::degraded("live reads").warning(
        "cannot read the pools before an answer",
        "check the API server and the network to it; until then machines get what was read last",
    );
    REGISTRY_CREDENTIALS = Fault::degraded("")
        .error(
            "cannot use the Secret with registry credentials",
            "correct the Secret, or the annotation of the pool that names it",
        )
        .end("using the Secret with registry credentials");
    NODES = Fault::degraded("nodes").state("cannot be watched: ").warning(
        "cannot watch Nodes, the boot ledger does not show which machines joined",
        "grant the service account list and watch of nodes, and check the API server",
    );
    JOIN_REQUESTS = Fault::degraded("certificatesigningrequests")
        .state("cannot be watched: ")
        .warning(
            "cannot watch CertificateSigningRequests, the boot ledger does not show who waits for approval",
            "check the API server",
        );
    BOOTSTRAP_TOKEN = Fault::degraded("bootstrap token").error(
        "cannot read the bootstrap token",
        "correct the files of --bootstrap-token-dir; new machines cannot join without the token",
    );
    BOOTSTRAP_TOKEN_REFUSED = Fault::degraded("bootstrap token at the API server")
        .error(
            "machines cannot join by the bootstrap token",
            "make Secret node-bootstrapper-token again, or bind its account to ClusterRole system:node-bootstrapper; \
             then boot the machines again that are stuck",
        )
        .end("machines can join by the bootstrap token");

    // Access.
    TOKEN_RECORDS = Fault::degraded("").error(
        "cannot read the records of tokens",
        "run machine-config-server controller --access, which keeps this Secret",
    );
    SIGNED_TOKENS = Fault::degraded("keys of signed tokens").error(
        "cannot read the keys of signed tokens, using the previous ones",
        "correct the file of --access-jwks; the server reads it when it changes",
    );
    TOKENS = Fault::degraded("tokens").warning(
        "cannot give each pointer config a valid token",
        "do what the reason names; machine-config-server tokens list has the tokens, and the pointer configs \
         without one",
    );
    MODES = Fault::degraded("access").warning(
        "cannot read a pool's access mode, keeping the one before",
        ACCESS_ANNOTATION,
    );
    BOOT_RULES = Fault::degraded("rules about machines").warning(
        "cannot read a pool's rules about machines, using strict ones",
        ACCESS_ANNOTATION,
    );
    AUDITED = Fault::degraded("access is audited instead of enforced").warning(
        "access is audited instead of enforced",
        "give the pointer configs that the reason names a token; machine-config-server tokens list has those \
         without one",
    );
    UNKNOWN_ACCESS = Fault::degraded("access is not known").warning(
        "cannot apply the access mode of a pool yet",
        "do what the reason names; /readyz on --metrics-address shows the pools until then",
    );

    // Machines.
    MACHINES = Fault::degraded("machines").warning(
        "cannot keep the tokens of all machines with a name",
        "correct the FirstBootMachine or file that the reason names",
    );
    APPROVALS = Fault::degraded("approvals").warning(
        "cannot read all approvals; machines wait that are not approved otherwise",
        "correct the annotation or file that the reason names",
    );
    /// The log has each machine.
    OVERLAYS = Fault::degraded("overlays")
        .fix("correct the overlay of the FirstBootMachine that the reason names");
    /// The log has each machine.
    SHARED_TOKENS = Fault::degraded("tokens of machines that were copied").fix(
        "make the named machines again with machine-config-server machines remove and machines add",
    );
    USE_UNSTORED = Fault::degraded("use of machines' tokens").error(
        "cannot store the use of a machine's token; its machine gets 503 until then",
        "free space on the disk, or make the state directory writable for this server; the machine retries, and boots then",
    );
    USE_REFUSED = Fault::degraded("use of machines' tokens").error(
        "cannot record the use of a machine's token; its machine gets 503 until then",
        "grant the service account get of firstbootmachines and patch of their status; the machine retries, and boots then",
    );
    USE_UNRECORDED = Fault::degraded("use of machines' tokens").warning(
        "cannot record uses of machines' tokens yet, serving the machines",
        API_SERVER,
    );
    USES_UNREAD = Fault::degraded("cache of uses of machines' tokens").error(
        "cannot read uses of machines' tokens; until the API server can be reached, machines get 503",
        "make the file readable, or remove it if no machine used its token while the API server was unreachable",
    );
    USES_UNSTORED = Fault::degraded("cache of uses of machines' tokens").error(
        "cannot store uses of machines' tokens; a server that is started now does not know them",
        DISK,
    );

    // What outlives the process.
    BOOT_LEDGER = Fault::degraded("boot ledger").error("cannot write the boot ledger", DISK);
    CACHE = Fault::degraded("cache").error("cannot write the cache", DISK);
    TOKEN_CACHE = Fault::degraded("cache of tokens").error("cannot write the cache", DISK);

    // Controllers.
    RECONCILIATION = Fault::not_ready("")
        .error("reconciliation failed, retrying", "correct the object that the reason names")
        .end("reconciliation succeeds again");
    CONFIGURATION = Fault::not_ready("")
        .error(
            "cannot follow the cluster's configuration",
            "correct the object that the reason names",
        )
        .end("follows the cluster's configuration again");
    OBJECT_UNWATCHED = Fault::not_ready("")
        .state("cannot be watched: ")
        .error("cannot watch the object, retrying", OF_REASON)
        .end("watch works again");
    LEASE = Fault::not_ready("")
        .error(
            "cannot use the Lease, retrying",
            "grant the service account get, create and update of Leases, and check the API server",
        )
        .end("Lease is usable again");
    /// The log has each reason.
    RENDERED_POOLS = Fault::degraded("pools")
        .fix("correct the MachineConfig or field that the reason names");
    BOOT_LEDGERS = Fault::degraded("boot ledgers")
        .warning(
            "did not delete unused MachineConfigs, because a boot ledger did not answer",
            "check whether the servers run",
        )
        .end("all boot ledgers answer again");
    /// The log has each issuer.
    ISSUERS = Fault::degraded("issuers").fix(OF_REASON);
    UPSTREAM_CAS = Fault::degraded("upstream CAs").warning(
        "requests wait for an upstream CA",
        "check the upstream CA; requests are sent again",
    );
    STATUSES = Fault::degraded("statuses").error(
        "cannot write the status of requests",
        "correct what the API server refuses; the requests are tried again",
    );

    // The agent of a node.
    NODE_PATH = Fault::not_ready("")
        .error(
            "cannot update the path",
            "remove what is in the way, or make the path writable; it is tried again",
        )
        .end("path is up to date again");
    NODE_REGISTRIES = Fault::degraded("");
    NODE_CREDENTIALS = Fault::degraded("").error(
        "cannot use the registry credentials, keeping those on the node",
        "correct the Secret that --registry-auth names",
    );
    /// The log has each entry.
    NODE_CREDENTIALS_PARTLY = Fault::degraded("");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_counted_each_time_and_its_reason_is_in_readiness_until_it_is_over() {
        let (status, counter) = (Status::default(), Counter::default());
        let report = |reason| LIVE_READS.counted_by(&counter).report(&status, reason);
        report(None);
        report(Some("slow"));
        report(Some("slow"));
        assert_eq!(status.degraded.lines(), ["live reads: slow"]);
        report(None);
        assert_eq!(counter.get(), 2);
        assert!(status.degraded.lines().is_empty());

        MACHINES.report_all(&status, &["a: gone".to_owned(), "b: gone".to_owned()]);
        assert_eq!(status.degraded.lines(), ["machines: a: gone; b: gone"]);
        MACHINES.report_all(&status, &[]);
        assert!(status.degraded.lines().is_empty());
    }

    #[test]
    fn the_name_in_readiness_is_the_objects_if_the_fault_has_none() {
        let status = Status::default();
        KIND_UNWATCHED.of("nodes").report(&status, Some("forbidden"));
        USE_REFUSED.of("m1").report(&status, Some("forbidden"));
        let lines = ["nodes: cannot be watched: forbidden", "use of machines' tokens: forbidden"];
        assert_eq!(status.degraded.lines(), lines);
        assert!(status.not_ready.lines().is_empty());
        KIND_UNWATCHED.of("nodes").clear(&status);
        assert_eq!(status.degraded.lines(), [lines[1]]);
    }

    #[test]
    fn a_line_of_readiness_leads_to_what_an_administrator_does() {
        assert_eq!(fix_of("tokens of machines that were copied"), Some(SHARED_TOKENS.fix));
        assert_eq!(fix_of("nodes"), Some(NODES.fix));
        assert_eq!(fix_of("node"), None);
        assert_eq!(fix_of("use of machines' tokens"), None, "the causes are several");
    }

    #[test]
    fn each_fault_has_its_line_in_the_book_and_says_what_to_do() {
        let book = include_str!("../../../docs/src/reference/conditions.md");
        for fault in ALL {
            let Fault { thing, message, fix, .. } = fault;
            let row = format!("`{thing}: …`");
            assert!(thing.is_empty() || book.contains(&row), "the book has no {row}");
            let is_logged = fault.level != Level::Silent;
            assert_eq!(is_logged, !message.is_empty(), "{thing}");
            assert_eq!(is_logged || !thing.is_empty(), !fix.is_empty(), "{thing}: {message}");
        }
    }
}
