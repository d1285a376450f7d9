//! A process other than process 0.
//!
//! Invariant: after [`Event::Died`] nothing is sent and no event comes.

use std::collections::VecDeque;

use millstream_flow::cluster::{Event, Offer};

use super::message::{Body, Message, Misfit};
use super::silence::{Line, OwnPause};
use super::{Connection, Notice, Output, Times};

/// A process other than process 0.
#[derive(Debug)]
pub struct Participant {
    offer: Offer,
    times: Times,
    line: Option<Line>,
    /// The run; 0 before it begins.
    run: u64,
    /// Nothing more is done: the run is over, or this process was refused.
    over: bool,
    /// This process has ended without a failure.
    ended: bool,
    /// All processes have: a lost connection is no death.
    all_ended: bool,
    /// The run was asked to stop: once this process has ended, a lost connection is no death.
    stopped: bool,
    pause: OwnPause,
    outputs: VecDeque<Output>,
}

impl Participant {
    /// A process that offers this.
    #[must_use]
    pub fn new(offer: Offer, times: Times) -> Self {
        Participant {
            offer,
            times,
            line: None,
            run: 0,
            over: false,
            ended: false,
            all_ended: false,
            stopped: false,
            pause: OwnPause::default(),
            outputs: VecDeque::new(),
        }
    }

    /// The control link to process 0 is authenticated.
    pub fn connected(&mut self, connection: Connection, now_ms: u64) {
        self.line = Some(Line::new(connection, now_ms));
        let offer = self.offer.clone();
        self.send(Body::Offer(Box::new(offer)));
    }

    /// A message has arrived.
    pub fn received(&mut self, connection: Connection, message: Message, now_ms: u64) {
        let Some(line) = self
            .line
            .as_mut()
            .filter(|line| line.connection == connection)
        else {
            return;
        };
        line.heard(now_ms);
        if self.over || !is_of_run(message.run, self.run) {
            return;
        }
        match message.body {
            Body::Start(start) if self.run == 0 => {
                self.run = start.run;
                self.outputs.push_back(Output::Started(start));
            }
            Body::Refused(misfit) if self.run == 0 => {
                self.over = true;
                self.outputs.push_back(Output::Refused(misfit));
            }
            Body::Alive => {}
            Body::Go => self.event(Event::Go),
            Body::Raise(raise) => self.event(Event::Raise(raise)),
            Body::Committed { epoch, last } => self.event(Event::Committed { epoch, last }),
            Body::Handled(loads) => {
                for load in loads {
                    self.event(Event::Handled(load));
                }
            }
            Body::Stop => {
                self.stopped = true;
                self.event(Event::Stop);
            }
            Body::Died { process, cause } => self.die(process, cause),
            Body::Ended => {
                self.all_ended = true;
                self.event(Event::Ended);
                if self.ended {
                    // Process 0 waits for that: it knows then that the end has arrived.
                    self.outputs.push_back(Output::Close(connection));
                }
            }
            _ => self.die(0, "it does not follow the protocol".to_owned()),
        }
    }

    /// The control link is lost.
    pub fn lost(&mut self, connection: Connection, cause: &str) {
        if self.line.is_none_or(|line| line.connection != connection) {
            return;
        }
        self.line = None;
        if self.over || self.all_ended || (self.ended && self.stopped) {
            self.over = true;
        } else if self.run == 0 {
            self.over = true;
            let lost = Misfit {
                again: true,
                ..Misfit::from(cause.to_owned())
            };
            self.outputs.push_back(Output::Refused(lost));
        } else {
            self.die(0, cause.to_owned());
        }
    }

    /// The flow of this process reports something.
    pub fn notice(&mut self, notice: Notice) {
        if self.over || self.run == 0 {
            return;
        }
        let body = match notice {
            Notice::Lost { .. } if self.has_ended() => None,
            report => report.for_process_0(),
        };
        if let Some(body) = body {
            self.ended |= body == Body::Ended;
            self.stopped |= body == Body::Stop;
            self.send(body);
        }
    }

    /// Time has passed.
    pub fn tick(&mut self, now_ms: u64) {
        self.pause.tick(now_ms, &self.times, self.line.iter_mut());
        let Some(line) = self.line.as_mut() else {
            return;
        };
        if line.is_silent(now_ms, &self.times) {
            let connection = line.connection;
            let cause = self.times.silence("this process");
            self.notice(Notice::Lost {
                process: 0,
                cause: cause.clone(),
            });
            self.outputs.push_back(Output::Close(connection));
            self.lost(connection, &cause);
        } else if line.needs_heartbeat(now_ms, &self.times) {
            line.sent(now_ms);
            self.send(Body::Alive);
        }
    }

    /// Returns the next thing to do.
    pub fn next_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Whether the run is over for this process: it has died, or ended and lost its link.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// Whether a data link may end now: this process has ended, or all have.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.ended || self.all_ended
    }

    fn die(&mut self, process: usize, cause: String) {
        self.event(Event::Died { process, cause });
        self.over = true;
        if let Some(line) = self.line {
            self.outputs.push_back(Output::Close(line.connection));
        }
    }

    fn event(&mut self, event: Event) {
        self.outputs.push_back(Output::Event(event));
    }

    fn send(&mut self, body: Body) {
        if let Some(line) = &self.line {
            let to = line.connection;
            let run = self.run;
            let message = Message { run, body };
            self.outputs.push_back(Output::Send { to, message });
        }
    }
}

/// A message before the run has run id 0: the start, a refusal, a sign of life.
pub(super) fn is_of_run(of: u64, run: u64) -> bool {
    of == run || of == 0
}
