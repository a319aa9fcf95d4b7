//! The command `tokens`: manages tokens with a name, for machines with external pointer configs, and lists all tokens.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{anyhow, bail, ensure};
use clap::Args;
use common::flags::{date_or_time, duration};
use model::access::rotation::{IssuedToken, ahead};
use model::access::{Record, Token};
use serde::Serialize;
use table::table;
use time::OffsetDateTime;

use super::pool_names::pool_names;
use super::process::terminal;
use super::stores::certificate_texts::date;
use super::stores::location::StateLocationFlags;
use super::{print_json, print_line};

#[derive(Debug, Args)]
pub(crate) struct AddSettings {
    /// Name of the token
    #[arg(value_parser = name)]
    name: String,
    /// Pools whose configs it opens
    #[arg(long = "pool", value_name = "POOL", value_delimiter = ',', required = true, add = pool_names())]
    pools: Vec<String>,
    /// Expiry: 2027-01-31, 2027-01-31T12:00:00Z, a time from now such as 30d, or never
    #[arg(long, value_name = "TIME", value_parser = until)]
    until: Expiry,
    #[command(flatten)]
    place: StateLocationFlags,
}

#[derive(Debug, Args)]
pub(crate) struct ListSettings {
    #[command(flatten)]
    place: StateLocationFlags,
    /// Print JSON, for scripts
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RevokeSettings {
    /// Name or id of the token
    named: String,
    #[command(flatten)]
    place: StateLocationFlags,
}

#[derive(Debug, Args)]
pub(crate) struct RotateSettings {
    /// Pools whose tokens are replaced; all by default
    #[arg(long = "pool", value_name = "POOL", value_delimiter = ',', add = pool_names())]
    pools: Vec<String>,
    /// Replace tokens with a creation time in the future too; use it if the clock was wrong and is right now
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    place: StateLocationFlags,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expiry {
    Never,
    At(OffsetDateTime),
    After(std::time::Duration),
}

impl Expiry {
    fn from(self, now: OffsetDateTime) -> Option<OffsetDateTime> {
        match self {
            Self::Never => None,
            Self::At(time) => Some(time),
            Self::After(span) => Some(now + span),
        }
    }
}

fn until(text: &str) -> Result<Expiry, String> {
    if text == "never" {
        return Ok(Expiry::Never);
    }
    if let Some(time) = date_or_time(text) {
        return Ok(Expiry::At(time));
    }
    let expected = "expected a date, a time as in 2027-01-31T12:00:00Z, a time from now, or never";
    duration(text).map(Expiry::After).map_err(|_| expected.to_owned())
}

/// Parses a name, which is a word, so that it differs from an ID and can be in a log line.
fn name(text: &str) -> Result<String, String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if !text.is_empty() && text.len() <= 63 && text.chars().all(is_part) {
        Ok(text.to_owned())
    } else {
        Err("expected up to 63 letters, digits, dots, dashes and underscores".to_owned())
    }
}

/// Generates a token for machines of `pools`, and prints it once.
pub(crate) fn add(settings: &AddSettings, now: OffsetDateTime) -> anyhow::Result<()> {
    let AddSettings { name, pools, until, place } = settings;
    let (store, until) = (place.open()?, until.from(now));
    ensure!(until.is_none_or(|until| until > now), "--until: is in the past");
    let token =
        Token::generate().map_err(|_| anyhow!("the system has no randomness for a new token"))?;
    let record = Record {
        sha256: token.hash(),
        name: Some(name.clone()),
        pools: pools.iter().cloned().collect(),
        made: now,
        until,
        revoked: None,
    };
    store.change_tokens(&|_, records| {
        let is_taken = |other: &Record| other.title() == *name && other.is_valid_at(now);
        ensure!(!records.tokens.iter().any(is_taken), "{name}: a token has this name already");
        records.tokens.push(record.clone());
        Ok(())
    })?;
    print_line(token.as_str());
    Ok(())
}

/// A token as it is listed, without the token itself.
#[derive(Debug, Serialize)]
struct TokenLine {
    id: String,
    /// Name of a token that was added; absent for tokens of pointer configs.
    name: Option<String>,
    pools: BTreeSet<String>,
    made: String,
    until: Option<String>,
    /// Value `valid`, `ended` or `revoked`.
    state: &'static str,
}

/// All tokens as they are listed.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct TokenReport<'a> {
    tokens: Vec<TokenLine>,
    /// Pools whose pointer configs all have tokens.
    enforced: &'a BTreeSet<String>,
    /// Pointer configs without a token, by pool.
    without_token: &'a BTreeMap<String, Vec<String>>,
}

impl TokenLine {
    fn of(record: &Record, now: OffsetDateTime) -> anyhow::Result<Self> {
        let to_the_second = |time: OffsetDateTime| date(time.replace_nanosecond(0)?);
        Ok(Self {
            id: record.sha256.id(),
            name: record.name.clone(),
            pools: record.pools.clone(),
            made: to_the_second(record.made)?,
            until: record.until.map(to_the_second).transpose()?,
            state: match (record.revoked, record.is_valid_at(now)) {
                (Some(_), _) => "revoked",
                (None, true) => "valid",
                (None, false) => "ended",
            },
        })
    }

    fn row(&self) -> Vec<String> {
        vec![
            self.id.clone(),
            self.name.clone().unwrap_or_else(|| "(pointer configs)".to_owned()),
            self.pools.iter().cloned().collect::<Vec<_>>().join(","),
            self.made.clone(),
            self.until.clone().unwrap_or_else(|| "-".to_owned()),
            self.state.to_owned(),
        ]
    }
}

/// Prints the records of tokens, which contain no token.
pub(crate) fn list(settings: &ListSettings, now: OffsetDateTime) -> anyhow::Result<()> {
    let records = settings.place.open()?.records()?;
    let lines = records.tokens.iter().map(|record| TokenLine::of(record, now));
    let tokens = lines.collect::<anyhow::Result<Vec<_>>>()?;
    if settings.json {
        let (enforced, without_token) = (&records.enforced, &records.without_token);
        return print_json(&TokenReport { tokens, enforced, without_token });
    }
    let rows: Vec<_> = tokens.iter().map(TokenLine::row).collect();
    let names = ["ID", "NAME", "POOLS", "MADE", "UNTIL", "STATE"];
    terminal::print(&table(&names, &rows, terminal::style()));
    for pool in &records.enforced {
        print_line(&format!("pool {pool}: all its pointer configs have tokens"));
    }
    for (pool, lines) in &records.without_token {
        for line in lines {
            print_line(&format!("pool {pool}: {line}"));
        }
    }
    Ok(())
}

/// Revokes a token; one that pointer configs contain is replaced in them.
pub(crate) fn revoke(settings: &RevokeSettings, now: OffsetDateTime) -> anyhow::Result<()> {
    let RevokeSettings { named, place } = settings;
    place.open()?.change_tokens(&|_, records| {
        let is_meant = |record: &&mut Record| {
            record.name.as_ref() == Some(named) || record.sha256.id() == *named
        };
        let found = records.tokens.iter_mut().filter(is_meant);
        let mut found = found.filter(|it| it.revoked.is_none()).peekable();
        ensure!(found.peek().is_some(), "{named}: no token to revoke has this name or id");
        found.for_each(|record| record.revoked = Some(now));
        Ok(())
    })?;
    print_line(&format!("{named}: revoked"));
    Ok(())
}

/// Generates new tokens for pointer configs. The manager of tokens writes them into pointer configs, and the previous
/// ones expire after that.
///
/// # Errors
/// There are no tokens to replace; or one was made later than now, without `force`: with a clock that is behind, the
/// previous ones would expire at once.
pub(crate) fn rotate(settings: &RotateSettings, now: OffsetDateTime) -> anyhow::Result<()> {
    let RotateSettings { pools, force, place } = settings;
    place.open()?.change_tokens(&|issued, records| {
        if let Some(token) = ahead(issued, records, now).filter(|_| !force) {
            let id = token.id();
            bail!(
                "token {id} was made later than now: check the clock, or use --force if it is right"
            );
        }
        let known: BTreeSet<_> = issued.tokens.iter().map(|token| token.pool.clone()).collect();
        for pool in pools {
            ensure!(known.contains(pool), "pool {pool}: its pointer configs have no tokens");
        }
        let due = if pools.is_empty() { known } else { pools.iter().cloned().collect() };
        ensure!(!due.is_empty(), "no pointer config has tokens");
        for pool in due {
            let token = Token::generate().map_err(|_| anyhow!("the system has no randomness"))?;
            issued.tokens.push(IssuedToken { token, pool, made: now });
        }
        Ok(())
    })?;
    print_line("made new tokens; pointer configs get them as soon as servers accept them");
    Ok(())
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
