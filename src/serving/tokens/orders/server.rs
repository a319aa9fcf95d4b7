//! The parts of `serve` that follow manifests and keep tokens, with clocks that a test advances.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use model::access::machine::Window;
use model::access::{Credential, DirectoryToken, KnownMachines, Refusal, ShownToken, Token};
use model::history::History;
use model::inputs::Inputs;
use telemetry::Reporting;
use time::OffsetDateTime;
use time::macros::datetime;
use tokio::runtime::Handle;
use tokio::time::Instant;

use super::site::{Content, Id, PLAIN, address, is_machine};
use crate::serving::tokens::directory::DirectoryTokens;
use crate::serving::tokens::machine_reconciler::MachineReconciler;
use crate::source::Butane;
use crate::source::directory::{Directory, Layout, Memory};
use crate::store::machine_files::removed_machines;
use crate::store::state_directory::StateDirectory;

/// Age of a change below which a file may still be written, as in `serve`.
const SETTLE: Duration = Duration::from_millis(60);

/// Time of the wall clock at the start of a test.
pub(super) const START: OffsetDateTime = datetime!(2026-11-21 12:00 UTC);

thread_local! {
    static STARTED: Instant = Instant::now();
}

/// The wall clock, which goes with the one that the test advances.
pub(super) fn wall() -> OffsetDateTime {
    START + STARTED.with(Instant::elapsed)
}

pub(super) struct Server {
    directory: Directory,
    reconciler: MachineReconciler,
    pub(super) tokens: Arc<DirectoryTokens>,
    /// Inputs that were sent last.
    pub(super) inputs: Inputs,
    known: KnownMachines,
    pub(super) attention: Vec<String>,
    reporting: Reporting,
    /// False while everything that is to be stored of the files is lost with the process.
    pub(super) is_saving: bool,
    /// True if a command has left something for the tokens.
    pub(super) is_asked: bool,
    reconciled_at: Instant,
    /// True if it serves something else than before.
    pub(super) has_news: bool,
}

pub(super) fn memory(state: &Path) -> Memory {
    Memory { last_good: state.join("last-good"), removed: removed_machines(state) }
}

impl Server {
    pub(super) fn start(root: PathBuf, state: &Path, reporting: &Reporting) -> Self {
        let memory = Some(memory(state));
        let layout = Layout::Tree {
            root,
            registry_credentials: None,
            is_strict: false,
            memory,
            butane: Butane::default(),
        };
        let (directory, inputs) = Directory::read(layout).unwrap();
        let state = StateDirectory::of_this_server(state).unwrap();
        let (window, history) = (Window(Duration::from_secs(3600)), History::default());
        let mut tokens = DirectoryTokens::new(state.clone(), window, reporting.clone(), history);
        tokens.wall = wall;
        let tokens = Arc::new(tokens);
        let host = "localhost".parse().unwrap();
        let mut server = Self {
            directory,
            reconciler: MachineReconciler::new(Arc::clone(&tokens), state, host, 22623),
            tokens,
            inputs,
            known: KnownMachines::default(),
            attention: Vec::new(),
            reporting: reporting.clone(),
            is_saving: true,
            is_asked: false,
            reconciled_at: Instant::now(),
            has_news: true,
        };
        server.reconcile();
        server.save();
        server
    }

    fn reconcile(&mut self) {
        let Inputs { machines, missing, .. } = &self.inputs;
        (self.known, self.attention) = self.reconciler.reconcile(machines, missing);
        self.reconciled_at = Instant::now();
        (self.is_asked, self.has_news) = (false, true);
    }

    fn save(&mut self) {
        if self.is_saving {
            self.directory.save(&self.reporting.status);
        }
    }

    /// Looks at the files. Returns `true` if anything has changed, or is about to.
    pub(super) fn look(&mut self, now: SystemTime, being_written: &dyn Fn(&Path) -> bool) -> bool {
        let is_due = self.is_asked || self.reconciled_at.elapsed() >= Duration::from_secs(3600);
        // As `Directory::follow` does.
        let scan = self.directory.scan(now, SETTLE, being_written);
        let is_changed = scan.as_ref().is_ok_and(|scan| scan.inputs.is_some());
        let mut is_unsettled = false;
        if let Ok(scan) = scan {
            is_unsettled = scan.scanned.is_unsettled || scan.scanned.again_in.is_some();
            if let Some(inputs) = scan.inputs {
                self.inputs = inputs;
            }
            if is_changed || is_due {
                self.reconcile();
            }
            self.save();
        }
        is_changed || is_unsettled
    }

    /// Judges a request by a token from the machine's own address for a pool.
    pub(super) fn judge(&self, token: &Token, content: Content) -> Result<ShownToken, Refusal> {
        let credential = Credential::Bearer(token.as_str());
        let (machine, shown) = self.known.find(credential).ok_or(Refusal::Unknown)?;
        machine.judge(content.pool, address_of(content), true)?;
        Handle::current().block_on(self.tokens.check(&shown))?;
        Ok(shown)
    }

    pub(super) fn stored(&self, machine: Id) -> Option<DirectoryToken> {
        self.tokens.get(machine)
    }

    /// The object as it is served.
    pub(super) fn served(&self, id: Id) -> Option<Content> {
        let Inputs { pools, machines, sources, .. } = &self.inputs;
        if is_machine(id) {
            let machine = machines.get(id)?;
            let pools: BTreeSet<Id> = ["p-x", "p-y"].into();
            let pool = pools.get(&*machine.spec.pool)?;
            let text = machine.spec.networks[0].to_string();
            let address: std::net::Ipv4Addr = text.split('/').next()?.parse().ok()?;
            return Some(Content { revision: u32::from(address) - 0x0a00_0000, pool });
        }
        let revision = if id.starts_with("p-") {
            pools.get(id)?.spec_configuration().strip_prefix("r-")?.parse().ok()
        } else {
            let config = sources.machine_configs().find(|config| config.name() == id)?;
            let text = config.ignition()?;
            let at = text.find("data:,")? + "data:,".len();
            text[at..].split('"').next()?.parse().ok()
        };
        Some(Content { revision: revision.unwrap_or_default(), pool: "" })
    }

    /// Returns `true` if a missing object is reported.
    pub(super) fn reports_missing(&self, id: Id) -> bool {
        let kind = match id.split_once('-') {
            Some(("m", _)) => "FirstBootMachine",
            Some(("p", _)) => "MachineConfigPool",
            Some(("c", _)) => "MachineConfig ",
            _ => PLAIN,
        };
        let mut reports = self.inputs.missing.reports.iter().map(|it| &*it.place);
        reports.any(|it| it.contains(id) || it.contains(kind) && it.contains(" more"))
    }

    /// Returns `true` if a file is reported.
    pub(super) fn reports_file(&self, file: &Path) -> bool {
        self.inputs.problems.iter().any(|it| Path::new(&it.place).ends_with(file))
    }

    /// Returns `true` if a machine without an object is reported.
    pub(super) fn reports_unseen(&self, machine: Id) -> bool {
        let mut lines = self.attention.iter();
        lines
            .any(|it| it.contains(&format!("machine {machine}")) || it.contains(" more): no First"))
    }
}

pub(super) fn address_of(content: Content) -> IpAddr {
    address(content.revision).into()
}
