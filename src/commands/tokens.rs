//! Tokens with a name, for machines whose pointer configs live elsewhere, and a look at all of them.

use anyhow::{anyhow, bail, ensure};
use model::access::rotation::{IssuedToken, ahead};
use model::access::{Record, generate};
use model::table::table;
use time::OffsetDateTime;

use super::certs::date;
use super::state_store::StateStore;
use super::{print_line, terminal};

/// Makes a token for machines of `pools`, and prints it: nobody will see it again.
///
/// # Errors
/// There is such a token already, or it cannot be kept.
pub(crate) fn add(
    store: &dyn StateStore,
    name: &str,
    pools: &[String],
    until: Option<OffsetDateTime>,
    now: OffsetDateTime,
) -> anyhow::Result<()> {
    ensure!(until.is_none_or(|until| until > now), "--until: this has passed already");
    let token =
        generate::token().map_err(|_| anyhow!("the system has no randomness for a new token"))?;
    let record = Record {
        sha256: token.hash(),
        name: Some(name.to_owned()),
        pools: pools.iter().cloned().collect(),
        made: now,
        until,
        revoked: None,
    };
    store.change_tokens(&|_, records| {
        let is_taken = |other: &Record| other.title() == name && other.is_valid_at(now);
        ensure!(!records.tokens.iter().any(is_taken), "{name}: there is a token of this name");
        records.tokens.push(record.clone());
        Ok(())
    })?;
    print_line(token.as_str());
    Ok(())
}

/// Prints what is known of tokens; no token can be made of it.
///
/// # Errors
/// They cannot be read.
pub(crate) fn list(store: &dyn StateStore, now: OffsetDateTime) -> anyhow::Result<()> {
    let records = store.records()?;
    let to_the_second = |time: OffsetDateTime| date(time.replace_nanosecond(0)?);
    let row = |record: &Record| -> anyhow::Result<Vec<String>> {
        let state = match (record.revoked, record.is_valid_at(now)) {
            (Some(_), _) => "revoked",
            (None, true) => "valid",
            (None, false) => "ended",
        };
        Ok(vec![
            record.sha256.id(),
            record.name.clone().unwrap_or_else(|| "(pointer configs)".to_owned()),
            record.pools.iter().cloned().collect::<Vec<_>>().join(","),
            to_the_second(record.made)?,
            record.until.map_or(Ok("-".to_owned()), to_the_second)?,
            state.to_owned(),
        ])
    };
    let rows = records.tokens.iter().map(row).collect::<anyhow::Result<Vec<_>>>()?;
    let names = ["ID", "NAME", "POOLS", "MADE", "UNTIL", "STATE"];
    terminal::print(&table(&names, &rows, terminal::look()));
    for pool in &records.enforced {
        print_line(&format!("pool {pool}: all its pointer configs carry tokens"));
    }
    for (pool, lines) in &records.lacking {
        for line in lines {
            print_line(&format!("pool {pool}: {line}"));
        }
    }
    Ok(())
}

/// Has a token open nothing any more, from now on; one that pointer configs carry is replaced in them.
///
/// # Errors
/// There is no such token.
pub(crate) fn revoke(
    store: &dyn StateStore,
    named: &str,
    now: OffsetDateTime,
) -> anyhow::Result<()> {
    store.change_tokens(&|_, records| {
        let is_meant = |record: &&mut Record| {
            record.name.as_deref() == Some(named) || record.sha256.id() == named
        };
        let mut found =
            records.tokens.iter_mut().filter(is_meant).filter(|it| it.revoked.is_none());
        let Some(record) = found.next() else { bail!("{named}: there is no such token to revoke") };
        record.revoked = Some(now);
        found.for_each(|record| record.revoked = Some(now));
        Ok(())
    })?;
    print_line(&format!("{named}: revoked"));
    Ok(())
}

/// Makes new tokens for pointer configs; the ones before end when none carries them any more. Whoever
/// keeps the tokens has pointer configs carry them.
///
/// # Errors
/// There are no tokens to replace; or, unless `is_forced`, one was made later than now: with a clock that is behind, those
/// before would end at once.
pub(crate) fn rotate(
    store: &dyn StateStore,
    pools: &[String],
    is_forced: bool,
    now: OffsetDateTime,
) -> anyhow::Result<()> {
    store.change_tokens(&|issued, records| {
        if let Some(token) = ahead(issued, records, now).filter(|_| !is_forced) {
            let id = token.id();
            bail!(
                "token {id} was made later than now: is the clock right? --force says that it is"
            );
        }
        let known: Vec<String> = issued.tokens.iter().map(|token| token.pool.clone()).collect();
        for pool in pools {
            ensure!(known.contains(pool), "pool {pool}: its pointer configs carry no tokens");
        }
        let mut due = if pools.is_empty() { known } else { pools.to_vec() };
        due.sort();
        due.dedup();
        ensure!(!due.is_empty(), "no pointer config carries tokens");
        for pool in due {
            let token = generate::token().map_err(|_| anyhow!("the system has no randomness"))?;
            issued.tokens.push(IssuedToken { token, pool, made: now });
        }
        Ok(())
    })?;
    print_line("new tokens were made; pointer configs carry them as soon as servers accept them");
    Ok(())
}
