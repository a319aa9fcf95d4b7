//! Manages the tokens of a cluster, their records for servers, and the user data that contains them.
//!
//! [`model::access::rotation::next`] decides; after one write everything is read again. If access is off everywhere,
//! only the list of enforced pools is cleared, because pointer configs can change before a pool is enforced again.

mod objects;

use std::collections::BTreeSet;

use clap::Args;
use common::flags::{OFF, TokenFlags, access_mode};
use common::reconcile::Requeue;
use kube::Client;
use kube::runtime::events::EventType;
use kubernetes::ControlError;
use kubernetes::Health;
use kubernetes::apply::{Applied, apply};
use kubernetes::events::Events;
use kubernetes::write::{Malformed, ObjectName, ObjectWrite};
use model::access::rotation::{Issued, MAX_STEPS, NextAction, PointerWrite, Reason, Write, next};
use model::access::{AccessMode, Records, Token, WantedModes};
use model::pointer_config::PointerConfig;
use telemetry::faults;
use telemetry::{listed, log_token_steps};
use time::OffsetDateTime;
use tokio::time::Instant;

use self::objects::{StoredTokens, TokenObjects, issued_write, records_write};
use super::certificates::{Observer, user_data, user_data_write};
use super::retries::{Retries, WriteOutcome};
use super::runtime::Reconciler;
use super::{NAMESPACE, read_secret, until_applied};

/// Settings of the controller.
#[derive(Debug, Clone, Args)]
pub struct Settings {
    /// Access mode of pools without an annotation, as their servers have it; unless off, user data gets tokens
    #[arg(long, value_name = "off|audit|enforce", default_value = OFF, help_heading = "Access",
        value_parser = access_mode(), hide_possible_values = true)]
    access: AccessMode,
    #[command(flatten)]
    tokens: TokenFlags,
}

pub struct TokenController {
    client: Client,
    observer: Observer,
    settings: Settings,
    events: Events,
    health: Health,
    retries: Retries,
    reported: BTreeSet<String>,
    /// Number of pools at the last look.
    pools: usize,
    done: TokenChanges,
}

/// Steps of a row of looks, which are logged together.
#[derive(Default)]
struct TokenChanges {
    steps: Vec<Reason>,
    secrets: Vec<String>,
}

impl TokenChanges {
    fn log(self) {
        log_token_steps(&self.steps);
        if !self.secrets.is_empty() {
            let names = listed(&self.secrets);
            tracing::info!(secrets = self.secrets.len(), names, "wrote new tokens into user data");
        }
    }
}

impl TokenController {
    /// Creates a controller that has not looked yet. `identity` is this process' name in events.
    pub fn new(observer: Observer, settings: Settings, identity: &str, health: Health) -> Self {
        let client = observer.client.clone();
        let events = Events::new(client.clone(), identity);
        Self {
            client,
            observer,
            settings,
            events,
            health,
            retries: Retries::default(),
            pools: 0,
            reported: BTreeSet::new(),
            done: TokenChanges::default(),
        }
    }

    async fn observe(&self) -> Result<TokenObjects, ControlError> {
        let cluster = self.observer.observe_user_data().await?;
        let stored = stored_tokens(&self.client).await?;
        let StoredTokens { issued, records, .. } = &stored;
        let closed =
            [&records.enforced, &records.undetermined, &issued.enforced, &issued.undetermined];
        let default = self.settings.access;
        // A pool without an earlier state stays unchanged, unless all pools are enforced by default.
        let is_enforced = |pool: &str| {
            default == AccessMode::Enforce || closed.iter().any(|pools| pools.contains(pool))
        };
        let annotations = cluster.pools.iter().map(|pool| (&*pool.name, pool.access.as_deref()));
        let before = WantedModes::default();
        let (wanted, faulty) =
            WantedModes::of_annotations(annotations, default, &before, is_enforced);
        let faulty: Vec<_> =
            faulty.iter().map(|fault| format!("MachineConfigPool {fault}")).collect();
        let pools = wanted.understood();
        faults::MODES.report_all(&self.health.status, &faulty);
        Ok(TokenObjects { cluster, stored, pools })
    }

    /// Applies a write. After a conflict, everything is read again anyway.
    async fn execute(&mut self, observed: &TokenObjects, write: Write) -> Result<(), ControlError> {
        let write = match write {
            Write::Issued(issued) => issued_write(observed.stored.tokens.as_ref(), &issued)?,
            Write::Records(records) => records_write(observed.stored.access.as_ref(), &records)?,
            Write::Pointers(writes) => {
                for write in writes {
                    self.write_user_data(observed, &write).await?;
                }
                return Ok(());
            }
        };
        apply(&self.client, &write).await?;
        Ok(())
    }

    /// Writes user data. A failure does not delay others.
    async fn write_user_data(
        &mut self,
        observed: &TokenObjects,
        write: &PointerWrite,
    ) -> Result<(), ControlError> {
        let name = write.name.rsplit('/').next().unwrap_or_default();
        let Some(secret) = observed.cluster.user_data.get(name) else { return Ok(()) };
        let config = PointerConfig::read(user_data(secret));
        let Some(text) = config.embed(write) else { return Ok(()) };
        let planned = user_data_write(&observed.cluster, name, &text)?;
        let ObjectWrite { object, .. } = &planned;
        let result = apply(&self.client, &planned).await;
        match self.retries.note(name, result, &self.health) {
            WriteOutcome::Written => self.done.secrets.push(name.to_owned()),
            WriteOutcome::Refused(error) => {
                tracing::error!(
                    %object,
                    error,
                    fix = "correct what the API server refuses; machines that use this Secret keep \
                        the older token",
                    "cannot write a new token into user data"
                );
                self.events.publish(EventType::Warning, "token-not-written", object, &error).await;
            }
            WriteOutcome::Nothing => {}
        }
        Ok(())
    }

    async fn report(&mut self, attention: Vec<String>) {
        faults::TOKENS.silent().report_all(&self.health.status, &attention);
        let count = attention.len().try_into().unwrap_or(i64::MAX);
        self.health.metrics.tokens_attention.set(count);
        let now: BTreeSet<String> = attention.into_iter().collect();
        let object = ObjectName::secret(NAMESPACE, Records::SECRET);
        for line in now.difference(&self.reported) {
            faults::TOKENS.log(Some(line));
            self.events.publish(EventType::Warning, "tokens", &object, line).await;
        }
        self.reported = now;
    }

    async fn take_step(&mut self) -> Result<Requeue, ControlError> {
        let observed = self.observe().await?;
        if observed.is_off() {
            // Another controller reports the faults of certificates and user data.
            self.report(Vec::new()).await;
            return Ok(Requeue::Resync);
        }
        self.retries.retain(|name| observed.cluster.user_data.contains_key(name));
        let state = observed.state(&self.retries.waiting(Instant::now()))?;
        self.pools = state.pools.len();
        let fresh = Token::generate().map_err(|_| ControlError::NoRandomness)?;
        let now = OffsetDateTime::now_utc();
        match next(&state, &self.settings.tokens.policy(), now, &fresh) {
            NextAction::Write(because, write) => {
                self.execute(&observed, write).await?;
                self.done.steps.push(because);
                Ok(Requeue::Now)
            }
            NextAction::Settled { until, attention } => {
                self.report(attention).await;
                let requeue = until.map_or(Requeue::Resync, |until| Requeue::at(until, now));
                Ok(self.retries.requeue(requeue, Instant::now()))
            }
        }
    }
}

impl Reconciler for TokenController {
    const SUBJECT: &'static str = "tokens";

    fn watched(&self) -> Vec<ObjectName> {
        let own = [Issued::SECRET, Records::SECRET].map(|name| ObjectName::secret(NAMESPACE, name));
        self.observer.watched_user_data().into_iter().chain(own).collect()
    }

    fn max_steps(&self) -> usize {
        MAX_STEPS + self.pools
    }

    async fn reconcile(&mut self) -> Result<Requeue, ControlError> {
        let result = self.take_step().await;
        if !matches!(result, Ok(Requeue::Now)) {
            std::mem::take(&mut self.done).log();
        }
        result
    }
}

async fn stored_tokens(client: &Client) -> Result<StoredTokens, ControlError> {
    let tokens = read_secret(client, Issued::SECRET).await?;
    Ok(StoredTokens::read(tokens, read_secret(client, Records::SECRET).await?)?)
}

/// Changes the tokens and records of a cluster by `change`, and retries after conflicts.
pub async fn change_tokens<E: From<ControlError>>(
    client: &Client,
    change: impl Fn(&mut Issued, &mut Records) -> Result<(), E>,
) -> Result<(), E> {
    until_applied(ObjectName::secret(NAMESPACE, Records::SECRET), async || {
        let stored = stored_tokens(client).await?;
        let (mut issued, mut records) = (stored.issued, stored.records);
        let before = (issued.clone(), records.clone());
        change(&mut issued, &mut records)?;
        let mut writes = Vec::new();
        if records != before.1 {
            writes.push(records_write(stored.access.as_ref(), &records));
        }
        if issued != before.0 {
            writes.push(issued_write(stored.tokens.as_ref(), &issued));
        }
        let mut applied = Applied::Done;
        let writes: Result<Vec<_>, Malformed> = writes.into_iter().collect();
        for write in writes.map_err(ControlError::from)? {
            if apply(client, &write).await? == Applied::Superseded {
                applied = Applied::Superseded;
            }
        }
        Ok(applied)
    })
    .await
}

pub async fn records(client: &Client) -> Result<Records, ControlError> {
    Ok(StoredTokens::read(None, read_secret(client, Records::SECRET).await?)?.records)
}
