//! Orders of what editors, git, rsync, config management, mounts, administrators and kills do to a directory of
//! manifests and its server, with the real source and the real reconciler of machines' tokens. After each step it is held
//! against what the administrator meant:
//!
//! 1. No token is revoked that was not removed on evidence, by `machines remove`, or missing for an hour. Within an hour
//!    after a revocation without that command, the object opens the same token again.
//! 2. No token is open that was spent, or whose machine was removed or is missing.
//! 3. No half is served: each object is as one whole valid text said, and as the last one if its file is valid.
//! 4. What is not as it was meant is reported.
//!
//! ```text
//! site     files, and what they are meant to say
//! steps    what is done to them
//! server   the parts of the program
//! oracle   what must be served of each object
//! tokens   what each token must open
//! ```
//!
//! A failure prints its seed and its steps; [`run`] repeats it alone.

mod oracle;
mod random;
mod server;
mod site;
mod steps;
mod tokens;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use model::access::machine::TokenInUse as _;
use pki::Policy;
use telemetry::Reporting;
use telemetry::conditions::Status;
use tokio::runtime::{Builder, Runtime};
use tokio::time::Instant;

use self::oracle::{Oracle, Presence};
use self::random::Random;
use self::server::{Server, memory, wall};
use self::site::{Id, Objects, Site, State, ids, is_machine};
use self::steps::{Step, Way, choose, is_done_at_once, manifest_of};
use self::tokens::Tokens;
use crate::source::directory::discard_machine;
use crate::store::state_directory::{StateDirectory, StateError};

/// Number of orders of each test; `FILES_ORDERS` is another one.
fn orders() -> u64 {
    let asked = std::env::var("FILES_ORDERS").ok();
    asked.map_or(400, |orders| orders.parse().expect("FILES_ORDERS, a number"))
}

/// Parts that all orders of a test have in common.
struct Common {
    runtime: Runtime,
    reporting: Reporting,
    /// The signing CA of all servers: making one takes longer than an order.
    authority: [(&'static str, Vec<u8>); 2],
}

impl Common {
    fn new() -> Self {
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
        let directory = tempfile::tempdir().unwrap();
        let state = StateDirectory::of_this_server(directory.path()).unwrap();
        let hosts = vec!["localhost".parse().unwrap()];
        let wanted = || Ok::<_, StateError>((hosts, Vec::new()));
        state.reconcile(wanted, &Policy::default(), server::START).unwrap();
        let read = |name| (name, fs::read(directory.path().join(name)).unwrap());
        Self {
            runtime: runtime.unwrap(),
            reporting: Reporting { metrics: Arc::default(), status: Status::default() },
            authority: ["ca.crt", "ca.key"].map(read),
        }
    }
}

/// A site with its server, and what is expected of it.
struct Order<'a> {
    seed: u64,
    common: &'a Common,
    random: Random,
    site: Site,
    /// `None` while no server runs.
    server: Option<Server>,
    oracle: Oracle,
    tokens: Tokens,
    /// True if objects were lost for a moment with most others, and may wait.
    may_wait: bool,
    done: Vec<Step>,
}

impl Drop for Order<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("run({}..{}) after these steps:", self.seed, self.seed + 1);
            for step in &self.done {
                eprintln!("  {step:?}");
            }
        }
    }
}

impl<'a> Order<'a> {
    fn new(seed: u64, common: &'a Common) -> Self {
        let mut order = Self {
            seed,
            common,
            random: Random::new(seed),
            site: Site::new(),
            server: None,
            oracle: Oracle::default(),
            tokens: Tokens::new(),
            may_wait: false,
            done: Vec::new(),
        };
        fs::create_dir(order.site.state()).unwrap();
        for (name, text) in &common.authority {
            fs::write(order.site.state().join(name), text).unwrap();
        }
        order.start();
        order.settle(&Oracle::default());
        order
    }

    fn state(&self) -> StateDirectory {
        StateDirectory::of_this_server(&self.site.state()).unwrap()
    }

    fn start(&mut self) {
        self.oracle.restart(Instant::now());
        let Self { oracle, tokens, .. } = self;
        tokens.restart(|id| oracle.knows(id));
        let server = Server::start(self.site.root(), &self.site.state(), &self.common.reporting);
        self.note(&server);
        self.server = Some(server);
    }

    fn pass(&self, time: Duration) {
        self.common.runtime.block_on(tokio::time::advance(time));
    }

    /// Looks at the files after a while, as far as a server runs. Returns `true` if another look is needed.
    fn look_after(&mut self, milliseconds: u64, being_written: Option<&Path>) -> bool {
        self.pass(Duration::from_millis(milliseconds));
        let Some(mut server) = self.server.take() else { return false };
        let being_written = being_written.map(|file| self.site.root().join(file));
        let now = SystemTime::now() + self.site.changed_at.elapsed();
        let is_unsettled = server.look(now, &|path| being_written.as_deref() == Some(path));
        if std::mem::take(&mut server.has_news) {
            self.note(&server);
        }
        self.server = Some(server);
        is_unsettled
    }

    fn note(&mut self, server: &Server) {
        for id in ids() {
            let content = server.served(id);
            let is_whole = content.is_none_or(|content| self.site.was_written(id, content));
            assert!(is_whole, "{id} is served as no text said: {content:?}");
        }
        self.tokens.note(server);
    }

    fn step(&mut self) {
        let current = self.tokens.current();
        let step = choose(&mut self.random, &mut self.site, &current);
        self.done.push(step.clone());
        let before = self.oracle.clone();
        self.may_wait = false;
        self.apply(&step);
        self.settle(&before);
    }

    fn apply(&mut self, step: &Step) {
        match step {
            Step::Pass(time) => self.pass(*time),
            Step::Restart => self.restart(),
            Step::WhileDown(steps) => {
                self.server = None;
                for step in steps {
                    self.apply(step);
                }
                self.start();
            }
            Step::Kill(steps) => {
                self.server.as_mut().unwrap().is_saving = false;
                for (number, step) in steps.iter().enumerate() {
                    self.apply(step);
                    // It may have followed a removal, or not yet.
                    if number == 0 && self.random.below(2) == 0 {
                        self.look_after(200, None);
                    }
                    self.look_after(500, None);
                    if let Some(server) = self.server.take() {
                        let mut oracle = self.oracle.clone();
                        oracle.judge(self.site.visible.as_ref(), Instant::now());
                        self.tokens.take_revoked(&server, |id| oracle.presence(id));
                    }
                }
                self.start();
            }
            Step::RemoveCommand(machine) => self.remove_by_command(machine),
            Step::RearmCommand(machine) => self.rearm_by_command(machine),
            Step::Boot { machine, is_delivered } => {
                self.tokens.boot(self.server.as_ref().unwrap(), machine, *is_delivered);
            }
            Step::Write { file, way, objects } => self.write(file, *way, objects),
            Step::Move { id, from, to, is_added_first } => {
                self.move_object(id, [from, to], *is_added_first);
            }
            Step::Checkout { files, is_restarted } => self.check_out(files, *is_restarted),
            step => assert!(is_done_at_once(&mut self.site, step)),
        }
    }

    fn restart(&mut self) {
        self.server = None;
        self.start();
    }

    fn write(&mut self, file: &Path, way: Way, objects: &Objects) {
        let is_there = self.site.own().is_some_and(|tree| tree.files.contains_key(file));
        match way {
            Way::EditorRenames => self.site.rename_into_place(file, objects.clone()),
            Way::RsyncRenames => {
                self.site.prepare(file, objects);
                self.look_after(100, None);
                self.site.put_in_place(file, objects.clone());
            }
            Way::WriterIsSeen | Way::WriterIsUnseen => {
                let is_seen = way == Way::WriterIsSeen && self.server.is_some();
                self.site.write_half(file, objects, is_seen);
                self.look_after(100, Some(file).filter(|_| is_seen));
                self.site.write_in_place(file, objects.clone());
            }
            Way::GitDeletesFirst if is_there => {
                self.may_wait = true;
                self.site.remove(file);
                self.look_after(100, None);
                self.serves_as_before();
                self.site.write_in_place(file, objects.clone());
            }
            Way::ShellEmptiesFirst if is_there => {
                self.site.damage(file, State::Empty);
                self.look_after(100, None);
                self.site.write_in_place(file, objects.clone());
            }
            Way::GitDeletesFirst | Way::ShellEmptiesFirst => {
                self.site.write_in_place(file, objects.clone());
            }
        }
        self.look_after(0, None);
    }

    fn move_object(&mut self, id: Id, [from, to]: [&PathBuf; 2], is_added_first: bool) {
        let files = &self.site.own().unwrap().files;
        let [mut less, mut more] = [from, to].map(|path| files[path].objects.clone());
        let at = less.iter().position(|(it, _)| *it == id).unwrap();
        more.push(less.remove(at));
        let mut remove = |order: &mut Self| match less.len() {
            0 => drop(order.site.remove(from)),
            _ => order.site.rename_into_place(from, std::mem::take(&mut less)),
        };
        if is_added_first {
            self.site.rename_into_place(to, more);
            self.look_after(100, None);
            remove(self);
        } else {
            self.may_wait = true;
            remove(self);
            self.look_after(100, None);
            self.site.rename_into_place(to, more);
        }
    }

    fn check_out(&mut self, files: &[(PathBuf, Option<Objects>)], is_restarted: bool) {
        self.may_wait = true;
        for (file, _) in files {
            self.site.remove(file);
        }
        self.look_after(100, None);
        if is_restarted && self.server.is_some() {
            self.restart();
        }
        self.look_after(100, None);
        self.serves_as_before();
        for (file, objects) in files {
            if let Some(objects) = objects {
                self.site.write_in_place(file, objects.clone());
            }
        }
        self.look_after(0, None);
    }

    /// Objects that were deleted a moment ago may be back.
    fn serves_as_before(&self) {
        let Some(server) = &self.server else { return };
        for id in ids().filter(|id| matches!(self.oracle.presence(id), Presence::Served(_))) {
            assert!(server.served(id).is_some(), "{id} is not served for a moment");
            let is_revoked = server.stored(id).is_some_and(|token| token.is_revoked());
            assert!(!is_revoked, "the token of {id} is revoked for a moment");
        }
    }

    /// Does what `machines remove` does.
    fn remove_by_command(&mut self, machine: Id) {
        let state = self.state();
        state.request_removal(machine).unwrap();
        self.ask();
        let manifest = manifest_of(machine);
        if self.site.visible.as_ref().is_some_and(|tree| tree.files.contains_key(&manifest)) {
            self.site.remove(&manifest);
            self.look_after(100, None);
        }
        let files = self.site.visible.iter().flat_map(|tree| tree.files.values());
        let mut valid = files.filter(|file| file.state == State::Valid);
        if valid.any(|file| file.objects.iter().any(|(id, _)| *id == machine)) {
            state.note_removed(machine).unwrap();
            return;
        }
        // It waits for a server.
        for _ in 0..10 {
            self.look_after(1_000, None);
        }
        if state.removed_path().join(machine).exists() {
            state.revoke_machine(machine, wall()).unwrap();
            discard_machine(&memory(state.path()), machine).unwrap();
            state.note_removed(machine).unwrap();
        }
        self.oracle.remove(machine);
        self.tokens.remove(machine);
    }

    /// Does what `machines rearm` does.
    fn rearm_by_command(&mut self, machine: Id) {
        if self.state().machine_token(machine).unwrap().is_some_and(|it| !it.is_revoked()) {
            let value = self.done.len().to_string();
            self.state().request_arming(machine, &value).unwrap();
            self.tokens.ask_to_arm(machine);
            self.ask();
        }
    }

    fn ask(&mut self) {
        self.server.iter_mut().for_each(|server| server.is_asked = true);
    }

    /// Waits until nothing changes, and checks what is served.
    fn settle(&mut self, before: &Oracle) {
        let settles = (0..10).any(|_| !self.look_after(500, None));
        assert!(settles, "it does not settle");
        let now = Instant::now();
        self.oracle.judge(self.site.visible.as_ref(), now);
        let server = self.server.take().unwrap();
        if self.may_wait {
            self.let_wait(&server, before);
        }
        self.check(&server);
        let Self { oracle, tokens, .. } = self;
        tokens.check(&server, |id| before.presence(id), |id| oracle.presence(id));
        self.server = Some(server);
    }

    /// An object that was lost with most others for a moment may wait for an administrator to say that it was meant.
    fn let_wait(&mut self, server: &Server, before: &Oracle) {
        for id in ids() {
            let was = before.content(id);
            if let (Some((content, file)), Presence::Absent, Some(_)) =
                (was, self.oracle.presence(id), server.served(id))
                && server.reports_missing(id)
            {
                self.oracle.wait(id, content, &file, Instant::now());
            }
        }
    }

    fn check(&self, server: &Server) {
        for id in ids() {
            let presence = self.oracle.presence(id);
            let expected = match presence {
                Presence::Served(content) | Presence::Missing(content) => Some(content),
                Presence::Absent => None,
            };
            assert_eq!(server.served(id), expected, "{id}, which is {presence:?}");
            let is_missing = matches!(presence, Presence::Missing(_));
            if is_machine(id) {
                assert_eq!(server.inputs.missing.machines.contains(id), is_missing, "{id}");
            }
            assert!(!is_missing || server.reports_missing(id), "{id} is missing and not reported");
        }
        for (path, file) in self.site.visible.iter().flat_map(|tree| &tree.files) {
            let is_broken = matches!(file.state, State::Invalid | State::Empty);
            let is_reported = server.reports_file(path);
            let problems = &server.inputs.problems;
            assert!(!is_broken || is_reported, "{} is not reported: {problems:?}", path.display());
        }
    }
}

/// Runs an order of steps for each seed of a part of all.
fn run_part(part: u64) {
    run(part * orders()..(part + 1) * orders());
}

fn run(seeds: std::ops::Range<u64>) {
    let common = Common::new();
    let _guard = common.runtime.enter();
    for seed in seeds {
        let mut order = Order::new(seed, &common);
        for _ in 0..10 + seed % 6 {
            order.step();
        }
    }
}

#[test]
fn what_is_served_is_what_the_administrator_meant_in_the_first_orders() {
    run_part(0);
}

#[test]
fn what_is_served_is_what_the_administrator_meant_in_the_second_orders() {
    run_part(1);
}

#[test]
fn what_is_served_is_what_the_administrator_meant_in_the_third_orders() {
    run_part(2);
}

#[test]
fn what_is_served_is_what_the_administrator_meant_in_the_last_orders() {
    run_part(3);
}
