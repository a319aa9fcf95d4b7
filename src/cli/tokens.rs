//! `tokens`: who may fetch configs.

use clap::{Args as ClapArgs, Subcommand};
use time::format_description::well_known::Rfc3339;
use time::macros::format_description;
use time::{Date, OffsetDateTime, Time};

use super::certs::PlaceFlags;
use super::examples;
use super::flags::duration;
use crate::commands::tokens;

#[derive(Debug, ClapArgs)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make a token for machines whose pointer configs live elsewhere, and print it once
    #[command(after_help = examples::TOKENS_ADD)]
    Add {
        /// What the token is for
        #[arg(value_parser = name)]
        name: String,
        /// The pools whose configs it opens
        #[arg(long = "pool", value_name = "POOL", value_delimiter = ',', required = true)]
        pools: Vec<String>,
        /// When it ends: 2027-01-31, 2027-01-31T12:00:00Z, a time from now such as 30d, or never
        #[arg(long, value_name = "TIME", value_parser = until)]
        until: Until,
        #[command(flatten)]
        place: PlaceFlags,
    },
    /// Print what is known of all tokens, and which pointer configs carry none
    #[command(after_help = examples::TOKENS_LIST)]
    List(PlaceFlags),
    /// Have a token open nothing any more
    #[command(after_help = examples::TOKENS_REVOKE)]
    Revoke {
        /// The token's name or id
        named: String,
        #[command(flatten)]
        place: PlaceFlags,
    },
    /// Make new tokens for pointer configs; those before are accepted for a while longer
    #[command(after_help = examples::TOKENS_ROTATE)]
    Rotate {
        /// The pools that get one; all by default
        #[arg(long = "pool", value_name = "POOL", value_delimiter = ',')]
        pools: Vec<String>,
        /// Even though a token was made later than now: the clock is right, and was ahead then
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        place: PlaceFlags,
    },
}

/// When a token ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Until {
    Never,
    At(OffsetDateTime),
    After(std::time::Duration),
}

impl Until {
    fn from(self, now: OffsetDateTime) -> Option<OffsetDateTime> {
        match self {
            Self::Never => None,
            Self::At(time) => Some(time),
            Self::After(span) => Some(now + span),
        }
    }
}

fn until(text: &str) -> Result<Until, String> {
    if text == "never" {
        return Ok(Until::Never);
    }
    let day = format_description!("[year]-[month]-[day]");
    let date = Date::parse(text, day).map(|date| date.with_time(Time::MIDNIGHT).assume_utc());
    if let Ok(time) = OffsetDateTime::parse(text, &Rfc3339).or(date) {
        return Ok(Until::At(time));
    }
    let expected = "expected a date, a time as in 2027-01-31T12:00:00Z, a time from now, or never";
    duration(text).map(Until::After).map_err(|_| expected.to_owned())
}

/// A name is a word, so that it is told from an id and stands in a line of a log.
fn name(text: &str) -> Result<String, String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if !text.is_empty() && text.len() <= 63 && text.chars().all(is_part) {
        Ok(text.to_owned())
    } else {
        Err("expected up to 63 letters, digits, dots, dashes and underscores".to_owned())
    }
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let now = OffsetDateTime::now_utc();
    match &args.command {
        Command::Add { name, pools, until, place } => {
            tokens::add(&*place.open()?, name, pools, until.from(now), now)
        }
        Command::List(place) => tokens::list(&*place.open()?, now),
        Command::Revoke { named, place } => tokens::revoke(&*place.open()?, named, now),
        Command::Rotate { pools, force, place } => {
            tokens::rotate(&*place.open()?, pools, *force, now)
        }
    }
}

#[cfg(test)]
mod tests {
    use time::macros::datetime;

    use super::*;

    #[test]
    fn an_end_is_a_day_a_time_a_span_or_never() {
        let now = datetime!(2026-11-21 12:00 UTC);
        for (text, expected) in [
            ("never", None),
            ("2027-01-31", Some(datetime!(2027-01-31 0:00 UTC))),
            ("2027-01-31T12:00:00+02:00", Some(datetime!(2027-01-31 10:00 UTC))),
            ("30d", Some(datetime!(2026-12-21 12:00 UTC))),
            ("1h 30m", Some(datetime!(2026-11-21 13:30 UTC))),
        ] {
            assert_eq!(until(text).map(|until| until.from(now)), Ok(expected), "{text}");
        }
        for text in ["", "tomorrow", "2027-13-01", "-1d"] {
            assert!(until(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_name_is_a_word() {
        assert!(name("rack-7.row_B").is_ok());
        for text in ["", "a b", "ä", "a\n", &"x".repeat(64)] {
            assert!(name(text).is_err(), "{text:?}");
        }
    }
}
