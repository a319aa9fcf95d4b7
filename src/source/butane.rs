//! Runs Butane, the program that turns configs which people write in YAML into Ignition configs.
//!
//! It gets the text of one file, and neither a shell nor the server's environment. Local files are not given to it. It can
//! hang or write without end: its time and its output are bounded.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use files::bounded;
use model::escape::and_more;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

/// Name of the program in the `PATH`.
const NAME: &str = "butane";
/// Value of the flag with which no program is run.
const OFF: &str = "off";
/// Time that Butane has for one file; it takes some ten milliseconds.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum size of what is kept of Butane's messages about a file, in bytes.
const MAX_MESSAGES: usize = 16 << 10;
/// Wait for the end of a program that has closed its output.
const SHORT: Duration = Duration::from_millis(2);

/// The program to convert with.
#[derive(Debug, Clone)]
pub struct Butane(PathBuf);

impl Default for Butane {
    /// The one of the `PATH`.
    fn default() -> Self {
        Self(NAME.into())
    }
}

impl From<PathBuf> for Butane {
    fn from(program: PathBuf) -> Self {
        Self(program)
    }
}

/// Result of a conversion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Converted {
    /// An Ignition config in JSON, or a MachineConfig in YAML.
    pub(super) config: Bytes,
    /// Messages about the file, one line each, not escaped.
    pub(super) messages: Vec<String>,
}

/// Reasons why there is no result, one line each, not escaped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NotConverted {
    /// There is no program.
    Absent(String),
    /// Butane refuses the file.
    Refused(String),
    /// Another attempt can succeed.
    Failed(String),
    /// There was no attempt yet.
    LeftOut,
}

impl NotConverted {
    pub(super) fn reason(&self) -> &str {
        match self {
            Self::Absent(reason) | Self::Refused(reason) | Self::Failed(reason) => reason,
            Self::LeftOut => "is not converted yet: the conversion of another file has failed",
        }
    }
}

impl Butane {
    /// Path of the program, which can be installed while the server runs.
    pub(super) fn find(&self) -> Result<PathBuf, NotConverted> {
        let convert = "convert it to a file *.ign with `butane --strict`";
        let program = &self.0;
        let found = match program.to_str() {
            Some(OFF) => None,
            Some(name) if !name.contains('/') => {
                let path = std::env::var_os("PATH").unwrap_or_default();
                std::env::split_paths(&path).map(|it| it.join(name)).find(|it| is_program(it))
            }
            _ => Some(program.clone()).filter(|it| is_program(it)),
        };
        // The program is started in another directory.
        found.and_then(|it| std::path::absolute(it).ok()).ok_or_else(|| {
            NotConverted::Absent(if [NAME, OFF].map(OsStr::new).contains(&program.as_os_str()) {
                format!("is Butane, which is not read: {convert}")
            } else {
                let program = program.display();
                format!(
                    "is Butane, and there is no program {program} to run: install it, or {convert}"
                )
            })
        })
    }
}

fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
}

/// Converts the text of a file by a program that [`Butane::find`] has found.
pub(super) fn convert(program: &Path, text: &[u8]) -> Result<Converted, NotConverted> {
    convert_within(program, text, TIMEOUT)
}

fn convert_within(program: &Path, text: &[u8], limit: Duration) -> Result<Converted, NotConverted> {
    let failed = |reason: String| {
        let program = program.display();
        NotConverted::Failed(format!("is not converted yet: {program} {reason}"))
    };
    let ran = start(program, text)
        .and_then(|mut running| running.finish(Instant::now() + limit))
        .map_err(|error| failed(format!("cannot be run: {error}")))?;
    match ran {
        Ran::Ended { status, config, messages } if status.success() => {
            Ok(Converted { config: config.into(), messages: lines(&messages) })
        }
        Ran::Ended { status, messages, .. } => {
            Err(NotConverted::Refused(refusal(status, &lines(&messages))))
        }
        Ran::TooLong => Err(failed(format!("did not end within {} s", limit.as_secs_f32()))),
        Ran::TooLarge => Err(failed(format!("wrote more than {} MiB", bounded::MAX_BYTES >> 20))),
    }
}

/// A program that is killed with all that it has started if this value goes.
struct Running {
    child: Child,
    config: Output,
    messages: Output,
    status: Option<ExitStatus>,
}

enum Ran {
    Ended { status: ExitStatus, config: Vec<u8>, messages: Vec<u8> },
    TooLong,
    TooLarge,
}

/// One of the outputs of a program.
struct Output {
    /// `None` once it is closed.
    pipe: Option<File>,
    kept: Vec<u8>,
    /// Maximum size of what is kept.
    most: usize,
    is_cut: bool,
}

fn start(program: &Path, text: &[u8]) -> io::Result<Running> {
    // In memory: a pipe would have to be written while the outputs are read.
    let mut input = File::from(memfd_create(NAME, MFdFlags::MFD_CLOEXEC)?);
    input.write_all(text)?;
    input.rewind()?;
    let mut child = Command::new(program)
        .arg("--strict")
        .env_clear()
        .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
        .current_dir("/")
        .stdin(input)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()?;
    let most = usize::try_from(bounded::MAX_BYTES).unwrap_or(usize::MAX);
    let config = Output::new(child.stdout.take().map(Into::into), most);
    let messages = Output::new(child.stderr.take().map(Into::into), MAX_MESSAGES);
    Ok(Running { child, config, messages, status: None })
}

impl Running {
    /// Reads what the program writes until it ends.
    fn finish(&mut self, deadline: Instant) -> io::Result<Ran> {
        while self.config.pipe.is_some() || self.messages.pipe.is_some() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Ran::TooLong);
            }
            self.read(left)?;
            if self.config.is_cut {
                return Ok(Ran::TooLarge);
            }
        }
        while self.status.is_none() {
            self.status = self.child.try_wait()?;
            if self.status.is_none() && Instant::now() > deadline {
                return Ok(Ran::TooLong);
            }
            if self.status.is_none() {
                std::thread::sleep(SHORT);
            }
        }
        let [config, messages] =
            [&mut self.config, &mut self.messages].map(|it| std::mem::take(&mut it.kept));
        Ok(self.status.map_or(Ran::TooLong, |status| Ran::Ended { status, config, messages }))
    }

    /// Reads from the outputs that have something, for which it waits `left` at most.
    fn read(&mut self, left: Duration) -> io::Result<()> {
        let mut open: Vec<_> = [&mut self.config, &mut self.messages]
            .into_iter()
            .filter(|it| it.pipe.is_some())
            .collect();
        let mut polled: Vec<_> = open
            .iter()
            .filter_map(|it| it.pipe.as_ref())
            .map(|pipe| PollFd::new(pipe.as_fd(), PollFlags::POLLIN))
            .collect();
        // Rounded up, so that what is left of a millisecond is waited for.
        let timeout = PollTimeout::try_from(left + Duration::from_millis(1));
        match poll(&mut polled, timeout.unwrap_or(PollTimeout::MAX)) {
            Ok(_) => {}
            Err(Errno::EINTR) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        let ready: Vec<bool> = polled.iter().map(|it| it.any().unwrap_or(true)).collect();
        for (output, _) in open.iter_mut().zip(ready).filter(|(_, is_ready)| *is_ready) {
            output.read()?;
        }
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.status.is_some() {
            return;
        }
        // It has not been waited for, so that its id is still its own. A group that is empty needs no signal.
        if let Ok(group) = i32::try_from(self.child.id()) {
            let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
        }
        let _ = self.child.wait();
    }
}

impl Output {
    fn new(pipe: Option<OwnedFd>, most: usize) -> Self {
        Self { pipe: pipe.map(File::from), kept: Vec::new(), most, is_cut: false }
    }

    /// Reads once, from a pipe that has something or is closed.
    fn read(&mut self) -> io::Result<()> {
        let Some(pipe) = &mut self.pipe else { return Ok(()) };
        let mut buffer = [0; 16 << 10];
        let read = pipe.read(&mut buffer)?;
        if read == 0 {
            self.pipe = None;
        }
        let kept = read.min(self.most - self.kept.len());
        self.kept.extend_from_slice(&buffer[..kept]);
        self.is_cut |= kept < read;
        Ok(())
    }
}

/// Lines of messages, without empty ones.
fn lines(messages: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(messages);
    text.lines().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect()
}

/// The first of the messages that says what is wrong: of its findings, and else of all.
fn refusal(status: ExitStatus, lines: &[String]) -> String {
    let starting = |with: &str| -> Vec<&String> {
        lines.iter().filter(|line| line.starts_with(with)).collect()
    };
    let [errors, warnings] = ["error at ", "warning at "].map(starting);
    let (said, why) = match (&errors[..], &warnings[..]) {
        ([], []) => (lines.iter().collect(), ""),
        ([], _) => (warnings, ", which --strict refuses"),
        _ => (errors, ""),
    };
    let Some(first) = said.first() else { return format!("Butane ended with {status}") };
    format!("Butane: {first}{why}{}", and_more(said.len() - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Converts by a stand-in for Butane that is a script.
    fn by(script: &str, limit: Duration) -> Result<Converted, NotConverted> {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join(NAME);
        std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        convert_within(&program, b"variant: fcos\n", limit)
    }

    #[track_caller]
    fn fails(script: &str, limit: Duration, with: &str) {
        let started = Instant::now();
        let reason = match by(script, limit) {
            Err(NotConverted::Failed(reason)) => reason,
            other => panic!("{other:?}"),
        };
        assert!(reason.contains(with), "{reason}");
        assert!(started.elapsed() < Duration::from_secs(60), "{script}");
    }

    #[test]
    fn a_program_that_hangs_is_ended_with_what_it_has_started() {
        let short = Duration::from_millis(300);
        fails("sleep 1000", short, "did not end within 0.3 s");
        fails("exec >&- 2>&-; sleep 1000", short, "did not end within 0.3 s");
        // The second one would hold the directory.
        let held = tempfile::tempdir().unwrap();
        let path = held.path().join("id");
        let script = format!("sleep 1000 & echo $! >{}; wait", path.display());
        // It may be ended before it has written that.
        let id: i32 = [1, 10, 100]
            .into_iter()
            .find_map(|times| {
                fails(&script, short * times, "did not end");
                std::fs::read_to_string(&path).ok()?.trim().parse().ok()
            })
            .unwrap();
        let is_there = || {
            std::fs::read_to_string(format!("/proc/{id}/cmdline")).is_ok_and(|it| !it.is_empty())
        };
        let started = Instant::now();
        while is_there() && started.elapsed() < Duration::from_secs(180) {
            std::thread::yield_now();
        }
        assert!(!is_there(), "{id}");
    }

    #[test]
    fn a_program_that_writes_without_end_is_ended() {
        fails("exec cat /dev/zero", Duration::from_secs(60), "wrote more than 64 MiB");
        fails("exec cat /dev/zero >&2", Duration::from_millis(500), "did not end within 0.5 s");
    }

    #[test]
    fn of_many_messages_some_are_kept() {
        let script = "yes warning | head -c 1000000 >&2; echo {}";
        let converted = by(script, TIMEOUT).unwrap();
        assert_eq!(converted.messages.len(), MAX_MESSAGES / "warning\n".len());
        assert_eq!(&converted.config[..], b"{}\n");
    }

    #[test]
    fn the_program_gets_the_text_and_the_path_alone() {
        let converted = by("cat; echo \"$@\"; env; pwd", TIMEOUT).unwrap();
        let text = String::from_utf8(converted.config.to_vec()).unwrap();
        assert!(text.starts_with("variant: fcos\n--strict\n") && text.ends_with("/\n"), "{text}");
        // What the shell sets itself is beside it.
        let of_shell = ["PWD=", "SHLVL=", "_=", "OLDPWD="];
        let variables = text
            .lines()
            .filter(|it| it.contains('=') && !of_shell.iter().any(|of| it.starts_with(of)));
        assert!(variables.clone().all(|it| it.starts_with("PATH=")), "{text}");
        assert_eq!(variables.count(), 1, "{text}");
    }

    #[test]
    fn a_refusal_is_the_first_error_or_warning_in_one_line() {
        let refused =
            |messages: &str| match by(&format!("printf '{messages}' >&2; exit 1"), TIMEOUT) {
                Err(NotConverted::Refused(reason)) => reason,
                other => panic!("{other:?}"),
            };
        for (messages, expected) in [
            (
                "warning at a\\nerror at b\\nerror at c\\nError translating\\n",
                "Butane: error at b (and 1 more)",
            ),
            (
                "warning at a\\nConfig produced warnings\\n",
                "Butane: warning at a, which --strict refuses",
            ),
            ("\\nError translating: no variant\\n", "Butane: Error translating: no variant"),
            ("", "Butane ended with exit status: 1"),
        ] {
            assert_eq!(refused(messages), expected);
        }
    }

    #[test]
    fn a_program_that_is_none_is_absent_or_fails() {
        let absent = |program: &str| match Butane::from(PathBuf::from(program)).find() {
            Err(NotConverted::Absent(reason)) => reason,
            other => panic!("{other:?}"),
        };
        assert!(absent("off").starts_with("is Butane, which is not read: convert it"));
        for program in ["/nowhere/butane", "no-such-butane", "/etc", "/etc/passwd"] {
            assert!(
                absent(program).contains(&format!("there is no program {program} ")),
                "{program}"
            );
        }
        let failed = convert_within(Path::new("/etc/passwd"), b"", TIMEOUT);
        let Err(NotConverted::Failed(reason)) = failed else { panic!("{failed:?}") };
        assert!(reason.contains("/etc/passwd cannot be run: "), "{reason}");
        assert!(Butane::from(PathBuf::from("sh")).find().unwrap().ends_with("sh"));
    }
}
