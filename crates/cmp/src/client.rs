//! Runs a transaction with a server: sends messages, waits, and repeats polls.
//!
//! Once the server has the request and asks to wait, an operator may be about to approve it. If the server is
//! unreachable then, the client polls again instead of making a new request. A server that is back and refuses to
//! answer may have lost the request, which is not a refusal of it.

use core::error::Error;
use core::time::Duration;

use time::OffsetDateTime;

use super::error::CmpError;
use super::request::Request;
use super::transaction::{EnrolledCertificate, MessageInputs, Settings, Step, Transaction};

/// Sends messages to a server, and waits.
pub trait Transport {
    /// Sends a message, and returns the answer's bytes.
    fn exchange(
        &self,
        message: Vec<u8>,
    ) -> impl Future<Output = Result<Vec<u8>, TransportError>> + Send;

    /// Returns after this time.
    fn wait(&self, time: Duration) -> impl Future<Output = ()> + Send;

    /// Waits between attempts to reach a server that is absent. The transaction fails after the last one.
    fn retries(&self) -> impl Iterator<Item = Duration> + Send;
}

/// Reasons for no answer.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// Nothing answers, or a proxy reports that the server does not. It may answer later.
    #[error(transparent)]
    Absent(Box<dyn Error + Send + Sync>),
    /// The answer is no CMP message.
    #[error(transparent)]
    NoMessage(Box<dyn Error + Send + Sync>),
}

/// Reasons for no certificate.
#[derive(Debug, thiserror::Error)]
pub enum EnrolError {
    /// The server is unreachable, or its answer is no message.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// The server refuses, or its answer is not valid.
    #[error(transparent)]
    Cmp(#[from] CmpError),
    /// The server was absent while the request waited there, and does not report its state afterwards.
    #[error("the CA was unavailable while the request waited, and may have lost it: {0}")]
    Lost(CmpError),
    /// The random generator failed, so that there is no nonce.
    #[error("the system has no randomness")]
    NoRandomness,
}

impl EnrolError {
    /// Returns `true` if the same request fails again: the server refuses it, or issues something that is not accepted.
    pub fn is_final(&self) -> bool {
        use CmpError::{Csr, Encoding, NoCertificate, NoHash, Untrusted, WrongKey};
        match self {
            Self::Cmp(CmpError::Refused(report)) => report.is_of_the_request(),
            Self::Cmp(error) => matches!(
                error,
                Csr(_) | Encoding(_) | NoCertificate | NoHash | Untrusted(_) | WrongKey
            ),
            _ => false,
        }
    }
}

/// Reasons for a wait.
#[derive(Debug)]
pub enum Pause<'a> {
    /// The server asks to wait, for this reason if it gives one.
    Requested(&'a str),
    /// The server has the request, and is unreachable.
    Unreachable(&'a TransportError),
}

/// A transport to one server, with clock and randomness.
#[derive(Debug)]
pub struct Client<'a, T> {
    /// Connection to the server.
    pub transport: &'a T,
    /// Source of nonces and salts; `None` if the random generator fails.
    pub random: fn() -> Option<[u8; 16]>,
    /// The current time.
    pub clock: fn() -> OffsetDateTime,
}

impl<T: Transport> Client<'_, T> {
    /// Requests a certificate, and waits while the server asks to or is unreachable. `waits` gets each wait with its
    /// reason.
    pub async fn enrol(
        self,
        settings: Settings,
        request: Request<'_>,
        mut waits: impl FnMut(Duration, Pause<'_>),
    ) -> Result<EnrolledCertificate, EnrolError> {
        let begun = Transaction::begin(settings, request, self.random()?, self.inputs()?);
        let (mut transaction, mut message) = begun?;
        let (mut retries, mut was_unreachable) = (self.transport.retries(), false);
        loop {
            let time = match self.transport.exchange(message).await {
                Ok(answer) => {
                    retries = self.transport.retries();
                    match transaction.take(&answer, self.inputs()?) {
                        Ok(Step::Send(next)) => {
                            message = next;
                            continue;
                        }
                        Ok(Step::Wait { time, reason }) => {
                            was_unreachable = false;
                            waits(time, Pause::Requested(&reason));
                            time
                        }
                        Ok(Step::Done(enrolled)) => return Ok(*enrolled),
                        Err(error @ CmpError::Refused(_)) if was_unreachable => {
                            return Err(EnrolError::Lost(error));
                        }
                        Err(error) => return Err(error.into()),
                    }
                }
                Err(error @ TransportError::Absent(_)) if transaction.is_polling() => {
                    was_unreachable = true;
                    let Some(time) = retries.next() else { return Err(error.into()) };
                    waits(time, Pause::Unreachable(&error));
                    time
                }
                Err(error) => return Err(transaction.rejected().map_or(error.into(), Into::into)),
            };
            self.transport.wait(time).await;
            message = transaction.poll(self.inputs()?)?;
        }
    }

    fn inputs(&self) -> Result<MessageInputs, EnrolError> {
        Ok(MessageInputs { now: (self.clock)(), nonce: self.random()?, salt: self.random()? })
    }

    fn random(&self) -> Result<[u8; 16], EnrolError> {
        (self.random)().ok_or(EnrolError::NoRandomness)
    }
}

#[cfg(test)]
mod tests;
