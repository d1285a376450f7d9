//! The connection to a destination: opened when it is needed, closed after an error.

use std::sync::Arc;
use std::time::Duration;

use crate::error::Cause;
use crate::framing::Frames;
use crate::outbox::backoff::Backoff;
use crate::outbox::destination::{
    Connector, DeliveryError, Destination, OutboxIdentity, asked_delay,
};

/// A connection, with the number of failures in a row.
pub(super) struct Link {
    connector: Arc<dyn Connector>,
    identity: OutboxIdentity,
    connection: Option<Box<dyn Destination>>,
    backoff: Backoff,
    /// The number of attempts that failed since one succeeded.
    failures: u64,
    /// The delay that the destination asked for with the last failure.
    asked: Duration,
    /// Whether the last attempt that failed has taken some records.
    has_progressed: bool,
}

/// The position that a destination reports after a connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd)]
pub(super) enum Position {
    /// It remembers no position, or the connection is not new.
    Unknown,
    /// It has the records below this number.
    Next(u64),
}

impl Link {
    pub(super) fn new(
        connector: Arc<dyn Connector>,
        identity: OutboxIdentity,
        backoff: Backoff,
    ) -> Self {
        Link {
            connector,
            identity,
            connection: None,
            backoff,
            failures: 0,
            asked: Duration::ZERO,
            has_progressed: false,
        }
    }

    /// Returns the address, for people.
    pub(super) fn address(&self) -> String {
        self.connector.describe()
    }

    /// Whether the destination remembers its position.
    pub(super) fn remembers(&self) -> bool {
        self.connector.remembers()
    }

    /// Whether the destination compares records that are there already.
    pub(super) fn compares(&self) -> bool {
        self.connector.compares()
    }

    pub(super) fn is_connected(&self) -> bool {
        self.connection.is_some()
    }

    /// Connects unless it is connected, and asks for the position then.
    pub(super) fn connect(&mut self) -> Result<Position, DeliveryError> {
        if self.connection.is_some() {
            return Ok(Position::Unknown);
        }
        let connected = self.connector.connect(&self.identity);
        let mut connection = connected.map_err(of_no_record)?;
        let position = if self.connector.remembers() {
            connection.position().map_err(of_no_record)?
        } else {
            None
        };
        self.connection = Some(connection);
        Ok(position.map_or(Position::Unknown, |last| {
            Position::Next(last.saturating_add(1))
        }))
    }

    /// Writes a batch over the connection; returns the records that it has left out as refused.
    pub(super) fn write(
        &mut self,
        batch: &Frames,
        first: u64,
        last: u64,
    ) -> Result<Vec<(u64, String)>, DeliveryError> {
        let Some(connection) = &mut self.connection else {
            return Err(DeliveryError::retry("there is no connection"));
        };
        self.identity.refusals.begin(batch, first);
        if let Err(error) = connection.write(batch, first, last) {
            if matches!(error, DeliveryError::Refused(_)) && self.remembers() {
                // Its transaction ends with the connection.
                self.connection = None;
            }
            return Err(error);
        }
        Ok(self.identity.refusals.take())
    }

    /// Whether records that the destination refuses are skipped.
    pub(super) fn skips_refused(&self) -> bool {
        self.identity.refusals.are_skipped()
    }

    /// Makes the destination skip a record that it has refused.
    pub(super) fn skip(&mut self, number: u64) -> Result<(), DeliveryError> {
        match &mut self.connection {
            Some(connection) => connection.skip(number).map_err(of_no_record),
            None => Err(DeliveryError::retry("there is no connection")),
        }
    }

    /// Resets the failures after a success; returns how many there were.
    pub(super) fn succeeded(&mut self) -> u64 {
        std::mem::take(&mut self.failures)
    }

    /// Counts a failure, and closes the connection unless the destination knows what it has taken; returns true if that
    /// was the last attempt. The failures in a row begin again with an attempt that has taken some records.
    pub(super) fn failed(&mut self, cause: &Cause) -> bool {
        self.asked = asked_delay(cause);
        let taken = self.connection.as_ref().and_then(|it| it.taken());
        if taken.is_none() {
            self.connection = None;
        }
        self.has_progressed = taken.is_some_and(|taken| taken > 0);
        self.failures = if self.has_progressed {
            1
        } else {
            self.failures + 1
        };
        self.backoff.gives_up(self.failures)
    }

    /// Returns whether the last attempt that failed has taken some records.
    pub(super) fn has_progressed(&self) -> bool {
        self.has_progressed
    }

    /// Returns how many attempts have failed in a row.
    pub(super) fn failures(&self) -> u64 {
        self.failures
    }

    /// Returns the delay before the next attempt.
    pub(super) fn delay(&self) -> Duration {
        self.backoff.delay(self.failures).max(self.asked)
    }
}

/// A refusal by a call that has no record, or that skips one, concerns all records.
fn of_no_record(error: DeliveryError) -> DeliveryError {
    match error {
        DeliveryError::Refused(cause) => DeliveryError::Fatal(cause),
        other => other,
    }
}
