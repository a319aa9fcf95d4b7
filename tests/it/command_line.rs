//! What the command line says of itself: every command has examples that it takes, and shells and
//! manuals get the same.

use std::collections::BTreeMap;

use clap::Command;

use crate::support::server::binary;

/// Every command with its full name, the program itself first; not those that only show help.
fn commands(command: &Command, name: &str) -> Vec<(String, Command)> {
    let mut found = vec![(name.to_owned(), command.clone())];
    for below in command.get_subcommands() {
        if below.get_name() != "help" && !below.is_hide_set() {
            found.extend(commands(below, &format!("{name} {}", below.get_name())));
        }
    }
    found
}

pub(crate) fn all() -> Vec<(String, Command)> {
    let program = machine_config_server::cli::command();
    let name = program.get_name().to_owned();
    commands(&program, &name)
}

/// The command lines of this program among a command's examples, as a shell splits them.
fn examples(name: &str, command: &Command) -> Vec<Vec<String>> {
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

#[test]
fn every_shell_gets_completions_with_every_command() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let output = binary().args(["completions", shell]).output().expect("the built binary");
        assert!(output.status.success(), "{shell}");
        let script = String::from_utf8(output.stdout).expect("text");
        for (name, _) in all() {
            let word = name.rsplit(' ').next().expect("a word");
            assert!(script.contains(word), "{shell} does not know {name}");
        }
        assert!(script.contains("--state-dir") || script.contains("state-dir"), "{shell}");
    }
}
