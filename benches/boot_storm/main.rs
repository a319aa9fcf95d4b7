//! A boot storm: many machines at once, each with a connection, a full TLS 1.3 handshake and one
//! config of some 440 KB, against this server and against nginx with the same bytes as a static
//! file, the same key and the same certificate; and against this server once more as Ignition itself,
//! which gets the config compact.
//!
//! ```text
//! cargo bench --bench boot_storm                       # the table
//! cargo bench --bench boot_storm -- --check            # and fail where a target is missed
//! cargo bench --bench boot_storm -- --concurrency 256 --rounds 3
//! cargo bench --bench boot_storm -- --against OTHER    # another build in nginx's place
//! ```
//!
//! They take turns, because a shared machine is never the same from one minute to the next: only
//! figures of neighbouring rounds are compared, and the ratio shown is the median of those of the
//! rounds. The load comes from a process of its own, so that what it costs is in nobody's figures.
//!
//! | file | about |
//! | --- | --- |
//! | `options` | what can be asked for |
//! | `manifests` | the cluster that is served |
//! | `servers` | starting and ending the two |
//! | `processes` | what a server has used, from `/proc` |
//! | `storm` | the load, and the process that it runs in |
//! | `machine` | one boot |
//! | `report` | rounds, the table, the targets |
//! | `units` | milliseconds and MiB |

#[allow(dead_code, reason = "another benchmark uses it too")]
mod machine;
mod manifests;
mod options;
#[allow(dead_code, reason = "another benchmark uses it too")]
mod processes;
mod report;
mod servers;
mod storm;
mod units;

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Parser;

use crate::machine::{IGNITION, OTHER};
use crate::options::{Options, Role};
use crate::report::{Measured, Report, Round};
use crate::servers::{Pair, Server};
use crate::storm::Storm;

fn main() -> Result<()> {
    let options = Options::parse();
    match &options.role {
        Some(Role::Storm(storm)) => storm.run(),
        None => compare(&options),
    }
}

fn compare(options: &Options) -> Result<()> {
    let scratch = tempfile::tempdir().context("no scratch directory")?;
    let manifests = scratch.path().join("manifests");
    manifests::write(&manifests)?;

    let ours = servers::start_ours(&options.server, &manifests, scratch.path())?;
    let pair = Pair::made_by_ours(scratch.path());
    fs::create_dir(scratch.path().join("config"))?;
    let plain = Load::first(&ours, &pair, OTHER, scratch.path().join("config/master"))?;
    let compact = Load::first(&ours, &pair, IGNITION, scratch.path().join("compact"))?;
    // Another build sends both forms, nginx the plain one.
    let (theirs, agents) = match &options.against {
        Some(other) => {
            (servers::start_other(other, &manifests, scratch.path())?, vec![OTHER, IGNITION])
        }
        None => (servers::start_nginx(&pair, scratch.path())?, vec![OTHER]),
    };
    let of_theirs = agents.into_iter().enumerate().map(|(number, agent)| {
        Load::first(&theirs, &pair, agent, scratch.path().join(format!("theirs-{number}")))
    });
    let of_theirs = of_theirs.collect::<Result<Vec<_>>>()?;

    let measure = |load: &Load<'_>, boots: u32| -> Result<Measured> {
        let storm = Storm {
            address: load.server.address,
            ca: pair.ca.clone(),
            user_agent: load.user_agent.to_owned(),
            config: load.config.clone(),
            boots,
            seconds: options.seconds,
            concurrency: options.concurrency,
            post_quantum: options.post_quantum,
        };
        let before = processes::cpu_time(load.server.pid())?;
        let outcome = storm.run_in_own_process()?;
        let cpu = processes::cpu_time(load.server.pid())?.saturating_sub(before);
        Ok(Measured { outcome, cpu_per_boot: cpu / outcome.boots.max(1) })
    };

    println!(
        "{} bytes a boot, {} compact, {} at once, up to {} boots or {} s a round",
        plain.length, compact.length, options.concurrency, options.boots, options.seconds
    );
    for load in [&plain, &compact].into_iter().chain(&of_theirs) {
        measure(load, options.boots.div_ceil(4)).context("warming up")?;
    }
    let mut rounds = Vec::new();
    for _ in 0..options.rounds {
        let ours = [measure(&plain, options.boots)?, measure(&compact, options.boots)?];
        let mut theirs = of_theirs.iter().map(|load| measure(load, options.boots));
        let plain = theirs.next().context("nobody to compare with")??;
        let round = Round { ours, theirs: [plain, theirs.next().unwrap_or(Ok(plain))?] };
        println!("{round}");
        rounds.push(round);
    }
    let report = Report {
        rounds,
        our_peak_memory: processes::peak_memory(ours.pid())?,
        their_peak_memory: processes::peak_memory(theirs.pid())?,
        them: if options.against.is_some() { "other" } else { "nginx" },
    };
    println!("\n{report}");
    if options.check { report.check() } else { Ok(()) }
}

/// What is asked of a server over and over.
struct Load<'a> {
    server: &'a Server,
    user_agent: &'static str,
    /// A file with the bytes that it answers.
    config: PathBuf,
    length: usize,
}

impl<'a> Load<'a> {
    /// Keeps the server's first answer as what every machine must get.
    fn first(
        server: &'a Server,
        pair: &Pair,
        user_agent: &'static str,
        config: PathBuf,
    ) -> Result<Self> {
        let bytes = storm::first_config(server.address, &pair.ca, user_agent)?;
        fs::write(&config, &bytes)?;
        Ok(Self { server, user_agent, config, length: bytes.len() })
    }
}
