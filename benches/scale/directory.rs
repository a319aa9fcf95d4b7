//! A directory in place of a cluster: a file for each pool, with twenty MachineConfigs of 1 KB in it.
//!
//! It is measured at two sizes, the second twice the first: what should not depend on the size is the same in both.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tokio::runtime::Runtime;

use crate::change::until_served;
use crate::machine::{HOST, Machine, OTHER};
use crate::objects;
use crate::options::Options;
use crate::processes;
use crate::replica::until;
use crate::servers::{STATE, Server, free_address, ours};
use crate::units::{mebibytes, milliseconds};

/// MachineConfigs of each pool.
const MACHINE_CONFIGS: usize = 20;
/// Bytes of the file in each.
const TEXT: usize = 900;
/// Between two changes, within which the work of the last one ends.
const APART: Duration = Duration::from_secs(2);
/// FirstBootMachines that appear at once.
const FIRST_BOOT_MACHINES: u32 = 3_000;

/// What was seen of one size.
#[derive(Default)]
struct Column {
    /// From the start of the first process to the first answer.
    first_start: Duration,
    /// The same of the next process.
    restart: Duration,
    /// Bytes, at rest.
    memory: u64,
    cpu_at_rest: f64,
    /// How long each change of one file took.
    changes: Vec<Duration>,
    cpu_per_change: Duration,
    /// Bytes, after each pool was asked for.
    memory_after: u64,
    /// From a manifest of many FirstBootMachines until the first and the last of them has a pointer config.
    machines: [Duration; 2],
}

type Figure = fn(&Column) -> f64;

const ROWS: [(&str, Figure); 10] = [
    ("first start, s", |it| it.first_start.as_secs_f64()),
    ("first answer after a restart, s", |it| it.restart.as_secs_f64()),
    ("change, median, ms", |it| milliseconds(it.changes[it.changes.len() / 2])),
    ("change, worst, ms", |it| it.changes.last().map_or(0.0, |it| milliseconds(*it))),
    ("CPU a change, ms", |it| milliseconds(it.cpu_per_change)),
    ("memory at rest, MiB", |it| mebibytes(it.memory)),
    ("CPU at rest, %", |it| it.cpu_at_rest * 100.0),
    ("memory, all asked, MiB", |it| mebibytes(it.memory_after)),
    ("first of 3,000 machines' tokens, s", |it| it.machines[0].as_secs_f64()),
    ("last of them, s", |it| it.machines[1].as_secs_f64()),
];

/// Measures both sizes, and prints the table.
pub(crate) fn measure(options: &Options) -> Result<()> {
    let runtime = Runtime::new()?;
    let sizes = [options.pools, 2 * options.pools];
    let [first, second] = sizes.map(|pools| measure_one(&runtime, options, pools));
    let columns = [first?, second?];
    println!("\n{:<36}{:>10}{:>10}", "pools", sizes[0], sizes[1]);
    for (title, figure) in ROWS {
        let [first, second] = columns.each_ref().map(figure);
        println!("{title:<36}{first:>10.2}{second:>10.2}");
    }
    Ok(())
}

fn measure_one(runtime: &Runtime, options: &Options, pools: u32) -> Result<Column> {
    let scratch = tempfile::tempdir().context("no scratch directory")?;
    let manifests = scratch.path().join("manifests");
    fs::create_dir(&manifests)?;
    for index in 0..pools {
        fs::write(file_of(&manifests, index), manifest(index, "x"))?;
    }
    let site = Site { runtime, binary: &options.server, manifests, scratch: scratch.path() };
    let mut column = Column::default();
    let (server, _, first_start) = site.start()?;
    column.first_start = first_start;
    // What it has read is stored once it is served.
    sleep(options.rest());
    drop(server);
    let (server, machine, restart) = site.start()?;
    column.restart = restart;
    sleep(options.rest());
    let (before, begun) = (processes::cpu_time(server.pid())?, Instant::now());
    sleep(options.rest());
    let used = processes::cpu_time(server.pid())?.saturating_sub(before);
    column.cpu_at_rest = used.as_secs_f64() / begun.elapsed().as_secs_f64();
    column.memory = processes::resident_memory(server.pid())?;

    let before = processes::cpu_time(server.pid())?;
    for change in 0..options.changes {
        column.changes.push(site.change(
            &machine,
            change % pools,
            &format!("change-{change:04}"),
        )?);
        sleep(APART);
    }
    column.changes.sort_unstable();
    let used = processes::cpu_time(server.pid())?.saturating_sub(before);
    column.cpu_per_change = used / options.changes;

    let mut buffer = Vec::new();
    for index in 0..pools {
        runtime.block_on(machine.of_pool(&objects::pool(index)).boot(&mut buffer))?;
    }
    sleep(options.rest());
    column.memory_after = processes::resident_memory(server.pid())?;
    column.machines = site.name_machines()?;
    Ok(column)
}

struct Site<'a> {
    runtime: &'a Runtime,
    binary: &'a Path,
    manifests: PathBuf,
    scratch: &'a Path,
}

impl Site<'_> {
    /// Starts a server. Returns it with a machine that boots from it, and the time until its first answer.
    fn start(&self) -> Result<(Server, Machine, Duration)> {
        let address = free_address()?;
        let mut command = ours(self.binary, &self.manifests, self.scratch, address);
        command.args(["--insecure-port", "0", "--metrics-address", "off"]);
        let begun = Instant::now();
        let server = Server::start(address, &mut command, &self.scratch.join("log"))?;
        let ca = self.scratch.join(STATE).join("ca.crt");
        until(begun, || ca.exists()).context("it makes no CA")?;
        let machine = Machine::new(address, &ca, OTHER, false)?.of_pool(&objects::pool(0));
        let mut buffer = Vec::new();
        until(begun, || self.runtime.block_on(machine.boot(&mut buffer)).is_ok())
            .with_context(|| format!("no machine boots from {HOST}"))?;
        Ok((server, machine, begun.elapsed()))
    }

    /// Renames a manifest of FirstBootMachines into place. Returns the times until the first and the last of them has a
    /// pointer config.
    fn name_machines(&self) -> Result<[Duration; 2]> {
        let prepared = self.manifests.join(".prepared");
        fs::write(&prepared, first_boot_machines())?;
        let begun = Instant::now();
        fs::rename(&prepared, self.manifests.join("machines.yaml"))?;
        let folder = self.scratch.join(STATE).join("user-data/machines");
        // Without those that are being written.
        let is_whole = |entry: &io::Result<fs::DirEntry>| {
            entry.as_ref().is_ok_and(|it| it.file_name().as_encoded_bytes().starts_with(b"rack-"))
        };
        let count = || Ok::<_, io::Error>(fs::read_dir(&folder)?.filter(is_whole).count());
        let made = |wanted: u32| {
            until(begun, || count().is_ok_and(|count| count >= wanted as usize))
                .context("too few machines have a pointer config")?;
            Ok::<_, anyhow::Error>(begun.elapsed())
        };
        Ok([made(1)?, made(FIRST_BOOT_MACHINES)?])
    }

    /// Renames another file of a pool into place. Returns the time until it is served.
    fn change(&self, machine: &Machine, pool: u32, text: &str) -> Result<Duration> {
        let prepared = self.manifests.join(".prepared");
        fs::write(&prepared, manifest(pool, text))?;
        let machine = machine.of_pool(&objects::pool(pool));
        let begun = Instant::now();
        fs::rename(&prepared, file_of(&self.manifests, pool))?;
        self.runtime.block_on(until_served(&machine, text, begun))
    }
}

fn file_of(manifests: &Path, pool: u32) -> PathBuf {
    manifests.join(format!("{}.yaml", objects::pool(pool)))
}

/// A pool and its MachineConfigs, as an administrator writes them.
fn manifest(pool: u32, text: &str) -> String {
    let (pool, text) = (objects::pool(pool), format!("{text} ").repeat(TEXT / (text.len() + 1)));
    let text = text.trim_end().replace(' ', "%20");
    let selected = format!("{{machineconfiguration.openshift.io/role: {pool}}}");
    let of_pool = format!(
        "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfigPool\n\
         metadata: {{name: {pool}}}\nspec:\n  machineConfigSelector:\n    matchLabels: {selected}\n"
    );
    let configs = (0..MACHINE_CONFIGS).map(|number| {
        format!(
            "---\napiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfig\n\
             metadata:\n  name: {number:02}-{pool}\n  labels: {selected}\nspec:\n  config:\n    \
             ignition: {{version: 3.4.0}}\n    storage:\n      files:\n      - path: /etc/{number:02}\n        \
             mode: 0644\n        contents: {{source: \"data:,{text}\"}}\n"
        )
    });
    of_pool + &configs.collect::<String>()
}

fn first_boot_machines() -> String {
    let one = |number| {
        format!(
            "---\napiVersion: machine-config-server.io/v1alpha1\nkind: FirstBootMachine\n\
             metadata: {{name: rack-{number:04}}}\nspec: {{pool: {}}}\n",
            objects::pool(0)
        )
    };
    (0..FIRST_BOOT_MACHINES).map(one).collect()
}
