//! Sequences of events for `serve`, with its own token manager and pipeline, on a real directory: lists are deleted and
//! restored, the server restarts, nothing can be written, pools come and go and change their mode, also to a malformed
//! one, and pointer configs without room for a token come and go. In no sequence does a pool with mode `enforce` serve
//! an unauthenticated client, except on the evidence of such a pointer config; nor, over any restart, does one that has
//! refused such clients for good while its mode stays the same.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use files::lock::LOCK;
use model::access::rotation::{Issued, RotationPolicy};
use model::access::{ACCESS_ANNOTATION, Credential, Refusal, Request, decide};
use model::history::History;
use model::inputs::{self, Layering, Missing, SharedInputs};
use model::objects::MachineConfigPool;
use model::registry_credentials::RegistryCredentials;
use pki::Host;
use serde_json::{Value, json};
use telemetry::Reporting;
use telemetry::conditions::Status;
use tempfile::TempDir;

use super::*;
use crate::serving::answers::Answers;
use crate::store::state_directory::{StateDirectory, StateError};

const WORKER: &str = "worker";
const INFRA: &str = "infra";
const SLIP: &str = "enforced";

const EVENTS: [fn(&mut Fixture); 15] = [
    Fixture::look,
    Fixture::look,
    Fixture::restart,
    |fixture| fixture.remove(Records::FILE),
    Fixture::lose_tokens,
    Fixture::back_up,
    Fixture::restore,
    |fixture| fixture.annotate(WORKER, "audit"),
    |fixture| fixture.annotate(WORKER, "enforce"),
    |fixture| fixture.annotate(WORKER, SLIP),
    Fixture::toggle_infra,
    |fixture| fixture.toggle_old(WORKER),
    |fixture| fixture.toggle_old(INFRA),
    Fixture::toggle_lock,
    Fixture::restart_in_parts,
];

struct Fixture {
    _directory: TempDir,
    state: StateDirectory,
    policy: Arc<ArcSwap<Policy>>,
    pipeline: Pipeline,
    /// Pools with their annotations.
    pools: BTreeMap<&'static str, &'static str>,
    backup: Option<Vec<u8>>,
    /// True if the list is an older one, and was not written since.
    is_restored: bool,
    /// Pools with a pointer config without room for a token at the last look.
    evident: BTreeSet<&'static str>,
    /// Pools that have just served an unauthenticated client.
    open: BTreeSet<&'static str>,
    /// Pools that have refused an unauthenticated client for good since their last change of mode.
    closed: BTreeSet<&'static str>,
    done: Vec<usize>,
}

impl Fixture {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDirectory::of_this_server(directory.path()).unwrap();
        let policy = pki::Policy::default();
        let now = OffsetDateTime::now_utc();
        let wanted = || Ok::<_, StateError>((vec![host()], Vec::new()));
        state.reconcile(wanted, &policy, now).unwrap();
        let (policy, pipeline) = start(&state);
        let mut fixture = Self {
            _directory: directory,
            state,
            policy,
            pipeline,
            pools: [(WORKER, "enforce")].into(),
            backup: None,
            is_restored: false,
            evident: BTreeSet::new(),
            open: BTreeSet::new(),
            closed: BTreeSet::new(),
            done: Vec::new(),
        };
        fixture.look();
        fixture
    }

    /// Returns `true` if nothing can be written.
    fn fails(&self) -> bool {
        self.path(LOCK).is_dir()
    }

    /// Nothing can be written while the lock cannot be taken.
    fn toggle_lock(&mut self) {
        let lock = self.path(LOCK);
        if self.fails() {
            fs::remove_dir(&lock).unwrap();
        } else {
            let _ = fs::remove_file(&lock);
            fs::create_dir(&lock).unwrap();
        }
    }

    fn path(&self, file: &str) -> PathBuf {
        self.state.path().join(file)
    }

    fn old(&self, pool: &str) -> PathBuf {
        self.path(&format!("user-data/{pool}-old.ign"))
    }

    /// Does the same as the tasks of `serve` after a change: configs, then pointer configs, then tokens.
    fn look(&mut self) {
        let old = [WORKER, INFRA].into_iter().filter(|pool| self.old(pool).exists());
        let evident: BTreeSet<_> = old.collect();
        self.evident.extend(&evident);
        self.pipeline.take_inputs(inputs(&self.pools));
        self.pipeline.finish();
        let pools = &self.pools;
        self.closed.retain(|pool| pools.get(pool) != Some(&"audit"));
        self.check();
        for pool in self.pools.keys() {
            let written = self.state.write_pointers(&[pool], &host(), 22623);
            let is_written = matches!(&written[..], [Some(Ok(()))]);
            assert!(is_written || self.fails(), "{written:?}");
        }
        self.pipeline.reconcile_tokens();
        self.is_restored &= self.fails();
        self.evident = evident;
        self.check();
    }

    fn restart(&mut self) {
        (self.policy, self.pipeline) = start(&self.state);
        self.look();
    }

    /// Restarts a server that answers for one pool before the others are read.
    fn restart_in_parts(&mut self) {
        (self.policy, self.pipeline) = start(&self.state);
        let whole = std::mem::take(&mut self.pools);
        self.pools.extend(whole.get_key_value(WORKER));
        let stored = [Records::FILE, Issued::FILE].map(|file| fs::read(self.path(file)).ok());
        self.pipeline.take_inputs(Inputs { is_partial: true, ..inputs(&self.pools) });
        self.pipeline.finish();
        self.check();
        let now = [Records::FILE, Issued::FILE].map(|file| fs::read(self.path(file)).ok());
        assert_eq!(now, stored, "a part says nothing of other pools: {:?}", self.done);
        self.pools = whole;
        self.look();
    }

    fn remove(&self, file: &str) {
        let _ = fs::remove_file(self.path(file));
    }

    /// Deletes the list of tokens, unless the records are restored ones: one list must remain.
    fn lose_tokens(&mut self) {
        if !self.is_restored {
            self.remove(Issued::FILE);
        }
    }

    fn back_up(&mut self) {
        self.backup = fs::read(self.path(Records::FILE)).ok();
    }

    fn restore(&mut self) {
        if let Some(list) = &self.backup
            && self.path(Issued::FILE).exists()
        {
            fs::write(self.path(Records::FILE), list).unwrap();
            self.is_restored = true;
        }
    }

    fn annotate(&mut self, pool: &'static str, mode: &'static str) {
        self.pools.insert(pool, mode);
        self.look();
    }

    fn toggle_infra(&mut self) {
        if self.pools.remove(INFRA).is_none() {
            self.pools.insert(INFRA, "enforce");
        }
        self.look();
    }

    /// Only a plain pointer config is lifted to a spec with headers.
    fn toggle_old(&mut self, pool: &str) {
        let old = self.old(pool);
        if fs::remove_file(&old).is_err() {
            let text = fs::read_to_string(self.path("user-data/worker.ign")).unwrap();
            let text = text.replace("/config/worker", &format!("/config/{pool}"));
            let mut pointer: Value = serde_json::from_str(&text).unwrap();
            pointer["ignition"]["version"] = json!("3.0.0");
            let fetch = pointer["ignition"]["config"]["merge"][0].as_object_mut().unwrap();
            fetch.remove("httpHeaders");
            pointer["storage"] = json!({"files": [{"path": "/etc/rack"}]});
            fs::write(&old, pointer.to_string()).unwrap();
        }
    }

    fn judged(&self, pool: &str, credential: Credential<'_>) -> Option<Refusal> {
        let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let (is_private, has_failed_often) = (true, false);
        let user_agent = "";
        let request =
            Request { pool, address, is_private, user_agent, credential, has_failed_often };
        decide(&request, &self.policy.load(), OffsetDateTime::now_utc()).refusal()
    }

    fn check(&mut self) {
        let mut open = BTreeSet::new();
        for (&pool, &annotation) in &self.pools {
            let done = &self.done;
            match self.judged(pool, Credential::Missing) {
                None => {
                    assert!(!self.closed.contains(pool), "{pool} was closed: {done:?}");
                    let may_be = annotation != "enforce"
                        || self.evident.contains(pool)
                        // Nothing could be written since.
                        || self.open.contains(pool) && self.fails();
                    assert!(may_be, "{pool} is open without reason: {done:?}");
                    open.insert(pool);
                }
                // The next process does not know a change that could not be written.
                Some(Refusal::Missing) if self.fails() => {}
                Some(Refusal::Missing) => _ = self.closed.insert(pool),
                Some(refusal) => assert_eq!(refusal, Refusal::NotRead, "{pool}: {done:?}"),
            }
        }
        self.open = open;
    }

    /// Without further events, machines are served by their pointer configs, and pools that can be are enforced.
    fn settles(mut self) {
        if self.fails() {
            self.toggle_lock();
        }
        self.restart();
        self.look();
        for (pool, annotation) in &self.pools {
            let text = fs::read(self.path(&format!("user-data/{pool}.ign"))).unwrap();
            let pointer: Value = serde_json::from_slice(&text).unwrap();
            let header = &pointer["ignition"]["config"]["merge"][0]["httpHeaders"][0]["value"];
            if *annotation == "enforce" {
                let token = header.as_str().unwrap().strip_prefix("Bearer ").unwrap();
                assert_eq!(self.judged(pool, Credential::Bearer(token)), None, "{:?}", self.done);
                if !self.evident.contains(pool) {
                    let refusal = self.judged(pool, Credential::Missing);
                    assert_eq!(refusal, Some(Refusal::Missing), "{pool}: {:?}", self.done);
                }
            }
        }
    }
}

fn host() -> Host {
    "localhost".parse().unwrap()
}

fn start(state: &StateDirectory) -> (Arc<ArcSwap<Policy>>, Pipeline) {
    let reporting = Reporting { metrics: Arc::default(), status: Status::default() };
    let answers = Arc::new(Answers::new(true, Arc::clone(&reporting.metrics)));
    let publisher = Publisher::new(answers, reporting, None, History::default());
    let policy = Arc::<ArcSwap<Policy>>::default();
    let rules = AccessRules { mode: AccessMode::Audit, ..AccessRules::default() };
    let tokens = TokenReconciler::new(state.clone(), RotationPolicy::default());
    let local = LocalState { tokens: Some(tokens), ..LocalState::default() };
    let pipeline =
        Pipeline::new(rules, SnapshotParts::default(), local, Arc::clone(&policy), publisher);
    (policy, pipeline)
}

fn inputs(pools: &BTreeMap<&str, &str>) -> Inputs {
    let pool = |(name, annotation): (&&str, &&str)| {
        let annotations = json!({ ACCESS_ANNOTATION: annotation });
        let pool = json!({"metadata": {"name": name, "annotations": annotations}});
        let pool: MachineConfigPool = serde_json::from_value(pool).unwrap();
        ((*name).to_owned(), Arc::new(pool))
    };
    Inputs {
        mode: inputs::ServingMode::Cluster,
        pools: Arc::new(pools.iter().map(pool).collect()),
        machine_configs: Arc::default(),
        sources: Arc::default(),
        missing: Missing::default(),
        machines: Arc::default(),
        machine_states: BTreeMap::new(),
        layering: Layering::default(),
        shared: Arc::new(SharedInputs::default()),
        tls_profile: None,
        enforced: BTreeSet::new(),
        live_reads: 0,
        is_partial: false,
        registry_credentials: RegistryCredentials::default(),
        problems: Vec::new(),
        warnings: Vec::new(),
    }
}

#[test]
fn no_order_of_events_serves_an_unauthenticated_client() {
    let (mut open, mut closed) = (0, 0);
    for seed in 1..24_u64 {
        let (mut fixture, mut random) = (Fixture::new(), seed);
        if seed % 2 == 0 {
            fixture.annotate(WORKER, "audit");
            fixture.toggle_old(WORKER);
            fixture.annotate(WORKER, "enforce");
            assert!(fixture.open.contains(WORKER), "it is open on evidence");
        }
        for _ in 0..25 {
            // Marsaglia's xorshift64.
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let event = usize::try_from(random % EVENTS.len() as u64).unwrap();
            fixture.done.push(event);
            EVENTS[event](&mut fixture);
            fixture.check();
            let is_asked = fixture.pools[WORKER] == "enforce";
            open += u32::from(is_asked && fixture.open.contains(WORKER));
            closed +=
                u32::from(fixture.judged(WORKER, Credential::Missing) == Some(Refusal::Missing));
        }
        fixture.settles();
    }
    assert!(open > 10 && closed > 10, "both came about: {open}, {closed}");
}

/// Sequences by which an unauthenticated client was served in the past.
#[test]
fn an_order_that_has_served_an_unauthenticated_client_does_so_no_more() {
    for order in [
        // The list is lost while there is a pointer config without room for a token.
        &[11, 0, 3, 0, 2][..],
        // Both lists are lost.
        &[11, 0, 3, 4, 0, 2],
        // A new pool is created while nothing can be written.
        &[13, 10, 0, 2],
        // A typo in the mode, and a restart.
        &[11, 0, 9, 2, 8],
        &[9, 14],
    ] {
        let mut fixture = Fixture::new();
        for &event in order {
            fixture.done.push(event);
            EVENTS[event](&mut fixture);
            fixture.check();
        }
        assert!(fixture.open.is_empty(), "{order:?}");
        fixture.settles();
    }
}

#[test]
fn a_change_of_other_objects_than_those_that_decide_on_access_has_it_not_judged_again() {
    let mut fixture = Fixture::new();
    let pipeline = &mut fixture.pipeline;
    let pools = |mode| inputs(&[(WORKER, mode)].into());
    let is_judged = |pipeline: &mut Pipeline, inputs| {
        pipeline.wanted = WantedModes::default();
        pipeline.take_inputs(inputs);
        pipeline.wanted != WantedModes::default()
    };
    // As if the CA of a registry had changed.
    let shared = Arc::new(SharedInputs::default());
    let other = Inputs { shared, live_reads: 1, ..pools("enforce") };
    assert!(!is_judged(pipeline, other));
    assert!(is_judged(pipeline, pools("audit")));
    let unread = Inputs { is_partial: true, ..pools("audit") };
    let missing = Missing { machines: ["m".to_owned()].into(), ..Missing::default() };
    assert!(is_judged(pipeline, Inputs { missing, ..pools("audit") }));
    pipeline.take_inputs(unread);
    assert!(is_judged(pipeline, pools("audit")), "all is read now");
}
