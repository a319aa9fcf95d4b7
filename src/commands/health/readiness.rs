//! Lines of `/readyz` as findings. A line is a thing and a reason; the next step follows from the reason if any thing can
//! have it, such as a full disk, otherwise from the thing.
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

use model::recovery::Recovery;
use model::render::FETCHES_FOREVER;
use telemetry::faults::fix_of;

use super::finding::{Finding, Level, Source};

/// Reason of a pool that was read a moment ago. A machine that asks for it renders it first.
const RENDERING: &str = "is being rendered";

/// Next steps by a part of the reason.
const BY_REASON: [(&str, &str); 11] = [
    (RENDERING, "wait a moment: a machine that asks now gets its config as soon as it is rendered"),
    (
        "the inputs have not been read yet",
        "wait until the server has read them; if that takes longer than a minute, its log has the reason",
    ),
    (
        "No space left on device",
        "free space on the disk of the state directory, which `df -h` shows: nothing is stored until then",
    ),
    ("Disk quota exceeded", "raise the quota of the server's user: nothing is stored until then"),
    (
        "Read-only file system",
        "mount the file system writable again, after a look at `dmesg` for the reason",
    ),
    (
        "Permission denied",
        "give the user that the server runs as access to the path, with `chown` or `chmod`",
    ),
    (
        "forbidden",
        "give the account that the server runs as the right that the reason names, from deploy/base/rbac.yaml",
    ),
    (
        "unauthenticated clients can read",
        "enforce tokens for the pool with --access enforce or its annotation, or remove the secret from its \
         MachineConfigs",
    ),
    ("machines would fetch forever", FETCHES_FOREVER),
    ("update the boot image", "boot the pool's machines from a newer image"),
    (
        "no pool found",
        "make MachineConfigPools, or start the server with the directory that has them",
    ),
];

/// Next steps by the thing, where several faults have one.
const BY_THING: [(&str, &str); 3] = [
    (
        "serving certificate",
        "run `machine-config-server certs check`, which names the fault of the files",
    ),
    (
        "use of machines' tokens",
        "make the state directory writable, or restore access to the API server",
    ),
    (
        "cache of uses of machines' tokens",
        "make the directory of --cache-dir readable and writable for the server",
    ),
];

/// Next step of a pool without a config.
const POOL: &str = "correct the MachineConfig or field that the reason names; `machine-config-server validate DIR` checks \
    the result";
/// Next step for all other lines.
const OTHERS: &str =
    "correct what the line names; the server's log has the next step in the field fix";

/// Findings of the lines of a server that is not ready, and of its other lines.
pub(super) fn findings(not_ready: &[String], degraded: &[String]) -> Vec<Finding> {
    let of = |level| move |line: &String| finding(level, line);
    let errors = not_ready.iter().map(of(Level::Error));
    errors.chain(degraded.iter().map(of(Level::Warning))).collect()
}

fn finding(level: Level, line: &str) -> Finding {
    let (thing, what) = line.split_once(": ").unwrap_or(("server", line));
    let level = if what == RENDERING { Level::Warning } else { level };
    let fix = fix(thing, what);
    let fix = match level {
        Level::Error => Recovery::Retry.after(fix),
        // Machines get the last good answer meanwhile.
        Level::Warning => fix.to_owned(),
    };
    Finding::new((Source::Readiness, level), thing, what, fix)
}

fn fix(thing: &str, what: &str) -> &'static str {
    let by_reason = BY_REASON.iter().find(|(reason, _)| what.contains(reason));
    let is_pool = ["pool ", "MachineConfigPool "].iter().any(|it| thing.starts_with(it));
    let by_thing = || BY_THING.iter().find(|(known, _)| *known == thing);
    let of_fault = || fix_of(thing).or(is_pool.then_some(POOL));
    by_reason.or_else(by_thing).map(|(_, fix)| *fix).or_else(of_fault).unwrap_or(OTHERS)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only(line: &str) -> Finding {
        findings(&[line.to_owned()], &[]).remove(0)
    }

    #[test]
    fn a_line_is_a_thing_with_a_reason() {
        let found = only("pool worker: MachineConfig a: storage: is bad");
        assert_eq!(
            (&*found.things[0], &*found.what),
            ("pool worker", "MachineConfig a: storage: is bad")
        );
        assert_eq!(only("no pool found").things[0], "server");
        let levels = findings(&["a: b".to_owned()], &["c: d".to_owned()]);
        assert_eq!(
            levels.iter().map(|it| it.level).collect::<Vec<_>>(),
            [Level::Error, Level::Warning]
        );
    }

    #[test]
    fn machines_that_wait_need_nothing_else() {
        for line in ["pool worker: a is bad", "the inputs have not been read yet", "no pool found"]
        {
            let fix = only(line).fix;
            assert!(fix.ends_with("; the machine retries, and boots then"), "{fix}");
        }
        let served = findings(&[], &["boot ledger: a".to_owned()]).remove(0);
        assert!(!served.fix.contains("the machine"), "{}", served.fix);
    }

    #[test]
    fn a_server_that_has_just_started_is_waited_for() {
        let rendering = only("pool worker: is being rendered");
        assert_eq!(rendering.level, Level::Warning);
        let unread = only("the inputs have not been read yet");
        assert_eq!(unread.level, Level::Error);
        for found in [rendering, unread] {
            assert!(found.fix.starts_with("wait "), "{}", found.fix);
        }
    }

    #[test]
    fn a_full_disk_is_named_whatever_could_not_be_written() {
        for thing in ["last good inputs", "boot ledger", "use of machines' tokens", "anything"] {
            let fix = only(&format!("{thing}: /a/b: No space left on device (os error 28)")).fix;
            assert!(fix.starts_with("free space on the disk"), "{thing}: {fix}");
        }
    }

    #[test]
    fn the_thing_decides_and_unknown_things_lead_to_the_log() {
        assert!(only("tokens of machines that were copied: a").fix.contains("machines remove"));
        assert!(only("tokens: a").fix.contains("tokens list"));
        assert!(only("MachineConfigPool p: a").fix.starts_with("correct the MachineConfig"));
        assert!(only("/srv/a.yaml: a").fix.starts_with(OTHERS));
        // As clients of the machines' ports see them.
        assert!(only("API server: failed").fix.starts_with("check the API server"));
        assert!(only("serving certificate: failed").fix.contains("certs check"));
        for (thing, _) in BY_THING {
            assert_eq!(fix_of(thing), None, "{thing}: one place has its advice");
        }
    }
}
