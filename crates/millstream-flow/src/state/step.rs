//! [`Keyed`] as a step of Rust flows, for items with times or without.

use super::{KeyLogic, Keyed, Outputs};
use crate::checkpoint::{Changes, Restore};
use crate::error::{Cause, Failure, FlowError, shorten};
use crate::key::Key;
use crate::step::{Context, StateSize, Stateful, Step};
use crate::time::{BEFORE_ALL, Timed};

type Items<K, T> = Vec<(K, Timed<T>)>;

impl<K: Clone, O, I> Outputs<K, O, I> for (Items<K, O>, Items<K, I>) {
    fn result(&mut self, key: &K, output: Timed<O>) {
        self.0.push((key.clone(), output));
    }
    fn late(&mut self, key: &K, item: Timed<I>) {
        self.1.push((key.clone(), item));
    }
}

/// Outputs whose times are dropped; none of them can be late.
struct Plain<'a, K, O>(&'a mut Vec<(K, O)>);

impl<K: Clone, O, I> Outputs<K, O, I> for Plain<'_, K, O> {
    fn result(&mut self, key: &K, output: Timed<O>) {
        self.0.push((key.clone(), output.value));
    }
    fn late(&mut self, _: &K, _: Timed<I>) {}
}

/// A step with a state for each key and with timers.
pub(crate) struct KeyedStep<K, L: KeyLogic<K>> {
    keyed: Keyed<K, L>,
    name: String,
    /// True if its keys may have timers in processing time.
    waits: bool,
}

impl<K, L> KeyedStep<K, L>
where
    K: Key,
    L: KeyLogic<K>,
    L::Error: Into<Cause>,
{
    pub(crate) fn new(name: &str, waits: bool, logic: L) -> Self {
        KeyedStep {
            keyed: Keyed::new(logic),
            name: name.to_owned(),
            waits,
        }
    }

    fn failure(name: &str, key: &K, error: L::Error) -> Failure {
        Failure {
            key: Some(shorten(&format!("{key:?}"))),
            ..Failure::new(name, error)
        }
    }

    /// Fails with the first item that was refused.
    fn fail_refused(&mut self) -> Result<(), Failure> {
        match self.keyed.take_refused() {
            Some((key, _, error)) => Err(Self::failure(&self.name, &key, error)),
            None => Ok(()),
        }
    }

    fn take(
        &mut self,
        items: impl Iterator<Item = (K, Timed<L::In>)>,
        out: &mut impl Outputs<K, L::Out, L::In>,
        cx: &mut Context,
    ) -> Result<(), Failure> {
        let floor = cx.floor();
        let now = cx.now();
        self.keyed.belongs_to(cx.place());
        for (key, item) in items {
            let taken = self.keyed.item(key, item, floor, now, out);
            taken.map_err(|fault| Self::failure(&self.name, &fault.key, fault.error))?;
        }
        self.keyed.check_hashes(&self.name)?;
        self.fail_refused()?;
        self.request_wake(cx);
        Ok(())
    }

    fn advance(
        &mut self,
        watermark: i64,
        out: &mut impl Outputs<K, L::Out, L::In>,
        cx: &mut Context,
    ) -> Result<(), Failure> {
        let advanced = self.keyed.advance(watermark, cx.now(), out);
        advanced.map_err(|(key, error)| Self::failure(&self.name, &key, error))?;
        self.fail_refused()?;
        self.request_wake(cx);
        Ok(())
    }

    fn request_wake(&self, cx: &mut Context) {
        if self.waits
            && let Some(at) = self.keyed.next_processing()
        {
            cx.wake_at(at);
        }
    }

    fn emit_once(
        &mut self,
        out: &mut impl Outputs<K, L::Out, L::In>,
        cx: &Context,
    ) -> Result<(), Failure> {
        let emitted = self.keyed.drain(cx.now(), out);
        emitted.map_err(|(key, error)| Self::failure(&self.name, &key, error))?;
        self.fail_refused()
    }

    fn finish(
        &mut self,
        out: &mut impl Outputs<K, L::Out, L::In>,
        cx: &Context,
    ) -> Result<(), Failure> {
        let ended = self.keyed.end(cx.now(), out);
        ended.map_err(|(key, error)| Self::failure(&self.name, &key, error))?;
        self.fail_refused()
    }
}

impl<K, L> Stateful for KeyedStep<K, L>
where
    K: Key,
    L: KeyLogic<K>,
    L::Error: Into<Cause>,
{
    fn size(&self) -> Option<StateSize> {
        Some(self.keyed.size())
    }
    fn save(&mut self, changes: &mut Changes, _: &mut Context) -> Result<(), Failure> {
        self.keyed.save(&self.name, changes)
    }
    fn restore(&mut self, from: &Restore<'_>) -> Result<(), FlowError> {
        self.keyed.restore(from)
    }
}

impl<K, V, O, L> Step<Items<K, V>, (Items<K, O>, Items<K, V>)> for KeyedStep<K, L>
where
    K: Key,
    V: 'static,
    O: 'static,
    L: KeyLogic<K, In = V, Out = O>,
    L::Error: Into<Cause>,
{
    fn apply(
        &mut self,
        input: &mut Items<K, V>,
        output: &mut (Items<K, O>, Items<K, V>),
        cx: &mut Context,
    ) -> Result<(), Failure> {
        self.take(input.drain(..), output, cx)?;
        cx.late(output.1.len());
        Ok(())
    }
    fn watermark(
        &mut self,
        at: i64,
        output: &mut (Items<K, O>, Items<K, V>),
        cx: &mut Context,
    ) -> Result<(), Failure> {
        self.advance(at, output, cx)
    }
    fn keeps_time(&self) -> bool {
        self.waits
    }
    fn tick(
        &mut self,
        output: &mut (Items<K, O>, Items<K, V>),
        cx: &mut Context,
    ) -> Result<(), Failure> {
        self.advance(BEFORE_ALL, output, cx)
    }
    fn stateful(&mut self) -> Option<&mut dyn Stateful> {
        Some(self)
    }
    fn drain(
        &mut self,
        output: &mut (Items<K, O>, Items<K, V>),
        cx: &mut Context,
    ) -> Result<(), Failure> {
        self.emit_once(output, cx)
    }
    fn end(
        &mut self,
        output: &mut (Items<K, O>, Items<K, V>),
        cx: &mut Context,
    ) -> Result<(), Failure> {
        self.finish(output, cx)
    }
}

impl<K, V, O, L> Step<Vec<(K, V)>, Vec<(K, O)>> for KeyedStep<K, L>
where
    K: Key,
    V: 'static,
    O: 'static,
    L: KeyLogic<K, In = V, Out = O>,
    L::Error: Into<Cause>,
{
    fn apply(
        &mut self,
        input: &mut Vec<(K, V)>,
        output: &mut Vec<(K, O)>,
        cx: &mut Context,
    ) -> Result<(), Failure> {
        let timed = |(key, value)| {
            let item = Timed {
                time: BEFORE_ALL,
                watermark: BEFORE_ALL,
                value,
            };
            (key, item)
        };
        self.take(input.drain(..).map(timed), &mut Plain(output), cx)
    }
    fn keeps_time(&self) -> bool {
        self.waits
    }
    fn tick(&mut self, output: &mut Vec<(K, O)>, cx: &mut Context) -> Result<(), Failure> {
        self.advance(BEFORE_ALL, &mut Plain(output), cx)
    }
    fn stateful(&mut self) -> Option<&mut dyn Stateful> {
        Some(self)
    }
    fn drain(&mut self, output: &mut Vec<(K, O)>, cx: &mut Context) -> Result<(), Failure> {
        self.emit_once(&mut Plain(output), cx)
    }
    fn end(&mut self, output: &mut Vec<(K, O)>, cx: &mut Context) -> Result<(), Failure> {
        self.finish(&mut Plain(output), cx)
    }
}
