//! Errors of the command line, in one line with the nearest correct argument.

use clap::error::{ContextKind, ContextValue, ErrorKind};

/// The error in one line.
pub fn one_line(error: &clap::Error) -> String {
    let context = |kind| error.get(kind).map(text).unwrap_or_default();
    let argument = context(ContextKind::InvalidArg);
    let value = context(ContextKind::InvalidValue);
    let message = match error.kind() {
        ErrorKind::UnknownArgument if argument.starts_with('-') => {
            let nearest = context(ContextKind::SuggestedArg);
            format!("unknown flag {argument}{}", did_you_mean(&nearest))
        }
        ErrorKind::UnknownArgument => format!("unexpected argument {argument:?}"),
        ErrorKind::InvalidSubcommand => {
            let nearest = context(ContextKind::SuggestedSubcommand);
            let command = context(ContextKind::InvalidSubcommand);
            format!("unknown command {command:?}{}", did_you_mean(&nearest))
        }
        ErrorKind::MissingSubcommand => {
            let commands = context(ContextKind::ValidSubcommand);
            format!("missing one of {}", commands.trim_end_matches(", help"))
        }
        ErrorKind::MissingRequiredArgument => format!("missing {argument}"),
        ErrorKind::InvalidValue if value.is_empty() => format!("{argument} needs a value"),
        ErrorKind::InvalidValue => {
            let valid = context(ContextKind::ValidValue);
            format!("{argument}: {value:?} is not one of {valid}")
        }
        ErrorKind::ValueValidation => {
            let source = std::error::Error::source(error).map(ToString::to_string);
            format!("{argument}: {value:?}: {}", source.unwrap_or_else(|| "invalid value".into()))
        }
        ErrorKind::ArgumentConflict => {
            let other = context(ContextKind::PriorArg);
            if other.is_empty() || other == argument {
                format!("{argument} can be given only once")
            } else {
                format!("{argument} cannot be used with {other}")
            }
        }
        _ => {
            let text = error.to_string();
            text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
        }
    };
    format!("{message}; see --help")
}

fn did_you_mean(nearest: &str) -> String {
    if nearest.is_empty() { String::new() } else { format!(", did you mean {nearest}?") }
}

fn text(value: &ContextValue) -> String {
    match value {
        ContextValue::String(text) => text.clone(),
        ContextValue::Strings(texts) => texts.join(", "),
        other => other.to_string(),
    }
}
