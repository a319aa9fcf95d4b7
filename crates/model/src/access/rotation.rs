//! Plans the rotation of tokens in pointer configs.
//!
//! ```text
//!  issue ──> publish ──> embed ──> expire ──> purge
//!  issuer's  servers     pointer   after   its text at once,
//!  own list  accept it   configs   overlap its hash later
//! ```
//!
//! Each step is one atomic write, after which the state is observed again. Whenever the process dies, servers accept
//! every token that a pointer config contains. A token expires after the overlap, once no pointer config contains it;
//! until then machines boot with either.
//!
//! A clock that is behind expires and rotates nothing. An expiry that a clock ahead had set too late is corrected as
//! soon as the token of that time is revoked or replaced.
//!
//! A pointer config proves no token: one that only it has was revoked long ago, or is forged. Only if no tokens are
//! known at all was it issued by lists that are lost.

mod state;

use std::collections::{BTreeMap, BTreeSet};

use time::{Duration, OffsetDateTime};

pub use self::state::{
    FetchCredential, NextAction, ObservedTokens, PointerToken, PointerWrite, Reason,
    RotationPolicy, Write,
};
pub use super::issued::{Issued, IssuedToken};
use super::mode::AccessMode;
use super::records::{Enforcement, REMEMBERED, Record, Records};
use super::token::{Token, TokenHash};

/// Difference between clocks that counts as correct.
const TOLERANCE: Duration = Duration::minutes(5);
/// Maximum number of expired tokens that are remembered.
const MAX_ENDED: usize = 1_000;
/// Upper bound for the number of writes until any state is settled, without one for each pool.
pub const MAX_STEPS: usize = 64;

/// Returns the next action. `fresh` is a new token, in case one is needed.
pub fn next(
    state: &ObservedTokens,
    policy: &RotationPolicy,
    now: OffsetDateTime,
    fresh: &Token,
) -> NextAction {
    let view = View::new(state, now);
    issue(&view, policy, fresh)
        .or_else(|| publish(&view))
        .or_else(|| embed(&view))
        .or_else(|| expire(&view, policy))
        .or_else(|| purge(&view))
        .or_else(|| update_evidence(&view))
        .unwrap_or_else(|| settled(&view, policy))
}

struct View<'a> {
    state: &'a ObservedTokens,
    now: OffsetDateTime,
    /// Newest current token, if it was made later than now.
    ahead: Option<TokenHash>,
    /// Each pool's newest token without an expiry.
    current: BTreeMap<&'a str, &'a IssuedToken>,
    by_hash: BTreeMap<TokenHash, &'a Record>,
}

impl<'a> View<'a> {
    fn new(state: &'a ObservedTokens, now: OffsetDateTime) -> Self {
        let records = &state.records.tokens;
        let by_hash: BTreeMap<_, _> = records.iter().map(|it| (it.sha256, it)).collect();
        let current = current(&state.issued, &by_hash);
        let ahead = ahead(&state.issued, &state.records, now);
        Self { state, now, ahead, current, by_hash }
    }

    /// Pools that have tokens.
    fn kept(&self) -> impl Iterator<Item = &'a str> {
        let kept = self.state.pools.iter().filter(|(_, mode)| **mode != AccessMode::Off);
        kept.map(|(pool, _)| &**pool)
    }

    fn is_kept(&self, pool: &str) -> bool {
        self.state.pools.get(pool).is_some_and(|mode| *mode != AccessMode::Off)
    }

    /// Fetches of pools that have tokens.
    fn pointers(&self) -> impl Iterator<Item = &'a PointerToken> {
        self.state.pointers.iter().filter(|pointer| self.is_kept(&pointer.pool))
    }

    /// Records with these tokens, and with the present evidence: servers always get both together.
    fn records(&self, tokens: Vec<Record>) -> Records {
        let ObservedTokens { issued, records: present, pointers, pools } = self.state;
        let without_token = without_token(self);
        // A pool that is missing for a moment keeps its state while a token or pointer config of it is left.
        let is_left = |pool: &String| {
            let of_pool = |record: &&Record| record.name.is_none() && record.pools.contains(pool);
            tokens.iter().filter(of_pool).any(|record| record.is_valid_at(self.now))
                || pointers.iter().any(|pointer| pointer.pool == *pool)
        };
        let is_asked = |pool: &&String| match pools.get(*pool) {
            Some(mode) => *mode == AccessMode::Enforce,
            None => is_left(pool),
        };
        // Until a pointer config gets its first token, the records say neither that the pool's machines have no token,
        // nor that all have one.
        let without = self.pointers().filter(|it| it.credential == FetchCredential::Nothing);
        let will_get: BTreeSet<&str> = without.map(|it| &*it.pool).collect();
        let all_have_one =
            |pool: &&String| !without_token.contains_key(*pool) && !will_get.contains(&***pool);
        let asked = pools.iter().filter(|(_, mode)| **mode == AccessMode::Enforce);
        let was_enforced = present.enforced.iter().chain(&issued.enforced).filter(is_asked);
        let enforced: BTreeSet<String> =
            asked.map(|(pool, _)| pool).filter(all_have_one).chain(was_enforced).cloned().collect();
        // The enforced ones among these are unknown.
        let lost = pools.keys().chain(pointers.iter().map(|pointer| &pointer.pool));
        let lost = lost.filter(|_| is_lost(self.state));
        let undetermined = present.undetermined.iter().chain(&issued.undetermined).chain(lost);
        let undetermined = undetermined.filter(is_asked).filter(|pool| !enforced.contains(*pool));
        let undetermined = undetermined.cloned().collect();
        Records { tokens, enforced, without_token, undetermined, ..Records::default() }
    }

    /// Writes records with these tokens and the present evidence. The enforced pools are written to the list of tokens
    /// first, so that either list can replace the other.
    fn write_records(&self, because: Reason, tokens: Vec<Record>) -> NextAction {
        let records = self.records(tokens);
        if self.remembers(&records) {
            return NextAction::Write(because, Write::Records(records));
        }
        let issued = Issued {
            tokens: self.state.issued.tokens.clone(),
            enforced: records.enforced,
            undetermined: records.undetermined,
        };
        NextAction::Write(Reason::Remembered, Write::Issued(issued))
    }

    fn remembers(&self, records: &Records) -> bool {
        let issued = &self.state.issued;
        issued.enforced == records.enforced && issued.undetermined == records.undetermined
    }
}

/// Returns `true` if both lists are lost, while pointer configs contain tokens.
fn is_lost(state: &ObservedTokens) -> bool {
    let is_issued = |token: &Token| state.issued.tokens.iter().any(|issued| issued.token == *token);
    let is_unknown = |it: &PointerToken| matches!(&it.credential, FetchCredential::Token(token) if !is_issued(token));
    state.records.tokens.iter().all(|record| record.name.is_some())
        && state.pointers.iter().any(is_unknown)
}

/// The newest current token, if it was made later than now: the clock is behind, or was ahead then. A later replacement
/// proves that it was ahead.
pub fn ahead(issued: &Issued, records: &Records, now: OffsetDateTime) -> Option<TokenHash> {
    let by_hash: BTreeMap<_, _> = records.tokens.iter().map(|it| (it.sha256, it)).collect();
    let current = current(issued, &by_hash);
    let is_replaced =
        |it: &&IssuedToken| current.get(&*it.pool).is_some_and(|current| current.token != it.token);
    let replaced: BTreeSet<_> =
        issued.tokens.iter().filter(is_replaced).map(|it| it.token.hash()).collect();
    let going_on = records.tokens.iter().filter(|record| {
        let has_end = record.until.is_some() || record.revoked.is_some();
        record.name.is_none() && !has_end && !replaced.contains(&record.sha256)
    });
    let going_on = going_on.map(|record| (record.made, record.sha256));
    let current = current.values().map(|it| (it.made, it.token.hash()));
    let newest = current.chain(going_on).max();
    newest.filter(|(made, _)| *made > now.saturating_add(TOLERANCE)).map(|(_, hash)| hash)
}

/// Each pool's newest token without an expiry.
fn current<'a>(
    issued: &'a Issued,
    records: &BTreeMap<TokenHash, &Record>,
) -> BTreeMap<&'a str, &'a IssuedToken> {
    let going_on = issued.tokens.iter().filter(|issued| is_active(issued, records));
    going_on.map(|issued| (&*issued.pool, issued)).collect()
}

/// Returns `true` if a token opens its pool, or will, and has no expiry.
fn is_active(issued: &IssuedToken, records: &BTreeMap<TokenHash, &Record>) -> bool {
    records.get(&issued.token.hash()).is_none_or(|record| {
        record.until.is_none() && record.revoked.is_none() && record.pools.contains(&issued.pool)
    })
}

/// Issues a token for a pool without one, or with an old one.
fn issue(view: &View<'_>, policy: &RotationPolicy, fresh: &Token) -> Option<NextAction> {
    let is_old = |token: &IssuedToken| view.now - token.made >= policy.period;
    let (pool, because) = view.kept().find_map(|pool| match view.current.get(pool) {
        None => Some((pool, Reason::First(pool.to_owned()))),
        Some(current) if view.ahead.is_none() && is_old(current) => {
            Some((pool, Reason::Due(pool.to_owned())))
        }
        Some(_) => None,
    })?;
    let mut issued = view.state.issued.clone();
    let (token, pool) = (fresh.clone(), pool.to_owned());
    issued.tokens.push(IssuedToken { token, pool, made: view.now });
    Some(NextAction::Write(because, Write::Issued(issued)))
}

/// Adds issued tokens to the records, and those in pointer configs if no tokens are known at all.
fn publish(view: &View<'_>) -> Option<NextAction> {
    let mut tokens = view.state.records.tokens.clone();
    let mut add = |token: &Token, pool: &str, made| {
        let sha256 = token.hash();
        if tokens.iter().all(|record| record.sha256 != sha256) {
            let pools = [pool.to_owned()].into();
            tokens.push(Record { sha256, name: None, pools, made, until: None, revoked: None });
        }
    };
    for issued in &view.state.issued.tokens {
        add(&issued.token, &issued.pool, issued.made);
    }
    if view.state.records.tokens.is_empty() {
        for pointer in view.pointers() {
            if let FetchCredential::Token(token) = &pointer.credential {
                add(token, &pointer.pool, view.now);
            }
        }
    }
    let is_new = tokens.len() > view.state.records.tokens.len();
    is_new.then(|| view.write_records(Reason::New, tokens))
}

/// Writes each pool's newest token into its pointer configs.
fn embed(view: &View<'_>) -> Option<NextAction> {
    let write = |pointer: &PointerToken| {
        let token = &view.current.get(&*pointer.pool)?.token;
        let is_due = match &pointer.credential {
            FetchCredential::Nothing => true,
            FetchCredential::Token(embedded) => embedded != token,
            FetchCredential::Other | FetchCredential::Cannot(_) => false,
        };
        (is_due && !pointer.waits).then(|| PointerWrite {
            name: pointer.name.clone(),
            pool: pointer.pool.clone(),
            token: token.clone(),
        })
    };
    let writes: Vec<_> = view.pointers().filter_map(write).collect();
    (!writes.is_empty()).then_some(NextAction::Write(Reason::Embed, Write::Pointers(writes)))
}

/// Sets the expiry of tokens that no pointer config contains.
fn expire(view: &View<'_>, policy: &RotationPolicy) -> Option<NextAction> {
    if view.ahead.is_some() {
        return None;
    }
    let needed: BTreeSet<TokenHash> = view
        .current
        .iter()
        // Tokens of a deleted pool are not needed; those of a pool whose mode is off stay unchanged.
        .filter(|(pool, _)| view.state.pools.contains_key(**pool))
        .map(|(_, issued)| issued.token.hash())
        .chain(view.state.pointers.iter().filter_map(|pointer| match &pointer.credential {
            FetchCredential::Token(token) => Some(token.hash()),
            _ => None,
        }))
        .collect();
    let end = view.now.saturating_add(policy.overlap);
    let mut tokens = view.state.records.tokens.clone();
    for record in
        tokens.iter_mut().filter(|record| record.name.is_none() && record.revoked.is_none())
    {
        match record.until {
            None if !needed.contains(&record.sha256) => record.until = Some(end),
            Some(until) if until > end.saturating_add(TOLERANCE) => record.until = Some(end),
            _ => {}
        }
    }
    (tokens != view.state.records.tokens).then(|| view.write_records(Reason::Ending, tokens))
}

/// Deletes the text of tokens that have an expiry, and hashes long after it.
fn purge(view: &View<'_>) -> Option<NextAction> {
    let mut issued = view.state.issued.clone();
    issued.tokens.retain(|issued| is_active(issued, &view.by_hash));
    if issued != view.state.issued {
        return Some(NextAction::Write(Reason::Discarded, Write::Issued(issued)));
    }
    if view.ahead.is_some() {
        return None;
    }
    let ended = |record: &Record| record.revoked.or(record.until).filter(|at| *at <= view.now);
    let mut tokens = view.state.records.tokens.clone();
    tokens.retain(|record| ended(record).is_none_or(|at| view.now - at < REMEMBERED));
    let mut ends: Vec<_> = tokens.iter().filter_map(ended).collect();
    if let Some(excess) = ends.len().checked_sub(MAX_ENDED).filter(|excess| *excess > 0) {
        ends.sort();
        let last = ends[excess - 1];
        tokens.retain(|record| ended(record).is_none_or(|at| at > last));
    }
    (tokens != view.state.records.tokens).then(|| view.write_records(Reason::Discarded, tokens))
}

/// Records that could be written now: the recorded tokens, with the present evidence.
pub fn current_records(state: &ObservedTokens, now: OffsetDateTime) -> Records {
    View::new(state, now).records(state.records.tokens.clone())
}

fn update_evidence(view: &View<'_>) -> Option<NextAction> {
    let tokens = view.state.records.tokens.clone();
    let records = view.records(tokens.clone());
    (records != view.state.records || !view.remembers(&records))
        .then(|| view.write_records(Reason::EvidenceChanged, tokens))
}

/// Pointer configs that keep their pool open, because they cannot have a token. One that does not contain a token yet
/// opens nothing, because pointer configs of a new pool are new too. But a pool that is open stays open until it does,
/// because machines may use it.
fn without_token(view: &View<'_>) -> BTreeMap<String, Vec<String>> {
    let present = &view.state.records;
    let is_open = |pool: &str| {
        let remembered = &view.state.issued;
        let is_closed =
            remembered.enforced.contains(pool) || remembered.undetermined.contains(pool);
        !is_closed && matches!(present.enforcement(pool), Enforcement::Open(_))
    };
    let mut without_token: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for pointer in view.pointers() {
        let reason = match &pointer.credential {
            FetchCredential::Nothing if is_open(&pointer.pool) => "has no token",
            FetchCredential::Cannot(reason) => reason,
            FetchCredential::Nothing | FetchCredential::Token(_) | FetchCredential::Other => {
                continue;
            }
        };
        let line = format!("{}: {reason}", pointer.name);
        without_token.entry(pointer.pool.clone()).or_default().push(line);
    }
    without_token
}

fn settled(view: &View<'_>, policy: &RotationPolicy) -> NextAction {
    let due = view
        .kept()
        .filter_map(|pool| Some(view.current.get(pool)?.made.saturating_add(policy.period)));
    let discarded = view
        .state
        .records
        .tokens
        .iter()
        .filter_map(|record| Some(record.revoked.or(record.until)?.saturating_add(REMEMBERED)));
    let ends = view.state.records.tokens.iter().filter_map(|record| record.until);
    // If the clock is behind, a time can lie in the past and not be reached yet.
    let until = due.chain(discarded).chain(ends).filter(|at| *at > view.now).min();
    let mut attention = Vec::new();
    if let Some(token) = view.ahead {
        attention.push(format!(
            "token {} was made later than now, so no token is made or expires: set the clock; if it \
                is right, replace the token with `tokens rotate --force`, or revoke it with `tokens revoke`",
            token.id()
        ));
    }
    let wanted = |pool: &String| view.state.pools.get(pool) == Some(&AccessMode::Enforce);
    for (pool, lines) in view.state.records.without_token.iter().filter(|(pool, _)| wanted(pool)) {
        let is_enforced = view.state.records.enforced.contains(pool);
        let what = if is_enforced {
            "the requests of its machines are refused"
        } else {
            "not set to be enforced"
        };
        attention.extend(lines.iter().map(|line| format!("pool {pool}: {what}: {line}")));
    }
    let is_reported = |pool: &String| view.state.records.without_token.contains_key(pool);
    let waiting =
        view.pointers().filter(|it| it.waits && it.credential == FetchCredential::Nothing);
    for PointerToken { name, pool, .. } in
        waiting.filter(|it| wanted(&it.pool) && !is_reported(&it.pool))
    {
        attention
            .push(format!("pool {pool}: {name}: has no token, and the last write of it failed"));
    }
    NextAction::Settled { until, attention }
}

#[cfg(test)]
mod tests;
