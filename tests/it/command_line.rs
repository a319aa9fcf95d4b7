//! What the command line says of itself: every command has examples that it takes, and shells and
//! manuals get the same.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use crate::support::command::Said;
use crate::support::logged::Logged;
use crate::support::server::binary;
use crate::support::{enter_own_network, in_repository, wait_until};

/// Every command with its full name, the program itself first; not those that only show help.
fn commands(command: &clap::Command, name: &str) -> Vec<(String, clap::Command)> {
    let mut found = vec![(name.to_owned(), command.clone())];
    for below in command.get_subcommands() {
        if below.get_name() != "help" && !below.is_hide_set() {
            found.extend(commands(below, &format!("{name} {}", below.get_name())));
        }
    }
    found
}

pub(crate) fn all() -> Vec<(String, clap::Command)> {
    let program = machine_config_server::cli::command();
    let name = program.get_name().to_owned();
    commands(&program, &name)
}

/// The command lines of this program among a command's examples, as a shell splits them.
fn examples(name: &str, command: &clap::Command) -> Vec<Vec<String>> {
    let help = command.get_after_help().unwrap_or_else(|| panic!("{name} has no examples"));
    let help = help.to_string();
    let text = help.strip_prefix("Examples:\n").unwrap_or_else(|| panic!("{name}: {help}"));
    assert!(text.lines().all(|line| line.starts_with("  ") && line.len() <= 100), "{name}: {text}");
    let joined = text.replace("\\\n", " ");
    let lines = joined.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    lines.flat_map(this_program).collect()
}

/// The parts of a line that start this program, without what they are joined to.
pub(crate) fn this_program(line: &str) -> Vec<Vec<String>> {
    let parts = line.split(['|', '(', ')', ';']);
    let words = parts.map(|part| {
        let part = part.split('>').next().unwrap_or_default();
        part.split_whitespace().map(|word| word.trim_matches(['\'', '"']).to_owned()).collect()
    });
    words
        .filter(|words: &Vec<String>| words.first().is_some_and(|it| it == "machine-config-server"))
        .collect()
}

#[test]
fn every_command_has_examples_of_its_own_that_it_takes() {
    let program = machine_config_server::cli::command();
    for (name, command) in all() {
        let examples = examples(&name, &command);
        assert!(!examples.is_empty(), "{name} has no example that starts this program");
        for words in examples {
            let line = words.join(" ");
            assert!(line.starts_with(&name), "{line:?} is no example of {name}");
            match program.clone().try_get_matches_from(&words) {
                Ok(_) => {}
                Err(error) => assert!(!error.use_stderr(), "{line}: {error}"),
            }
        }
    }
}

#[test]
fn help_ends_with_the_examples_as_they_are_typed() {
    for (name, command) in all() {
        let arguments = name.split(' ').skip(1).map(str::to_owned).chain(["--help".to_owned()]);
        let output = binary().args(arguments).output().expect("the built binary");
        assert!(output.status.success(), "{name}");
        let help = String::from_utf8(output.stdout).expect("text");
        let examples = command.get_after_help().expect("examples").to_string();
        assert!(help.trim_end().ends_with(examples.trim_end()), "{name}:\n{help}");
    }
}

#[test]
fn a_flag_has_the_same_heading_in_every_command() {
    let mut headings = BTreeMap::new();
    for (name, command) in all() {
        // A request at a CA has headings of its own; the node's logins are no matter of who gets configs.
        let is_other = |flag: &str| {
            name.contains(" cmp") || (name.ends_with("node-ca") && flag == "registry_auth")
        };
        let flags = command
            .get_arguments()
            .filter(|flag| flag.get_long().is_some() && !is_other(flag.get_id().as_str()));
        for flag in flags {
            let heading = flag.get_help_heading().map(str::to_owned);
            let first =
                headings.entry(flag.get_id().to_string()).or_insert_with(|| heading.clone());
            assert_eq!(*first, heading, "--{} of {name}", flag.get_id());
        }
    }
    for (flag, heading) in [("secure_port", "Listening"), ("tls_min_version", "TLS")] {
        assert_eq!(headings[flag].as_deref(), Some(heading), "--{flag}");
    }
}

#[test]
fn the_version_is_printed_by_flag_and_by_command() {
    let reported = |argument: &str| {
        let output = binary().arg(argument).output().expect("the built binary");
        assert!(output.status.success(), "{argument}");
        String::from_utf8(output.stdout).expect("text")
    };
    assert!(
        reported("--version").starts_with("machine-config-server "),
        "{}",
        reported("--version")
    );
    assert_eq!(reported("--version"), reported("version"));
    assert_eq!(reported("-V"), reported("version"));
}

/// What bash offers for the last word of a line, as its own `complete` asks for it.
fn offered(script: &Path, line: &[&str]) -> Vec<String> {
    let ask = r#"
        source "$1"; shift
        words=$(complete -p machine-config-server)
        [[ $words =~ -F\ ([^ ]+) ]] || exit 1
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
        "${BASH_REMATCH[1]}" "$1" "${@: -1}" "${@: -2:1}"
        printf '%s\n' "${COMPREPLY[@]}"
    "#;
    let mut bash = Command::new("bash");
    bash.args(["--norc", "-c", ask, "bash"]).arg(script).args(line);
    let said = Said::by(&mut bash).done();
    said.output.lines().filter(|it| !it.is_empty()).map(str::to_owned).collect()
}

#[test]
fn bash_completes_commands_to_the_last_level_and_values_of_flags() {
    let script = tempfile::NamedTempFile::new().expect("a temporary file");
    let printed = Said::by(binary().args(["completions", "bash"])).done().output;
    std::fs::write(script.path(), printed).expect("a writable file");
    let program = "machine-config-server";
    for (line, expected) in [
        (&["cer"][..], &["certs"][..]),
        (&["certs", "ro"], &["rotate"]),
        (&["certs", "rotate", "--forc"], &["--force"]),
        (&["machines", "app"], &["approve"]),
        (&["machines", "approve", "--in"], &["--in-cluster"]),
        (&["node-ca", "--layout", "c"], &["crio", "containerd"]),
        (&["serve", "x", "--access", ""], &["off", "audit", "enforce"]),
        (&["controller", "--access", "e"], &["enforce"]),
        (&["inspect", "--as", "3.5"], &["3.5"]),
        (&["completions", "z"], &["zsh"]),
    ] {
        let words = [&[program], line].concat();
        assert_eq!(offered(script.path(), &words), expected, "{line:?}");
    }
    // Every command offers the flags that it has.
    for (name, command) in all() {
        let words: Vec<&str> = name.split(' ').chain(["--"]).collect();
        let offered = offered(script.path(), &words);
        let flags = command.get_arguments().filter(|it| !it.is_hide_set());
        for flag in flags.filter_map(|flag| flag.get_long()) {
            let flag = format!("--{flag}");
            assert!(offered.contains(&flag), "{name}: {flag}: {offered:?}");
        }
    }
}

#[test]
fn fish_completes_commands_to_the_last_level_and_values_of_flags() {
    let directory = tempfile::tempdir().expect("a temporary folder");
    let script = directory.path().join("completions.fish");
    let printed = Said::by(binary().args(["completions", "fish"])).done().output;
    std::fs::write(&script, printed).expect("a writable folder");
    for (line, expected) in [
        ("cer", &["certs"][..]),
        ("certs ro", &["rotate"]),
        ("certs rotate --forc", &["--force"]),
        ("machines app", &["approve"]),
        ("machines approve --in", &["--in-cluster"]),
        ("node-ca --layout c", &["crio", "containerd"]),
        ("serve x --access ", &["off", "audit", "enforce"]),
        ("inspect --as 3.5", &["3.5"]),
    ] {
        let mut fish = Command::new("fish");
        fish.args(["--no-config", "-c", "source $argv[1]; complete -C $argv[2]"]).arg(&script);
        fish.arg(format!("machine-config-server {line}")).env("HOME", directory.path());
        let said = Said::by(&mut fish).done().output;
        let words: Vec<_> = said.lines().filter_map(|line| line.split('\t').next()).collect();
        assert_eq!(words, expected, "{line}");
    }
}

#[test]
fn zsh_completes_commands_to_the_last_level_and_values_of_flags() {
    let directory = tempfile::tempdir().expect("a temporary folder");
    let printed = Said::by(binary().args(["completions", "zsh"])).done().output;
    std::fs::write(directory.path().join("_machine-config-server"), printed).expect("it");
    // Someone at a terminal who presses Tab, and waits for what has to appear.
    let press_tab = r#"
        zmodload zsh/zpty
        zpty shell zsh -f -i
        zpty -w shell "fpath=($1 \$fpath); autoload -Uz compinit; compinit -u -d $1/dump; echo REA''DY"
        zpty -r -m shell seen '*READY*'
        zpty -w -n shell "machine-config-server $2"$'\t'
        zpty -r -m shell seen "*$3*"
    "#;
    for (line, expected) in [
        ("cer", "machine-config-server certs"),
        ("certs ro", "certs rotate"),
        ("certs rotate --forc", "rotate --force"),
        // The address that can stand there too can be any word.
        ("machines app", "approve"),
        ("machines approve --in", "approve --in-cluster"),
        ("serve x --access ", "off*audit*enforce"),
        ("controller --access e", "--access enforce"),
        ("completions z", "completions zsh"),
    ] {
        let mut zsh = Command::new("timeout");
        zsh.args(["60", "zsh", "-f", "-c", press_tab, "zsh"]).arg(directory.path());
        zsh.args([line, expected]).env("HOME", directory.path()).env("TERM", "xterm");
        let said = Said::by(&mut zsh);
        assert_eq!(said.status, 0, "{line}: {}", said.text());
    }
}

#[test]
fn the_program_prints_and_writes_its_manual_pages() {
    let page = Said::by(binary().args(["man", "certs", "check"])).done().output;
    assert!(page.contains(".TH machine-config-server-certs-check 8"), "{page}");
    assert!(page.contains(".SH EXAMPLES"), "{page}");
    Said::by(binary().args(["man", "nothing"])).refused(&["unknown command nothing"]);
    let directory = tempfile::tempdir().expect("a temporary folder");
    let pages = directory.path().join("man8");
    Said::by(binary().args(["man", "--dir"]).arg(&pages)).done();
    for (name, _) in all() {
        let page = pages.join(format!("{}.8", name.replace(' ', "-")));
        assert!(page.is_file(), "no page of {name}");
    }
    let own = std::fs::read_to_string(pages.join("machine-config-server-certs-check.8"));
    assert_eq!(own.expect("a page"), page);
}

/// Asks the program as the script of a shell does. Returns the lines that it answers.
fn asked_by(shell: &str, line: &str) -> Vec<String> {
    let words: Vec<&str> = line.split(' ').collect();
    let mut program = binary();
    program.env("MACHINE_CONFIG_SERVER_COMPLETE", shell);
    program.env("_CLAP_COMPLETE_INDEX", (words.len() - 1).to_string()).env("_CLAP_IFS", "\n");
    let said = Said::by(program.arg("--").args(&words)).done();
    said.output.lines().filter_map(|it| it.split(['\t', ':']).next()).map(str::to_owned).collect()
}

#[test]
fn every_shell_gets_a_script_that_asks_the_program() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = Said::by(binary().args(["completions", shell])).done().output;
        let program = binary().get_program().to_string_lossy().into_owned();
        assert!(script.contains(&program), "{shell}: {script}");
        let offered = asked_by(shell, "machine-config-server certs ");
        for command in ["show", "check", "rotate", "distrust"] {
            assert!(offered.iter().any(|it| it == command), "{shell}: {offered:?}");
        }
    }
    let mut unknown = binary();
    Said::by(unknown.env("MACHINE_CONFIG_SERVER_COMPLETE", "tcsh").arg("version"))
        .refused(&["unknown shell", "tcsh"]);
}

#[test]
fn pools_of_a_running_server_complete() {
    // A network without other servers: this one has the port that a server has by default.
    enter_own_network();
    let offers = |line: &str| {
        let offered = asked_by("bash", &format!("machine-config-server {line}"));
        offered.iter().any(|it| it.ends_with("worker"))
    };
    let lines = [
        "render ",
        "inspect https://localhost:22623 w",
        "machines add rack-1 --pool ",
        "machines approve 192.0.2.7 --pool ",
        "tokens add --pool edge,",
        "tokens rotate --pool ",
    ];
    for line in lines {
        assert!(!offers(line), "no server runs: {line}");
    }
    let directory = tempfile::tempdir().expect("a temporary folder");
    let mut serve = binary();
    serve.arg("serve").arg(in_repository("ignition-fixtures"));
    serve.arg("--state-dir").arg(directory.path()).args(["--listen-address", "127.0.0.1"]);
    let _server = Logged::start("serve", &mut serve);
    wait_until("its pools", || offers(lines[0]));
    for line in lines {
        assert!(offers(line), "{line}");
    }
}
